"""Texts that Arrow makes of typed columns are those of the values in them, one by one."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from penstock.data import Schema, SchemaBuilder, Struct, Timestamp, Type
from penstock.data.text import to_java_text
from penstock.pipeline.columns.java_text import java_texts, text_of
from penstock.pipeline.columns.layout import Layout, LayoutKind, default_physical
from penstock.pipeline.plan.map_structs import ValueDescription, object_member

OF_KIND: dict[Type, tuple[pa.DataType, list[Any]]] = {
    Type.STRING: (pa.string(), ["", "a", "two words", "\u00e4\U0001f600", "null", None]),
    Type.INT8: (pa.int8(), [-128, 0, 127, None]),
    Type.INT64: (pa.int64(), [-(2**63), 0, 2**63 - 1, None]),
    Type.BOOLEAN: (pa.bool_(), [True, False, None]),
    Type.FLOAT64: (
        pa.float64(),
        [0.0, -0.0, 1.0, -1.0, 758.95, 1e-3, 9.99e-4, 9999999.0, 9999999.999, 1e7, 1e22, 5e-324, 1.7e308, None],
    ),
}


@pytest.mark.parametrize("kind", OF_KIND)
def test_scalars_are_printed_as_they_are_one_by_one(kind: Type) -> None:
    arrow, values = OF_KIND[kind]

    texts = text_of(pa.array(values, arrow), Schema(kind, optional=True), Layout(LayoutKind.SCALAR))

    assert texts is not None
    assert texts.to_pylist() == [None if value is None else to_java_text(value) for value in values]


def test_doubles_of_usual_size_are_printed_as_they_are_one_by_one() -> None:
    chance = random.Random(2)
    values = [round(chance.random() * 10 ** chance.randrange(-2, 7), chance.randrange(9)) + 1e-3 for _ in range(5_000)]
    values += [float(number) for number in range(-50, 9_999_000, 99_999) if number]

    texts = text_of(pa.array(values), Schema(Type.FLOAT64), Layout(LayoutKind.SCALAR))

    assert texts is not None
    assert texts.to_pylist() == [to_java_text(value) for value in values]


def test_objects_are_printed_as_maps_in_the_order_of_java_and_nulls_by_name() -> None:
    inner = object_member(
        {"x": ValueDescription.of(Type.FLOAT64), "longer": ValueDescription.of(Type.BOOLEAN)}, optional=True
    )
    whole = object_member(
        {"source": ValueDescription.of(Type.STRING), "line": ValueDescription.of(Type.INT64), "in": inner},
        optional=True,
    )
    values: list[dict[str, Any] | None] = [
        {"source": "a", "line": 1, "in": {"x": 1.0, "longer": None}},
        None,
        {"source": None, "line": None, "in": None},
    ]
    kind = pa.struct(
        {
            "in": pa.struct({"x": pa.float64(), "longer": pa.bool_()}),
            "line": pa.int64(),
            "source": pa.string(),
        }
    )

    # A slice has its rows somewhere in the columns.
    texts = text_of(pa.array([None, *values], kind).slice(1), whole.schema, whole.physical)

    assert texts is not None
    assert texts.to_pylist() == [None if value is None else to_java_text(value) for value in values]


def test_structs_are_printed_without_the_fields_that_are_null() -> None:
    who = SchemaBuilder.struct().optional().field("n", Schema(Type.STRING, optional=True)).build()
    schema = (
        SchemaBuilder.struct()
        .optional()
        .field("id", Schema(Type.INT64, optional=True))
        .field("who", who)
        .field("tags", SchemaBuilder.array(Schema(Type.STRING, optional=True)).optional().build())
        .build()
    )
    rows: list[dict[str, Any] | None] = [
        {"id": 1, "who": {"n": "x"}, "tags": ["a", None, "b"]},
        {"id": None, "who": {"n": None}, "tags": []},
        None,
        {"id": None, "who": None, "tags": None},
    ]
    kind = pa.struct({"id": pa.int64(), "who": pa.struct({"n": pa.string()}), "tags": pa.list_(pa.string())})

    texts = text_of(pa.array([rows[0], *rows], kind).slice(1), schema, default_physical(schema))

    assert texts is not None
    assert texts.to_pylist() == [None if row is None else to_java_text(struct_of(schema, row), schema) for row in rows]


def struct_of(schema: Schema, row: dict[str, Any]) -> Struct:
    made = Struct(schema)
    for field in schema.fields:
        value = row[field.name]
        made.put(field.name, struct_of(field.schema, value) if isinstance(value, dict) else value)
    return made


def test_what_has_a_text_of_its_own_kind_goes_through_a_plan() -> None:
    assert text_of(pa.array([1]), Timestamp.SCHEMA, Layout(LayoutKind.SCALAR)) is None
    assert text_of(pa.array([1.5], pa.float32()), Schema(Type.FLOAT32), Layout(LayoutKind.SCALAR)) is None
    assert text_of(pa.array([b"a"]), Schema(Type.BYTES), Layout(LayoutKind.SCALAR)) is None
    struct = SchemaBuilder.struct().field("at", Timestamp.SCHEMA).build()
    assert text_of(pa.array([{"at": 1}]), struct, default_physical(struct)) is None


def test_many_values_of_mixed_kinds_are_printed_as_they_are_one_by_one() -> None:
    values: list[Any] = [
        *(None, True, False, 0, -1, 2**70, 0.0, -0.0, 1.5, 1e7, 1e-4, "", "text", [], {}, [[]], [{}]),
        *({"a": 1}, {"a": 2}, {"a": "x"}, {"a": None}, {"a": [1, None]}, {"b": 1, "a": 2}, {"a": 1, "b": 2}),
        *({"%s": "%d"}, {"": 1}, [1, "2", 3.0, None, True], b"bytes", (1, 2)),
    ]

    assert list(java_texts(values)) == [to_java_text(value) for value in values]
    assert list(java_texts([])) == []
