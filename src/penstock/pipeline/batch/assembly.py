"""Joins the outcomes of a batch's jobs, row i for record i.

Main types: ``Assembly`` (collects columns by position, makes the ``ProduceBatch``), ``LazyColumns`` (columns of a
batch that are built only if a plan reads them).

Thread: one pipeline thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.batch.batches import PRODUCE_SCHEMA, ProduceBatch
from penstock.pipeline.batch.segments import Failures
from penstock.pipeline.plan.outcomes import GroupOutcome

Column: TypeAlias = pa.Array | pa.ChunkedArray
_NAMES: Final = ("topic", "partition", "timestamp", "key", "value", "headers")


class LazyColumns(Mapping[str, Column]):
    """Columns by name, each built on first access."""

    def __init__(self, makers: Mapping[str, Callable[[], Column]]) -> None:
        self._makers = makers
        self._made: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class Assembly:
    """The result of one batch while it is assembled: row i becomes record i. Invariant 3.

    Args:
        rows: The number of records in the batch.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._columns: dict[str, Column] = {}
        self._constants: dict[str, object] = {}
        self._dropped: Column | None = None

    def put(self, name: str, column: Column) -> None:
        """Sets a column for the whole batch."""
        self._columns[name] = column
        self._constants.pop(name, None)

    def put_constant(self, name: str, value: object) -> None:
        """Sets one value for the whole batch."""
        self._constants[name] = value

    def drop_all_but(self, positions: Sequence[int], failures: Failures) -> None:
        """Marks the rows that earlier segments filtered: neither live nor failed."""
        dropped = np.ones(self.rows, dtype=bool)
        dropped[np.asarray(positions, dtype=np.int64)] = False
        dropped[failures.failed(self.rows)] = False
        if dropped.any():
            self._dropped = pa.array(dropped)

    def take(self, outcomes: Sequence[GroupOutcome]) -> None:
        """Adds the outcomes of groups."""
        names = {name for outcome in outcomes for name in outcome.columns}
        dropped = any(outcome.dropped is not None for outcome in outcomes)
        if len(outcomes) == 1 and outcomes[0].rows is None:
            for name, column in outcomes[0].columns.items():
                self.put(name, column)
            if outcomes[0].dropped is not None:
                self._drop(pc.fill_null(outcomes[0].dropped, False))
            return
        order = self._order(outcomes)
        for name in names:
            parts = [outcome.columns.get(name) for outcome in outcomes]
            self.put(name, self._scattered(name, parts, outcomes, order))
        if dropped:
            parts = [outcome.dropped for outcome in outcomes]
            self._drop(pc.fill_null(self._scattered("dropped", parts, outcomes, order), False))

    def fill(self, name: str, rows: Sequence[int], column: Column) -> None:
        """Sets a column for some rows of the batch, by their numbers; other rows keep their values."""
        before = self._columns.get(name)
        if before is None:
            before = pa.nulls(self.rows, column.type)
        chunks = before.chunks if isinstance(before, pa.ChunkedArray) else [before]
        both = pa.chunked_array([*[chunk.cast(column.type) for chunk in chunks], column])
        place = np.arange(self.rows)
        place[np.asarray(rows, dtype=np.int64)] = self.rows + np.arange(len(rows))
        self.put(name, both.take(pa.array(place)))

    def _drop(self, dropped: Column) -> None:
        self._dropped = dropped if self._dropped is None else pc.or_(self._dropped, dropped)

    def _order(self, outcomes: Sequence[GroupOutcome]) -> pa.Array:
        """For each row of the batch its position in the concatenated outcomes; null if it is in none."""
        place = np.full(self.rows, -1, dtype=np.int64)
        start = 0
        for outcome in outcomes:
            rows = np.arange(self.rows) if outcome.rows is None else outcome.rows
            place[rows] = np.arange(start, start + len(rows))
            start += len(rows)
        return pa.array(place, mask=place < 0)

    def _scattered(
        self, name: str, parts: Sequence[Column | None], outcomes: Sequence[GroupOutcome], order: pa.Array
    ) -> Column:
        kind = next(part.type for part in parts if part is not None)
        chunks: list[pa.Array] = []
        before = self._columns.get(name)
        for part, outcome in zip(parts, outcomes, strict=True):
            size = self.rows if outcome.rows is None else len(outcome.rows)
            if part is None and before is not None:
                # This group did not change the column.
                part = before.take(pa.array(np.arange(self.rows) if outcome.rows is None else outcome.rows))
            if part is None and name in self._constants:
                part = pa.repeat(pa.scalar(self._constants[name], kind), size)
            if part is None:
                part = pa.nulls(size, kind)
            chunks += part.chunks if isinstance(part, pa.ChunkedArray) else [part]
        return pa.chunked_array([chunk.cast(kind) for chunk in chunks], kind).take(order)

    def column(self, name: str) -> Column:
        """The current state of a column."""
        if name in self._columns:
            return self._columns[name]
        return pa.repeat(pa.scalar(self._constants.get(name), PRODUCE_SCHEMA.field(name).type), self.rows)

    def kept(self, failures: Failures) -> np.ndarray:
        """Positions of the rows that neither failed in a transform nor were dropped."""
        kept = np.ones(self.rows, dtype=bool)
        if self._dropped is not None:
            kept = ~np.asarray(self._dropped.to_numpy(zero_copy_only=False), dtype=bool)
        if failures.errors:
            rows = np.flatnonzero(failures.failed(self.rows)).tolist()
            kept[[row for row in rows if failures.failed_before_headers(row, source=True)]] = False
        return np.flatnonzero(kept)

    def batch(self, failures: Failures) -> ProduceBatch:
        """The result. Rows of failed and dropped records hold nulls."""
        rows = self.rows
        gone = self._gone(failures)
        columns: dict[str, Column] = {"seq": pa.array(np.arange(rows))}
        for name in _NAMES:
            columns[name] = self._column(name)
            if gone is not None and name in ("key", "value", "headers"):
                columns[name] = pc.if_else(gone, pa.scalar(None, columns[name].type), columns[name])
        columns["dropped"] = pa.repeat(False, rows) if self._dropped is None else self._dropped
        table = pa.table({name: columns[name] for name in PRODUCE_SCHEMA.names}, schema=PRODUCE_SCHEMA)
        return ProduceBatch(
            table,
            failures.errors,
            self._constant_topic(columns["topic"]),
            has_headers=columns["headers"].null_count < rows,
            has_dropped=self._dropped is not None,
            has_keys=columns["key"].null_count < rows,
            has_partition=columns["partition"].null_count < rows,
            timestamp=self._constant_timestamp(columns["timestamp"]),
            origins=failures.origins,
        )

    def _gone(self, failures: Failures) -> Column | None:
        if not failures.errors:
            return self._dropped
        mask = pa.array(failures.failed(self.rows))
        return mask if self._dropped is None else pc.or_(mask, self._dropped)

    def _column(self, name: str) -> Column:
        kind = PRODUCE_SCHEMA.field(name).type
        column = self._columns.get(name)
        if column is not None:
            return column if column.type == kind else column.cast(kind)
        value = self._constants.get(name)
        return pa.nulls(self.rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), self.rows)

    def _constant_topic(self, column: Column) -> str | None:
        if "topic" in self._constants:
            topic = self._constants["topic"]
            return topic if isinstance(topic, str) else None
        if not self.rows or column.null_count:
            return None
        different = pc.unique(column)
        return different[0].as_py() if len(different) == 1 else None

    def _constant_timestamp(self, column: Column) -> int | None:
        if "timestamp" in self._constants:
            value = self._constants["timestamp"]
            return value if isinstance(value, int) else None
        if not self.rows or column.null_count:
            return None
        ends = pc.min_max(column).as_py()
        return ends["min"] if ends["min"] == ends["max"] else None
