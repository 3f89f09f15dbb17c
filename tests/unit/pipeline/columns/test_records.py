"""Columns from records and back: every schema, every null, and an error of its own for each bad value."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal as Number

import pyarrow as pa
import pytest

from penstock.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    ConnectHeaders,
    Date,
    Decimal,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    Type,
)
from penstock.errors import DataException
from penstock.pipeline.batch.headers import headers_column, headers_of_column
from penstock.pipeline.columns.layout import HEADERS_ARROW, LayoutKind, arrow_type
from penstock.pipeline.columns.records import from_arrow, to_arrow

INTS = SchemaBuilder.array(INT32_SCHEMA).build()
DATES = SchemaBuilder.map(STRING_SCHEMA, Date.SCHEMA).build()
EMPTY = SchemaBuilder.struct().build()
INNER = SchemaBuilder.struct().field("x", Decimal.schema(2)).build()
OUTER = (
    SchemaBuilder.struct()
    .field("a.b", INT32_SCHEMA)
    .field(" ", INTS)
    .field("A", DATES)
    .field("a", EMPTY)
    .field("`", INNER)
    .build()
)


def outer(number: Number | None = Number("1.00")) -> Struct:
    inner = Struct.unchecked(INNER, [number])
    return Struct.unchecked(OUTER, [1, [1, None], {"k": date(2020, 1, 1)}, Struct(EMPTY), inner])


CASES = [
    ([1, None, -128, 127], INT8_SCHEMA, LayoutKind.SCALAR),
    ([(1 << 63) - 1, None, -(1 << 63)], INT64_SCHEMA, LayoutKind.SCALAR),
    ([1.5, None, float("inf"), -0.0], FLOAT32_SCHEMA, LayoutKind.SCALAR),
    ([0.1, None], FLOAT64_SCHEMA, LayoutKind.SCALAR),
    ([True, None, False], BOOLEAN_SCHEMA, LayoutKind.SCALAR),
    (["a", None, "", "ü😀\x00"], STRING_SCHEMA, LayoutKind.SCALAR),
    (["a lone \ud800 surrogate", None, "b"], STRING_SCHEMA, LayoutKind.SCALAR),
    ([b"a", None, b"", b"\xff"], BYTES_SCHEMA, LayoutKind.SCALAR),
    (
        [datetime(2020, 1, 1, 2, 3, 4, 5000, UTC), None, datetime(1, 1, 1, tzinfo=UTC)],
        Timestamp.SCHEMA,
        LayoutKind.SCALAR,
    ),
    ([1 << 62, None, -(1 << 63)], Timestamp.SCHEMA, LayoutKind.SCALAR),
    ([time(23, 59, 59, 999_000), None, 86_400_000, -1], Time.SCHEMA, LayoutKind.SCALAR),
    ([date(1, 1, 1), None, date(9999, 12, 31), (1 << 31) - 1], Date.SCHEMA, LayoutKind.SCALAR),
    ([Number("1.10"), None, Number("-9") * 10**30 + Number("0.01")], Decimal.schema(2), LayoutKind.UNSCALED),
    ([Number("1.10"), None, Number("-0.01")], Decimal.schema(2), LayoutKind.DECIMAL),
    ([Number("1.1"), None, Number("1.10")], Decimal.schema(2), LayoutKind.UNSCALED),
    ([Number("9" * 39), None], Decimal.schema(0), LayoutKind.UNSCALED),
    ([Number("1E+3"), None], Decimal.schema(-3), LayoutKind.UNSCALED),
    ([[1, None], None, []], INTS, LayoutKind.ARRAY),
    ([["x", 1, None, {"a": [None]}], None, []], Schema(Type.ARRAY), LayoutKind.ARRAY),
    ([[[1], None, []], None], SchemaBuilder.array(INTS).build(), LayoutKind.ARRAY),
    ([{"a": date(2020, 1, 1), "b": None}, None, {}], DATES, LayoutKind.MAP),
    ([{"a": date(2020, 1, 1), None: None}, None, {}], DATES, LayoutKind.ENTRIES),
    ([{1: "a", None: None}, None, {}], SchemaBuilder.map(INT32_SCHEMA, STRING_SCHEMA).build(), LayoutKind.ENTRIES),
    ([{1: "a", "2": 3}, None], Schema(Type.MAP), LayoutKind.ENTRIES),
    ([{(1, 2): "a"}, None], SchemaBuilder.map(INTS, STRING_SCHEMA).build(), LayoutKind.ENTRIES),
    ([outer(), None, Struct(OUTER), outer(None)], OUTER, LayoutKind.STRUCT),
    ([Struct(EMPTY), None], EMPTY, LayoutKind.STRUCT),
    ([{"a": 1}, None, [1], "x", 1.5, {}], None, LayoutKind.VARIANT),
]


@pytest.mark.parametrize(("values", "schema", "form"), CASES, ids=lambda one: str(one)[:40])
def test_values_survive_the_way_into_a_column_and_back(
    values: Sequence[object], schema: Schema | None, form: LayoutKind
) -> None:
    array, errors, physical = to_arrow(values, schema)

    assert errors == {}
    assert physical.form is form
    assert array.type.equals(arrow_type(schema, physical), check_metadata=True)
    assert from_arrow(array, schema, physical) == values
    assert from_arrow(array, schema) == values


@pytest.mark.parametrize(("values", "schema", "form"), CASES, ids=lambda one: str(one)[:40])
def test_slices_and_chunks_of_a_column_read_as_their_part(
    values: Sequence[object], schema: Schema | None, form: LayoutKind
) -> None:
    array, _, physical = to_arrow(values, schema)

    assert from_arrow(array.slice(1), schema) == values[1:]
    assert from_arrow(pa.chunked_array([array.slice(0, 1), array.slice(1)]), schema, physical) == values
    assert from_arrow(pa.chunked_array([], array.type), schema) == []


@pytest.mark.parametrize("schema", [one[1] for one in CASES], ids=str)
def test_no_values_are_an_empty_column(schema: Schema | None) -> None:
    array, errors, _ = to_arrow([], schema)

    assert (len(array), errors) == (0, {})
    assert from_arrow(array, schema) == []


@pytest.mark.parametrize("schema", [one[1] for one in CASES], ids=str)
def test_nulls_alone_are_a_column_of_nulls(schema: Schema | None) -> None:
    array, errors, _ = to_arrow([None, None], schema)

    assert (array.null_count, errors) == (2, {})
    assert from_arrow(array, schema) == [None, None]


cyclic: list[object] = []
cyclic.append(cyclic)


@pytest.mark.parametrize(
    ("values", "schema", "bad"),
    [
        ([1, 1 << 31, "x", True, 5, 1.0], INT32_SCHEMA, {1, 2, 3, 5}),
        (["a", b"b", 1, "c"], STRING_SCHEMA, {1, 2}),
        ([b"a", "b", bytearray(b"c"), memoryview(b"d")], BYTES_SCHEMA, {1}),
        ([1, 1.5, True], FLOAT64_SCHEMA, {0, 2}),
        ([0, True, 1], BOOLEAN_SCHEMA, {0, 2}),
        ([[1], ["x"], 5, [1 << 31]], INTS, {1, 2, 3}),
        ([{"a": date(2020, 1, 1)}, {1: None}, {"a": "x"}, []], DATES, {1, 2, 3}),
        ([outer(), Struct(EMPTY), 5, Struct.unchecked(OUTER, ["x", None, None, None, None])], OUTER, {1, 2, 3}),
        ([{"a": 1}, 1 << 63, {"x": object()}, Number("NaN"), cyclic], None, {1, 2, 3, 4}),
        ([Number("NaN"), Number("1.00"), 1.0], Decimal.schema(2), {0, 2}),
        ([datetime(2020, 1, 1, tzinfo=UTC), date(2020, 1, 1), "x", 1 << 63], Timestamp.SCHEMA, {1, 2, 3}),
        ([date(2020, 1, 1), datetime(2020, 1, 1, 5, tzinfo=UTC)], Date.SCHEMA, {1}),
        ([1, object()], INT32_SCHEMA, {1}),
    ],
    ids=lambda part: type(part).__name__,
)
def test_each_bad_value_has_an_error_of_its_own_and_leaves_the_others_alone(
    values: Sequence[object], schema: Schema | None, bad: set[int]
) -> None:
    array, errors, _ = to_arrow(values, schema)

    assert set(errors) == bad
    assert all(isinstance(error, DataException) and str(error) for error in errors.values())
    found = from_arrow(array, schema)
    assert found == [None if index in bad else value for index, value in enumerate(values)]


def test_a_bad_value_does_not_choose_the_layout_for_the_others() -> None:
    _, errors, physical = to_arrow([Number("1.00"), Number("Infinity")], Decimal.schema(2))

    assert physical.form is LayoutKind.DECIMAL
    assert "Infinity" in str(errors[1])


def test_the_error_of_a_bad_value_is_the_one_of_validation() -> None:
    _, errors, _ = to_arrow([300], INT8_SCHEMA)

    assert "300" in str(errors[0])
    assert "INT8" in str(errors[0])


def test_missing_fields_are_no_error_of_the_column() -> None:
    required = SchemaBuilder.struct().field("a", INT32_SCHEMA).build()
    array, errors, _ = to_arrow([Struct(required)], required)

    assert errors == {}
    assert from_arrow(array, required) == [Struct(required)]


def test_headers_of_every_kind_survive() -> None:
    struct = outer()
    records = [
        ConnectHeaders()
        .add_int("a", 1)
        .add_timestamp("t", datetime(2020, 1, 1, tzinfo=UTC))
        .add("s", struct, OUTER)
        .add("n", None)
        .add_int("a", 2),
        None,
        ConnectHeaders(),
        ConnectHeaders().add("m", {1: 2}).add_list("l", [1], INTS),
    ]
    errors: dict[int, Exception] = {}
    array = headers_column(records, errors.__setitem__)

    assert errors == {}
    assert array.type.equals(HEADERS_ARROW, check_metadata=True)
    assert [list(one or ()) for one in headers_of_column(array)] == [list(one or ()) for one in records]
    assert [list(one or ()) for one in headers_of_column(array.slice(3))] == [list(records[3] or ())]


def test_a_bad_header_is_the_error_of_its_record_only() -> None:
    records = [ConnectHeaders().add("a", object()), ConnectHeaders().add("b", 1)]
    errors: dict[int, Exception] = {}
    array = headers_column(records, errors.__setitem__)

    assert set(errors) == {0}
    assert [len(list(one or ())) for one in headers_of_column(array)] == [0, 1]
