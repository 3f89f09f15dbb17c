"""Converts messages to the records of a sink: some are results of a plan, others are read one by one.

Thread: the task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord, SinkRecord, TimestampType
from penstock.data import ConnectHeaders, Schema
from penstock.pipeline.batch.batches import Stage
from penstock.pipeline.batch.headers import headers_of_column
from penstock.pipeline.batch.row_path import Rows, merged, side_values, transformed
from penstock.pipeline.batch.transfer import Values, packed
from penstock.pipeline.plan.chain import GroupOutcome
from penstock.pipeline.plan.step import NOTHING, SIDES, ReadAtOnce, Shape, SideName

if TYPE_CHECKING:
    from penstock.pipeline.batch.batches import Failures
    from penstock.pipeline.batch.headers import HeaderReader
    from penstock.pipeline.batch.row_path import OneSide
    from penstock.pipeline.batch.segments import ColumnarSegment

_NAMES = ("topic", "partition", "offset", "timestamp")
_TIMESTAMP_TYPES = {int(kind): kind for kind in TimestampType}


def beside_of_messages(table: pa.Table, headers: Sequence[ConnectHeaders | None]) -> dict[str, Values]:
    """Returns the attributes of the records of messages, besides keys and values, by name."""
    topics, partitions, offsets, timestamps, kinds, _ = Coordinates.of(table, headers)
    found: dict[str, Sequence[Any]] = {
        "topic": topics,
        "kafka_partition": partitions,
        "kafka_offset": offsets,
        "timestamp": timestamps,
        "timestamp_type": kinds,
        "raw_headers": list(headers),
        "original_topic": topics,
        "original_kafka_partition": partitions,
        "original_kafka_offset": offsets,
        "_delivered": [None] * table.num_rows,
    }
    return {name: packed(list(values)) for name, values in found.items()}


class Coordinates(NamedTuple):
    """The attributes of messages besides keys and values, as columns of the same length."""

    topics: Sequence[str]
    partitions: Sequence[int]
    offsets: Sequence[int]
    timestamps: Sequence[int | None]
    timestamp_types: Sequence[TimestampType]
    headers: Sequence[ConnectHeaders | None]

    @classmethod
    def of(cls, table: pa.Table, headers: Sequence[ConnectHeaders | None]) -> Coordinates:
        """The coordinates of some messages."""
        topics, partitions, offsets, timestamps = (table.column(name).to_pylist() for name in _NAMES)
        kinds = [_TIMESTAMP_TYPES[kind] for kind in table.column("timestamp_type").to_pylist()]
        return cls(topics, partitions, offsets, timestamps, kinds, headers)

    def taken(self, rows: Sequence[int]) -> Coordinates:
        """The coordinates of some rows."""
        return Coordinates._make([column[row] for row in rows] for column in self)


def records_of(
    coordinates: Coordinates,
    key_schema: Schema | None,
    keys: Sequence[object],
    value_schema: Schema | None,
    values: Sequence[object],
) -> list[ConnectRecord]:
    """Makes records; there are as many keys and values as coordinates."""
    # A constructor call for each record takes twice as long.
    records: list[ConnectRecord] = []
    make = SinkRecord.__new__
    for topic, partition, offset, timestamp, kind, header, key, value in zip(*coordinates, keys, values, strict=True):
        record: SinkRecord = make(SinkRecord)
        record.topic = record.original_topic = topic
        record.kafka_partition = record.original_kafka_partition = partition
        record.kafka_offset = record.original_kafka_offset = offset
        record.key_schema = key_schema
        record.key = key
        record.value_schema = value_schema
        record.value = value
        record.timestamp = timestamp
        record.timestamp_type = kind
        record.raw_headers = header
        record._delivered = None
        records.append(record)
    return records


class MessageReader:
    """Makes records for one task; ``own`` are the sides whose converter has no columns, ``first`` the transforms of the
    first plan, for messages that are read one by one.
    """

    def __init__(
        self, sides: Mapping[SideName, OneSide], own: Set[SideName], headers: HeaderReader, first: ColumnarSegment
    ) -> None:
        self._sides = sides
        self._own = own
        self._headers = headers
        self._first = first

    def headers_of(self, table: pa.Table, failures: Failures) -> list[ConnectHeaders | None]:
        """The headers of each message."""
        topics = table.column("topic")
        return self._headers.read(lambda row: str(topics[row].as_py()), table.column("headers"), failures)

    def headers_before(
        self, outcomes: Sequence[GroupOutcome], alone: np.ndarray, table: pa.Table, failures: Failures
    ) -> list[ConnectHeaders | None]:
        """The headers of each row after the first plan."""
        changed = [outcome for outcome in outcomes if "headers" in outcome.columns]
        headers: list[ConnectHeaders | None] = [None] * table.num_rows
        if len(changed) < len(outcomes) or len(alone):
            headers = self.headers_of(table, failures)
        for outcome in changed:
            rows = range(table.num_rows) if outcome.rows is None else outcome.rows.tolist()
            for row, one in zip(rows, headers_of_column(outcome.columns["headers"]), strict=True):
                headers[row] = one
        return headers

    def records(
        self,
        outcomes: Sequence[GroupOutcome],
        alone: np.ndarray,
        table: pa.Table,
        headers: Sequence[ConnectHeaders | None],
        failures: Failures,
    ) -> Rows:
        """Records with their rows, in order and without failed and dropped ones.

        The rows ``alone`` are read, and go through the first transforms, one by one.
        """
        unread = GroupOutcome(alone, Shape(NOTHING, NOTHING, sink=True), {}, None, None, {})
        if len(alone):
            outcomes = [*outcomes, unread]
        coordinates = Coordinates.of(table, headers)
        rows: Rows = [], []
        for outcome in outcomes:
            mine, places = table, coordinates
            if outcome.rows is not None and not _is_all(outcome.rows, len(table)):
                mine, places = table.take(pa.array(outcome.rows)), coordinates.taken(outcome.rows.tolist())
            late = SIDES if outcome is unread else self._own
            found = {side: self._sides[side].read_at_once(mine.column(side)) for side in SIDES if side in late}
            made = self._made(outcome, places, mine, found, failures)
            rows = merged(rows, transformed(self._first, made, failures) if outcome is unread else made)
        return rows

    def _made(
        self,
        outcome: GroupOutcome,
        coordinates: Coordinates,
        mine: pa.Table,
        found: Mapping[SideName, ReadAtOnce],
        failures: Failures,
    ) -> Rows:
        """The records of an outcome, without failed and dropped ones; ``found`` has the sides that no plan has read."""
        count = len(coordinates.topics)
        rows: Sequence[int] = range(count) if outcome.rows is None else outcome.rows.tolist()
        schemas = {side: found[side].schema if side in found else outcome.shape.side(side).schema for side in SIDES}
        keys, values = (found[side].values if side in found else side_values(outcome, side, count) for side in SIDES)
        records = records_of(coordinates, schemas["key"], keys, schemas["value"], values)
        gone: set[int] = set()
        if outcome.dropped is not None:
            gone = {row for row, dropped in zip(rows, outcome.dropped.to_pylist(), strict=True) if dropped}
        self._read_odd((records, rows), mine, found, gone, failures)
        _change(records, outcome)
        gone |= failures.errors.keys()
        if not gone:
            return records, rows
        kept = [(record, row) for record, row in zip(records, rows, strict=True) if row not in gone]
        return [record for record, _ in kept], [row for _, row in kept]

    def _read_odd(
        self, given: Rows, mine: pa.Table, found: Mapping[SideName, ReadAtOnce], gone: Set[int], failures: Failures
    ) -> None:
        """Reads messages one by one, in their order; notes those that fail.

        Headers are converted after key and value, so the error of a value is that of the record, whose headers may have
        failed before.
        """
        odd = {side: frozenset(one.odd) for side, one in found.items() if one.odd}
        if not odd:
            return
        records, rows = given
        gone = gone | {row for row, one in failures.errors.items() if one.stage != Stage.HEADER_CONVERTER}
        places = sorted(frozenset().union(*odd.values()))
        taken = pa.array(places)
        raw = {side: mine.column(side).take(taken).to_pylist() for side in odd}
        for number, place in enumerate(places):
            row, record = rows[place], records[place]
            if row not in gone:
                assert isinstance(record, SinkRecord), "it was made for a sink"
                sides = (side for side, those in odd.items() if place in those)
                all(self._sides[side].read(record, raw[side][number], row, failures) for side in sides)


def _is_all(rows: np.ndarray, count: int) -> bool:
    """True if rows are all of this number of rows, in their order."""
    return np.array_equal(rows, np.arange(count))


def _change(records: Sequence[ConnectRecord], outcome: GroupOutcome) -> None:
    """Sets the topics, partitions and timestamps that a job has changed."""
    for name, attribute in (("topic", "topic"), ("partition", "kafka_partition"), ("timestamp", "timestamp")):
        if name in outcome.columns:
            for record, value in zip(records, outcome.columns[name].to_pylist(), strict=True):
                setattr(record, attribute, value)
