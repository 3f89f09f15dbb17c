"""`RangeFiles`: files of topic ranges in a directory, with each message in exactly one file even after crashes.

A file is written below ``_penstock``, which readers ignore, under a name with its attempt. A commit writes a note for
each partition with its valid files and its position; then it moves the files to names with only the range. The next
task moves noted files that were not moved yet; files that are not noted do not count. So the note is both the manifest
of the partition's last job and the start position of the next.

Thread: the task's; files are opened on executors. Source: Penstock's own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from penstock.api import TopicPartition
from penstock.api.bulk import TopicRange
from penstock.connectors.spark.places import place_of, reachable
from penstock.errors import ConnectException

log = logging.getLogger(__name__)

#: The directory of files and notes that readers pass over: Spark, PyArrow and Hive take no names that begin with _.
HIDDEN: Final = "_penstock"
_NOT_THERE: Final = fs.FileType.NotFound


@dataclass(frozen=True)
class RangeFile:
    """A file of a range.

    Attributes:
        staged: Its name below ``_penstock``, with the attempt.
        final: Its name in the directory.
    """

    staged: str
    final: str


@dataclass(frozen=True)
class Note:
    """The last commit of a partition.

    Attributes:
        start: The first offset of its ranges.
        end: The offset after them.
        files: Their files.
        replaces: True if older files with these offsets are removed, because the partition was reset.
    """

    start: int
    end: int
    files: tuple[RangeFile, ...] = ()
    replaces: bool = False

    def to_bytes(self) -> bytes:
        """As it is stored."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Note:
        """The note of its bytes.

        Raises:
            ConnectException: They are none.
        """
        try:
            given = json.loads(data)
            return cls(**{**given, "files": tuple(RangeFile(**one) for one in given["files"])})
        except (ValueError, TypeError, KeyError) as error:
            raise ConnectException(f"A note of a sink with spark.bulk=true cannot be read: {error}") from error


class RangeFiles:
    """The files of one connector in a directory.

    Args:
        path: The directory in Spark's notation: a path, file:, s3a://, hdfs:// and so on.
        connector: The connector's name.

    Raises:
        ConfigException: PyArrow does not support the file system.
    """

    def __init__(self, path: str, connector: str) -> None:
        self._path = path
        self._connector = connector
        self._fs, self._root = place_of(path, "spark.path")
        self._own = f"{self._root}/{HIDDEN}/{connector}"

    def __reduce__(self) -> tuple[type[RangeFiles], tuple[str, str]]:
        return RangeFiles, (self._path, self._connector)

    # ------------------------------------------------------------------ executors
    @contextmanager
    def staged(self, one: TopicRange, part: int, extension: str) -> Iterator[tuple[RangeFile, Any]]:
        """Opens a file that becomes valid when it is committed.

        Args:
            one: The range, with its attempt.
            part: The number of the file among those of the range.
            extension: The end of its name.

        Raises:
            RetriableException: The file system rejects the request.
        """
        more = f"-{part}" if part else ""
        file = RangeFile(f"{one.name}{more}-{one.attempt}{extension}", f"{one.name}{more}{extension}")
        with reachable(self._path):
            self._fs.create_dir(self._own, recursive=True)
            with self._fs.open_output_stream(f"{self._own}/{file.staged}") as out:
                yield file, out

    # ------------------------------------------------------------------ the worker
    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Moves the files of noted commits, and returns the offsets at which the partitions go on."""
        found = {}
        for place in partitions:
            if (note := self._note(place)) is not None:
                self._move(place, note)
                found[place] = note.end
        return found

    def commit(self, files: Mapping[TopicPartition, Sequence[RangeFile]], ends: Mapping[TopicPartition, Note]) -> None:
        """Makes files visible.

        Args:
            files: Those of each partition.
            ends: For each partition from where to where its ranges go; their files are filled in.

        Raises:
            ConnectException: Another task has written a partition meanwhile.
            RetriableException: The file system refuses.
        """
        for place, extent in sorted(ends.items()):
            before = self._note(place)
            note = Note(extent.start, extent.end, tuple(files.get(place, ())), before is not None and before.replaces)
            if before is not None and before.end > note.start and before != note:
                raise ConnectException(
                    f"{self._path}: {place.topic}-{place.partition} was written up to offset {before.end} by another "
                    f"task, and this one has written it from {note.start}: its files do not count. Restart the task"
                )
            if before is not None:
                self._move(place, before)
            with reachable(self._path):
                self._write(self._name(place), note.to_bytes())
            self._move(place, note)
            self._sweep(place, note.end)

    def reset(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Sets partitions to other offsets; files with repeated offsets are replaced. None: as if nothing was
        written.
        """
        for place, offset in offsets.items():
            at = 0 if offset is None else offset
            if self._note(place) is not None:
                with reachable(self._path):
                    self._write(self._name(place), Note(at, at, (), replaces=True).to_bytes())

    def check(self) -> None:
        """Looks at the directory.

        Raises:
            RetriableException: The file system refuses.
        """
        with reachable(self._path):
            self._fs.get_file_info(self._root)

    # ------------------------------------------------------------------ steps
    def _name(self, place: TopicPartition) -> str:
        return f"{self._own}/{place.topic}-{place.partition}.json"

    def _note(self, place: TopicPartition) -> Note | None:
        with reachable(self._path):
            try:
                with self._fs.open_input_stream(self._name(place)) as file:
                    return Note.from_bytes(file.read())
            except FileNotFoundError:
                return None

    def _write(self, name: str, data: bytes) -> None:
        """Writes a small file as a whole."""
        self._fs.create_dir(self._own, recursive=True)
        temporary = f"{name}.new"
        with self._fs.open_output_stream(temporary) as out:
            out.write(data)
        self._fs.move(temporary, name)

    def _move(self, place: TopicPartition, note: Note) -> None:
        """Completes a noted commit."""
        with reachable(self._path):
            there = [one for one in note.files if self._is_there(f"{self._own}/{one.staged}")]
            if note.replaces and (there or not note.files):
                self._remove_between(place, note)
            for one in there:
                self._fs.move(f"{self._own}/{one.staged}", f"{self._root}/{one.final}")
            lost = [one for one in note.files if one not in there and not self._is_there(f"{self._root}/{one.final}")]
        if lost and there:
            raise ConnectException(f"{self._path}: the file {lost[0].staged} was removed before it was committed")

    def _is_there(self, name: str) -> bool:
        return bool(self._fs.get_file_info(name).type != _NOT_THERE)

    def _remove_between(self, place: TopicPartition, note: Note) -> None:
        kept = {one.final for one in note.files}
        for name, start, end in self._files_of(self._root, place):
            if name not in kept and note.start <= start and end <= note.end:
                self._fs.delete_file(f"{self._root}/{name}")

    def _sweep(self, place: TopicPartition, end: int) -> None:
        """Removes leftover files of attempts at committed offsets."""
        try:
            for name, _, last in list(self._files_of(self._own, place)):
                if last <= end:
                    self._fs.delete_file(f"{self._own}/{name}")
        except (OSError, pa.ArrowException) as error:
            log.debug("%s: files of attempts that did not count cannot be removed: %s", self._path, error)

    def _files_of(self, directory: str, place: TopicPartition) -> Iterator[tuple[str, int, int]]:
        """The files of a partition's ranges, with their offsets."""
        prefix = f"{place.topic}-{place.partition}-"
        for one in self._fs.get_file_info(fs.FileSelector(directory, allow_not_found=True)):
            name = one.base_name
            if one.is_file and name.startswith(prefix):
                start, _, rest = name[len(prefix) :].partition("-")
                end = rest[:20]
                if len(start) == len(end) == 20 and start.isdigit() and end.isdigit():
                    yield name, int(start), int(end)
