"""Decisions without Spark: which files are new, which are read together, and where reading resumes.

Main types: `File`, `FilesRead`; main function: `groups`. Values and pure functions; any thread. Source: Penstock's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import ConnectException

#: Files that are read by one query, at most: their rows are one chunk, which is repeated as a whole after a crash.
MOST_FILES: Final = 100
MOST_BYTES: Final = 8 << 20
#: Names in a ledger. More of them, and files that are older than these are late.
MOST_NAMES: Final = 2000
_NAME_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class File:
    """A file that was found.

    Attributes:
        path: As Spark calls it.
        modified_ms: When it was changed last.
        size: Its bytes.
    """

    path: str
    modified_ms: int
    size: int

    @property
    def mark(self) -> str:
        """The entry of the file in a ledger: short, and a different one after the file was changed."""
        content = f"{self.modified_ms} {self.size} {self.path}".encode()
        return hashlib.blake2b(content, digest_size=_NAME_BYTES).hexdigest()


def groups(files: Iterable[File]) -> Iterator[list[File]]:
    """Files that are read by one query each, in order. A large one is by itself, and may be read in pieces.

    >>> [len(group) for group in groups([File("a", 0, 10), File("b", 0, 10), File("c", 0, 9 << 20), File("d", 0, 1)])]
    [2, 1, 1]
    """
    group: list[File] = []
    size = 0
    for one in files:
        if group and (len(group) == MOST_FILES or size + one.size > MOST_BYTES):
            yield group
            group, size = [], 0
        group.append(one)
        size += one.size
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class Begun:
    """A file of which some rows are in Kafka.

    Attributes:
        path: Which.
        modified_ms: When it was changed last, as it was read.
        row: How many of its rows were delivered.
    """

    path: str
    modified_ms: int
    row: int

    def rows_of(self, file: File) -> int:
        """Returns the number of rows of a file to leave out: none of one that was changed."""
        return self.row if (file.path, file.modified_ms) == (self.path, self.modified_ms) else 0


def begun_in(offset: Mapping[str, Any]) -> Begun | None:
    """The file that an offset ends in the middle of."""
    if "file" not in offset or "row" not in offset:
        return None
    return Begun(str(offset["file"]), int(offset.get("modified", 0)), int(offset["row"]))


@dataclass(frozen=True, slots=True)
class FilesRead:
    """The files that were read: all up to a time, except late ones, and some later files by name.

    Attributes:
        through_ms: Files that changed before this time have been read, or are late.
        marks: The files read that changed at or after this time, oldest first, with their times.
    """

    through_ms: int = 0
    marks: tuple[tuple[int, str], ...] = ()

    @staticmethod
    def of(offset: Mapping[str, Any] | None) -> FilesRead:
        """The ledger in an offset.

        Raises:
            ConnectException: It has none.
        """
        if offset is None:
            return FilesRead()
        try:
            marks = json.loads(offset.get("names") or "[]")
            return FilesRead(int(offset["through"]), tuple((int(when), str(mark)) for when, mark in marks))
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectException(
                f"The offset {dict(offset)} is none of mode=files: reset the connector's offsets, or give it "
                "another name"
            ) from error

    def offset(self) -> dict[str, Any]:
        """The ledger as an offset."""
        return {
            "through": self.through_ms,
            "names": json.dumps([list(one) for one in self.marks], separators=(",", ":")),
        }

    def split(self, files: Sequence[File]) -> tuple[list[File], list[File]]:
        """The unread files, oldest first, and the files that are too late.

        >>> new, late = FilesRead(100, ((100, "x"),)).split([File("b", 200, 1), File("a", 150, 1), File("c", 50, 1)])
        >>> [one.path for one in new], [one.path for one in late]
        (['a', 'b'], ['c'])
        """
        read = {mark for _, mark in self.marks}
        new = [one for one in files if one.modified_ms >= self.through_ms and one.mark not in read]
        late = [one for one in files if one.modified_ms < self.through_ms]
        return sorted(new, key=lambda one: (one.modified_ms, one.path)), late

    def with_read(self, files: Sequence[File], late_ms: int) -> FilesRead:
        """The ledger after these files were read; drops marks that are older than the newest by more than ``late_ms``.

        >>> FilesRead(0, ((5, "x"),)).with_read([File("a", 20, 1)], 10).through_ms
        10
        """
        marks = sorted({*self.marks, *((one.modified_ms, one.mark) for one in files)})
        newest = max((when for when, _ in marks), default=self.through_ms)
        through = max(self.through_ms, newest - late_ms)
        kept = [one for one in marks if one[0] >= through]
        if len(kept) > MOST_NAMES:
            # Files of one moment stay together: the time says nothing of some of them.
            through = max(through, kept[-MOST_NAMES][0])
            kept = [one for one in kept if one[0] >= through]
        return FilesRead(through, tuple(kept))
