"""Commits and marks: small objects in a store by which tasks and connectors do not write each other's files.

A commit of files over many partitions has three steps; the process may die after each of them:

1. For each partition it *claims* the range that begins where the last one ended: a small object named by partition and
that offset, created only if it does not exist. It lists the names of the files, which are unique to the commit.
2. It writes the files.
3. It creates the manifest, only if it does not exist. After that the commit is valid.

The next owner of a partition checks the last claim. If it has no manifest, the owner creates an empty one, so that the
commit can never become valid, and removes its files. So if a task was frozen and replaced, the two tasks cannot both
commit a range: one of them finds a foreign claim, or its manifest already exists. Claims before the last one are
removed, so a partition has one or two.

A mark of ``Owners`` is an empty file whose path names the topic, the directory and the connector:
``_owners/ROOT/TOPIC/DIRECTORY/CONNECTOR``, next to the directory of all files; ``CONNECTOR@/CLUSTER`` next to it names
its Kafka cluster. It needs only the rights to write and to list, and no conditional writes.

Thread: the task's. Source: Penstock's own.
"""

from __future__ import annotations

import io
import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from penstock.api import TopicPartition
from penstock.errors import ConnectException, OwnershipLostException, RetriableException
from penstock.files.generations import FileNames, Generation, OpenFile, path_part
from penstock.files.publishing import Beside, FileWriter, Publisher, end_uploads
from penstock.files.store import GoneException, Store

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


log = logging.getLogger(__name__)

#: Directories next to the files. Readers of Parquet ignore names that begin like this.
MANIFESTS: Final = "_manifests"
CLAIMS: Final = "_ranges"
_WIDTH: Final = 19

#: For each partition the first offset, and the offset after the last one.
Ranges: TypeAlias = "Mapping[TopicPartition, tuple[int, int]]"


class Manifests:
    """The commits of a connector in a store.

    Args:
        store: The store, which can create a file only if it is absent.
        renamed_from: The former name of the connector: a partition without a commit of this one continues where the
            former one ended; empty: there is none.
    """

    def __init__(self, store: Store, root: str, connector: str, names: FileNames, renamed_from: str = "") -> None:
        self._former = Manifests(store, root, renamed_from, names) if renamed_from not in ("", connector) else None
        self.store = store
        self.names = names
        self._root = root
        # A name is a path below these directories, unless it leads out of them.
        own = path_part(connector) if {"", ".", ".."} & set(connector.split("/")) else connector
        self._manifests = f"{root}/{MANIFESTS}/{own}".lstrip("/")
        self._claims = f"{root}/{CLAIMS}/{own}".lstrip("/")
        #: The end of the last commit of each partition, as this task knows it.
        self._ends: dict[TopicPartition, int] = {}
        #: The time, in milliseconds, in the last id of a commit of any of the partitions that the task has had.
        self._latest = -1

    def id_of_next(self, now_ms: int) -> str:
        """An id for a commit: it sorts after all commits of the partitions, even if other clocks differ."""
        self._latest = max(now_ms, self._latest + 1)
        return f"{self._latest:013d}-{uuid.uuid4().hex[:8]}"

    def end(self, place: TopicPartition) -> int | None:
        """The offset after the last commit of a partition; undoes an unfinished commit. None: there is no commit.

        Raises:
            RetriableException: The store is unavailable.
        """
        self._ends.pop(place, None)
        for start in reversed(self._starts(place)):
            data = self._read(self._key(place, start))
            if data is None:
                continue
            claim: Any = json.loads(data)
            commit: str = claim["commit"]
            self._latest = max(self._latest, int(commit.partition("-")[0]))
            if self._counts(commit):
                self._ends[place] = claim["end"]
                return self._ends[place]
            log.info(
                "The commit %s did not finish and is undone: %s starts again after offset %d",
                commit,
                place,
                start,
            )
            for key in claim["files"]:
                self.store.delete(key)
            end_uploads(self.store, self._root, tuple(key.rpartition("/")[2] for key in claim["files"]))
            self.store.delete(self._key(place, start))
        if self._former is None or (end := self._former.end(place)) is None:
            return None
        self._latest = max(self._latest, self._former._latest)
        self._ends[place] = end
        return end

    def claim(self, name: str, ranges: Ranges, files: Iterable[str]) -> None:
        """Begins a commit; idempotent for a commit whose end is unknown.

        Args:
            ranges: For each partition the first offset, and the offset after the last one.

        Raises:
            RetriableException: The store is unavailable.
            OwnershipLostException: Another task has the partitions.
        """
        keys = list(files)
        for place, (_, end) in ranges.items():
            # Not the first offset of these rows: another task may leave out other ones in front of them.
            start = self._ends.get(place, 0)
            content = json.dumps({"end": end, "commit": name, "files": keys}).encode()
            key = self._key(place, start)
            if not self.store.create_if_absent(key, content) and self._read(key) != content:
                raise OwnershipLostException(_LOST.format(place, start))
            # Where another task has gone on from here, and has removed this claim, its next one is there.
            if any(one > start for one in self._starts(place)):
                self.store.delete(key)
                raise OwnershipLostException(_LOST.format(place, start))

    def commit(self, name: str, ranges: Ranges, files: Mapping[str, int]) -> None:
        """Makes a commit valid; idempotent for a commit whose end is unknown.

        Args:
            name: The id given to ``claim``.
            ranges: The ranges given to ``claim``.

        Raises:
            RetriableException: The store is unavailable.
            OwnershipLostException: Another task has the partitions.
        """
        manifest = {
            "commit": name,
            "ranges": [
                {"topic": place.topic, "partition": place.partition, "from": start, "to": end}
                for place, (start, end) in ranges.items()
            ],
            "files": [{"file": key, "rows": rows} for key, rows in files.items()],
        }
        content = json.dumps(manifest, indent=1).encode()
        key = f"{self._manifests}/{name}.json"
        if not self.store.create_if_absent(key, content) and self._read(key) != content:
            raise OwnershipLostException(_LOST.format(*next((place, start) for place, (start, _) in ranges.items())))
        for place, (_, end) in ranges.items():
            begun = self._ends.get(place, 0)
            for old in self._starts(place) if begun < end else ():
                if old < begun:
                    self.store.delete(self._key(place, old))
        self._ends |= {place: end for place, (_, end) in ranges.items()}

    def _counts(self, commit: str) -> bool:
        """True if the commit has its manifest; if there is none yet there never will be."""
        key = f"{self._manifests}/{commit}.json"
        if self.store.create_if_absent(key, b"{}"):
            return False
        return self._read(key) != b"{}"

    def _key(self, place: TopicPartition, start: int) -> str:
        return f"{self._claims}/{self.names.start(place)}{start:0{_WIDTH}d}"

    def _starts(self, place: TopicPartition) -> list[int]:
        """The first offsets of the claims of a partition, in order."""
        found, begin = [], self.names.start(place)
        for name in self.store.list_from(self._claims, begin):
            if not name.startswith(begin):
                break
            found.append(int(name.removeprefix(begin)))
        return found

    def _read(self, key: str) -> bytes | None:
        try:
            with self.store.open(self.store.look_at(key)) as file:
                return bytes(file.read())
        except GoneException:
            return None


@dataclass(slots=True)
class _Named:
    """A commit in progress."""

    name: str
    files: dict[OpenFile, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)


class ManifestPublisher(Publisher):
    """Writes the files of generations, and a manifest for each generation.

    Args:
        write: Writes a file; several threads call it at once.
        directory: The directory for large temporary files; None: the system's.
        clock: The time in milliseconds; ids of commits begin with it.
    """

    def __init__(
        self,
        manifests: Manifests,
        root: str,
        write: FileWriter,
        directory: str | None,
        beside: Sequence[Beside],
        clock: Callable[[], int],
    ) -> None:
        super().__init__(manifests.store, root, write, manifests.names, directory, beside)
        self._manifests = manifests
        self._clock = clock
        self._named: dict[Generation, _Named] = {}

    def publish(self, generation: Generation) -> int:
        """See ``Publisher``; the files are named, and claimed, before threads send them."""
        if generation not in self._named:
            named = _Named(self._manifests.id_of_next(self._clock()))
            counts: dict[str, int] = {}
            for file in generation.files.values():
                number = counts[file.directory] = counts.get(file.directory, -1) + 1
                twin = f"-{number}" if number else ""
                named.files[file] = f"{named.name}{twin}{self._names.extension}"
                for name in self._all_names(file, named.files[file]):
                    named.rows[f"{self._directory_of(file)}{name}"] = file.rows
            self._named[generation] = named
        named = self._named[generation]
        self._manifests.claim(named.name, generation.ranges, named.rows)
        return super().publish(generation)

    def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See ``Publisher``; commits that have not ended are undone."""
        return {place: end for place in places if (end := self._manifests.end(place)) is not None}

    def forget(self, generation: Generation) -> None:
        super().forget(generation)
        self._named.pop(generation, None)

    def _name(self, generation: Generation, file: OpenFile) -> str:
        return self._named[generation].files[file]

    def _finish(self, generation: Generation) -> None:
        named = self._named[generation]
        self._manifests.commit(named.name, generation.ranges, named.rows)


def faults_of_store(scheme: str) -> str:
    """A text that says why a store cannot have manifests; empty: it can."""
    if scheme in ("file", "s3", "s3a", "s3n"):
        return ""
    return f"a manifest needs a store that creates files only if they are absent: a directory or S3, and not {scheme}:"


_LOST: Final = (
    "Another task has committed files of {}, from offset {} on: this one was replaced while it stood still, or two "
    "connectors of one name write into one directory. It has written nothing that counts, and its files are passed "
    "over"
)
