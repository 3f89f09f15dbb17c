"""Schemas that change, and values that are made to fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.files.sink.compatibility import Compatibility, SchemaTrack, projected
from penstock.data import (
    FLOAT64_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    STRING_SCHEMA,
    Schema,
    SchemaBuilder,
)
from penstock.errors import DataException


def struct(version: int | None = None, **fields: Schema) -> Schema:
    builder = SchemaBuilder.struct().name("S")
    if version is not None:
        builder = builder.version(version)
    for name, schema in fields.items():
        builder = builder.field(name, schema)
    return builder.build()


ONE = struct(1, a=INT32_SCHEMA)
TWO = struct(2, a=INT64_SCHEMA, b=SchemaBuilder.string().default_value("d").build())
COLUMN_ONE = pa.array([{"a": 1}])
COLUMN_TWO = pa.array([{"a": 2, "b": "x"}])


@pytest.mark.parametrize(
    ("rule", "order", "versions"),
    [
        (Compatibility.NONE, [1, 2, 1, 2], [1, 2, 1, 2]),
        (Compatibility.BACKWARD, [1, 2, 1, 2], [1, 2, 2, 2]),
        (Compatibility.FULL, [2, 1, 2, 1], [2, 2, 2, 2]),
        (Compatibility.FORWARD, [2, 1, 2, 1], [2, 1, 1, 1]),
    ],
)
def test_the_schema_of_files_goes_with_the_rule(rule: Compatibility, order: list[int], versions: list[int]) -> None:
    def forward(schema: Schema) -> Schema:
        # What is projected to an older schema may not be wider than that.
        return struct(2, a=INT32_SCHEMA, b=STRING_SCHEMA) if rule is Compatibility.FORWARD else schema

    track, found = SchemaTrack(rule), []
    for version in order:
        kind = pa.struct([("a", pa.int32()), ("b", pa.string())]) if rule is Compatibility.FORWARD else None
        column = (
            COLUMN_ONE.cast(pa.struct([("a", pa.int32())])) if version == 1 else pa.array([{"a": 2, "b": "x"}], kind)
        )
        fitted, schema = track.fit(column, ONE if version == 1 else forward(TWO))
        assert schema is not None
        found.append(schema.version)
        assert fitted.type.num_fields == len(schema.fields)
    assert found == versions


def test_numbers_tell_schemas_apart_by_what_they_are() -> None:
    track = SchemaTrack(Compatibility.NONE)
    again = struct(1, a=INT32_SCHEMA)
    assert [track.number(one) for one in (ONE, TWO, again, None, ONE)] == [0, 1, 0, 2, 0]


@pytest.mark.parametrize(
    ("source", "values", "target", "kind", "expected"),
    [
        (INT32_SCHEMA, [1], FLOAT64_SCHEMA, pa.float64(), [1.0]),
        (
            OPTIONAL_INT32_SCHEMA,
            [None, 2],
            SchemaBuilder.int64().default_value(7).build(),
            pa.int64(),
            [7, 2],
        ),
        (
            SchemaBuilder.array(struct(a=INT32_SCHEMA)).build(),
            [[{"a": 1}], None, [], [{"a": 2}, {"a": 3}]],
            SchemaBuilder.array(struct(a=INT64_SCHEMA, c=OPTIONAL_INT32_SCHEMA)).build(),
            pa.list_(pa.struct([("a", pa.int64()), ("c", pa.int32())])),
            [[{"a": 1, "c": None}], None, [], [{"a": 2, "c": None}, {"a": 3, "c": None}]],
        ),
        (
            struct(inner=struct(a=INT32_SCHEMA, gone=STRING_SCHEMA)),
            [{"inner": {"a": 1, "gone": "x"}}],
            struct(inner=struct(a=FLOAT64_SCHEMA)),
            pa.struct([("inner", pa.struct([("a", pa.float64())]))]),
            [{"inner": {"a": 1.0}}],
        ),
    ],
)
def test_values_are_projected_as_java_projects_them(
    source: Schema, values: list[Any], target: Schema, kind: pa.DataType, expected: list[Any]
) -> None:
    assert projected(pa.array(values), source, target, kind).to_pylist() == expected


@pytest.mark.parametrize(
    ("source", "values", "target", "kind", "text"),
    [
        (INT64_SCHEMA, [1], INT32_SCHEMA, pa.int32(), "INT64 does not become INT32"),
        (STRING_SCHEMA, ["a"], INT32_SCHEMA, pa.int32(), "STRING does not become INT32"),
        (OPTIONAL_INT32_SCHEMA, [None], INT32_SCHEMA, pa.int32(), "null comes"),
        (struct(), [{}], struct(a=INT32_SCHEMA), pa.struct([("a", pa.int32())]), "the value.a: the field is missing"),
        (SchemaBuilder.struct().name("T").build(), [{}], struct(), pa.struct([]), "is not"),
    ],
)
def test_values_that_cannot_be_projected_are_errors(
    source: Schema, values: list[Any], target: Schema, kind: pa.DataType, text: str
) -> None:
    with pytest.raises(DataException, match=text):
        projected(pa.array(values), source, target, kind)
