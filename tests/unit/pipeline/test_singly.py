"""Which batches go record by record."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.api import SinkRecord
from penstock.data import INT32_SCHEMA, Schema, SchemaBuilder, Struct, Type
from penstock.pipeline.nesting import PLAN_LEVELS
from penstock.pipeline.singly import HUGE_BYTES, MIN_SCHEMAS, ROWS_EACH, is_huge, many_schemas, not_for_plans


def schema(number: int) -> Schema:
    return SchemaBuilder.struct().name(f"t{number}").field("id", INT32_SCHEMA).build()


def batch(schemas: int, rows_each: int) -> list[SinkRecord]:
    return [
        SinkRecord("t", 0, row, None, value_schema=schema(number))
        for number in range(schemas)
        for row in range(rows_each)
    ]


LOOSE = SinkRecord("t", 0, 0, {"b": 1, "a": 2})
TEXT = SinkRecord("t", 0, 0, None, key="text")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (batch(MIN_SCHEMAS, 1), True),
        (batch(MIN_SCHEMAS - 1, 2), False),
        ([*batch(MIN_SCHEMAS - 1, 2), TEXT], True),
        (batch(MIN_SCHEMAS, ROWS_EACH + 1), False),
        ([*batch(MIN_SCHEMAS, 1), LOOSE], False),
        (batch(1, 100), False),
        ([], False),
    ],
)
def test_small_batches_of_many_schemas_do(records: Sequence[SinkRecord], expected: bool) -> None:
    assert many_schemas(records) is expected


def nested(levels: int) -> Schema:
    return INT32_SCHEMA if not levels else SchemaBuilder.array(nested(levels - 1)).build()


@pytest.mark.parametrize(("levels", "expected"), [(PLAN_LEVELS, False), (PLAN_LEVELS + 1, True)])
@pytest.mark.parametrize("side", ["key", "value"])
def test_a_batch_with_a_schema_that_is_nested_deeply_does(side: str, levels: int, expected: bool) -> None:
    deep = nested(levels)
    key, value = (deep, None) if side == "key" else (None, deep)
    assert not_for_plans([TEXT, SinkRecord("t", 0, 1, None, key_schema=key, value_schema=value)]) is expected


HUGE = "x" * (HUGE_BYTES + 1)
FIELD = SchemaBuilder.struct().field("a", Schema(Type.STRING)).build()


@pytest.mark.parametrize(
    "value", [HUGE, HUGE.encode(), {"a": [HUGE]}, Struct(FIELD).put("a", HUGE)], ids=["text", "bytes", "map", "struct"]
)
def test_a_batch_with_a_huge_value_does_and_one_with_many_small_ones_does_not(value: object) -> None:
    assert not_for_plans([TEXT, SinkRecord("t", 0, 0, value)])
    assert not not_for_plans([TEXT] * 5)
    assert is_huge(pa.table({"value": ["a", HUGE]}))
    assert not is_huge(pa.table({"value": ["x" * 1000] * 20_000, "n": range(20_000)}))
