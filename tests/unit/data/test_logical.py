"""Logical types: what carries them, and where Python's range ends.

Dates, times and timestamps outside of Python's years keep their type, with a schema and without.
"""

from __future__ import annotations

import decimal
import json
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pytest

from penstock.api import SinkRecord
from penstock.converters.json.converter import JsonConverter
from penstock.data import (
    INT32_SCHEMA,
    Date,
    Decimal,
    FarDate,
    FarMoment,
    FarTime,
    FarTimestamp,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    Type,
    Values,
    infer_schema,
    to_java_text,
    validate_value,
)
from penstock.errors import DataException
from penstock.pipeline.columns.variant import decode_typed, encode, encode_typed
from penstock.transforms.field_values import MaskFieldValue
from penstock.transforms.timestamp_converter import TimestampConverterValue
from penstock.transforms.types import CastValue


@pytest.mark.parametrize(
    ("text", "carried"),
    [
        ("0.00", b"\x00"),
        ("1.56", b"\x00\x9c"),
        ("-1.56", b"\xff\x64"),
        ("1.27", b"\x7f"),
        ("1.28", b"\x00\x80"),
        ("-1.28", b"\x80"),
        ("-1.29", b"\xff\x7f"),
    ],
)
def test_a_decimal_is_carried_as_the_shortest_twos_complement(text: str, carried: bytes) -> None:
    schema = Decimal.schema(2)

    assert Decimal.from_logical(schema, decimal.Decimal(text)) == carried
    assert str(Decimal.to_logical(schema, carried)) == text


def test_a_decimal_may_have_more_digits_than_any_default_context() -> None:
    number = decimal.Decimal("9" * 5000 + "." + "1" * 10)

    assert Decimal.to_logical(Decimal.schema(10), Decimal.from_logical(Decimal.schema(10), number)) == number


def test_a_negative_scale_stands_for_trailing_zeros() -> None:
    schema = Decimal.schema(-3)

    assert Decimal.from_logical(schema, decimal.Decimal("5E+3")) == b"\x05"
    assert str(Decimal.to_logical(schema, b"\x05")) == "5E+3"


def test_a_decimal_of_another_scale_or_without_end_is_refused() -> None:
    with pytest.raises(DataException, match=r"Schema has scale 2, value has scale 1\."):
        Decimal.from_logical(Decimal.schema(2), decimal.Decimal("1.5"))
    with pytest.raises(DataException, match="no finite value"):
        Decimal.from_logical(Decimal.schema(2), decimal.Decimal("NaN"))


def test_a_decimal_schema_needs_a_scale() -> None:
    with pytest.raises(DataException, match="scale parameter not found"):
        Decimal.scale(INT32_SCHEMA)


def test_the_schemas_have_kafkas_names_and_versions() -> None:
    assert (Date.SCHEMA.name, Date.SCHEMA.version, Date.SCHEMA.type) == (Date.LOGICAL_NAME, 1, Type.INT32)
    assert (Time.SCHEMA.name, Time.SCHEMA.type) == (Time.LOGICAL_NAME, Type.INT32)
    assert (Timestamp.SCHEMA.name, Timestamp.SCHEMA.type) == (Timestamp.LOGICAL_NAME, Type.INT64)
    assert Decimal.schema(4).parameters == {"scale": "4"}


@pytest.mark.parametrize("days", [0, -1, -719_162, 2_932_896])
def test_dates_go_both_ways(days: int) -> None:
    value = Date.to_logical(Date.SCHEMA, days)

    assert isinstance(value, date)
    assert Date.from_logical(Date.SCHEMA, value) == days


@pytest.mark.parametrize("days", [-719_163, 2_932_897, 2**31 - 1])
def test_dates_outside_of_pythons_years_stay_numbers(days: int) -> None:
    assert Date.to_logical(Date.SCHEMA, days) == days
    assert Date.from_logical(Date.SCHEMA, days) == days


def test_a_date_with_a_time_part_is_refused() -> None:
    assert Date.from_logical(Date.SCHEMA, datetime(1970, 1, 2, tzinfo=UTC)) == 1
    with pytest.raises(DataException, match="Date type should not have any time fields"):
        Date.from_logical(Date.SCHEMA, datetime(1970, 1, 2, 1, tzinfo=UTC))


def test_a_time_is_cut_to_milliseconds() -> None:
    assert Time.from_logical(Time.SCHEMA, time(23, 59, 59, 999_999)) == 86_399_999
    assert Time.to_logical(Time.SCHEMA, 86_399_999) == time(23, 59, 59, 999_000)


def test_a_whole_day_is_a_time_to_java_and_a_number_to_python() -> None:
    assert Time.to_logical(Time.SCHEMA, 86_400_000) == 86_400_000
    assert Time.from_logical(Time.SCHEMA, 86_400_000) == 86_400_000


@pytest.mark.parametrize("millis", [-1, 86_400_001])
def test_times_beyond_one_day_are_refused(millis: int) -> None:
    with pytest.raises(DataException):
        Time.to_logical(Time.SCHEMA, millis)
    with pytest.raises(DataException):
        Time.from_logical(Time.SCHEMA, millis)


@pytest.mark.parametrize("millis", [0, -1, 1_483_425_001_864, -62_135_596_800_000])
def test_timestamps_go_both_ways_in_utc(millis: int) -> None:
    value = Timestamp.to_logical(Timestamp.SCHEMA, millis)

    assert isinstance(value, datetime)
    assert value.utcoffset() == timedelta(0)
    assert Timestamp.from_logical(Timestamp.SCHEMA, value) == millis


def test_timestamps_outside_of_pythons_years_stay_numbers() -> None:
    assert Timestamp.to_logical(Timestamp.SCHEMA, 2**62) == 2**62
    assert Timestamp.from_logical(Timestamp.SCHEMA, 2**62) == 2**62


def test_other_time_zones_are_converted_and_none_is_refused() -> None:
    there = datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))

    assert Timestamp.from_logical(Timestamp.SCHEMA, there) == 0
    with pytest.raises(DataException, match="names no time zone"):
        Timestamp.from_logical(Timestamp.SCHEMA, there.replace(tzinfo=None))


def test_a_schema_of_another_name_is_refused() -> None:
    with pytest.raises(DataException, match="Requested conversion of Date object but the schema does not match"):
        Date.to_logical(Time.SCHEMA, 1)


@pytest.mark.parametrize("logical", [Date, Time, Timestamp])
@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_no_number_of_days_or_milliseconds(
    logical: type[Date] | type[Time] | type[Timestamp], value: bool
) -> None:
    converter = JsonConverter()
    converter.configure({}, False)

    with pytest.raises(DataException, match="expected Date but was bool"):
        logical.from_logical(logical.SCHEMA, value)
    with pytest.raises(DataException, match="expected Date but was bool"):
        converter.from_connect_data("t", logical.SCHEMA, value)


YEAR_10000 = 253_402_300_800_000
#: Timestamps, with what Java prints of them.
TIMESTAMPS = {
    YEAR_10000: "Sat Jan 01 00:00:00 UTC 10000",
    -62_135_596_800_001: "Sun Jan 02 23:59:59 UTC 1",
    2**62: "Fri Apr 24 15:36:27 UTC 146140482",
}
FAR = [FarDate(2_932_897), FarDate(-(2**31)), FarTime(86_400_000), *map(FarTimestamp, [*TIMESTAMPS, 2**63 - 1])]


def transformed(transform, value, schema=None, **settings):
    transform.configure({name.replace("_", "."): text for name, text in settings.items()})
    return transform.apply(SinkRecord("t", 0, 0, value, value_schema=schema)).value


@pytest.mark.parametrize(
    ("logical", "carried", "kind"),
    [
        (Date, 2_932_897, FarDate),
        (Date, -(2**31), FarDate),
        (Time, 86_400_000, FarTime),
        (Timestamp, YEAR_10000, FarTimestamp),
        (Timestamp, -(2**63), FarTimestamp),
    ],
)
def test_a_number_that_python_has_no_date_for_keeps_its_type(logical, carried, kind):
    value = logical.to_logical(logical.SCHEMA, carried)

    assert (type(value), value) == (kind, carried)
    assert type(logical.from_logical(logical.SCHEMA, value)) is int
    validate_value(logical.SCHEMA, value)
    assert type(pickle.loads(pickle.dumps(value))) is kind


@pytest.mark.parametrize("value", FAR)
def test_it_passes_through_columns_of_schemaless_values(value):
    for whole in (value, {"a": value, "b": 1}, [value, 1, "x", {"c": value}], [value, value], {"m": {1: value}}):
        found = decode_typed(*encode(whole), None)
        assert (found, repr(found)) == (whole, repr(whole))


def test_it_passes_through_columns_of_a_struct():
    schema = SchemaBuilder.struct().field("d", Date.SCHEMA).field("t", Timestamp.SCHEMA).build()
    struct = Struct(schema).put("d", FarDate(2_932_897)).put("t", FarTimestamp(2**62))

    found = decode_typed(*encode_typed(struct, schema), schema)

    assert isinstance(found, Struct)
    assert [type(one) for one in found.values] == [FarDate, FarTimestamp]
    assert found == struct


@pytest.mark.parametrize(("millis", "text"), TIMESTAMPS.items())
def test_it_prints_as_the_date_that_it_is(millis, text):
    assert to_java_text({"a": FarTimestamp(millis)}) == f"{{a={text}}}"
    assert Values.convert_to_string(None, FarTimestamp(millis)) == Values.convert_to_string(
        Timestamp.SCHEMA, FarTimestamp(millis)
    )


@pytest.mark.parametrize("value", [*FAR, datetime(2017, 1, 3, tzinfo=UTC)])
def test_without_a_schema_it_is_refused_where_java_refuses_a_date(value):
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, False)
    with pytest.raises(DataException, match=r"class java\.util\.Date"):
        converter.from_connect_data("t", None, {"a": value})
    for target in ("string", "int32", "int64", "float64", "boolean"):
        with pytest.raises(DataException, match=r"class java\.util\.Date"):
            transformed(CastValue(), {"a": value}, spec=f"a:{target}")
    with pytest.raises(DataException, match=r"class java\.util\.Date"):
        transformed(MaskFieldValue(), {"a": value}, fields="a", replacement="7")
    assert infer_schema(value) is None


@pytest.mark.parametrize("value", FAR)
def test_with_a_schema_it_is_cast_and_written_as_the_number_that_carries_it(value):
    logical: Any = {FarDate: Date, FarTime: Time, FarTimestamp: Timestamp}[type(value)]
    schema = SchemaBuilder.struct().field("a", logical.SCHEMA).build()
    struct = Struct(schema).put("a", value)
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, False)

    assert json.loads(converter.from_connect_data("t", schema, struct) or b"") == {"a": int(value)}
    assert transformed(CastValue(), struct, schema, spec="a:int64").get("a") == int(value)


@pytest.mark.parametrize("value", FAR)
def test_a_mask_is_of_the_same_type(value):
    masked = transformed(MaskFieldValue(), {"a": value}, fields="a")["a"]
    expected = {FarDate: date(1970, 1, 1), FarTime: time()}
    assert masked == expected.get(type(value), datetime(1970, 1, 1, tzinfo=UTC))


def test_timestamp_converter_takes_it_for_a_date_and_makes_it():
    made = transformed(TimestampConverterValue(), {"a": YEAR_10000}, field="a", target_type="Timestamp")["a"]
    assert type(made) is FarTimestamp
    back = transformed(TimestampConverterValue(), {"a": made}, field="a", target_type="unix")["a"]
    assert (type(back), back) == (int, YEAR_10000)
    day = transformed(TimestampConverterValue(), {"a": made}, field="a", target_type="Date")["a"]
    assert (type(day), day) == (FarDate, YEAR_10000 // 86_400_000)
    assert transformed(TimestampConverterValue(), {"a": day}, field="a", target_type="unix")["a"] == YEAR_10000
    text = transformed(TimestampConverterValue(), {"a": day}, field="a", target_type="string", format="y-MM-dd")["a"]
    assert text == "10000-01-01"


def test_a_plain_number_is_none():
    assert not isinstance(5, FarMoment)
    with pytest.raises(DataException):
        validate_value(Timestamp.SCHEMA, True)


def test_the_error_of_a_date_without_a_schema_names_its_place_and_what_to_do():
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, False)

    with pytest.raises(DataException) as caught:
        converter.from_connect_data("t", None, {"id": 1, "row": {"at": [1, datetime(2017, 1, 3, tzinfo=UTC)]}})

    assert str(caught.value) == (
        "Java class class java.util.Date does not have corresponding schema type. It is the value of row.at[1]. Give "
        "it a type with a schema (value_schema of the record or frame, a table with typed columns), or make text or a "
        "number of it"
    )
