"""Logical types: what carries them, and where Python's range ends."""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime, time, timedelta, timezone

import pytest

from penstock.converters.json.converter import JsonConverter
from penstock.data import INT32_SCHEMA, Date, Decimal, Time, Timestamp, Type
from penstock.errors import DataException


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
