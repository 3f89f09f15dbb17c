"""Messages to the records of a sink: what a plan has made of some, and what is read of others one by one.

Main type: ``MessageReader``. Thread: the task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord, SinkRecord, TimestampType
from penstock.data import ConnectHeaders
from penstock.pipeline.batch.batches import Stage
from penstock.pipeline.batch.parts import Values, packed
from penstock.pipeline.batch.rebuild import side_values
from penstock.pipeline.batch.row_road import transformed
from penstock.pipeline.columns.header_columns import headers_of_column
from penstock.pipeline.plan.outcomes import Outcome
from penstock.pipeline.plan.step import NOTHING, Shape, SideName

if TYPE_CHECKING:
    from penstock.pipeline.batch.headers import HeaderReader
    from penstock.pipeline.batch.row_road import OneSide
    from penstock.pipeline.batch.segments import Columns, Failures

_SIDES: tuple[SideName, SideName] = ("key", "value")
_TIMESTAMP_TYPES = {int(kind): kind for kind in TimestampType}


def beside_of_messages(table: pa.Table, headers: Sequence[ConnectHeaders | None]) -> dict[str, Values]:
    """What the records of messages have beside keys and values, by the attribute.

    Args:
        table: The messages.
        headers: Theirs.
    """
    names = ("topic", "partition", "offset", "timestamp", "timestamp_type")
    topics, partitions, offsets, timestamps, kinds = (table.column(name).to_pylist() for name in names)
    found: dict[str, list[Any]] = {
        "topic": topics,
        "kafka_partition": partitions,
        "kafka_offset": offsets,
        "timestamp": timestamps,
        "timestamp_type": [_TIMESTAMP_TYPES[kind] for kind in kinds],
        "raw_headers": list(headers),
        "original_topic": topics,
        "original_kafka_partition": partitions,
        "original_kafka_offset": offsets,
        "_delivered": [None] * table.num_rows,
    }
    return {name: packed(values) for name, values in found.items()}


class MessageReader:
    """Makes records for one task.

    Args:
        sides: Its converters.
        own: The sides whose converter has no columns.
        headers: Reads headers.
        first: The transforms of the first plan, for messages that are read one by one.
    """

    def __init__(
        self, sides: Mapping[SideName, OneSide], own: Set[SideName], headers: HeaderReader, first: Columns
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
        """Notes those that cannot be converted, where messages become frames, whose headers are bytes."""
        self._headers.look_at(table.column("topic"), table.column("headers"), failures)

    def headers_before(
        self, outcomes: Sequence[Outcome], alone: np.ndarray, table: pa.Table, failures: Failures
    ) -> list[ConnectHeaders | None]:
        """The headers of each row as the first plan left them."""
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
        outcomes: Sequence[Outcome],
        alone: np.ndarray,
        table: pa.Table,
        headers: Sequence[ConnectHeaders | None],
        failures: Failures,
    ) -> dict[int, ConnectRecord]:
        """Records by row, without failed and dropped ones.

        Args:
            outcomes: What came of messages that were columns.
            alone: The rows of messages that are read, and go through the first transforms, one by one.
            table: All messages.
            headers: Theirs.
            failures: Those so far; gets more.
        """
        unread = Outcome(alone, Shape(NOTHING, NOTHING, sink=True), {}, None, None, {})
        if len(alone):
            outcomes = [*outcomes, unread]
        names = ("topic", "partition", "offset", "timestamp", "timestamp_type")
        coordinates = [table.column(name).to_pylist() for name in names]
        records: dict[int, ConnectRecord] = {}
        for outcome in outcomes:
            mine = table if outcome.rows is None else table.take(pa.array(outcome.rows))
            raw = {side: mine.column(side).to_pylist() for side in _SIDES if outcome is unread or side in self._own}
            self._fill(outcome, coordinates, headers, raw, records, failures)
        ones = [row for row in alone.tolist() if row in records]
        live, kept = transformed(self._first, ([records.pop(row) for row in ones], ones), failures)
        records.update(zip(kept, live, strict=True))
        return records

    def _fill(
        self,
        outcome: Outcome,
        coordinates: Sequence[Sequence[object]],
        headers: Sequence[ConnectHeaders | None],
        raw: Mapping[SideName, Sequence[bytes | None]],
        records: dict[int, ConnectRecord],
        failures: Failures,
    ) -> None:
        topics, partitions, offsets, timestamps, kinds = coordinates
        rows = range(len(topics)) if outcome.rows is None else outcome.rows.tolist()
        keys = side_values(outcome, "key", len(rows))
        values = side_values(outcome, "value", len(rows))
        changed = {
            name: outcome.columns[name].to_pylist()
            for name in ("topic", "partition", "timestamp")
            if name in outcome.columns
        }
        dropped = None if outcome.dropped is None else outcome.dropped.to_pylist()
        key_schema, value_schema = outcome.shape.key.schema, outcome.shape.value.schema
        errors = failures.errors
        for place, row in enumerate(rows):
            before = errors.get(row)
            # Headers are converted after key and value, which may yet be read here.
            if before is not None and not (raw and before.stage == Stage.HEADER_CONVERTER):
                continue
            if dropped is not None and dropped[place]:
                continue
            record: SinkRecord = SinkRecord(
                topics[row],
                partitions[row],
                offsets[row],
                values[place],
                value_schema=value_schema,
                key=keys[place],
                key_schema=key_schema,
                timestamp=timestamps[row],
                timestamp_type=_TIMESTAMP_TYPES[kinds[row]],
                headers=headers[row],
            )
            read = all(self._sides[side].read(record, data[place], row, failures) for side, data in raw.items())
            if not read or before is not None:
                continue
            if changed:
                record = record.new_record(**{name: column[place] for name, column in changed.items()})
            records[row] = record
