"""Dates, times and timestamps outside of Python's years keep their type, with a schema and without."""

import json
import pickle
from datetime import UTC, date, datetime, time
from typing import Any

import pytest

from penstock.api import SinkRecord
from penstock.converters.json.converter import JsonConverter
from penstock.data import (
    Date,
    FarDate,
    FarMoment,
    FarTime,
    FarTimestamp,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
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
