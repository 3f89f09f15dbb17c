"""Converts messages to the records of a sink: some are results of a plan, others are read one by one.

Main type: ``MessageReader``. Thread: the task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord, SinkRecord, TimestampType
from penstock.data import ConnectHeaders, Schema
from penstock.pipeline.batch.batches import Stage
from penstock.pipeline.batch.row_path import side_values, transformed
from penstock.pipeline.batch.transfer import Values, packed
from penstock.pipeline.columns.header_columns import headers_of_column
from penstock.pipeline.plan.outcomes import GroupOutcome
from penstock.pipeline.plan.step import NOTHING, ReadAtOnce, Shape, SideName

if TYPE_CHECKING:
    from penstock.pipeline.batch.headers import HeaderReader
    from penstock.pipeline.batch.row_path import OneSide
    from penstock.pipeline.batch.segments import ColumnarSegment, Failures

_SIDES: tuple[SideName, SideName] = ("key", "value")
_NAMES = ("topic", "partition", "offset", "timestamp")
_TIMESTAMP_TYPES = {int(kind): kind for kind in TimestampType}


def beside_of_messages(table: pa.Table, headers: Sequence[ConnectHeaders | None]) -> dict[str, Values]:
    """Returns the attributes of the records of messages, besides keys and values, by name.

    Args:
        table: The messages.
        headers: Their headers.
    """
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
) -> list[SinkRecord]:
    """Makes records; there are as many keys and values as coordinates."""
    # A constructor call for each record takes twice as long.
    make, records = SinkRecord.__new__, []
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
    """Makes records for one task.

    Args:
        sides: Its converters.
        own: The sides whose converter has no columns.
        headers: Reads headers.
        first: The transforms of the first plan, for messages that are read one by one.
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

    def look_at_headers(self, table: pa.Table, failures: Failures) -> None:
        """Notes headers that cannot be converted, if messages become frames, whose headers are bytes."""
        self._headers.look_at(table.column("topic"), table.column("headers"), failures)

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
    ) -> dict[int, ConnectRecord]:
        """Records by row, without failed and dropped ones.

        Args:
            outcomes: The outcomes of messages that were columns.
            alone: The rows of messages that are read, and go through the first transforms, one by one.
            table: All messages.
            headers: Their headers.
            failures: The failures so far; gets more.
        """
        unread = GroupOutcome(alone, Shape(NOTHING, NOTHING, sink=True), {}, None, None, {})
        if len(alone):
            outcomes = [*outcomes, unread]
        coordinates = Coordinates.of(table, headers)
        records: dict[int, SinkRecord] = {}
        for outcome in outcomes:
            mine = table if _is_all(outcome.rows, len(table)) else table.take(pa.array(outcome.rows))
            late = _SIDES if outcome is unread else self._own
            found = {side: self._sides[side].read_at_once(mine.column(side)) for side in _SIDES if side in late}
            made = self._made(outcome, coordinates, found, failures)
            self._read_odd(made, outcome, mine, found, failures)
            for row in failures.errors:
                made.pop(row, None)
            records.update(_changed(made, outcome))
        if not self._first.alone:
            return cast("dict[int, ConnectRecord]", records)
        ones = [row for row in alone.tolist() if row in records]
        live, kept = transformed(self._first, ([records.pop(row) for row in ones], ones), failures)
        return {**records, **dict(zip(kept, live, strict=True))}

    def _made(
        self,
        outcome: GroupOutcome,
        coordinates: Coordinates,
        found: Mapping[SideName, ReadAtOnce],
        failures: Failures,
    ) -> dict[int, SinkRecord]:
        """The records of an outcome by row, without failed and dropped ones, and without messages that are read one by
        one.

        Headers are converted after key and value: if these may still fail, records whose headers failed are included.
        """
        rows = range(len(coordinates.topics)) if outcome.rows is None else outcome.rows.tolist()
        schemas = {side: found[side].schema if side in found else outcome.shape.side(side).schema for side in _SIDES}
        keys, values = (
            found[side].values if side in found else side_values(outcome, side, len(rows)) for side in _SIDES
        )
        if not _is_all(outcome.rows, len(coordinates.topics)):
            coordinates = coordinates.taken(rows)
        records = records_of(coordinates, schemas["key"], keys, schemas["value"], values)
        errors = failures.errors
        failed = {row for row, one in errors.items() if not (found and one.stage == Stage.HEADER_CONVERTER)}
        gone = None if outcome.dropped is None else outcome.dropped.to_pylist()
        if not failed and gone is None:
            return dict(zip(rows, records, strict=True))
        pairs = zip(rows, records, gone or [False] * len(rows), strict=True)
        return {row: record for row, record, dropped in pairs if not dropped and row not in failed}

    def _read_odd(
        self,
        records: dict[int, SinkRecord],
        outcome: GroupOutcome,
        mine: pa.Table,
        found: Mapping[SideName, ReadAtOnce],
        failures: Failures,
    ) -> None:
        """Reads messages one by one, in their order; notes those that fail."""
        odd = {side: frozenset(one.odd) for side, one in found.items() if one.odd}
        if not odd:
            return
        places = sorted(frozenset().union(*odd.values()))
        taken = pa.array(places)
        raw = {side: mine.column(side).take(taken).to_pylist() for side in odd}
        for number, place in enumerate(places):
            row = place if outcome.rows is None else int(outcome.rows[place])
            record = records.get(row)
            if record is not None:
                sides = (side for side, those in odd.items() if place in those)
                all(self._sides[side].read(record, raw[side][number], row, failures) for side in sides)


def _is_all(rows: np.ndarray | None, count: int) -> bool:
    """True if rows are all of this number of rows, in their order."""
    return rows is None or np.array_equal(rows, np.arange(count))


def _changed(records: dict[int, SinkRecord], outcome: GroupOutcome) -> dict[int, SinkRecord]:
    """Sets the topics, partitions and timestamps that a job has changed."""
    changed = {
        name: outcome.columns[name].to_pylist()
        for name in ("topic", "partition", "timestamp")
        if name in outcome.columns
    }
    if not changed:
        return records
    rows = range(len(next(iter(changed.values())))) if outcome.rows is None else outcome.rows.tolist()
    return {
        row: records[row].new_record(**{name: column[place] for name, column in changed.items()})
        for place, row in enumerate(rows)
        if row in records
    }
