"""The versions of a table, and the position of reading. Main types: `History`, `Version`, `TablePosition`.

A position is a version that was read, or a place in one: a number of its files, and a number of rows of the next one.

Thread: the task's.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import pyarrow as pa

_FIELDS: Final = ("version", "of", "file", "row")


@dataclass(frozen=True, slots=True)
class TablePosition:
    """A place in the history of a table.

    Attributes:
        version: The last version that was read completely; None for none.
        of: The version that is being read; None for none.
        whole: True to read all rows of that version, not only its changes.
        file: The number of its files that are read.
        row: The number of rows of the next file that are read.
    """

    version: int | None = None
    of: int | None = None
    whole: bool = False
    file: int = 0
    row: int = 0

    @classmethod
    def parse(cls, offset: Mapping[str, Any]) -> Self:
        """Parses a stored position."""
        return cls(
            offset.get("version"),
            offset.get("of"),
            bool(offset.get("whole", False)),
            int(offset.get("file", 0)),
            int(offset.get("row", 0)),
        )

    def offset(self) -> dict[str, Any]:
        """The stored form of the position."""
        found: dict[str, Any] = {} if self.version is None else {"version": self.version}
        if self.of is not None:
            found |= {"of": self.of, "whole": self.whole, "file": self.file, "row": self.row}
        return found


@dataclass(frozen=True, slots=True)
class VersionRows:
    """Consecutive rows of a file.

    Attributes:
        table: The columns; for deletes those of the key.
        deleted: True if these keys were deleted.
    """

    table: pa.Table
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """The rows of one version, or its changes.

    Attributes:
        number: The version of Delta, or the snapshot of Iceberg.
        whole: True for all rows of the version.
        files: Its files, in a fixed order; each is a function that returns its rows.
        timestamp_ms: The time at which it was made.
    """

    number: int
    whole: bool
    files: Sequence[Callable[[], Iterable[VersionRows]]]
    timestamp_ms: int | None = None

    def read(
        self, position: TablePosition, most: int
    ) -> Iterator[tuple[VersionRows, TablePosition, Callable[[int], TablePosition]]]:
        """Yields rows after a position, each with the position after them, and a function for that after one of their
        rows.

        Args:
            position: The start, in this version or before it.
            most: The largest number of rows at once.
        """
        if position.of != self.number or position.whole != self.whole:
            position = TablePosition(position.version, self.number, self.whole)
        for index in range(position.file, len(self.files)):
            done = position.row if index == position.file else 0
            row = 0
            for rows in self.files[index]():
                start = max(0, done - row)
                while start < rows.table.num_rows:
                    part = rows.table.slice(start, most)
                    at = row + start
                    after = _after(replace(position, file=index), at)
                    start += part.num_rows
                    yield replace(rows, table=part), after(part.num_rows - 1), after
                row += rows.table.num_rows


def _after(position: TablePosition, row: int) -> Callable[[int], TablePosition]:
    return lambda number: replace(position, row=row + number + 1)


class History(ABC):
    """The versions of one table."""

    @abstractmethod
    def begin(self, version: int | None, time: datetime.datetime | None, *, whole: bool) -> Version | TablePosition:
        """The start: the newest version as a whole, or a position.

        Args:
            version: Return the changes after this one.
            time: Return the changes since then.
            whole: Return the newest version as a whole; without any of these: the changes after now.

        Raises:
            ConnectException: There is no such version, or the table cannot be read.
        """

    @abstractmethod
    def version(self, number: int) -> Version:
        """A version as a whole.

        Raises:
            ConnectException: It no longer exists, or cannot be read.
        """

    @abstractmethod
    def changes(self, after: int | None) -> Iterator[Version]:
        """The changes of the versions after one; None for all.

        Raises:
            ConnectException: They no longer exist, or cannot be read.
        """
