"""Records that go one by one: they part from the others, go through a chain, and meet them again in order.

Records of messages that are read in the worker, without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pyarrow as pa

from penstock.api import ConnectRecord, Converter, SinkRecord, SourceRecord, TimestampType, Transformation
from penstock.config import ConfigDef
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import OPTIONAL_STRING_SCHEMA, STRING_SCHEMA, ConnectHeaders, Schema, SchemaAndValue
from penstock.errors import DataException
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, Failures, PipelineSpec, SinkBatch
from penstock.pipeline.batch.row_path import Coordinates, merged, parted, transformed
from penstock.pipeline.batch.segments import Classic, ColumnarSegment
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.spark.session import SparkRuntime


class Doing(Transformation):
    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: Any) -> Any:
        return record.new_record(value=self._make(record.value)) if record.value != "drop" else None


def chain(*makers: Callable[[Any], Any]) -> ColumnarSegment:
    return ColumnarSegment(
        (), tuple(Classic(Doing(one), None, False, f"my.{at}", f"{at}") for at, one in enumerate(makers))
    )


def records(*values: object) -> list[ConnectRecord]:
    return [SourceRecord(None, None, "t", value) for value in values]


def test_rows_part_and_meet_again_in_their_order() -> None:
    live = records(*range(4))

    rest, odd = parted((live, [1, 3, 5, 7]), {3, 7})

    assert (rest[1], odd[1]) == ([1, 5], [3, 7])
    assert merged(rest, odd) == (live, [1, 3, 5, 7])
    assert parted((live, [1, 3, 5, 7]), set()) == ((live, [1, 3, 5, 7]), ([], []))
    assert merged(([], []), odd) == odd


def test_a_record_goes_through_the_whole_chain_or_fails_where_it_is() -> None:
    def refuse(value: Any) -> Any:
        if value == 2:
            raise DataException("no twos")
        return value

    failures = Failures()

    live, kept = transformed(chain(lambda value: value + 1, refuse), (records(0, 1, 2), [4, 5, 6]), failures)

    assert [one.value for one in live] == [1, 3]
    assert kept == [4, 6]
    assert {row: (one.executing_class, one.message) for row, one in failures.errors.items()} == {5: ("my.1", "no twos")}


def test_a_dropped_record_sees_no_more_of_the_chain() -> None:
    seen: list[object] = []

    def note(value: Any) -> Any:
        seen.append(value)
        return value

    live, kept = transformed(chain(lambda value: value, note), (records("drop", "keep"), [0, 1]), Failures())

    assert (len(live), kept, seen) == (1, [1], ["keep"])


def test_a_chain_without_transforms_leaves_everything_as_it_is() -> None:
    rows = (records(1), [0])
    assert transformed(ColumnarSegment(()), rows, Failures()) is rows


class Marked(Converter):
    """A user's converter, which looks at headers and refuses some messages."""

    def configure(self, configs: Mapping[str, object], is_key: bool) -> None:
        """Takes no settings."""

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """Not asked here."""
        raise NotImplementedError

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        """The text with the number of its headers."""
        if data == b"refused":
            raise DataException("refused")
        return SchemaAndValue(STRING_SCHEMA, f"{topic} {data!r} {len(list(headers or ()))}")


def configured(converter: Converter, is_key: bool) -> Converter:
    converter.configure({"schemas.enable": "false"} if isinstance(converter, JsonConverter) else {}, is_key)
    return converter


def read(keys: list[bytes | None], values: list[bytes | None], *, key: Converter, value: Converter) -> SinkBatch:
    rows = len(values)
    columns: dict[str, list[Any]] = {
        "topic": [f"t{row % 2}" for row in range(rows)],
        "partition": [row % 3 for row in range(rows)],
        "offset": [100 + row for row in range(rows)],
        "timestamp": [None if row == 1 else 1_700_000_000_000 + row for row in range(rows)],
        "timestamp_type": [row % 3 - 1 for row in range(rows)],
        "key": keys,
        "value": values,
        "headers": [[{"key": "h", "value": b"1"}] if row == 2 else None for row in range(rows)],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in CONSUMED_SCHEMA]
    spec = PipelineSpec(configured(key, True), configured(value, False), SimpleHeaderConverter(), without_spark=True)
    return SinkPipeline(SparkRuntime({}), spec).run(pa.Table.from_arrays(arrays, schema=CONSUMED_SCHEMA))


def test_a_record_of_columns_is_what_the_constructor_makes() -> None:
    headers = ConnectHeaders()
    beside = Coordinates(["t"], [1], [7], [5], [TimestampType.LOG_APPEND_TIME], [headers])
    made = beside.records(STRING_SCHEMA, ["k"], None, [{"a": 1}])

    expected: SinkRecord = SinkRecord(
        "t",
        1,
        7,
        {"a": 1},
        key="k",
        key_schema=STRING_SCHEMA,
        timestamp=5,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        headers=headers,
    )
    slots = [*ConnectRecord.__slots__, *SinkRecord.__slots__]
    assert [getattr(made[0], name) for name in slots] == [getattr(expected, name) for name in slots]


def test_records_have_their_own_coordinates_and_what_their_messages_are() -> None:
    batch = read(
        [b"a", None, b"c", b"\xc3\xa4"],
        [b'{"x":1}', b"-0.0", None, b"[2]"],
        key=StringConverter(),
        value=JsonConverter(),
    )

    records = cast("list[SinkRecord]", batch.records)
    assert [(one.key, repr(one.value)) for one in records] == [
        ("a", "{'x': 1}"),
        (None, "0.0"),
        ("c", "None"),
        ("\u00e4", "[2]"),
    ]
    assert {one.key_schema for one in records} == {OPTIONAL_STRING_SCHEMA}
    assert [(one.topic, one.kafka_partition, one.kafka_offset, one.timestamp) for one in records] == [
        ("t0", 0, 100, 1_700_000_000_000),
        ("t1", 1, 101, None),
        ("t0", 2, 102, 1_700_000_000_002),
        ("t1", 0, 103, 1_700_000_000_003),
    ]
    assert [int(one.timestamp_type) for one in records] == [-1, 0, 1, -1]
    assert [[header.value for header in one.headers] for one in records] == [[], [], [1], []]


def test_a_message_that_cannot_be_read_fails_by_itself_and_a_key_before_its_value() -> None:
    batch = read(
        [b"1", b"{", b"{", b"4", None],
        [b"[1]", b"[2]", b"[", b"[", b"5"],
        key=JsonConverter(),
        value=JsonConverter(),
    )

    assert [one and (one.key, one.value) for one in batch.records or ()] == [(1, [1]), None, None, None, (None, 5)]
    assert {row: error.stage for row, error in batch.errors.items()} == {
        1: "KEY_CONVERTER",
        2: "KEY_CONVERTER",
        3: "VALUE_CONVERTER",
    }
    assert batch.count_dropped == 0


def test_a_users_converter_reads_each_message_with_its_headers_beside_one_that_reads_all_at_once() -> None:
    batch = read([b"1", b"{", b"3"], [b"a", b"b", b"refused"], key=JsonConverter(), value=Marked())
    other = read([None, b"refused", b"3"], [b"1", b"2", b"3"], key=Marked(), value=JsonConverter())

    assert [one and (one.key, one.value) for one in batch.records or ()] == [(1, "t0 b'a' 0"), None, None]
    assert {row: error.stage for row, error in batch.errors.items()} == {1: "KEY_CONVERTER", 2: "VALUE_CONVERTER"}
    assert [one and (one.key, one.value) for one in other.records or ()] == [
        ("t0 None 0", 1),
        None,
        ("t0 b'3' 1", 3),
    ]
