"""Records and the small values around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.api import (
    ConnectorUtils,
    OffsetAndMetadata,
    RecordMetadata,
    SinkRecord,
    SourceRecord,
    TimestampType,
    TopicPartition,
)
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, ConnectHeaders


def _source() -> SourceRecord:
    return SourceRecord(
        {"file": "a"},
        {"position": 7},
        "t",
        "v",
        value_schema=STRING_SCHEMA,
        key=1,
        key_schema=INT32_SCHEMA,
        partition=2,
        timestamp=99,
        headers=ConnectHeaders().add_string("h", "x"),
    )


def _sink() -> SinkRecord:
    return SinkRecord("t", 1, 5, "v", timestamp=9, timestamp_type=TimestampType.CREATE_TIME)


def test_a_source_record_needs_little_more_than_a_value() -> None:
    record = SourceRecord(None, None, "t", "v")

    assert (record.key, record.key_schema, record.value_schema) == (None, None, None)
    assert (record.kafka_partition, record.timestamp, record.raw_headers) == (None, None, None)


PLACE = ({"file": "a"}, {"position": 7}, "t")
HEADERS = ConnectHeaders().add_string("h", "x")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((STRING_SCHEMA, "v"), {}),
        ((None, "v"), {}),
        ((STRING_SCHEMA, None), {"key": 1, "timestamp": 0}),
        ((2, STRING_SCHEMA, "v"), {}),
        ((None, STRING_SCHEMA, "v"), {"key_schema": INT32_SCHEMA, "key": 0}),
        ((INT32_SCHEMA, 1, STRING_SCHEMA, "v"), {}),
        ((None, None, None, {"a": 1}), {"partition": 0, "headers": HEADERS}),
        ((2, INT32_SCHEMA, 1, STRING_SCHEMA, "v"), {"timestamp": 99}),
        ((2, INT32_SCHEMA, 1, STRING_SCHEMA, "v", 99), {"headers": HEADERS}),
        ((2, INT32_SCHEMA, 1, STRING_SCHEMA, "v", 99, HEADERS), {}),
        ((None, None, None, None, None, None, None), {}),
    ],
)
def test_a_source_record_takes_the_order_of_each_of_javas_constructors(
    given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    order = ["partition", "key_schema", "key", "value_schema", "value", "timestamp", "headers"]
    names = {2: order[3:5], 3: [order[0], *order[3:5]], 4: order[1:5], 5: order[:5], 6: order[:6], 7: order}
    by_name: dict[str, Any] = {**named, **dict(zip(names[len(given)], given, strict=True))}
    value = by_name.pop("value")
    assert SourceRecord(*PLACE, *given, **named) == SourceRecord(*PLACE, value, **by_name)


@pytest.mark.parametrize("count", [7, 9, 10, 13])
def test_a_sink_record_takes_the_order_of_each_of_javas_constructors(count: int) -> None:
    by_name: dict[str, Any] = {
        "key_schema": INT32_SCHEMA,
        "key": 1,
        "value_schema": STRING_SCHEMA,
        "value": "v",
        "kafka_offset": 5,
        "timestamp": 9,
        "timestamp_type": TimestampType.CREATE_TIME,
        "headers": HEADERS,
        "original_topic": "o",
        "original_kafka_partition": 3,
        "original_kafka_offset": 4,
    }
    record = SinkRecord("t", 1, *list(by_name.values())[: count - 2])
    named: dict[str, Any] = dict(list(by_name.items())[: count - 2])
    assert record == SinkRecord("t", 1, named.pop("kafka_offset"), named.pop("value"), **named)
    assert SinkRecord("t", 1, None, None, None, None, 5) == SinkRecord("t", 1, 5, None)
    assert SinkRecord("t", 1, None, None, None, "v", 5, 9, None, None).timestamp_type is TimestampType(-1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        # The form with names, with its schema by position.
        (
            lambda: SourceRecord(*PLACE, "v", STRING_SCHEMA),
            r"SourceRecord\(source_partition, source_offset, topic, value_schema, value\): value_schema must be of "
            "type Schema or None, got str; so many arguments by position are in Java's order",
        ),
        (lambda: SourceRecord(*PLACE, "0", STRING_SCHEMA, "v"), "partition must be of type int or None, got str"),
        (lambda: SourceRecord(*PLACE, True, STRING_SCHEMA, "v"), "partition must be of type int or None, got bool"),
        (
            lambda: SourceRecord(*PLACE, 0, STRING_SCHEMA, "k", "v", STRING_SCHEMA),
            "value_schema must be of type Schema",
        ),
        (lambda: SourceRecord(*PLACE, 0, None, 1, None, 2, "now"), "timestamp must be of type int or None, got str"),
        (lambda: SourceRecord(*PLACE, 0, None, 1, None, 2, 3, {"h": 1}), "headers must be of type ConnectHeaders"),
        (
            lambda: SourceRecord(*PLACE, STRING_SCHEMA, "v", value_schema=STRING_SCHEMA),
            "value_schema is given by position and by name",
        ),
        (lambda: SourceRecord(*PLACE, 0, None, "v", partition=0), "partition is given by position and by name"),
        (
            lambda: SourceRecord(*PLACE, *range(8)),
            r"takes 5, 6, 7, 8, 9, 10 arguments by position in Java's order, got 11; give all but the value by name",
        ),
        (lambda: SinkRecord("t", 0, 5, "v", STRING_SCHEMA), "takes 7, 9, 10, 13 arguments by position .* got 5"),
        (lambda: SinkRecord("t", 0, 5, "v", None, "k", None), "key_schema must be of type Schema or None, got int"),
    ],
)
def test_arguments_that_fit_no_constructor_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()


@pytest.mark.parametrize("make", [_source, _sink])
def test_new_record_takes_javas_order(make: Callable[[], SourceRecord | SinkRecord]) -> None:
    changed = make().new_record("u", 3, STRING_SCHEMA, "k", INT32_SCHEMA, 4, 5, HEADERS)
    names = ("topic", "kafka_partition", "key_schema", "key", "value_schema", "value", "timestamp", "raw_headers")
    assert [getattr(changed, name) for name in names] == ["u", 3, STRING_SCHEMA, "k", INT32_SCHEMA, 4, 5, HEADERS]


def test_headers_are_made_when_they_are_asked_for_and_then_kept() -> None:
    record = SourceRecord(None, None, "t", "v")

    assert record.headers.is_empty()
    record.headers.add_string("h", "x")
    assert record.headers.size() == 1


def test_a_new_record_changes_what_is_given_and_keeps_the_rest() -> None:
    record = _source()

    changed = record.new_record(topic="other", value=None, timestamp=None)

    assert (changed.topic, changed.value, changed.timestamp) == ("other", None, None)
    assert (changed.key, changed.key_schema, changed.kafka_partition) == (1, INT32_SCHEMA, 2)
    assert changed.source_partition == {"file": "a"}
    assert changed.source_offset == {"position": 7}
    assert (record.topic, record.value, record.timestamp) == ("t", "v", 99)


def test_headers_of_a_new_record_are_a_copy() -> None:
    record = _source()

    record.new_record().headers.add_string("more", "y")

    assert record.headers.size() == 1
    assert record.new_record(headers=ConnectHeaders()).headers.is_empty()


def test_source_records_are_equal_by_all_their_parts() -> None:
    assert _source() == _source()
    assert _source().new_record() == _source()
    assert _source() != _source().new_record(key=2)
    assert SourceRecord({"f": 1}, None, "t", "v") != SourceRecord({"f": 2}, None, "t", "v")
    assert SourceRecord(None, {"o": 1}, "t", "v") != SourceRecord(None, {"o": 2}, "t", "v")


def test_no_headers_and_empty_headers_are_the_same() -> None:
    asked = SourceRecord(None, None, "t", "v")
    assert asked.headers.is_empty()

    assert asked == SourceRecord(None, None, "t", "v")


def test_a_sink_record_remembers_where_it_was_read_from() -> None:
    routed = _sink().new_record(topic="elsewhere", partition=8).new_record(value="w")

    assert (routed.topic, routed.kafka_partition, routed.kafka_offset) == ("elsewhere", 8, 5)
    assert (routed.original_topic, routed.original_kafka_partition, routed.original_kafka_offset) == ("t", 1, 5)
    assert routed.timestamp_type is TimestampType.CREATE_TIME


def test_sink_records_are_equal_by_all_their_parts() -> None:
    assert _sink() == _sink()
    assert _sink() != SinkRecord("t", 1, 6, "v", timestamp=9, timestamp_type=TimestampType.CREATE_TIME)
    assert _sink() != _sink().new_record(topic="u").new_record(topic="t").new_record(value="w")
    assert _sink() != SourceRecord(None, None, "t", "v")


def test_records_have_no_hash_and_no_room_for_other_attributes() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(_source())
    with pytest.raises(AttributeError):
        _source().extra = 1  # type: ignore[attr-defined]


def test_the_small_values_are_plain_tuples() -> None:
    assert TopicPartition("t", 3) == ("t", 3)
    assert str(TopicPartition("t", 3)) == "t-3"
    assert OffsetAndMetadata(5) == OffsetAndMetadata(5, "")
    assert RecordMetadata("t", 0, 1).timestamp is None


@pytest.mark.parametrize(
    ("count", "groups", "sizes"),
    [(5, 2, [3, 2]), (7, 3, [3, 2, 2]), (3, 3, [1, 1, 1]), (2, 4, [1, 1, 0, 0]), (0, 2, [0, 0]), (4, 1, [4])],
)
def test_partitions_are_grouped_in_order_with_the_larger_groups_first(
    count: int, groups: int, sizes: list[int]
) -> None:
    elements = list(range(count))

    result = ConnectorUtils.group_partitions(elements, groups)

    assert [len(group) for group in result] == sizes
    assert [item for group in result for item in group] == elements


def test_no_groups_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"Number of groups must be positive\."):
        ConnectorUtils.group_partitions([1], 0)
