"""The versions of a table, and how far they are read. Main types: `History`, `Version`, `TablePosition`.

A position is a version that is read, or a place in one: so many of its files, and so many rows of the next one.

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
        version: Everything up to this version is read; None: nothing.
        of: The version that is being read, where it is one that is not read to its end; None: none is.
        whole: True if all rows of that version are read, and not only its changes.
        file: So many of its files are read.
        row: So many rows of the next file are read.
    """

    version: int | None = None
    of: int | None = None
    whole: bool = False
    file: int = 0
    row: int = 0

    @classmethod
    def parse(cls, offset: Mapping[str, Any]) -> Self:
        """A position as it was stored."""
        return cls(
            offset.get("version"),
            offset.get("of"),
            bool(offset.get("whole", False)),
            int(offset.get("file", 0)),
            int(offset.get("row", 0)),
        )

    def offset(self) -> dict[str, Any]:
        """The position as it is stored."""
        found: dict[str, Any] = {} if self.version is None else {"version": self.version}
        if self.of is not None:
            found |= {"of": self.of, "whole": self.whole, "file": self.file, "row": self.row}
        return found


@dataclass(frozen=True, slots=True)
class VersionRows:
    """Rows that follow each other in a file.

    Attributes:
        table: The columns; of deletes those of the key.
        deleted: True if these keys are gone.
    """

    table: pa.Table
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """The rows of one version, or its changes.

    Attributes:
        number: The version of Delta, or the snapshot of Iceberg.
        whole: True if all rows of the version are meant.
        files: Its files, in an order that is always the same; each gives its rows when it is called.
        timestamp_ms: When it was made.
    """

    number: int
    whole: bool
    files: Sequence[Callable[[], Iterable[VersionRows]]]
    timestamp_ms: int | None = None

    def read(
        self, position: TablePosition, most: int
    ) -> Iterator[tuple[VersionRows, TablePosition, Callable[[int], TablePosition]]]:
        """The rows behind a position, each with the position behind them, and that behind one of their rows.

        Args:
            position: Where to go on, in this version or before it.
            most: So many rows at once.
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
            version: The changes behind this one.
            time: The changes since then.
            whole: The newest version as a whole; without all of these: the changes from now on.

        Raises:
            ConnectException: There is no such version, or the table cannot be read.
        """

    @abstractmethod
    def version(self, number: int) -> Version:
        """A version as a whole.

        Raises:
            ConnectException: It is not there any more, or cannot be read.
        """

    @abstractmethod
    def changes(self, after: int | None) -> Iterator[Version]:
        """The changes of the versions behind one; None: of all.

        Raises:
            ConnectException: They are not there any more, or cannot be read.
        """
