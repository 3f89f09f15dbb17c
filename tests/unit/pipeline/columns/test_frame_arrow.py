"""One schema for the values of two: wider numbers, fields of both, optional where one is."""

from __future__ import annotations

import pytest

from penstock.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    SchemaBuilder,
    Timestamp,
    Type,
)
from penstock.pipeline.columns.frame_arrow import union_of


def struct(name: str | None = None, /, **fields: Schema) -> Schema:
    builder = SchemaBuilder.struct()
    if name is not None:
        builder = builder.name(name)
    for one, schema in fields.items():
        builder = builder.field(one, schema)
    return builder.build()


def both_ways(first: Schema, second: Schema) -> list[Schema | None]:
    return [union_of(first, second), union_of(second, first)]


@pytest.mark.parametrize(
    ("first", "second", "union"),
    [
        (INT32_SCHEMA, INT64_SCHEMA, INT64_SCHEMA),
        (INT8_SCHEMA, INT16_SCHEMA, INT16_SCHEMA),
        (FLOAT32_SCHEMA, FLOAT64_SCHEMA, FLOAT64_SCHEMA),
        (INT16_SCHEMA, FLOAT32_SCHEMA, FLOAT32_SCHEMA),
        (INT32_SCHEMA, FLOAT32_SCHEMA, FLOAT64_SCHEMA),
        (STRING_SCHEMA, OPTIONAL_STRING_SCHEMA, OPTIONAL_STRING_SCHEMA),
        (OPTIONAL_INT32_SCHEMA, INT64_SCHEMA, Schema(Type.INT64, optional=True)),
        (Timestamp.SCHEMA, Timestamp.builder().optional().build(), Timestamp.builder().optional().build()),
        (
            SchemaBuilder.array(INT32_SCHEMA).build(),
            SchemaBuilder.array(INT64_SCHEMA).build(),
            SchemaBuilder.array(INT64_SCHEMA).build(),
        ),
        (
            SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build(),
            SchemaBuilder.map(STRING_SCHEMA, OPTIONAL_INT32_SCHEMA).build(),
            SchemaBuilder.map(STRING_SCHEMA, OPTIONAL_INT32_SCHEMA).build(),
        ),
    ],
)
def test_what_one_column_can_hold(first: Schema, second: Schema, union: Schema) -> None:
    assert both_ways(first, second) == [union, union]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (INT64_SCHEMA, FLOAT64_SCHEMA),
        (INT32_SCHEMA, STRING_SCHEMA),
        (BYTES_SCHEMA, STRING_SCHEMA),
        (BOOLEAN_SCHEMA, INT8_SCHEMA),
        (INT32_SCHEMA, Date.SCHEMA),
        (INT64_SCHEMA, Timestamp.SCHEMA),
        (Decimal.schema(2), Decimal.schema(3)),
        (struct("a", f=INT32_SCHEMA), struct("b", f=INT32_SCHEMA)),
        (struct(f=INT32_SCHEMA), struct(f=STRING_SCHEMA)),
        (struct(f=INT32_SCHEMA), INT32_SCHEMA),
        (SchemaBuilder.array(INT32_SCHEMA).build(), SchemaBuilder.array(STRING_SCHEMA).build()),
    ],
)
def test_what_no_column_can_hold(first: Schema, second: Schema) -> None:
    assert both_ways(first, second) == [None, None]


def test_a_struct_that_was_widened_has_the_fields_of_both_at_every_depth() -> None:
    before = struct("t.V", id=INT32_SCHEMA, at=struct(x=INT32_SCHEMA), old=STRING_SCHEMA)
    after = struct("t.V", id=INT64_SCHEMA, at=struct(x=INT32_SCHEMA, y=INT32_SCHEMA), new=INT32_SCHEMA)

    union = union_of(before, after)

    assert union == struct(
        "t.V",
        id=INT64_SCHEMA,
        at=struct(x=INT32_SCHEMA, y=OPTIONAL_INT32_SCHEMA),
        old=OPTIONAL_STRING_SCHEMA,
        new=OPTIONAL_INT32_SCHEMA,
    )


def test_what_is_said_beside_the_types() -> None:
    first = SchemaBuilder.int32().version(1).default_value(5).parameter("a", "1").build()
    second = (
        SchemaBuilder.int32().version(2).default_value(6).doc("second").parameter("a", "2").parameter("b", "3").build()
    )

    union = union_of(first, second)

    assert union is not None
    assert (union.version, union.doc, union.default, union.parameters) == (1, "second", None, {"a": "1", "b": "3"})
    missing = union_of(struct(f=SchemaBuilder.int32().default_value(5).build()), struct())
    assert missing is not None
    field = missing.fields[0].schema
    assert (field.optional, field.default) == (True, None)
