"""Records that a task reports, as messages again: with the task's converters, or as text where those fail."""

import logging

import pytest

from penstock.api import Converter, SinkRecord, TimestampType
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import INT32_SCHEMA, ConnectHeaders, SchemaAndValue, SchemaBuilder, Struct
from penstock.errors import DataException
from penstock.worker.errors import RecordEncoder, message_as_text

SCHEMA = SchemaBuilder.struct().field("a", INT32_SCHEMA).build()
HEADERS = ConnectHeaders().add_string("h", "v").add("n", 7, INT32_SCHEMA).add("none", None)


def record(value: object, **more: object) -> SinkRecord:
    return SinkRecord(
        "renamed",
        4,
        9,
        value,
        key="k",
        timestamp=5000,
        timestamp_type=TimestampType.CREATE_TIME,
        headers=HEADERS,
        original_topic="t",
        original_kafka_partition=3,
        **more,  # type: ignore[arg-type]
    )


def encoder(value: Converter | None = None, *, schemas: bool = False) -> RecordEncoder:
    json = JsonConverter()
    json.configure({"schemas.enable": str(schemas).lower()}, False)
    key, header = StringConverter(), SimpleHeaderConverter()
    key.configure({}, True)
    header.configure({})
    return RecordEncoder(key, value or json, header, task="sink-0")


class Refusing(Converter):
    """Takes nothing."""

    def from_connect_data(self, topic: str, *more: object) -> bytes | None:
        raise DataException(f"not for {topic}")

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        raise AssertionError("not needed")


def test_key_value_and_headers_are_converted_and_the_coordinates_are_those_it_was_read_from() -> None:
    made = encoder()(record({"a": 1, "b": [True, None]}))
    assert (made.topic, made.partition, made.offset) == ("t", 3, 9)
    assert (made.timestamp, made.timestamp_type) == (5000, 0)
    assert (made.key, made.value) == (b"k", b'{"a":1,"b":[true,null]}')
    assert made.headers == (("h", b"v"), ("n", b"7"), ("none", None))


def test_a_schema_is_written_as_the_converter_is_told_to() -> None:
    struct = Struct(SCHEMA).put("a", 1)
    assert encoder()(record(struct, value_schema=SCHEMA)).value == b'{"a":1}'
    assert encoder(schemas=True)(record(struct, value_schema=SCHEMA)).value == (
        b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"a"}],"optional":false},'
        b'"payload":{"a":1}}'
    )


def test_a_tombstone_and_a_record_without_headers_stay_such() -> None:
    made = encoder()(SinkRecord("t", 0, 1, None))
    assert (made.key, made.value, made.headers) == (None, None, ())


def test_what_a_converter_does_not_take_is_text_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    refusing = encoder(Refusing())
    with caplog.at_level(logging.WARNING):
        first = refusing(record({"a": 1, "b": [True, None]}))
        second = refusing(record(b"\x00\xff"))
    assert (first.key, first.value) == (b"k", b'{"a":1,"b":[true,null]}')
    assert second.value == b"\x00\xff"
    assert first.headers == second.headers == (("h", b"v"), ("n", b"7"), ("none", None))
    [said] = [entry.getMessage() for entry in caplog.records]
    assert said == (
        "Task sink-0: the value of the record reported at t-3, offset 9, cannot be converted to bytes; its dead letter "
        "holds it as text: org.apache.kafka.connect.errors.DataException: not for renamed"
    )


def test_a_value_that_connect_does_not_know_is_text_too() -> None:
    assert encoder(Refusing())(record(1 + 2j)).value == b"(1+2j)"
    assert message_as_text(record(Struct(SCHEMA).put("a", 1))).value == b'{"a":1}'
