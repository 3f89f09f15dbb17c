"""Structs, and whether values fit schemas."""

from __future__ import annotations

import decimal
import math
from datetime import UTC, date, datetime, time
from typing import Any

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
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    java_double,
    java_float,
    nearest_float32,
    to_java_text,
    validate_value,
)
from penstock.errors import DataException

PERSON = (
    SchemaBuilder.struct()
    .field("name", STRING_SCHEMA)
    .field("age", SchemaBuilder.int32().default_value(18).build())
    .field("nick", OPTIONAL_STRING_SCHEMA)
    .build()
)


def test_a_struct_gives_defaults_for_nulls_but_keeps_the_raw_value() -> None:
    struct = Struct(PERSON).put("name", "Ada")

    assert struct.get("age") == 18
    assert struct.get_without_default("age") is None
    assert struct.get("nick") is None
    struct.validate()


def test_null_fits_an_optional_field_alone() -> None:
    struct = Struct(PERSON).put("age", 5).put("nick", None)

    assert struct.get("nick") is None
    with pytest.raises(DataException, match='null used for required field: "name", schema type: STRING'):
        struct.put("name", None)
    with pytest.raises(DataException, match='null used for required field: "age", schema type: INT32'):
        struct.put("age", None)
    assert struct.get("age") == 5


def test_a_struct_that_lacks_a_required_field_is_not_valid() -> None:
    with pytest.raises(DataException, match='required field: "name"'):
        Struct(PERSON).validate()


def test_unknown_fields_and_values_of_other_types_are_refused() -> None:
    struct = Struct(PERSON)

    with pytest.raises(DataException, match="surname is not a valid field name"):
        struct.put("surname", "x")
    with pytest.raises(DataException, match="surname is not a valid field name"):
        struct.get("surname")
    with pytest.raises(DataException, match='a Python str for field: "age"'):
        struct.put("age", "x")


def test_only_a_struct_schema_makes_a_struct() -> None:
    with pytest.raises(DataException, match="Not a struct schema"):
        Struct(INT32_SCHEMA)


def test_typed_getters_refuse_fields_of_another_type() -> None:
    struct = Struct(PERSON).put("name", "Ada")

    assert struct.get_string("name") == "Ada"
    assert struct.get_int32("age") == 18
    with pytest.raises(DataException, match="Field 'name' is not of type INT32"):
        struct.get_int32("name")


def test_structs_are_equal_by_schema_and_values() -> None:
    assert Struct(PERSON).put("name", "a") == Struct(PERSON).put("name", "a")
    assert Struct(PERSON).put("name", "a") != Struct(PERSON).put("name", "b")
    other = SchemaBuilder.struct().field("name", STRING_SCHEMA).build()
    assert Struct(other).put("name", "a") != Struct(PERSON).put("name", "a")


def test_a_nested_struct_must_have_the_very_schema_of_its_field() -> None:
    outer = Struct(SchemaBuilder.struct().field("p", PERSON).build())

    outer.put("p", Struct(PERSON).put("name", "a"))
    with pytest.raises(DataException, match=r"Struct schemas do not match\."):
        outer.put("p", Struct(SchemaBuilder.struct().field("name", STRING_SCHEMA).build()))
    with pytest.raises(DataException, match='required field: "name"'):
        outer.put("p", Struct(PERSON))


def test_unchecked_takes_the_values_as_they_are() -> None:
    assert Struct.unchecked(PERSON, ["Ada", None, None]) == Struct(PERSON).put("name", "Ada")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8_SCHEMA, -128),
        (INT16_SCHEMA, 32767),
        (INT32_SCHEMA, -(2**31)),
        (INT64_SCHEMA, 2**63 - 1),
        (FLOAT32_SCHEMA, 1.5),
        (FLOAT64_SCHEMA, math.inf),
        (BOOLEAN_SCHEMA, True),
        (STRING_SCHEMA, ""),
        (BYTES_SCHEMA, b""),
        (BYTES_SCHEMA, bytearray(b"a")),
        (OPTIONAL_STRING_SCHEMA, None),
        (Decimal.schema(2), decimal.Decimal("1.00")),
        (Date.SCHEMA, date(2020, 1, 1)),
        (Date.SCHEMA, 10**9),
        (Time.SCHEMA, time(1, 2, 3)),
        (Timestamp.SCHEMA, datetime(2020, 1, 1, tzinfo=UTC)),
        (Timestamp.SCHEMA, 2**62),
        (SchemaBuilder.array(INT8_SCHEMA).build(), [1, 2]),
        (SchemaBuilder.map(STRING_SCHEMA, OPTIONAL_STRING_SCHEMA).build(), {"a": None}),
    ],
)
def test_a_value_of_the_right_kind_fits(schema: Schema, value: object) -> None:
    validate_value(schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (INT8_SCHEMA, 128, "128 is out of range for value"),
        (INT64_SCHEMA, 2**63, "is out of range"),
        (INT32_SCHEMA, True, "with type INT32: a Python bool"),
        (INT32_SCHEMA, 1.0, "with type INT32: a Python float"),
        (FLOAT64_SCHEMA, 1, "with type FLOAT64: a Python int"),
        (BOOLEAN_SCHEMA, 1, "with type BOOLEAN: a Python int"),
        (STRING_SCHEMA, b"a", "with type STRING: a Python bytes"),
        (BYTES_SCHEMA, "a", "with type BYTES: a Python str"),
        (Decimal.schema(0), 1, 'schema "org.apache.kafka.connect.data.Decimal" with type BYTES: a Python int'),
        (Timestamp.SCHEMA, date(2020, 1, 1), "with type INT64: a Python date"),
        (Time.SCHEMA, True, "with type INT32: a Python bool"),
        (SchemaBuilder.int32().default_value(1).build(), None, "null used for required value, schema type: INT32"),
        (SchemaBuilder.array(INT8_SCHEMA).build(), [None], "required element of array value, schema type: INT8"),
        (SchemaBuilder.array(INT8_SCHEMA).build(), (1,), "with type ARRAY: a Python tuple"),
        (SchemaBuilder.map(STRING_SCHEMA, INT8_SCHEMA).build(), {1: 1}, "a Python int for key of map value"),
        (SchemaBuilder.map(STRING_SCHEMA, INT8_SCHEMA).build(), {"a": "b"}, "a Python str for value of map value"),
        (SchemaBuilder.untyped_array().build(), [1], "No schema defined for element of array value"),
        (PERSON, {"name": "a"}, "with type STRUCT: a Python dict"),
    ],
)
def test_a_value_of_another_kind_is_a_data_error(schema: Schema, value: object, message: str) -> None:
    with pytest.raises(DataException) as caught:
        validate_value(schema, value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (0.001, "0.001"),
        (9.999e-4, "9.999E-4"),
        (9999999.0, "9999999.0"),
        (12345678.9, "1.23456789E7"),
        (1e300, "1.0E300"),
        (-1.5, "-1.5"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (0.0, "0.0"),
        (123.456, "123.456"),
    ],
)
def test_doubles_print_as_in_java(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.1, "0.1"), (3.4028235e38, "3.4028235E38"), (1e39, "Infinity")])
def test_floats_print_as_in_java(value: float, text: str) -> None:
    assert java_float(value) == text


def test_the_nearest_float32_is_found_in_one_rounding() -> None:
    # Just above the middle of two float32: a float64 rounds it to the middle, which would then go to the even one.
    middle = 2**24 + 1
    assert nearest_float32(middle) == 2.0**24
    assert nearest_float32(decimal.Decimal(middle) + decimal.Decimal("1e-12")) == 2.0**24 + 2
    assert nearest_float32(decimal.Decimal("1e50")) == math.inf
    assert nearest_float32(-(10**400)) == -math.inf


@pytest.mark.parametrize(
    ("value", "schema", "text"),
    [
        ({"a": None, 1: True}, None, "{a=null, 1=true}"),
        ([1, [0.5, decimal.Decimal("1E+3")]], None, "[1, [0.5, 1E+3]]"),
        (decimal.Decimal("-0.00"), None, "0.00"),
        (datetime(1970, 1, 2, 3, 4, 5, tzinfo=UTC), None, "Fri Jan 02 03:04:05 UTC 1970"),
        (date(2020, 2, 29), None, "Sat Feb 29 00:00:00 UTC 2020"),
        (time(1, 2, 3), None, "Thu Jan 01 01:02:03 UTC 1970"),
        (1, Date.SCHEMA, "Fri Jan 02 00:00:00 UTC 1970"),
        (0.1, FLOAT32_SCHEMA, "0.1"),
    ],
)
def test_values_print_as_javas_to_string(value: Any, schema: Schema | None, text: str) -> None:
    assert to_java_text(value, schema) == text


def test_a_struct_prints_its_fields_without_the_nulls() -> None:
    schema = SchemaBuilder.struct().field("p", PERSON).field("f", FLOAT32_SCHEMA).build()
    struct = Struct(schema).put("p", Struct(PERSON).put("name", "Ada")).put("f", 0.3)

    assert str(struct) == "Struct{p=Struct{name=Ada},f=0.3}"


INNER = SchemaBuilder.struct().field("n", INT32_SCHEMA).build()
KEYED = (
    SchemaBuilder.struct()
    .field("text", OPTIONAL_STRING_SCHEMA)
    .field("inner", INNER)
    .field("items", SchemaBuilder.array(INNER).build())
    .field("map", SchemaBuilder.map(STRING_SCHEMA, SchemaBuilder.array(INT32_SCHEMA).build()).build())
    .field("data", BYTES_SCHEMA)
    .field("number", FLOAT64_SCHEMA)
    .field("amount", Decimal.schema(1))
    .field("day", Date.SCHEMA)
    .build()
)


def keyed(text: str | None = "a", *, data: object = b"\x00", turned: bool = False) -> Struct:
    inner = Struct(INNER).put("n", 1)
    entries: list[tuple[str, object]] = [("x", [1]), ("y", [2, 3])]
    return (
        Struct(KEYED)
        .put("text", text)
        .put("inner", inner)
        .put("items", [inner, Struct(INNER).put("n", 2)])
        .put("map", dict(reversed(entries) if turned else entries))
        .put("data", data)
        .put("number", 1.5)
        .put("amount", decimal.Decimal("1.5"))
        .put("day", date(2026, 1, 1))
    )


def test_structs_that_are_equal_hash_alike_and_are_one_key() -> None:
    same = [keyed(), keyed(turned=True), keyed(data=bytearray(b"\x00")), keyed(data=memoryview(b"\x00"))]
    assert all(one == same[0] for one in same)
    assert len({hash(one) for one in same}) == 1
    assert {same[0]: "first"} | dict.fromkeys(same, "last") == {keyed(): "last"}
    assert len({keyed(), keyed("b"), keyed(None)}) == 3


def test_structs_and_arrays_are_keys_of_a_valid_map() -> None:
    arrays = SchemaBuilder.array(SchemaBuilder.array(INT32_SCHEMA).build()).build()
    validate_value(SchemaBuilder.map(KEYED, INT32_SCHEMA).build(), {keyed(): 1})
    validate_value(SchemaBuilder.map(arrays, INT32_SCHEMA).build(), {((1, 2), ()): 1})
    with pytest.raises(DataException, match="a Python str for element of array"):
        validate_value(SchemaBuilder.map(arrays, INT32_SCHEMA).build(), {(("a",),): 1})
