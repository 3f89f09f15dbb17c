"""Records and the small values around them."""

from __future__ import annotations

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
