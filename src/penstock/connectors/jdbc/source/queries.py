"""Queries of the source: the rows after a position, and the bound of a read.

Main types: `RowSelection`, the selected columns and rows of one table or query; `Bound`. Functions build SQLAlchemy
statements; `pieces` splits the returned rows, with the position after each piece. Pure; any thread.

Source: io.confluent.connect.jdbc.source.TimestampIncrementingCriteria, for conditions and order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from penstock.connectors.jdbc.columns import TableColumn, utc
from penstock.connectors.jdbc.source.position import QueryMode, RowPosition
from penstock.connectors.jdbc.source.ranges import Key, KeyRange
from penstock.connectors.jdbc.tables import TableName

#: Names of the columns of a result that only the position needs.
INCREMENTING: Final = "penstock incrementing"
TIMESTAMP: Final = "penstock timestamp"
#: The table or query in a statement. Columns name it, since ORDER BY would take a bare name for a selected expression.
_ALIAS: Final = "penstock_source"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Written without the digits of a second where these are zero.
_WHOLE_SECONDS: Final = sa.DateTime().with_variant(
    sqlite.DATETIME(truncate_microseconds=True),  # type: ignore[no-untyped-call]
    "sqlite",
)


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Rows of one table or query, in the order in which they are read.

    Attributes:
        source: The table, or the text of a query.
        columns: What is selected.
        mode: How new rows are found.
        incrementing: The incrementing column, where the mode has one.
        timestamps: The timestamp columns, of which the first that is not null counts.
        zoned: True if these columns have a time zone of their own.
        zone: ``db.timezone``, for timestamps that have none.
        suffix: ``query.suffix``.
    """

    source: TableName | str
    columns: tuple[TableColumn, ...]
    mode: QueryMode
    incrementing: str | None = None
    timestamps: tuple[str, ...] = ()
    zoned: bool = False
    zone: str = "UTC"
    suffix: str = ""

    def from_clause(self) -> sa.FromClause:
        """The table or query, with an alias and with all the columns that a statement can name."""
        moment = sa.DateTime(timezone=self.zoned)
        kinds: dict[str, Any] = {one.name: None for one in self.columns}
        kinds.update({self.incrementing: None} if self.incrementing else {})
        kinds.update(dict.fromkeys(self.timestamps, moment))
        columns: list[Any] = [sa.column(name, kind) for name, kind in kinds.items()]
        if isinstance(self.source, str):
            # A colon begins a parameter in a text of SQLAlchemy.
            return sa.text(self.source.replace(":", "\\:")).columns(*columns).subquery(_ALIAS)
        return sa.table(self.source.name, *columns, schema=self.source.schema).alias(_ALIAS)

    def _plain(self, source: sa.FromClause) -> sa.ColumnElement[Any]:
        column: sa.ColumnElement[Any] = source.c[str(self.incrementing)]
        return column

    def _timestamp(self, source: sa.FromClause) -> sa.ColumnElement[Any]:
        named: list[sa.ColumnElement[Any]] = [source.c[name] for name in self.timestamps]
        return named[0] if len(named) == 1 else sa.func.coalesce(*named, type_=sa.DateTime(timezone=self.zoned))

    def _moment(self, nanoseconds: int) -> sa.ColumnElement[Any]:
        """A timestamp in the form of the columns; digits below the microsecond are cut off."""
        moment = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
        if self.zoned:
            return sa.literal(moment, sa.DateTime(timezone=True))
        return sa.literal(moment.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None), sa.DateTime())

    def _later(self, source: sa.FromClause, after: RowPosition) -> list[sa.ColumnElement[bool]]:
        """The conditions that a row is after a position. A null in a column of the position is never after it."""
        if self.mode is QueryMode.BULK:
            return []
        if self.mode is QueryMode.INCREMENTING:
            plain = self._plain(source)
            return [plain.is_not(None) if after.incrementing is None else plain > after.incrementing]
        when = self._timestamp(source)
        if self.mode is QueryMode.TIMESTAMP:
            return [when.is_not(None) if after.timestamp is None else when > self._moment(after.timestamp)]
        plain = self._plain(source)
        if after.timestamp is None:
            return [when.is_not(None), plain.is_not(None)]
        moment, bound = self._moment(after.timestamp), self._bound(after.timestamp)
        # Equality as a range: in SQLite a moment may be there with and without the digits of its second.
        has_forms = self._has_forms(after.timestamp)
        same: sa.ColumnElement[bool] = sa.and_(when >= bound, when <= moment) if has_forms else when == moment
        same = same if after.incrementing is None else sa.and_(same, plain > after.incrementing)
        # The first condition follows from the second one, and lets the database use an index.
        return [when >= bound, sa.or_(when > moment, same), plain.is_not(None)]

    def statement(self, after: RowPosition, bound: Bound, first: Bound | None = None) -> sa.Select[Any]:
        """The rows after a position, up to a bound, in order, with the columns of the position.

        Args:
            after: The position.
            bound: Rows at or after it are left out.
            first: Rows before it are left out; None for no such bound.
        """
        source = self.from_clause()
        selected: list[sa.ColumnElement[Any]] = [one.expression(source.c[one.name]) for one in self.columns]
        order: list[sa.ColumnElement[Any]] = []
        conditions = [*self._later(source, after), *self._before(source, bound)]
        conditions += [] if first is None else self._from(source, first)
        if self.mode.has_timestamp:
            when = self._timestamp(source)
            selected.append(when.label(TIMESTAMP))
            order.append(when)
        if self.mode.has_incrementing:
            plain = self._plain(source)
            selected.append(sa.cast(plain, sa.BigInteger).label(INCREMENTING))
            order.append(plain)
        statement = sa.select(*selected).select_from(source).where(*conditions).order_by(*order)
        return statement.suffix_with(sa.text(self.suffix)) if self.suffix else statement

    def count(self, first: Bound, end: Bound) -> sa.Select[Any]:
        """The number of rows between two bounds: a statement with one row and one column."""
        source = self.from_clause()
        conditions = [*self._later(source, RowPosition()), *self._from(source, first), *self._before(source, end)]
        return sa.select(sa.func.count()).select_from(source).where(*conditions)

    def _from(self, source: sa.FromClause, first: Bound) -> list[sa.ColumnElement[bool]]:
        """The conditions for a row at or after a bound. A null in a column of the position never meets them."""
        conditions: list[sa.ColumnElement[bool]] = []
        if first.timestamp is not None:
            conditions.append(self._timestamp(source) >= self._bound(first.timestamp))
        if first.incrementing is not None:
            conditions.append(self._plain(source) >= first.incrementing)
        return conditions

    def _before(self, source: sa.FromClause, bound: Bound) -> list[sa.ColumnElement[bool]]:
        """The conditions that a row is in front of a bound."""
        conditions: list[sa.ColumnElement[bool]] = []
        if self.mode.has_timestamp and bound.timestamp is not None:
            conditions.append(self._timestamp(source) < self._bound(bound.timestamp))
        if bound.incrementing is not None and self.mode is QueryMode.INCREMENTING:
            conditions.append(self._plain(source) < bound.incrementing)
        return conditions

    def _bound(self, nanoseconds: int) -> sa.ColumnElement[Any]:
        """A timestamp from which on there are rows, or none: SQLite compares texts, of which a longer one is later."""
        moment = self._moment(nanoseconds)
        return sa.type_coerce(moment, _WHOLE_SECONDS) if self._has_forms(nanoseconds) else moment

    def _has_forms(self, nanoseconds: int) -> bool:
        """True if there may be two texts of a timestamp in SQLite."""
        return nanoseconds % 1_000_000_000 == 0 and not self.zoned

    def _up_to(self, source: sa.FromClause, end: RowPosition) -> list[sa.ColumnElement[bool]]:
        """The conditions that a row is not after a position."""
        if self.mode is QueryMode.INCREMENTING:
            return [self._plain(source) <= end.incrementing]
        assert end.timestamp is not None, "a bulk read has no position"
        when, moment = self._timestamp(source), self._moment(end.timestamp)
        if self.mode is QueryMode.TIMESTAMP:
            return [when <= moment]
        return [when <= moment, sa.or_(when < self._bound(end.timestamp), self._plain(source) <= end.incrementing)]

    def last(self, after: RowPosition, bound: Bound) -> sa.Select[Any]:
        """The position of the last row after a position and before a bound: its timestamp, its number, or both."""
        source = self.from_clause()
        conditions, columns = [*self._later(source, after), *self._before(source, bound)], []
        if self.mode.has_timestamp:
            columns.append(self._timestamp(source))
        if self.mode.has_incrementing:
            columns.append(self._plain(source))
        shown = [*columns[:-1], sa.cast(columns[-1], sa.BigInteger)] if self.mode.has_incrementing else columns
        found = sa.select(*shown).select_from(source).where(*conditions)
        return found.order_by(*(one.desc() for one in columns)).limit(1)

    def of_range(self, key: Sequence[str], rows: KeyRange, after: RowPosition, end: RowPosition) -> sa.Select[Any]:
        """The rows of a range of keys between two positions, in the order of the key.

        Args:
            key: Its columns.
            rows: The range.
            after: The position in front of the snapshot.
            end: The last position that it has.
        """
        source = self.from_clause()
        columns = [source.c[name] for name in key]
        conditions = [*self._later(source, after), *self._up_to(source, end)]
        if rows.low is not None:
            conditions.append(_key(columns) > _key([sa.literal(one) for one in rows.low]))
        if rows.high is not None:
            conditions.append(_key(columns) <= _key([sa.literal(one) for one in rows.high]))
        selected = [one.expression(source.c[one.name]) for one in self.columns]
        statement = sa.select(*selected).select_from(source).where(*conditions).order_by(*columns)
        return statement.suffix_with(sa.text(self.suffix)) if self.suffix else statement

    def lowest(self, after: RowPosition, condition: str) -> sa.Select[Any]:
        """The lowest timestamp after a position, of the rows that a condition holds for.

        Args:
            after: The position.
            condition: SQL of the database.

        Returns:
            A statement with one row and one column.
        """
        source = self.from_clause()
        found = sa.select(sa.func.min(self._timestamp(source))).select_from(source)
        return found.where(*self._later(source, after), sa.text(condition))

    def highest(self, after: RowPosition, beside: str) -> sa.Select[Any]:
        """The highest number after a position, and the values of another SQL expression.

        Returns:
            A statement with one row: the number, and the columns of ``beside``.
        """
        source = self.from_clause()
        value: sa.ColumnElement[Any] = sa.cast(sa.func.max(self._plain(source)), sa.BigInteger)
        return sa.select(value, sa.text(beside)).select_from(source).where(*self._later(source, after))


def _key(columns: Sequence[sa.ColumnElement[Any]]) -> Any:
    """The key as one value that can be compared."""
    return columns[0] if len(columns) == 1 else sa.tuple_(*columns)


@dataclass(frozen=True, slots=True)
class Bound:
    """The end of a read: rows before it are read, and none at or after it.

    Attributes:
        timestamp: Nanoseconds since 1970; None: no bound.
        incrementing: The end of the numbers; None: no bound.
        because: The reason why later rows wait; None if there is none.
    """

    timestamp: int | None = None
    incrementing: int | None = None
    because: str | None = None

    def and_before(self, timestamp: int) -> Bound:
        """The same bound, and nothing at or after a time."""
        lower = timestamp if self.timestamp is None else min(self.timestamp, timestamp)
        return Bound(lower, self.incrementing, self.because)

    def seen_from(self, position: RowPosition) -> Bound:
        """The same, with the reason if all of it lies in front of a position: a clock was set back.

        >>> Bound(1_000_000_000).seen_from(RowPosition(61_000_000_000)).because.partition(", and ")[0]
        'a clock that says 1970-01-01 00:00:01 UTC'
        >>> Bound(61_000_000_000).seen_from(RowPosition(1_000_000_000)).because is None
        True
        """
        ends, at = self.timestamp, position.timestamp
        if self.because is not None or ends is None or at is None or ends > at:
            return self
        because = f"a clock that says {_shown(ends)}, and reading has come to {_shown(at)}: set it right, or wait"
        return replace(self, because=because)


@dataclass(frozen=True, slots=True)
class ResultRows:
    """Some rows of a result, in order.

    Attributes:
        table: The fields of their values.
        position: Where to go on after all of them.
        position_after: Where to go on after the row of a number.
    """

    table: pa.Table
    position: RowPosition
    position_after: Callable[[int], RowPosition]


def pieces(
    selection: RowSelection, batches: Iterable[pa.RecordBatch], after: RowPosition, most_rows: int
) -> Iterator[ResultRows]:
    """Cuts a result.

    A timestamp can be that of several rows. The position goes past it once the last of them is in the piece, since rows
    are found again by it; so a piece is held back until the next one has begun.

    Args:
        selection: What was selected.
        batches: Rows with the selected columns and those of the position.
        after: The position in front of the result.
        most_rows: The most rows of a piece.
    """
    waiting: pa.RecordBatch | None = None
    for batch in _cut(batches, most_rows):
        if waiting is not None:
            piece = _piece(selection, waiting, after, batch)
            after = piece.position
            yield piece
        waiting = batch
    if waiting is not None:
        yield _piece(selection, waiting, after, None)


def _cut(batches: Iterable[pa.RecordBatch], most_rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, most_rows):
            yield batch.slice(start, most_rows)


def _piece(
    selection: RowSelection, batch: pa.RecordBatch, before: RowPosition, following: pa.RecordBatch | None
) -> ResultRows:
    cells = [one.cells(batch.column(place)) for place, one in enumerate(selection.columns)]
    table = pa.table(cells, names=[one.name for one in selection.columns])
    ids = _integers(batch, INCREMENTING) if selection.mode.has_incrementing else None
    times = _nanoseconds(batch, selection.zone) if selection.mode.has_timestamp else None
    next_time = None
    if times is not None and following is not None:
        next_time = int(_nanoseconds(following.slice(0, 1), selection.zone)[0])

    def position_after(row: int) -> RowPosition:
        if times is None:
            return RowPosition(None, int(ids[row])) if ids is not None else before
        if ids is not None:
            return RowPosition(int(times[row]), int(ids[row]))
        here = int(times[row])
        later = int(times[row + 1]) if row + 1 < len(times) else next_time
        if later != here:
            return RowPosition(here)
        first = int(np.searchsorted(times, here, side="left"))
        return RowPosition(int(times[first - 1])) if first else before

    return ResultRows(table, position_after(batch.num_rows - 1), position_after)


@dataclass(frozen=True, slots=True)
class RangePiece:
    """Some rows of a range, in the order of the key.

    Attributes:
        table: The fields of their values.
        key_after: The key of the row of a number, in the form in which it is stored.
    """

    table: pa.Table
    key_after: Callable[[int], Key]


def range_pieces(
    selection: RowSelection, key: Sequence[str], batches: Iterable[pa.RecordBatch], most_rows: int
) -> Iterator[RangePiece]:
    """Cuts the rows of a range.

    Args:
        selection: What was selected.
        key: The columns of the key.
        batches: Rows with the selected columns.
        most_rows: The most rows of a piece.
    """
    names = [one.name for one in selection.columns]
    for batch in _cut(batches, most_rows):
        cells = [one.cells(batch.column(place)) for place, one in enumerate(selection.columns)]
        keys = [batch.column(names.index(name)) for name in key]
        yield RangePiece(pa.table(cells, names=names), partial(_key_of, keys))


def _key_of(columns: Sequence[pa.Array], row: int) -> Key:
    return tuple(_stored(column[row].as_py()) for column in columns)


def _stored(value: object) -> object:
    """A value of a key as its database reads it in a literal: a number, or text."""
    return value if isinstance(value, int | str) else str(value)


def _integers(batch: pa.RecordBatch, name: str) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = batch.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values


def _nanoseconds(batch: pa.RecordBatch, zone: str) -> np.ndarray[Any, Any]:
    micros: np.ndarray[Any, Any] = utc(batch.column(TIMESTAMP), zone).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return micros * 1000


def _shown(nanoseconds: int) -> str:
    return f"{_EPOCH + timedelta(microseconds=nanoseconds // 1000):%Y-%m-%d %H:%M:%S} UTC"


def utc_nanoseconds(value: object, zone: str) -> int | None:
    """A position that a statement gave: a timestamp as nanoseconds since 1970, a number as it is.

    Args:
        value: What the driver gave: a timestamp, a date, text of one, or a number.
        zone: The zone of timestamps that have none.
    """
    if isinstance(value, (date, str)):
        micros = utc(pa.array([value]), zone).cast(pa.int64())[0].as_py()
        return None if micros is None else micros * 1000
    return value if isinstance(value, int) else None
