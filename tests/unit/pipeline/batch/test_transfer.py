"""Records as lists and columns: they cross processes, and are the same again."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.api import ConnectRecord, SinkRecord, SourceRecord, TimestampType
from penstock.data import STRING_SCHEMA, ConnectHeaders, SchemaBuilder, Struct
from penstock.pipeline.batch.groups import group_records
from penstock.pipeline.batch.transfer import (
    Same,
    ShippedRecords,
    Structs,
    beside_of,
    by_row,
    can_be_part,
    joined,
    packed,
    part_of_group,
    part_of_records,
    parts_of_outcomes,
    with_parts,
)
from penstock.pipeline.plan.chain import GroupOutcome
from penstock.pipeline.plan.step import NOTHING, Shape

SCHEMA = SchemaBuilder.struct().field("a", STRING_SCHEMA).build()


def struct(text: str) -> Struct:
    return Struct(SCHEMA).put("a", text)


def source(value: Any, **more: Any) -> SourceRecord:
    return SourceRecord({"file": "f"}, {"line": 1}, "t", value, **more)


def sent(part: ShippedRecords) -> ShippedRecords:
    found: ShippedRecords = pickle.loads(pickle.dumps(part, 5))
    return found


MIXED: list[ConnectRecord] = [
    source(1, key="k", partition=3, timestamp=7),
    source({"a": [1, 2.0, None]}, headers=ConnectHeaders().add_string("h", "x")),
    source(None, value_schema=STRING_SCHEMA),
    source(struct("y")),
]
SINK: list[ConnectRecord] = [
    SinkRecord("t", 0, row, {"n": row}, timestamp_type=TimestampType.CREATE_TIME, timestamp=row).new_record(topic="u")
    for row in range(3)
]


@pytest.mark.parametrize("records", [MIXED, SINK, [source(struct("a")), source(struct("b"))]])
def test_records_are_the_same_again(records: Sequence[ConnectRecord]) -> None:
    part = sent(part_of_records(records, range(10, 10 + len(records))))

    assert part.records() == list(records)
    assert [one.raw_headers for one in part.records()] == [one.raw_headers for one in records]
    assert part.rows.tolist() == list(range(10, 10 + len(records)))
    assert sent(part.slice(1, 3)).records() == list(records)[1:3]


def test_only_records_of_one_known_class_are_a_part() -> None:
    class Mine(SourceRecord):
        pass

    assert can_be_part(MIXED)
    assert not can_be_part([])
    assert not can_be_part([*MIXED, *SINK])
    assert not can_be_part([Mine(None, None, "t", 1)])


def test_what_is_the_same_is_said_once() -> None:
    one = struct("a")
    assert packed(["t", "t"]) == Same("t")
    assert packed([1, True]) == [1, True], "equal is not the same"
    assert packed([one, struct("b")]) == Structs(SCHEMA, [["a"], ["b"]])
    assert packed([one, None]) == [one, None]


def grouped(records: Sequence[ConnectRecord], first: int = 0) -> ShippedRecords:
    (group,) = group_records(records, None, sink=False, on_bad=lambda *_: None, mixed=False)
    return part_of_group(records, np.arange(first, first + len(records)), group)


def test_parts_laid_out_alike_are_one() -> None:
    plain, quoted = [source(struct("a")), source(struct("b"))], [source(struct('"'))]
    texts = grouped([source("x")], 3)

    one, other = joined([grouped(plain), sent(grouped(quoted, 2)), texts])

    assert one.records() == [*plain, *quoted]
    assert one.rows.tolist() == [0, 1, 2]
    assert one.shape is not None
    assert one.shape.value.physical.children[0].text < grouped(plain).shape.value.physical.children[0].text  # type: ignore[union-attr]
    assert other is texts


def test_what_a_plan_made_of_records_is_a_part_without_failed_and_dropped_ones() -> None:
    given = [source(number) for number in range(5)]
    (group,) = group_records([source(struct(text)) for text in "abcd"], None, sink=False, on_bad=lambda *_: None)
    columns = {
        "value": pa.chunked_array([group.columns["value"]]),
        "topic": pa.chunked_array([["u", "v", "w", "x"]]),
    }
    dropped = pa.chunked_array([[False, True, None, False]])
    outcome = GroupOutcome(np.array([0, 1, 3, 4]), group.shape, columns, None, dropped, {})
    gone = np.array([True, False, False, False, False])

    (part,) = parts_of_outcomes(SourceRecord, [outcome], 5, beside_of(given), gone)

    assert part.rows.tolist() == [3, 4]
    assert [(one.topic, one.value) for one in sent(part).records()] == [("w", struct("c")), ("x", struct("d"))]


def test_what_records_and_parts_have_is_asked_together() -> None:
    attribute, rows = with_parts([source(1, partition=2)], [4], [grouped([source("x"), source("y")])])

    assert rows == [4, 0, 1]
    assert (attribute("topic"), attribute("kafka_partition")) == (["t"] * 3, [2, None, None])
    assert attribute("kafka_offset") == [None] * 3


def test_what_some_rows_have_is_spread_over_the_batch() -> None:
    assert by_row({"topic": Same("t"), "timestamp": [7, 8]}, [2, 0], 3) == {
        "topic": Same("t"),
        "timestamp": [8, None, 7],
    }


def test_a_part_without_columns_has_no_keys_and_values() -> None:
    part = ShippedRecords(SourceRecord, np.arange(2), beside_of([source(1), source(2)]), Shape(NOTHING, NOTHING), {})
    assert [(one.key, one.value) for one in sent(part).records()] == [(None, None)] * 2
