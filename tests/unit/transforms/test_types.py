"""Cast and SetSchemaMetadata on single records, and their settings."""

import decimal
import math
from datetime import UTC, date, datetime, time

import pytest

from penstock.api import SinkRecord
from penstock.data import STRING_SCHEMA, Date, Decimal, SchemaBuilder, Struct, Time, Timestamp, Type
from penstock.errors import ConfigException, DataException
from penstock.transforms.types import CastKey, CastValue, SetSchemaMetadataKey, SetSchemaMetadataValue, cast_value


def cast(value, schema, spec, cls=CastValue, **more):
    transform = cls()
    transform.configure({"spec": spec, **more})
    return transform.apply(SinkRecord("t", 0, 0, value, value_schema=schema, key="k"))


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [
        (300, Type.INT8, 44),
        (1e300, Type.INT8, -1),
        (-math.inf, Type.INT8, 0),
        (70000.7, Type.INT16, 4464),
        (math.nan, Type.INT64, 0),
        (1e300, Type.INT64, 2**63 - 1),
        (0.9, Type.BOOLEAN, False),
        (True, Type.FLOAT64, 1.0),
        ("+5", Type.INT32, 5),
        ("\u0663", Type.INT32, 3),
        ("TRUE", Type.BOOLEAN, True),
        ("yes", Type.BOOLEAN, False),
        (" 1.5f ", Type.FLOAT64, 1.5),
        ("0x1p3", Type.FLOAT32, 8.0),
        ("-Infinity", Type.FLOAT64, -math.inf),
        (1e7, Type.STRING, "1.0E7"),
        (b"hi", Type.STRING, "aGk="),
        (False, Type.STRING, "false"),
    ],
)
def test_a_schemaless_value_becomes_what_java_makes_of_it(value, target, expected):
    assert cast_value(None, value, target) == expected


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (" 1", Type.INT32),
        ("1_0", Type.INT64),
        ("1.5", Type.INT32),
        ("128", Type.INT8),
        ("inf", Type.FLOAT64),
        ("", Type.FLOAT32),
    ],
)
def test_text_that_is_no_number_of_the_type_fails_with_the_text(text, target):
    with pytest.raises(DataException) as caught:
        cast_value(None, text, target)
    assert str(caught.value) == f"Value ({text}) was out of range for requested data type"


@pytest.mark.parametrize(
    ("schema", "value", "target", "expected"),
    [
        (Date.SCHEMA, date(1971, 1, 1), Type.INT8, 109),
        (Time.SCHEMA, time(0, 0), Type.STRING, "00:00:00.000Z"),
        (Timestamp.SCHEMA, datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), Type.STRING, "23:59:59.999Z"),
        (Date.SCHEMA, date(1970, 1, 2), Type.STRING, "1970-01-02"),
        (Decimal.schema(2), decimal.Decimal("12.34"), Type.INT8, 12),
        (Decimal.schema(-3), decimal.Decimal("1E+3"), Type.STRING, "1E+3"),
        (Decimal.schema(0), decimal.Decimal(2**64 + 5), Type.INT64, 5),
    ],
)
def test_logical_types_are_cast_by_what_carries_them(schema, value, target, expected):
    assert cast_value(schema, value, target) == expected


def test_fields_lose_their_names_but_keep_optional_and_default():
    field = SchemaBuilder.string().optional().default_value("7").name("n").doc("d").build()
    schema = SchemaBuilder.struct().name("s").version(3).field("a", field).field("b", field).build()
    made = cast(Struct(schema).put("a", "5"), schema, "a:int8")
    assert made.value.schema.name == "s"
    assert made.value.get("a") == 5
    assert made.value.schema.field("a").schema == SchemaBuilder.int8().optional().default_value(7).build()
    assert made.value.schema.field("b").schema == field
    assert made.value.get_without_default("b") == "7"


def test_a_null_keeps_its_schema():
    schema = SchemaBuilder.int32().optional().build()
    assert cast(None, schema, "string").value_schema is schema


def test_a_field_that_is_missing_from_a_map_is_added_as_null():
    assert cast({"a": 1}, None, "b:int8").value == {"a": 1, "b": None}


def test_the_key_form_leaves_the_value_alone():
    transform = CastKey()
    transform.configure({"spec": "int8"})
    made = transform.apply(SinkRecord("t", 0, 0, 300, key=300))
    assert made is not None
    assert (made.key, made.value) == (44, 300)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (None, "Must specify at least one field to cast."),
        (
            "a:bytes",
            "Cast transformation does not support casting to BYTES; supported types are "
            "[INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING]",
        ),
        ("a:b:c", "Invalid value [a:b:c] for configuration renames: Invalid rename mapping: a:b:c"),
        (
            "a:date",
            "Invalid value java.lang.IllegalArgumentException: No enum constant org.apache.kafka.connect.data."
            "Schema.Type.DATE for configuration Invalid type found in casting spec: date",
        ),
        (
            "int8,a:int8",
            "Cast transformations that specify a type to cast the entire value to may only specify a "
            "single cast in their spec",
        ),
    ],
)
def test_a_wrong_spec_is_refused_at_validation_and_configuration(spec, message):
    transform = CastValue()
    with pytest.raises(ConfigException) as caught:
        transform.configure({"spec": spec})
    assert str(caught.value) == message
    errors = {value.name: value.error_messages for value in transform.config().validate({"spec": spec})}
    assert errors["spec"] == [message]


SCHEMA = SchemaBuilder.struct().name("old").version(1).doc("d").field("a", STRING_SCHEMA).build()


def named(cls=SetSchemaMetadataValue, **config):
    transform = cls()
    transform.configure({name.replace("_", "."): setting for name, setting in config.items()})
    return transform


def test_name_and_version_change_and_the_rest_stays():
    record = SinkRecord("t", 0, 0, Struct(SCHEMA).put("a", "x"), value_schema=SCHEMA)
    made = named(schema_version="7").apply(record)
    assert (made.value_schema.name, made.value_schema.version, made.value_schema.doc) == ("old", 7, "d")
    assert made.value.schema == made.value_schema
    assert named(schema_name="").apply(record).value_schema.name == ""


def test_the_metadata_of_the_key_leave_the_value_alone():
    record = SinkRecord("t", 0, 0, "v", value_schema=STRING_SCHEMA, key=None, key_schema=SCHEMA)
    made = named(SetSchemaMetadataKey, schema_name="new").apply(record)
    assert (made.key_schema.name, made.value_schema) == ("new", STRING_SCHEMA)


def test_only_structs_have_metadata_to_set():
    with pytest.raises(DataException, match="Cannot list fields on non-struct type"):
        named(schema_name="n").apply(SinkRecord("t", 0, 0, "v", value_schema=STRING_SCHEMA))
    with pytest.raises(DataException, match=r"Schema required for \[updating schema metadata\]"):
        named(schema_name="n").apply(SinkRecord("t", 0, 0, "v"))
    nothing = SinkRecord("t", 0, 0, None)
    assert named(schema_name="n").apply(nothing) is nothing


def test_neither_name_nor_version_is_a_mistake():
    with pytest.raises(ConfigException, match="Neither schema name nor version configured"):
        named()
    with pytest.raises(ConfigException, match=r"schema\.version: Not a number of type INT"):
        named(schema_version="x")
