"""Rows of one table that wait for the next commit. Main type: `Pending`, on the task's thread."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.api import SinkFrame, TopicPartition
from penstock.api.arrow import one_array
from penstock.connectors.tables.lake import GONE, LakeTable
from penstock.connectors.tables.sink.changes import TableRows, last_of_each_key
from penstock.connectors.tables.sink.rounds import CommitUnit
from penstock.connectors.tables.sink.settings import TableSettings
from penstock.connectors.tables.sizes import fits_in_path
from penstock.connectors.tables.types import Kinds, columns_for, evolved, fitted
from penstock.errors import ConnectException, DataException
from penstock.files.publishing import Moved, Spill

log = logging.getLogger(__name__)

#: The number of small blocks that are joined into one.
_MANY = 64


@dataclass(slots=True, eq=False)
class PendingRows:
    """The rows of one frame.

    Attributes:
        table: The rows, or the place on disk to which they were moved.
        rows: Their number.
        held: Their bytes in memory.
        places: The partitions from which they were read, each with the offset of its first row.
        codes: The index in ``places`` of each row; None if there is one place.
    """

    table: Any
    rows: int
    held: int
    places: dict[TopicPartition, int]
    codes: np.ndarray | None


@dataclass(slots=True, eq=False)
class HandedOverRows:
    """Rows with stored files; the task does not know yet if they are in the table.

    Attributes:
        unit: The files.
        ready: The time at which they may be committed, by the clock of ``Rounds``.
        firsts: The offset of the first row of each partition that is still this task's.
    """

    unit: CommitUnit
    ready: float
    firsts: dict[TopicPartition, int]


class Pending:
    """The waiting rows of a table, and its known state.

    Args:
        name: The name of the table.
        settings: The settings of the table.
        kinds: The types of its format.
        table: The table; None if it does not exist yet.
        evolves: True to add and widen columns.
        forces_optional: True if columns of a new table may be null.
        directory: The directory for rows that exceed the memory.
    """

    def __init__(
        self,
        name: str,
        settings: TableSettings,
        kinds: Kinds,
        table: LakeTable | None,
        *,
        evolves: bool,
        forces_optional: bool,
        directory: str | None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.table = table
        self.columns: pa.Schema | None = None if table is None else table.columns
        self.keys: tuple[str, ...] = settings.keys
        self._kinds = kinds
        self._evolves = evolves
        self._forces_optional = forces_optional
        self._directory = directory
        self._blocks: list[PendingRows] = []
        self._spill: Spill | None = None
        #: The position of each partition in the table, as this task left or found it.
        self._known: dict[TopicPartition, int | None] = {}
        self._left_out: set[str] = set()
        #: True if values of partitions are too long for the directories that the library makes of them.
        self.is_out_of_paths = False
        #: The stored rows, in order.
        self.handed: list[HandedOverRows] = []

    @property
    def held(self) -> int:
        """The bytes in memory."""
        return sum(one.held for one in self._blocks)

    @property
    def num_rows(self) -> int:
        """The number of waiting rows."""
        return sum(one.rows for one in self._blocks)

    def position(self, place: TopicPartition) -> int | None:
        """The offset after the last record of a partition in the table; None if there is none."""
        if place not in self._known:
            self._known[place] = None if self.table is None else self.table.positions().get(place)
        return self._known[place]

    def new(self, part: SinkFrame) -> SinkFrame:
        """The rows that are not in the table yet."""
        known = {place: self.position(place) for place in part.next_offsets()}
        return part if all(one is None for one in known.values()) else part.since(known)

    def add(self, part: SinkFrame, rows: TableRows) -> None:
        """Adds rows.

        Raises:
            DataException: A value fits no column; no row was taken.
        """
        columns = self._columns_with(rows)
        if not len(columns):
            raise DataException(
                f"The table {self.name} is not there yet, and the record has no field with a value in it, so that no "
                "column can be made of it"
            )
        table = self._fitted(rows.table, columns, rows.gone)
        if rows.gone is not None:
            table = table.append_column(GONE, pa.array(rows.gone))
        if not self._fits_in_path(table):
            if rows.gone is not None:
                raise DataException(
                    f"The value of a column of partition.by ({', '.join(self._partition_columns)}) is too long for the "
                    f"name of a directory of the table {self.name}: of Delta, write.mode=append takes any length"
                )
            self.is_out_of_paths = True
        self.columns, self.keys = columns, rows.keys or self.keys
        places, codes = _places(part)
        if table.get_total_buffer_size() > 2 * table.nbytes:
            table = table.take(np.arange(table.num_rows))  # A slice would hold all of its frame in memory.
        self._blocks.append(PendingRows(table, table.num_rows, table.nbytes, places, codes))
        self._join()

    @property
    def _partition_columns(self) -> Sequence[str]:
        return self.settings.partition_by if self.table is None else self.table.partition_columns

    def _fits_in_path(self, table: pa.Table) -> bool:
        return not self._kinds.is_in_paths or fits_in_path(table, self._partition_columns)

    def first_offset(self, place: TopicPartition) -> int | None:
        """The offset of the first row of a partition that waits, or was stored; None if there is none."""
        firsts = [one.firsts for one in self.handed] + [one.places for one in self._blocks]
        return min((one[place] for one in firsts if place in one), default=None)

    def moves(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int | None, int]]:
        """The offsets that a commit of all waiting rows moves."""
        return {place: (self.position(place), reached[place]) for place in self._firsts()}

    def _firsts(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for one in self._blocks:
            for place, first in one.places.items():
                found[place] = min(first, found.get(place, first))
        return found

    def rows(self, columns: pa.Schema) -> Iterator[pa.Table]:
        """The waiting rows, in order, with the columns of the table.

        Raises:
            ConnectException: They no longer fit the table.
        """
        try:
            for one in self._blocks:
                yield self._fitted(self._read(one), columns, np.ones(one.rows, bool))
        except DataException as error:
            raise ConnectException(
                f"The table {self.name} was changed by another writer while records waited, and they do not fit it any "
                f"more: {error}. Restart the task: it reports the records that do not fit"
            ) from error

    def changes(self, columns: pa.Schema) -> pa.Table:
        """The last change of each key, with the columns of the table and ``GONE``."""
        tables = [
            fit.append_column(GONE, one.column(GONE))
            for fit, one in zip(self.rows(columns), map(self._read, self._blocks), strict=True)
        ]
        whole = pa.concat_tables([one.cast(_nullable(one.schema)) for one in tables])
        return whole.take(last_of_each_key(whole.select(self.keys)))

    def committed(self, moves: Mapping[TopicPartition, tuple[int | None, int]]) -> None:
        """Notes that all waiting rows are in the table."""
        self._known.update({place: after for place, (_, after) in moves.items()})
        self._drop()

    def hand_over(self, unit: CommitUnit, ready: float) -> None:
        """Notes that the files of all waiting rows were stored."""
        self.handed.append(HandedOverRows(unit, ready, self._firsts()))
        self.committed(unit.moves)

    def settle(self, there: Collection[str], positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Compares the rows with the state of the table.

        Args:
            there: The names of units that may still be committed.
            positions: The table's position in each partition.

        Returns:
            The partitions of which something is not in the table and will not be, each with the first offset of it.
        """
        lost: dict[TopicPartition, int] = {}
        for one in self.handed:
            if one.unit.name not in there:
                for place, first in one.firsts.items():
                    if positions.get(place, -1) < one.unit.moves[place][1]:
                        lost[place] = min(first, lost.get(place, first))
        self.handed = [one for one in self.handed if one.unit.name in there]
        return lost

    def forget(self, places: Collection[TopicPartition]) -> None:
        """Drops the rows of partitions, and their known state."""
        gone = set(places)
        kept = []
        for one in self._blocks:
            if not gone.intersection(one.places):
                kept.append(one)
                continue
            left = {place: first for place, first in one.places.items() if place not in gone}
            if not left:
                continue
            assert one.codes is not None
            names = list(one.places)
            rows = np.flatnonzero(~np.isin(one.codes, [names.index(place) for place in gone if place in names]))
            table = self._read(one).take(rows)
            renumbered = np.array([list(left).index(place) if place in left else -1 for place in names])
            kept.append(PendingRows(table, len(rows), table.nbytes, left, renumbered[one.codes[rows]]))
        self._blocks = kept
        for each in self.handed:
            each.firsts = {place: first for place, first in each.firsts.items() if place not in gone}
        self.handed = [each for each in self.handed if each.firsts]
        for place in gone:
            self._known.pop(place, None)
        if not kept:
            self._drop()

    def spill(self) -> None:
        """Moves rows from memory to disk.

        Raises:
            OSError: There is no room.
        """
        for one in self._blocks:
            if one.held:
                if self._spill is None:
                    self._spill = Spill(self._directory)
                one.table, one.held = self._spill.write(one.table), 0

    def evolved(self, there: pa.Schema, wanted: pa.Schema) -> pa.Schema:
        """The columns of the table after it is altered for waiting rows; the same columns if rows have no others."""
        # A column that no row has is optional, or the rows were refused.
        missing = [one for one in there if one.name not in wanted.names]
        return evolved(there, pa.schema([*wanted, *missing]), self._kinds, exists=True)

    def close(self) -> None:
        """Releases all rows; stored files stay."""
        self.handed = []
        self._drop()

    def _drop(self) -> None:
        self._blocks = []
        self.is_out_of_paths = False
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    def _read(self, block: PendingRows) -> pa.Table:
        if isinstance(block.table, Moved):
            assert self._spill is not None
            return self._spill.read(block.table)
        return block.table

    def _columns_with(self, rows: TableRows) -> pa.Schema:
        given = columns_for(rows.table.schema, self._kinds)
        if self.table is None and self._forces_optional:
            given = pa.schema([one if one.name in rows.keys else one.with_nullable(True) for one in given])
        if rows.gone is not None and rows.gone.all() and self.columns is not None:
            given = pa.schema([one for one in given if one.name in self.columns.names])
            return self.columns if all(one.name in rows.keys for one in given) else self._planned(self.columns, given)
        return given if self.columns is None else self._planned(self.columns, given)

    def _planned(self, there: pa.Schema, given: pa.Schema) -> pa.Schema:
        if self.table is None:
            return evolved(there, given, self._kinds, exists=False)
        if self._evolves:
            return evolved(there, given, self._kinds, exists=True)
        lacking = set(given.names) - set(there.names) - self._left_out
        if lacking:
            self._left_out |= lacking
            log.warning(
                "The table %s has no column %s: the field is left out. auto.evolve=true adds columns",
                self.name,
                ", ".join(sorted(lacking)),
            )
        return there

    def _fitted(self, table: pa.Table, columns: pa.Schema, gone: np.ndarray | None) -> pa.Table:
        cells, fields = [], []
        for one in columns:
            at = table.schema.get_field_index(one.name)
            column = (
                pa.nulls(table.num_rows, one.type)
                if at < 0
                else fitted(one_array(table.column(at)), one.type, one.name)
            )
            if not one.nullable and column.null_count:
                missing = column.is_null().to_numpy(zero_copy_only=False)
                if gone is None or (missing & ~gone).any():
                    raise DataException(
                        f'The column "{one.name}" of the table {self.name} is required, and a value is null'
                    )
                one = one.with_nullable(True)
            cells.append(column)
            fields.append(one)
        return pa.table(cells, schema=pa.schema(fields))

    def _join(self) -> None:
        """Makes one block of many small ones, whose objects would take more memory than their rows."""
        small = [one for one in self._blocks if 0 < one.held < 1 << 16]
        if len(small) < _MANY:
            return
        # Only adjacent blocks, so that the order of the rows stays.
        joined: list[PendingRows] = []
        for one in self._blocks:
            last = joined[-1] if joined else None
            if (
                last is not None
                and last.held
                and one.held
                and last.held < 1 << 20
                and last.table.schema.equals(one.table.schema)
            ):
                joined[-1] = _joined(last, one)
            else:
                joined.append(one)
        for one in joined:
            if not isinstance(one.table, Moved) and one.table.num_columns and one.table.column(0).num_chunks > 1:
                one.table = one.table.combine_chunks()
                one.held = one.table.nbytes
        self._blocks = joined


def _joined(one: PendingRows, other: PendingRows) -> PendingRows:
    places = {**other.places, **one.places}
    names = list(places)
    codes = None
    if len(names) > 1:
        parts = []
        for block in (one, other):
            at = np.array([names.index(place) for place in block.places])
            parts.append(at[block.codes] if block.codes is not None else np.full(block.rows, at[0]))
        codes = np.concatenate(parts)
    table = pa.concat_tables([one.table, other.table])
    return PendingRows(table, table.num_rows, one.held + other.held, places, codes)


def _places(part: SinkFrame) -> tuple[dict[TopicPartition, int], np.ndarray | None]:
    """The partitions of rows with their first offsets, and the number of the partition of each row."""
    origin = part.origin
    topics = one_array(origin.column("topic")).dictionary_encode()
    numbers = origin.column("partition").to_numpy().astype(np.int64)
    both = topics.indices.to_numpy().astype(np.int64) << 32 | numbers
    found, first, codes = np.unique(both, return_index=True, return_inverse=True)
    names = topics.dictionary.to_pylist()
    offsets = origin.column("offset").to_numpy()
    places = {
        TopicPartition(names[int(one) >> 32], int(one) & 0xFFFFFFFF): int(offsets[at])
        for one, at in zip(found, first, strict=True)
    }
    return places, codes.astype(np.int32) if len(places) > 1 else None


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([one.with_nullable(True) for one in schema])
