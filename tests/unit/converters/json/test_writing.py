"""Columns as JSON messages have the bytes that single values get; what has no text here is left to the plan."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from decimal import Decimal as Number

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples, schemas, values

from penstock.converters.json.converter import JsonConverter
from penstock.converters.json.writing import base64_texts, json_column, unscaled_bytes
from penstock.data import Date, Decimal, Schema, SchemaBuilder, Struct, Time, Timestamp, Type
from penstock.data.text import java_double, java_float
from penstock.pipeline.columns.java_text import float_texts
from penstock.pipeline.columns.layout import bounded
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.plan.step import Side

OPTIONAL = {kind: Schema(kind, optional=True) for kind in Type if kind not in (Type.ARRAY, Type.MAP, Type.STRUCT)}
ESCAPES = ["\\n\\\\", 'a "b" \\ c']
TEXTS = ["", "plain", *ESCAPES, "\x00\x1f\x7f\n\r\t\b\f/", "é\u2028\uffff", "\U0001f600x\U0010ffff", None]
NUMBERS = [0.0, -0.0, 1.0, -2.5, 0.001, 0.00099, 1e7, 9999999.0, 123456789.125, 1e22, -1.5e-7, 5e-324, 2e-308, 1.7e308]


def column_of(found: Sequence[object], schema: Schema, **settings: bool) -> list[bytes | None] | None:
    array, errors, physical = to_arrow(found, schema)
    assert not errors
    given = {"schemas": False, "numeric": False, "defaults": True, **settings}
    made = json_column(array, schema, bounded(physical, array), **given)
    return None if made is None else made.to_pylist()


def alone(found: Sequence[object], schema: Schema, **settings: bool) -> list[bytes | None]:
    converter = JsonConverter()
    chosen = {"schemas": False, "numeric": False, "defaults": True, **settings}
    converter.configure(
        {
            "schemas.enable": str(chosen["schemas"]).lower(),
            "decimal.format": "NUMERIC" if chosen["numeric"] else "BASE64",
            "replace.null.with.default": str(chosen["defaults"]).lower(),
        },
        False,
    )
    return [converter.from_connect_data("t", schema, value) for value in found]


@pytest.mark.parametrize("schemas_enable", [False, True])
@pytest.mark.parametrize(
    ("schema", "found"),
    [
        (OPTIONAL[Type.INT8], [-128, 127, None]),
        (OPTIONAL[Type.INT64], [-(2**63), 2**63 - 1, 0, None]),
        (OPTIONAL[Type.BOOLEAN], [True, False, None]),
        (OPTIONAL[Type.FLOAT64], [*NUMBERS, float("nan"), float("inf"), float("-inf"), None]),
        (OPTIONAL[Type.FLOAT32], [0.5, 16777216.0, 1.5e-7, float("nan"), float("-inf"), None]),
        (OPTIONAL[Type.STRING], TEXTS),
        (OPTIONAL[Type.BYTES], [b"", b"a", b"ab", b"abc", bytes(range(256)), None]),
        (Decimal.builder(2).optional().build(), [Number("1.28"), Number("-0.01"), Number("0.00"), None]),
        (Date.builder().optional().build(), [0, -1, 20_000, None]),
        (Time.builder().optional().build(), [0, 86_399_999, None]),
        (Timestamp.builder().optional().build(), [0, -1, 1_700_000_000_000, None]),
        (SchemaBuilder.array(OPTIONAL[Type.STRING]).optional().build(), [[], ["a", None, '"'], None, ["b"]]),
        (SchemaBuilder.string().optional().default_value('by "default"').build(), ["x", None]),
    ],
    ids=lambda one: str(one)[:40] if isinstance(one, Schema) else "",
)
def test_a_column_has_the_texts_that_single_values_have(
    schema: Schema, found: list[object], schemas_enable: bool
) -> None:
    for numeric in (False, True):
        for defaults in (False, True):
            settings = {"schemas": schemas_enable, "numeric": numeric, "defaults": defaults}
            assert column_of(found, schema, **settings) == alone(found, schema, **settings)


def test_structs_hold_their_fields_in_order_and_null_structs_are_null() -> None:
    inner = SchemaBuilder.struct().field("n", Schema(Type.INT32)).field("t", Schema(Type.STRING)).optional().build()
    schema = (
        SchemaBuilder.struct()
        .name("row")
        .field('é "x"', OPTIONAL[Type.STRING])
        .field("inner", inner)
        .field("amount", Decimal.builder(3).optional().build())
        .field("none", SchemaBuilder.struct().optional().build())
        .optional()
        .build()
    )
    whole = Struct(inner).put("n", 1).put("t", 'a"b')
    some = Struct(schema).put('é "x"', "y").put("inner", whole).put("amount", Number("12.500"))
    empty = Struct(schema).put("none", Struct(schema.field("none").schema))  # type: ignore[union-attr]
    for numeric in (False, True):
        found = [some, None, empty, some]
        assert column_of(found, schema, numeric=numeric) == alone(found, schema, numeric=numeric)


@given(data=st.data(), schema=schemas(), numeric=st.booleans(), with_schemas=st.booleans())
@examples(50)
def test_any_column_that_is_written_has_those_texts(
    data: st.DataObject, schema: Schema, numeric: bool, with_schemas: bool
) -> None:
    found = data.draw(st.lists(values(schema), max_size=5))
    made = column_of(found, schema, numeric=numeric, schemas=with_schemas)
    assert made is None or made == alone(found, schema, numeric=numeric, schemas=with_schemas)


def test_a_slice_of_a_column_is_written_like_the_whole_of_it() -> None:
    schema = SchemaBuilder.struct().field("b", OPTIONAL[Type.BYTES]).field("d", Decimal.builder(1).build()).build()
    found = [Struct(schema).put("b", bytes([one])).put("d", Number(one).scaleb(-1)) for one in range(9)]
    array, _, physical = to_arrow(found, schema)
    whole = json_column(array, schema, physical, schemas=False, numeric=False, defaults=True)
    part = json_column(array.slice(3, 4), schema, physical, schemas=False, numeric=False, defaults=True)
    assert whole is not None
    assert part is not None
    assert part.to_pylist() == whole.to_pylist()[3:7] == alone(list(found), schema)[3:7]


@pytest.mark.parametrize(
    ("schema", "array"),
    [
        (Schema(Type.INT32), pa.array([1, None], pa.int32())),
        (Time.builder().build(), pa.array([86_400_001], pa.int32())),
        (SchemaBuilder.map(Schema(Type.STRING), Schema(Type.INT32)).build(), None),
        (OPTIONAL[Type.STRING], pa.array(["".join(map(chr, range(0x10000, 0x10100)))])),
    ],
    ids=["a null that must not be", "a time that is none", "a map", "more escapes than are worth it"],
)
def test_the_plan_writes_what_has_no_text_here(schema: Schema, array: pa.Array | None) -> None:
    side = Side.of(schema)
    column = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())) if array is None else array
    assert JsonConverter().write_column(side, column) is None


def test_values_without_a_schema_are_left_to_the_plan() -> None:
    assert JsonConverter().write_column(Side.of(None), pa.array([1])) is None


@given(st.lists(st.one_of(st.floats(), st.sampled_from(NUMBERS))))
@examples(60)
def test_doubles_are_printed_as_java_prints_them(found: list[float]) -> None:
    assert float_texts(pa.array(found, pa.float64())).to_pylist() == [java_double(one) for one in found]


@given(st.lists(st.floats(width=32)))
@examples(60)
def test_floats_are_printed_as_java_prints_them(found: list[float]) -> None:
    assert float_texts(pa.array(found, pa.float32())).to_pylist() == [java_float(one) for one in found]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))))
@examples(40)
def test_base64_is_that_of_each_value(found: list[bytes | None]) -> None:
    wanted = [None if one is None else base64.b64encode(one).decode() for one in found]
    assert base64_texts(pa.array(found, pa.binary())).to_pylist() == wanted


@given(st.lists(st.one_of(st.none(), st.integers(1 - 10**38, 10**38 - 1))))
@examples(60)
def test_digits_of_decimals_are_the_fewest_bytes(found: list[int | None]) -> None:
    made = unscaled_bytes(pa.array([None if one is None else Number(one) for one in found], pa.decimal128(38, 0)))
    bits = [0 if one is None else (~one if one < 0 else one).bit_length() for one in found]
    wanted = [
        None if one is None else one.to_bytes(size // 8 + 1, "big", signed=True)
        for one, size in zip(found, bits, strict=True)
    ]
    assert made.to_pylist() == wanted
