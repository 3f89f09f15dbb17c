"""Avro of many values at once has the bytes that it has value by value; what is wrong with a value is told there."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples
from tests.unit.converters.registry.connect_values import (
    every_type,
    every_value,
    finished,
    primitive_schemas,
    structs,
    values_of,
)

from penstock.converters.registry.avro import blocks
from penstock.converters.registry.avro.codec import AvroCodec
from penstock.converters.registry.avro.schemas import avro_text
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.converters import AvroConverterConfig
from penstock.data import (
    INT64_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    Type,
)
from penstock.pipeline.columns.layout import default_physical
from penstock.pipeline.columns.records import to_arrow

HEAD = b"\0\0\0\0\7"


def options(**settings: str) -> AvroConverterConfig:
    return AvroConverterConfig.parse({"schema.registry.url": "http://x:1", "converter.type": "value", **settings})


def codec_of(schema: Schema, avro: str | None = None, **settings: str) -> AvroCodec:
    chosen = options(**settings)
    return AvroCodec(SchemaText("AVRO", avro or avro_text(schema, chosen)), chosen, 1)


def one_by_one(codec: AvroCodec, schema: Schema, value: object) -> bytes | None:
    """The message; None if the value has none, or is no value of the schema."""
    if value is None:
        return None
    try:
        return HEAD + codec.encode(schema, value)
    except Exception:
        return None


def check(codec: AvroCodec, schema: Schema, values: Sequence[Any] | pa.Array, plain: Sequence[Any]) -> list[int]:
    """Compares both ways; returns the places of values that are left to the other way."""
    made = codec.write_at_once(schema, HEAD, values)
    assert made is not None
    made.messages.validate(full=True)
    assert len(made.messages) == len(made.odd) == len(plain)
    messages = made.messages.to_pylist()
    for place, value in enumerate(plain):
        if not made.odd[place]:
            assert messages[place] == one_by_one(codec, schema, value), value
    return np.flatnonzero(made.odd).tolist()


# ------------------------------------------------------------------------------------------------------- any schema
def _fields(depth: int) -> st.SearchStrategy[Schema]:
    plain = finished(primitive_schemas(), described=True)
    if not depth:
        return plain
    inner = _fields(depth - 1)
    keys = st.sampled_from([STRING_SCHEMA, OPTIONAL_STRING_SCHEMA, INT64_SCHEMA, Date.SCHEMA])
    return st.one_of(
        plain,
        plain,
        finished(inner.map(SchemaBuilder.array), described=False),
        finished(st.tuples(keys, inner).map(lambda pair: SchemaBuilder.map(*pair)), described=False),
        finished(_records(depth - 1), described=False).filter(lambda one: bool(one.fields)),
    )


def _records(depth: int) -> st.SearchStrategy[SchemaBuilder]:
    numbers = iter(range(10**9))
    return structs(_fields(depth), lambda: f"app.R{next(numbers)}")


ROOTS = finished(_records(2), described=False).filter(lambda schema: bool(schema.fields))
ODD = st.sampled_from(
    [
        None,
        True,
        1,
        1 << 40,
        1 << 70,
        1.5,
        1e300,
        float("nan"),
        "text",
        "half \ud800",
        b"bytes",
        bytearray(b"bytes"),
        [],
        (),
        [None],
        ["x", 1],
        {},
        {"k": None},
        {None: 1},
        {1: "x"},
        dt.date(2020, 1, 2),
        dt.datetime(2020, 1, 2, 3, 4, 5, 678_901),  # noqa: DTZ001 - one without a time zone is refused
        dt.datetime(2020, 1, 2, tzinfo=dt.UTC),
        dt.time(1, 2, 3),
        decimal.Decimal("1.50"),
        decimal.Decimal("NaN"),
        Struct.unchecked(SchemaBuilder.struct().field("x", Schema(Type.INT32)).build(), [1]),
    ]
)


def _odd(value: Any, draw: st.DrawFn) -> Any:
    """A value with something else somewhere in it."""
    if isinstance(value, Struct) and len(value.values) and draw(st.booleans()):
        values = list(value.values)
        place = draw(st.integers(0, len(values) - 1))
        values[place] = _odd(values[place], draw)
        return Struct.unchecked(value.schema, values)
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _odd(value[place], draw), *value[place + 1 :]]
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(list(value)))
        return {**value, key: _odd(value[key], draw)}
    return draw(ODD)


SETTINGS = st.sampled_from([{}, {"ignore.default.for.nullables": "true"}, {"scrub.invalid.names": "true"}])


@examples(40)
@given(st.data())
def test_any_values_have_the_bytes_of_one_by_one(data: st.DataObject) -> None:
    schema = data.draw(ROOTS)
    codec = codec_of(schema, **data.draw(SETTINGS))
    values = data.draw(st.lists(values_of(schema), min_size=1, max_size=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "PART_BYTES", data.draw(st.sampled_from([1, 200, 1 << 20])))
        left = check(codec, schema, values, values)
    assert all(one_by_one(codec, schema, values[place]) is None for place in left)


@examples(50)
@given(st.data())
def test_values_of_other_kinds_are_left_and_their_neighbours_written(data: st.DataObject) -> None:
    schema = data.draw(ROOTS)
    codec = codec_of(schema)
    good = data.draw(st.lists(values_of(schema), min_size=1, max_size=4))
    odd = data.draw(st.composite(lambda draw: _odd(draw(values_of(schema)), draw))())
    place = data.draw(st.integers(0, len(good)))
    left = check(codec, schema, [*good[:place], odd, *good[place:]], [*good[:place], odd, *good[place:]])
    assert all(one == place or [*good, None][one - (one > place)] is None for one in left)


@examples(30)
@given(st.data())
def test_columns_have_the_bytes_of_their_values(data: st.DataObject) -> None:
    schema = data.draw(ROOTS)
    values = data.draw(st.lists(values_of(schema), min_size=1, max_size=6))
    column, errors, physical = to_arrow(values, schema)
    if errors or physical != default_physical(schema):
        return
    cut = data.draw(st.integers(0, len(values) - 1))
    made = codec_of(schema).write_at_once(schema, HEAD, column[cut:])
    if made is not None:
        check(codec_of(schema), schema, column[cut:], values[cut:])


# ------------------------------------------------------------------------------------------------- what has columns
@examples(20)
@given(st.data())
def test_a_record_of_every_type_is_written_at_once(data: st.DataObject) -> None:
    schema = every_type(OPTIONAL_STRING_SCHEMA).build()
    values = [
        *data.draw(st.lists(values_of(schema), min_size=3, max_size=3)),
        Struct.unchecked(schema, every_value(["a", None])),
    ]
    assert check(codec_of(schema), schema, values, values) == []
    column, errors, physical = to_arrow(values, schema)
    assert not errors
    if physical == default_physical(schema):
        assert check(codec_of(schema), schema, column, values) == []


def test_columns_of_every_layout_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = (
        SchemaBuilder.struct()
        .name("app.Columns")
        .field("price", Decimal.builder(2).optional().build())
        .field("at", Timestamp.builder().optional().build())
        .field("day", Date.SCHEMA)
        .field("time", Time.SCHEMA)
        .field("tags", SchemaBuilder.array(OPTIONAL_STRING_SCHEMA).optional().build())
        .field("counts", SchemaBuilder.map(STRING_SCHEMA, INT64_SCHEMA).build())
        .build()
    )
    full = [
        decimal.Decimal("-12.50"),
        dt.datetime(2020, 1, 2, tzinfo=dt.UTC),
        dt.date(1969, 1, 1),
        dt.time(23, 59),
        ["a", None, ""],
        {"x": -1, "y": 1 << 40},
    ]
    values = [
        Struct.unchecked(schema, full),
        Struct.unchecked(schema, [None, None, *full[2:4], None, {}]),
        Struct.unchecked(schema, [*full[:4], [], {"": 0}]),
    ] * 2
    column, errors, _ = to_arrow(values, schema)
    assert not errors
    assert check(codec_of(schema), schema, column, values) == []
    assert check(codec_of(schema), schema, column[1:5], values[1:5]) == []
    monkeypatch.setattr(blocks, "PART_BYTES", 100)
    assert check(codec_of(schema), schema, column[1:5], values[1:5]) == []
    assert check(codec_of(schema), schema, values, values) == []


def _one(field: Schema) -> Schema:
    return SchemaBuilder.struct().name("app.One").field("x", field).build()


@pytest.mark.parametrize(
    ("field", "avro", "good", "bad"),
    [
        (STRING_SCHEMA, '{"type": "enum", "name": "E", "symbols": ["A", "B"]}', "B", "C"),
        (Schema(Type.BYTES), '{"type": "fixed", "name": "F", "size": 2}', b"ab", b"abc"),
        (Schema(Type.INT8), '"long"', -128, 128),
        (Schema(Type.INT32), '["null", "long", "int"]', 7, 1 << 31),
        (INT64_SCHEMA, '["string", "null", "long"]', 1 << 62, 1 << 63),
        (OPTIONAL_INT32_SCHEMA, '["int", "null"]', None, "one"),
        (OPTIONAL_INT32_SCHEMA, '["int", "string"]', 3, None),
        (SchemaBuilder.int32().optional().default_value(9).build(), '["int", "null"]', None, True),
        (Schema(Type.FLOAT32), '"float"', 1e300, 1),
        (Time.SCHEMA, '"int"', dt.time(1), dt.timedelta(1)),
        (SchemaBuilder.array(STRING_SCHEMA).build(), '{"type": "array", "items": "string"}', ["a"], {"a"}),
        (
            SchemaBuilder.map(STRING_SCHEMA, INT64_SCHEMA).build(),
            '{"type": "map", "values": "long"}',
            {"a": 1},
            {None: 1},
        ),
    ],
)
def test_types_that_somebody_registered(field: Schema, avro: str, good: Any, bad: Any) -> None:
    schema = _one(field)
    codec = codec_of(schema, f'{{"type": "record", "name": "One", "fields": [{{"name": "x", "type": {avro}}}]}}')
    values = [Struct.unchecked(schema, [one]) for one in (good, bad, good)]
    assert check(codec, schema, values, values) == [1]
    assert one_by_one(codec, schema, values[0]) is not None


@pytest.mark.parametrize(
    ("field", "avro"),
    [
        (INT64_SCHEMA, '"int"'),
        (Schema(Type.INT32), '"double"'),
        (Schema(Type.FLOAT64), '"float"'),
        (Decimal.schema(2), '{"type": "fixed", "name": "F", "size": 8}'),
        (STRING_SCHEMA, '["null", "long"]'),
    ],
)
def test_what_has_no_columns_is_written_one_by_one(field: Schema, avro: str) -> None:
    schema = _one(field)
    codec = codec_of(schema, f'{{"type": "record", "name": "One", "fields": [{{"name": "x", "type": {avro}}}]}}')
    assert codec.write_at_once(schema, HEAD, []) is None


def test_fields_go_by_name_and_alias_and_those_that_are_not_wanted_are_left_out() -> None:
    schema = (
        SchemaBuilder.struct()
        .name("app.R")
        .field("a", INT64_SCHEMA)
        .field("b", STRING_SCHEMA)
        .field("c", STRING_SCHEMA)
    ).build()
    fields = '[{"name": "z", "aliases": ["c"], "type": "string"}, {"name": "a", "type": "long"}]'
    codec = codec_of(schema, f'{{"type": "record", "name": "R", "fields": {fields}}}')
    values = [Struct.unchecked(schema, [1, "b", "c"]), Struct.unchecked(schema, [-1, None, "d"])]
    assert check(codec, schema, values, values) == []
    column, _, _ = to_arrow([Struct.unchecked(schema, [1, "b", "c"])], schema)
    assert check(codec, schema, column, [Struct.unchecked(schema, [1, "b", "c"])]) == []


def test_a_struct_that_lacks_values_is_left_to_one_by_one() -> None:
    schema = SchemaBuilder.struct().name("app.Two").field("a", INT64_SCHEMA).field("b", INT64_SCHEMA).build()
    values = [Struct.unchecked(schema, [1, 2]), Struct.unchecked(schema, [1])]
    made = codec_of(schema).write_at_once(schema, HEAD, values)
    assert made is not None
    assert made.odd.tolist() == [False, True]
