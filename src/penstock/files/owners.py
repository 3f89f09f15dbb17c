"""Marks that name the connectors that write a directory, so that two of them do not replace each other's files.

Main type: ``Owners``. A mark is an empty file whose path names the topic, the directory and the connector:
``_owners/ROOT/TOPIC/DIRECTORY/CONNECTOR``, next to the directory of all files. It needs only the rights to write and to
list, and no conditional writes.

Thread: the task's. Source: Penstock's own.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
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
    one was renamed.

    Args:
        connector: The name of this connector.
        place: The address of all files, for people.
        renamed_from: The former name of this connector, whose marks it replaces.

    Source: Penstock's own.
    """

    def __init__(self, connector: str, place: str, renamed_from: str = "") -> None:
        self.renamed_from = renamed_from
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
            try:
                others = self._marked(store, where)
            except RetriableException:
                raise
            except ConnectException as error:
                log.warning(
                    "It cannot be found out whether another connector writes records of %s below %s: %s",
                    topic,
                    f"{self._place}/{directory}",
                    error,
                )
                others = []
            if others:
                raise ConnectException(
                    f"The connector {others[0]} writes records of the topic {topic} into {self._place}/{directory}, "
                    f"and so would {self._connector}: two connectors replace each other's files, or double their "
                    f"records. Give one of them another topics.dir or url. If {others[0]} is gone or was renamed, set "
                    f"renamed.from={others[0]}, and {self._connector} takes its files over (its mark is {where})"
                )
            self._claimed.add((topic, directory))

    def _marked(self, store: Store, where: str) -> list[str]:
        """Marks a directory, unless there is the mark of another connector.

        Returns:
            The names of others that have marked it.
        """
        own = path_part(self._connector)
        former = path_part(self.renamed_from) if self.renamed_from else None
        there = list(store.list_from(where, ""))
        if own not in there and not set(there) - {former}:
            store.put(f"{where}/{own}", io.BytesIO(), 0)
            # Another connector may have done the same at the same moment: then both see each other here.
            there = list(store.list_from(where, ""))
            if set(there) - {own, former}:
                store.delete(f"{where}/{own}")
        if former in there and former != own:
            store.delete(f"{where}/{former}")
        return [unquote(one) for one in there if one not in (own, former)]
