"""Marks that name the connectors that write a directory, so that two of them do not replace each other's files.

Main type: ``Owners``. A mark is an empty file whose path names the topic, the directory and the connector:
``_owners/ROOT/TOPIC/DIRECTORY/CONNECTOR``, next to the directory of all files; ``CONNECTOR@/CLUSTER`` next to it names
its Kafka cluster. It needs only the rights to write and to list, and no conditional writes.

Thread: the task's. Source: Penstock's own.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import unquote

from penstock.errors import ConnectException, RetriableException
from penstock.files.names import path_part
from penstock.files.stores import Store

log = logging.getLogger(__name__)

#: The directory of all marks.
OWNERS: Final = "_owners"


class Owners:
    """The connectors that write files of the same topics into the same directories.

    A path without a mark belongs to the first connector that writes there. The mark stays when the connector is
    deleted: a connector of the same name continues, and one of another name is refused until it says that the other
    one was renamed. A mark without a Kafka cluster belongs to the first one whose connector of that name writes there.

    Args:
        connector: The name of this connector.
        place: The address of all files, for people.
        renamed_from: The former name of this connector, whose marks it replaces; its own name to replace the marks of
            its name in another Kafka cluster.
        cluster: The id of the Kafka cluster; None: connectors of this name are one in all clusters.

    Source: Penstock's own.
    """

    def __init__(self, connector: str, place: str, renamed_from: str = "", cluster: str | None = None) -> None:
        self.renamed_from = renamed_from
        self._cluster = cluster
        self._connector = connector
        self._place = place.rstrip("/")
        self._noted: set[tuple[str, str]] = set()
        self._claimed: set[tuple[str, str]] = set()

    def opened(self) -> None:
        """Forgets what was looked at: partitions have come, and another connector may have written meanwhile."""
        self._noted.clear()
        self._claimed.clear()

    def note(self, topic: str, directories: Iterable[str]) -> None:
        """Says that records of a topic will be in files below these directories."""
        self._noted.update((topic, one.partition("/")[0]) for one in directories)

    def claim(self, store: Store, root: str) -> None:
        """Marks the noted directories as this connector's.

        Args:
            store: The store.
            root: The directory of all files in it.

        Raises:
            RetriableException: The store is unavailable.
            ConnectException: Another connector writes records of the same topic there.
        """
        for topic, directory in sorted(self._noted - self._claimed):
            where = "/".join(filter(None, (OWNERS, root, topic, directory or "_")))
            self._claim(store, where, f"records of the topic {topic}", f"{self._place}/{directory}")
            self._claimed.add((topic, directory))

    def claim_commits(self, store: Store, root: str) -> None:
        """Marks the commits of a connector of this name below ``root`` as those of its Kafka cluster.

        Raises:
            RetriableException: The store is unavailable.
            ConnectException: A connector of this name in another cluster commits there.
        """
        where = "/".join(filter(None, (OWNERS, root, "@commits", path_part(self._connector))))
        self._claim(store, where, "the commits of this name", f"{self._place}/")

    def _claim(self, store: Store, where: str, what: str, place: str) -> None:
        try:
            name, label = self._other(store, where)
        except RetriableException:
            raise
        except ConnectException as error:
            log.warning("It cannot be found out whether another connector writes %s into %s: %s", what, place, error)
            return
        if name:
            raise ConnectException(
                f"The connector {label} writes {what} into {place}, and so would {self._connector}: two connectors "
                f"replace each other's files, or double their records. Give one of them another topics.dir or url. If "
                f"{label} is gone or was renamed, set renamed.from={name}, and {self._connector} takes its files over "
                f"(its mark is {where})"
            )

    def _other(self, store: Store, where: str) -> tuple[str, str]:
        """Marks a directory; returns the name of another connector that has marked it, and its name for people."""
        own, former = path_part(self._connector), self.renamed_from and path_part(self.renamed_from)
        others = _marked(store, where, own, lambda one: one == former)
        if others:
            return others[0], others[0]
        if self._cluster is None:
            return "", ""
        is_moved = self.renamed_from == self._connector
        clusters = _marked(store, f"{where}/{own}@", path_part(self._cluster), lambda _: is_moved)
        return (self._connector, f"{self._connector} of the Kafka cluster {clusters[0]}") if clusters else ("", "")


def _marked(store: Store, where: str, own: str, gives_way: Callable[[str], bool]) -> list[str]:
    """Adds a mark to a directory, unless it has another one that does not give way; returns such others."""

    def others() -> list[str]:
        return [one for one in there if one != own and not gives_way(one)]

    there = list(store.list_from(where, ""))
    if own not in there and not others():
        store.put(f"{where}/{own}", io.BytesIO(), 0)
        # Another connector may have done the same at the same moment: then both see each other here.
        there = list(store.list_from(where, ""))
        if others():
            store.delete(f"{where}/{own}")
    for one in there:
        if one != own and gives_way(one):
            store.delete(f"{where}/{one}")
    return [unquote(one) for one in others()]
