"""Conversions, inference, parsing and projection beyond the recorded vectors."""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime, time
from typing import Any

import pytest

from penstock.data import (
    FLOAT32_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT64_SCHEMA,
    NULL_VALUE,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    SchemaBuilder,
    SchemaProjector,
    Struct,
    Time,
    Timestamp,
    Type,
    Values,
    infer_schema,
    parse_string,
    value_text,
)
from penstock.data.text import java_decimal, java_double, java_float, parse_date, parse_time
from penstock.errors import DataException, SchemaProjectorException


def _parsed(text: str) -> Any:
    found = parse_string(text)
    assert found is not None
    return found.value


@pytest.mark.parametrize(
    ("convert", "value", "expected"),
    [
        (Values.convert_to_boolean, "false", False),
        (Values.convert_to_boolean, "1", True),
        (Values.convert_to_boolean, 0.9, False),
        (Values.convert_to_byte, 300, 44),
        (Values.convert_to_short, "70000", 4464),
        (Values.convert_to_integer, 2**31, -(2**31)),
        (Values.convert_to_long, 1e30, 2**63 - 1),
        (Values.convert_to_long, float("nan"), 0),
        (Values.convert_to_long, decimal.Decimal("1.9"), 1),
        (Values.convert_to_long, decimal.Decimal("1e1000000"), 0),
        (Values.convert_to_float, 0.1, 0.10000000149011612),
        (Values.convert_to_double, "1e2", 100.0),
        (Values.convert_to_string, {"a": [1, "x"]}, '{"a":[1,"x"]}'),
        (Values.convert_to_list, "[1, 2]", [1, 2]),
        (Values.convert_to_map, '{"a":1}', {"a": 1}),
        (Values.convert_to_date, "2019-08-23", date(2019, 8, 23)),
        (Values.convert_to_date, 1, date(1970, 1, 2)),
        (Values.convert_to_date, datetime(1969, 12, 30, 12, tzinfo=UTC), date(1969, 12, 31)),
        (Values.convert_to_time, "14:34:54.346Z", time(14, 34, 54, 346_000)),
        (Values.convert_to_time, datetime(1969, 12, 31, 23, tzinfo=UTC), time(23)),
        (Values.convert_to_timestamp, 60_000, datetime(1970, 1, 1, 0, 1, tzinfo=UTC)),
        (Values.convert_to_timestamp, date(1970, 1, 2), datetime(1970, 1, 2, tzinfo=UTC)),
    ],
)
def test_a_value_becomes_one_of_another_type(convert: Any, value: object, expected: object) -> None:
    result = convert(None, value)

    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("convert", "value"),
    [
        (Values.convert_to_long, True),
        (Values.convert_to_long, "x"),
        (Values.convert_to_boolean, "yes"),
        (Values.convert_to_list, "1"),
        (Values.convert_to_map, None),
        (Values.convert_to_struct, {}),
        (Values.convert_to_date, "soon"),
        (Values.convert_to_string, object()),
    ],
)
def test_what_cannot_be_converted_is_a_data_error(convert: Any, value: object) -> None:
    with pytest.raises(DataException):
        convert(None, value)


def test_dates_become_numbers_only_with_their_schema() -> None:
    assert Values.convert_to_long(Date.SCHEMA, date(1970, 1, 11)) == 10
    with pytest.raises(DataException, match="to a number"):
        Values.convert_to_long(None, date(1970, 1, 11))


def test_raw_temporal_numbers_convert_by_their_schema() -> None:
    assert Values.convert_to_timestamp(Date.SCHEMA, 1) == datetime(1970, 1, 2, tzinfo=UTC)
    assert Values.convert_to_date(Timestamp.SCHEMA, 86_400_000) == date(1970, 1, 2)
    assert value_text(1, Date.SCHEMA) == "1970-01-02"
    assert value_text(3_600_000, Time.SCHEMA) == "01:00:00.000Z"


def test_decimals_come_from_bytes_numbers_and_text() -> None:
    assert str(Values.convert_to_decimal(None, b"\x00\x9c", 2)) == "1.56"
    assert str(Values.convert_to_decimal(None, 2, 2)) == "2.0"
    assert str(Values.convert_to_decimal(None, "3.140", 2)) == "3.140"
    assert Values.convert_to_decimal(None, None, 2) is None
    with pytest.raises(DataException):
        Values.convert_to_decimal(None, "x", 2)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1", Type.INT8, 1),
        ("1e2", Type.INT8, 100),
        ("1.5", Type.FLOAT32, 1.5),
        ("123456789.123456789", Type.FLOAT32, 123456792.0),
        ("1e300", Type.FLOAT64, 1e300),
        ("1e-50", Type.FLOAT32, 0.0),
        ("-0", Type.INT8, 0),
        ("9223372036854775807", Type.INT64, 2**63 - 1),
        ("\u0663", Type.INT8, 3),
        ("1,000", Type.INT8, 1),
        ("14:34:54", Type.INT8, 14),
        ("True", Type.STRING, "True"),
        (" true ", Type.BOOLEAN, True),
        ("[1,]", Type.ARRAY, [1]),
        ('["2019-08-23"]', Type.ARRAY, [date(2019, 8, 23)]),
        ("[1,null]", Type.STRING, "[1,null]"),
        ('[1,"a",2]', Type.ARRAY, [1, "a", 2]),
        ('{"a":1 "b":2}', Type.MAP, {"a": 1, "b": 2}),
        ("2019-13-45", Type.INT32, date(2020, 2, 14)),
        ("25:61:61.000Z", Type.INT32, 93_721_000),
        ("2019-08-2x", Type.INT32, date(2019, 8, 2)),
        ("1_000", Type.STRING, "1_000"),
        ("1e99999999999", Type.STRING, "1e99999999999"),
        ("", Type.STRING, ""),
        ("   ", Type.STRING, "   "),
    ],
)
def test_text_is_parsed_to_the_smallest_type_that_fits(text: str, kind: Type, value: object) -> None:
    found = parse_string(text)

    assert found is not None
    assert found.schema is not None
    assert (found.schema.type, found.value) == (kind, value)


def test_a_null_text_and_the_word_null_are_told_apart() -> None:
    assert parse_string(None) == NULL_VALUE
    assert parse_string(" null ") is None


def test_blanks_between_delimiters_in_quotes_are_lost_as_in_java() -> None:
    assert _parsed('["a: :b"]') == ["a::b"]


def test_deeply_nested_text_is_an_error_not_a_crash() -> None:
    with pytest.raises(DataException, match="nested too deeply"):
        parse_string("[" * 100_000)


def test_old_dates_are_read_in_the_julian_calendar() -> None:
    day = 86_400_000
    assert parse_date("1582-10-15") == -141_427 * day
    assert parse_date("1582-10-04") == -141_428 * day
    assert parse_date("0001-01-01") == -719_164 * day
    assert parse_time("noon") is None


@pytest.mark.parametrize(
    ("value", "kind"),
    [(2**63, None), (decimal.Decimal(1), None), (date(2020, 1, 1), None), ([], None), (1.0, Type.FLOAT64)],
)
def test_only_values_with_a_type_of_their_own_have_a_schema_inferred(value: object, kind: Type | None) -> None:
    found = infer_schema(value)

    assert (None if found is None else found.type) == kind


def test_a_struct_projects_by_field_name() -> None:
    source = SchemaBuilder.struct().field("a", INT8_SCHEMA).field("gone", STRING_SCHEMA).build()
    target = (
        SchemaBuilder.struct()
        .field("new", SchemaBuilder.string().default_value("x").build())
        .field("maybe", OPTIONAL_STRING_SCHEMA)
        .field("a", INT64_SCHEMA)
        .build()
    )

    result = SchemaProjector.project(source, Struct(source).put("a", 1).put("gone", "g"), target)

    assert result == Struct(target).put("new", "x").put("a", 1)


def test_a_projection_that_fails_in_a_field_names_it_and_the_cause() -> None:
    source = SchemaBuilder.struct().field("a", INT16_SCHEMA).build()
    target = SchemaBuilder.struct().field("a", INT8_SCHEMA).build()

    with pytest.raises(SchemaProjectorException, match="Error projecting a") as caught:
        SchemaProjector.project(source, Struct(source).put("a", 1), target)
    assert "Schema type mismatch" in str(caught.value.__cause__)


def test_elements_of_arrays_and_maps_are_projected() -> None:
    source = SchemaBuilder.array(INT8_SCHEMA).build()
    target = SchemaBuilder.array(FLOAT32_SCHEMA).build()

    result: Any = SchemaProjector.project(source, [1, 2], target)

    assert [type(item) for item in result] == [float, float]
    with pytest.raises(SchemaProjectorException, match="without a schema"):
        SchemaProjector.project(SchemaBuilder.untyped_array().build(), [1], target)


@pytest.mark.parametrize("text", ['{1:1,true:"a"}', "{true:2,1.0:1}", "{[1]:1,[true]:2}", "{0:1,false:2}"])
def test_keys_that_are_one_to_python_leave_the_text_a_string(text):
    assert parse_string(text) == (STRING_SCHEMA, text)


def test_the_last_of_equal_keys_counts():
    assert _parsed("{1:1,1:2}") == {1: 2}
    assert _parsed("{true:1,true:2}") == {True: 2}


@pytest.mark.parametrize(
    ("number", "text"),
    [(5e-324, "4.9E-324"), (1e-323, "9.9E-324"), (2e-323, "2.0E-323"), (-5e-324, "-4.9E-324"), (1e23, "1.0E23")],
)
def test_a_number_of_one_digit_is_printed_with_the_two_nearest(number, text):
    assert java_double(number) == text


def test_the_smallest_float32_is_printed_with_two_digits():
    assert java_float(1.4e-45) == "1.4E-45"
    assert java_float(3e-45) == "2.8E-45"


def test_a_decimal_zero_keeps_its_scale_whatever_it_is():
    assert java_decimal(decimal.Decimal("-0E-2147483647")) == "0E-2147483647"
