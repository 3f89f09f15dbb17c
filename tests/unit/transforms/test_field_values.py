"""MaskField on single records, and its settings."""

import decimal
from datetime import UTC, datetime

import pytest

from penstock.api import SinkRecord
from penstock.data import Decimal, SchemaBuilder, Struct, Timestamp
from penstock.errors import ConfigException, DataException
from penstock.transforms.field_values import MaskFieldValue


def mask(value, schema=None, **config):
    transform = MaskFieldValue()
    transform.configure({name.replace("_", "."): setting for name, setting in config.items()})
    made = transform.apply(SinkRecord("t", 0, 0, value, value_schema=schema))
    assert made is not None
    return made.value


def test_values_without_schema_become_the_empty_value_of_their_class():
    value = {"i": 5, "f": 1.5, "s": "x", "b": True, "l": [1], "m": {"a": 1}, "n": None, "d": decimal.Decimal("1.5")}
    assert mask(value, fields=",".join(value)) == {
        "i": 0,
        "f": 0.0,
        "s": "",
        "b": False,
        "l": [],
        "m": {},
        "n": None,
        "d": decimal.Decimal(0),
    }


def test_a_replacement_is_narrowed_to_the_type_of_the_field():
    schema = SchemaBuilder.struct().field("a", SchemaBuilder.int8().build()).build()
    struct = Struct(schema).put("a", 1)
    assert mask(struct, schema, fields="a", replacement="128").get("a") == -128
    assert mask(struct, schema, fields="a", replacement="3.5").get("a") == 3
    with pytest.raises(DataException, match="Unable to convert NaN"):
        mask(struct, schema, fields="a", replacement="NaN")


def test_a_decimal_is_masked_with_a_scale_of_its_own():
    schema = SchemaBuilder.struct().field("a", Decimal.schema(2)).build()
    masked = mask(Struct(schema).put("a", decimal.Decimal("1.25")), schema, fields="a").get("a")
    assert masked.as_tuple() == decimal.Decimal(0).as_tuple()


def test_a_default_is_filled_in_and_then_masked():
    text = SchemaBuilder.string().optional().default_value("secret").build()
    schema = SchemaBuilder.struct().field("a", text).field("b", text).build()
    filled = mask(Struct(schema), schema, fields="a")
    assert filled.values == ["", "secret"]
    kept = mask(Struct(schema), schema, fields="a", replace_null_with_default="false")
    assert kept.values == [None, None]


def test_dates_cannot_be_replaced_but_become_1970():
    schema = SchemaBuilder.struct().field("a", Timestamp.SCHEMA).build()
    struct = Struct(schema).put("a", datetime(2017, 1, 3, tzinfo=UTC))
    assert mask(struct, schema, fields="a").get("a") == datetime(1970, 1, 1, tzinfo=UTC)
    with pytest.raises(DataException, match=r"Cannot mask value of type class java.util.Date with custom replacement."):
        mask(struct, schema, fields="a", replacement="5")


@pytest.mark.parametrize("value", [None, "x", [1]])
def test_what_is_no_map_fails(value):
    with pytest.raises(DataException, match="Only Map objects supported in absence of schema for \\[mask fields\\]"):
        mask(value, fields="a")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"fields": ""}, "Configuration 'fields' must not be empty. Valid values include: any non-empty value"),
        ({"fields": None}, "Configuration 'fields' values must not be null."),
        (
            {"fields": "a", "replacement": " "},
            "Invalid value  for configuration replacement: String must be non-empty",
        ),
    ],
)
def test_wrong_settings_are_refused(config, message):
    with pytest.raises(ConfigException) as caught:
        MaskFieldValue().configure(config)
    assert str(caught.value) == message
