"""Assembles a source's batch: joins the outcomes of its jobs, row i for record i, with the parts that no plan makes.

Keys and values may be written outside a plan, where Arrow takes a fraction of its time. Thread: a task's pipeline
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import Converter, SourceFrame
from penstock.pipeline.batch.batches import PRODUCE_SCHEMA, Column, Failures, LazyColumns, ProduceBatch
from penstock.pipeline.batch.headers import HeaderWriter
from penstock.pipeline.batch.row_path import Attributes
from penstock.pipeline.batch.source.frame_input import FrameColumns, missing_constants
from penstock.pipeline.plan.chain import GroupOutcome, ShapeGroup, unchanged
from penstock.pipeline.plan.step import SIDES, ColumnConverter, Shape, SideName

T = TypeVar("T")
_NAMES: Final = ("topic", "partition", "timestamp", "key", "value", "headers")


class Assembly:
    """The result of one batch while it is assembled: row i becomes record i. Invariant 3."""

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
            column, kind = self.column(name), PRODUCE_SCHEMA.field(name).type
            columns[name] = column if column.type == kind else column.cast(kind)
            if gone is not None and name in ("key", "value", "headers"):
                columns[name] = pc.if_else(gone, pa.scalar(None, columns[name].type), columns[name])
        columns["dropped"] = pa.repeat(False, rows) if self._dropped is None else self._dropped
        table = pa.table({name: columns[name] for name in PRODUCE_SCHEMA.names}, schema=PRODUCE_SCHEMA)
        return ProduceBatch(
            table,
            failures.errors,
            self._constant("topic", columns["topic"], str),
            has_headers=columns["headers"].null_count < rows,
            has_dropped=self._dropped is not None,
            has_keys=columns["key"].null_count < rows,
            has_partition=columns["partition"].null_count < rows,
            timestamp=self._constant("timestamp", columns["timestamp"], int),
            origins=failures.origins,
        )

    def _gone(self, failures: Failures) -> Column | None:
        if not failures.errors:
            return self._dropped
        mask = pa.array(failures.failed(self.rows))
        return mask if self._dropped is None else pc.or_(mask, self._dropped)

    def column(self, name: str) -> Column:
        """The current state of a column."""
        if name in self._columns:
            return self._columns[name]
        kind, value = PRODUCE_SCHEMA.field(name).type, self._constants.get(name)
        return pa.nulls(self.rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), self.rows)

    def _constant(self, name: str, column: Column, kind: type[T]) -> T | None:
        """The value of all rows; None if they differ or one is null."""
        value: object = self._constants.get(name)
        if name not in self._constants and self.rows and not column.null_count:
            ends = pc.min_max(column).as_py()
            value = ends["min"] if ends["min"] == ends["max"] else None
        return value if isinstance(value, kind) else None


def put_coordinates(assembly: Assembly, attributes: Attributes, columns: LazyColumns) -> None:
    """Sets topic, partition and timestamp; most batches have one topic, and neither of the others."""
    for name, attribute in (("topic", "topic"), ("partition", "kafka_partition"), ("timestamp", "timestamp")):
        values = set(attributes(attribute))
        if len(values) == 1:
            assembly.put_constant(name, next(iter(values)))
        elif values:
            assembly.put(name, columns[name])


def write_headers(assembly: Assembly, writer: HeaderWriter, failures: Failures) -> None:
    """Writes headers that are a column of the plan's output."""
    kept = assembly.kept(failures)
    topics, headers = assembly.column("topic"), assembly.column("headers")
    if len(kept) == assembly.rows:
        assembly.put("headers", writer.write_column(headers, topics, kept, failures))
        return
    pick = pa.array(kept)
    written = writer.write_column(headers.take(pick), topics.take(pick), kept, failures)
    place = np.full(assembly.rows, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    assembly.put("headers", written.take(pa.array(place, mask=place < 0)))


def write_own_headers(
    assembly: Assembly,
    writer: HeaderWriter,
    attributes: Attributes,
    positions: Sequence[int] | None,
    failures: Failures,
) -> None:
    """Writes the original headers of the records, in the rows ``positions`` (None = 0, 1, 2, ...)."""
    found = attributes("raw_headers")
    if not any(found):
        return
    topics = attributes("topic")
    seqs: Sequence[int] = range(len(found)) if positions is None else positions
    kept = assembly.kept(failures)
    if len(kept) < len(found):
        places = {seq: place for place, seq in enumerate(seqs)}
        seqs = kept.tolist()
        found, topics = ([values[places[seq]] for seq in seqs] for values in (found, topics))
    headers = writer.write(found, topics, seqs, assembly.rows, failures)
    if headers is not None:
        assembly.put("headers", headers)


def written_columns(
    converters: Mapping[SideName, Converter], shape: Shape, columns: Mapping[str, Column]
) -> dict[SideName, Column]:
    """The bytes of those sides that can be written outside a plan."""
    found: dict[SideName, Column] = {}
    for side, converter in converters.items():
        if isinstance(converter, ColumnConverter) and side in columns:
            made = converter.write_column(shape.side(side), columns[side])
            if made is not None:
                found[side] = made
    return found


def parted_by_writing(
    converters: Mapping[SideName, Converter], groups: Sequence[ShapeGroup]
) -> tuple[list[GroupOutcome], list[ShapeGroup]]:
    """The outcomes of groups, with no step left but the converters, all of whose sides were written; and the other
    groups.
    """
    written: list[GroupOutcome] = []
    left: list[ShapeGroup] = []
    for one in groups:
        made = written_columns(converters, one.shape, one.columns)
        if made and made.keys() == one.columns.keys():
            written.append(unchanged(replace(one, columns={str(side): column for side, column in made.items()}), {}))
        else:
            left.append(one)
    return written, left


def messages_of(written: GroupOutcome) -> pa.Table:
    """The keys and values of a group; null where there are none."""
    rows = len(next(iter(written.columns.values())))
    return pa.table({side: written.columns.get(side, pa.nulls(rows, pa.binary())) for side in SIDES})


def frame_batch(
    frame: SourceFrame,
    columns: FrameColumns,
    outcome: GroupOutcome,
    rows: int,
    headers: HeaderWriter,
    failures: Failures,
    write: Callable[[Assembly, Failures], None] = lambda *_: None,
) -> ProduceBatch:
    """Returns the batch of a frame whose bytes a plan has made; ``write`` adds the columns that no plan has made."""
    assembly = Assembly(rows)
    failures.found([outcome])
    for name, column in columns.others.items():
        assembly.put(name, column)
    for name, value in missing_constants(frame, columns).items():
        assembly.put_constant(name, value)
    assembly.take([outcome])
    if "headers" in outcome.columns:
        write_headers(assembly, headers, failures)
    write(assembly, failures)
    return assembly.batch(failures)
