"""JSON Schema of a Connect schema and back, values to JSON and back, as Confluent's JsonSchemaData does it."""

import base64
import decimal
import json
import math
from datetime import UTC, date, datetime, time
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples
from tests.unit.converters.registry.connect_values import finished, primitive_schemas, structs, values_of

from penstock.converters.registry.json_schema.schemas import connect_schema, json_schema_text
from penstock.converters.registry.json_schema.values import (
    JsonSchemaOptions,
    decode,
    encode,
    has_decimals,
    value_reader,
    value_writer,
)
from penstock.data import (
    INT32_SCHEMA,
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
from penstock.errors import DataException

PLAIN = JsonSchemaOptions()
NUMERIC = JsonSchemaOptions(decimal_format="NUMERIC")


def text_of(schema: Schema, options: JsonSchemaOptions = PLAIN) -> Any:
    return json.loads(json_schema_text(schema, options))


def read(node: Any, options: JsonSchemaOptions = PLAIN, **references: Any) -> Schema:
    named = {name: json.dumps(one) for name, one in references.items()}
    return connect_schema(json.dumps(node), named, options)


def written(schema: Schema, value: object, options: JsonSchemaOptions = PLAIN) -> Any:
    return json.loads(encode(value_writer(schema, options), value), parse_float=decimal.Decimal)


def taken(schema: Schema, text: str) -> Any:
    return value_reader(schema)(decode(text.encode(), exact=has_decimals(schema)))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (Schema(Type.INT8), {"type": "integer", "connect.type": "int8"}),
        (Schema(Type.INT64), {"type": "integer", "connect.type": "int64"}),
        (Schema(Type.FLOAT32), {"type": "number", "connect.type": "float32"}),
        (Schema(Type.BOOLEAN), {"type": "boolean"}),
        (STRING_SCHEMA, {"type": "string"}),
        (Schema(Type.BYTES), {"type": "string", "connect.type": "bytes"}),
        (OPTIONAL_STRING_SCHEMA, {"oneOf": [{"type": "null"}, {"type": "string"}]}),
        (
            Timestamp.SCHEMA,
            {
                "type": "integer",
                "connect.type": "int64",
                "title": "org.apache.kafka.connect.data.Timestamp",
                "connect.version": 1,
            },
        ),
        (
            SchemaBuilder.int32()
            .name("Age")
            .version(3)
            .doc("in years")
            .parameter("unit", "y")
            .default_value(7)
            .build(),
            {
                "type": "integer",
                "connect.type": "int32",
                "title": "Age",
                "connect.version": 3,
                "description": "in years",
                "connect.parameters": {"unit": "y"},
                "default": 7,
            },
        ),
        (SchemaBuilder.array(STRING_SCHEMA).build(), {"type": "array", "items": {"type": "string"}}),
        (
            SchemaBuilder.map(STRING_SCHEMA, INT64_SCHEMA).build(),
            {
                "type": "object",
                "additionalProperties": {"type": "integer", "connect.type": "int64"},
                "connect.type": "map",
            },
        ),
        (
            SchemaBuilder.map(INT64_SCHEMA, STRING_SCHEMA).build(),
            {
                "type": "array",
                "connect.type": "map",
                "items": {
                    "type": "object",
                    "properties": {
                        "key": {"type": "integer", "connect.type": "int64", "connect.index": 0},
                        "value": {"type": "string", "connect.index": 1},
                    },
                },
            },
        ),
        (
            SchemaBuilder.struct().name("P").field("a", STRING_SCHEMA).field("b", OPTIONAL_INT32_SCHEMA).build(),
            {
                "type": "object",
                "title": "P",
                "properties": {
                    "a": {"type": "string", "connect.index": 0},
                    "b": {
                        "oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int32"}],
                        "connect.index": 1,
                    },
                },
            },
        ),
    ],
)
def test_a_schema_has_the_json_schema_of_confluents_converter_and_comes_back(schema: Schema, expected: Any) -> None:
    assert text_of(schema) == expected
    assert read(expected) == schema


def test_decimals_are_bytes_or_numbers_as_the_format_says() -> None:
    schema = Decimal.schema(2)
    value = decimal.Decimal("12.30")

    assert text_of(schema)["type"] == "string"
    assert written(schema, value) == base64.b64encode(b"\x04\xce").decode()
    assert taken(schema, '"BM4="') == value

    assert text_of(schema, NUMERIC)["type"] == "number"
    assert read(text_of(schema, NUMERIC)) == schema
    assert encode(value_writer(schema, NUMERIC), value) == b"12.30"
    read_back = taken(schema, "12.30")
    assert (read_back, read_back.as_tuple().exponent) == (value, -2)


def test_logical_types_are_integers() -> None:
    schema = (
        SchemaBuilder.struct().field("d", Date.SCHEMA).field("t", Time.SCHEMA).field("ts", Timestamp.SCHEMA).build()
    )
    moment = datetime(1970, 1, 2, 0, 0, 1, tzinfo=UTC)
    value = Struct(schema).put("d", date(1970, 2, 1)).put("t", time(0, 0, 2)).put("ts", moment)

    assert written(schema, value) == {"d": 31, "t": 2000, "ts": 86_401_000}
    assert taken(schema, '{"ts": 86401000, "d": 31, "t": 2000}') == value


def test_only_additional_properties_that_are_allowed_are_allowed_by_the_schema() -> None:
    schema = SchemaBuilder.struct().field("a", STRING_SCHEMA).build()

    assert "additionalProperties" not in text_of(schema)
    assert text_of(schema, JsonSchemaOptions(additional_properties=False))["additionalProperties"] is False


def test_a_null_is_null_its_default_or_left_out() -> None:
    schema = (
        SchemaBuilder.struct()
        .field("optional", OPTIONAL_STRING_SCHEMA)
        .field("required", STRING_SCHEMA)
        .field("default", SchemaBuilder.int32().optional().default_value(5).build())
        .build()
    )
    empty = Struct(schema)

    assert written(schema, empty) == {"optional": None, "default": 5}
    assert written(schema, empty, JsonSchemaOptions(ignore_defaults=True)) == {"optional": None, "default": None}


def test_what_is_missing_is_the_default_and_null_is_refused_where_a_value_is_required() -> None:
    schema = (
        SchemaBuilder.struct()
        .field("a", SchemaBuilder.int32().default_value(5).build())
        .field("b", OPTIONAL_STRING_SCHEMA)
        .field("c", SchemaBuilder.struct().field("d", STRING_SCHEMA).build())
        .build()
    )

    assert taken(schema, '{"c": {"d": "x"}, "more": 1}').values[:2] == [5, None]
    with pytest.raises(DataException, match="field c: field d: Invalid null value for required STRING field"):
        taken(schema, '{"a": 1, "c": {"d": null}}')


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (STRING_SCHEMA, "5"),
        (INT32_SCHEMA, "{"),
        (INT32_SCHEMA, "null"),
        (INT32_SCHEMA, "\xff"),
        (INT32_SCHEMA, ""),
        (SchemaBuilder.array(INT32_SCHEMA).build(), "{}"),
        (SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build(), "[]"),
        (SchemaBuilder.map(INT32_SCHEMA, INT32_SCHEMA).build(), '[{"key": 1}]'),
        (SchemaBuilder.struct().field("a", INT32_SCHEMA).build(), "[1]"),
        (Schema(Type.BYTES), '"%"'),
        (Date.SCHEMA, '"today"'),
        (Decimal.schema(1), "true"),
    ],
)
def test_json_of_another_kind_is_an_error_of_its_record(schema: Schema, text: str) -> None:
    with pytest.raises(DataException):
        value_reader(schema)(decode(text.encode("latin-1"), exact=has_decimals(schema)))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT32_SCHEMA, "1"),
        (INT32_SCHEMA, True),
        (INT64_SCHEMA, 1 << 70),
        (STRING_SCHEMA, 1),
        (STRING_SCHEMA, "\ud800"),
        (Schema(Type.BOOLEAN), 1),
        (Schema(Type.FLOAT64), 1),
        (Schema(Type.BYTES), "x"),
        (Date.SCHEMA, "x"),
        (Decimal.schema(1), decimal.Decimal("1.25")),
        (SchemaBuilder.array(INT32_SCHEMA).build(), 1),
        (SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build(), {None: 1}),
        (SchemaBuilder.struct().field("a", INT32_SCHEMA).build(), Struct(SchemaBuilder.struct().build())),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_of_its_record(schema: Schema, value: object) -> None:
    with pytest.raises(DataException):
        encode(value_writer(schema, PLAIN), value)


def test_floats_are_as_short_as_their_width_allows_and_none_is_lost() -> None:
    single, double = Schema(Type.FLOAT32), Schema(Type.FLOAT64)
    tenth = 0.10000000149011612

    assert encode(value_writer(single, PLAIN), tenth) == b"0.1"
    assert taken(single, "0.1") == tenth
    for value, text in ((math.inf, '"Infinity"'), (-math.inf, '"-Infinity"')):
        assert encode(value_writer(double, PLAIN), value) == text.encode()
        assert taken(double, text) == value
    assert math.isnan(taken(single, encode(value_writer(single, PLAIN), math.nan).decode()))


# ------------------------------------------------------------------------------------------------ schemas of others
def test_types_without_width_are_the_widest() -> None:
    schema = read({"type": "object", "properties": {"i": {"type": "integer"}, "n": {"type": "number"}}})

    assert [(field.name, field.schema.type) for field in schema.fields] == [("i", Type.INT64), ("n", Type.FLOAT64)]


def test_a_list_of_types_with_null_is_optional_and_of_several_a_union() -> None:
    assert read({"type": ["null", "string"]}) == OPTIONAL_STRING_SCHEMA

    union = read({"type": ["integer", "string", "null"]})

    assert (union.name, union.optional) == ("io.confluent.connect.json.OneOf", True)
    assert [field.name for field in union.fields] == [
        "io.confluent.connect.json.OneOf.field.0",
        "io.confluent.connect.json.OneOf.field.1",
    ]
    assert taken(union, "7").values == [7, None]
    assert taken(union, '"x"').values == [None, "x"]
    assert written(union, taken(union, '"x"')) == "x"
    assert taken(union, "null") is None
    with pytest.raises(DataException, match="Did not find matching oneof field"):
        taken(union, "true")


def test_of_a_union_of_structs_the_one_with_most_of_the_properties_is_taken() -> None:
    first = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    second = {"type": "object", "properties": {"a": {"type": "string"}, "c": {"type": "string"}}}
    union = read({"anyOf": [first, second]})

    assert [one is None for one in taken(union, '{"a": "x", "b": "y"}').values] == [False, True]
    assert [one is None for one in taken(union, '{"a": "x", "c": "y"}').values] == [True, False]
    assert read(text_of(union)).fields == union.fields


def test_an_enum_is_a_string_with_its_symbols_in_parameters() -> None:
    schema = read({"type": "string", "enum": ["RED", "BLUE"]})

    assert schema.type is Type.STRING
    assert schema.parameters == {
        "io.confluent.connect.json.Enum": "",
        "io.confluent.connect.json.Enum.RED": "RED",
        "io.confluent.connect.json.Enum.BLUE": "BLUE",
    }
    assert text_of(schema) == {"enum": ["RED", "BLUE"]}
    general = JsonSchemaOptions(general_sums=True)
    assert read({"enum": ["RED", None]}, general).parameters == {
        "org.apache.kafka.connect.data.Enum": "",
        "org.apache.kafka.connect.data.Enum.RED": "0",
        "org.apache.kafka.connect.data.Enum.<NULL>": "1",
    }
    assert text_of(read({"enum": ["RED", None]}, general), general)["enum"] == ["RED", None]


def test_numbers_that_are_listed_are_numbers() -> None:
    assert read({"type": "integer", "enum": [1, 2]}) == INT64_SCHEMA
    assert read({"type": "string", "const": "x"}) == STRING_SCHEMA


def test_properties_of_all_parts_are_fields_and_only_required_ones_are_if_wished() -> None:
    node = {
        "allOf": [
            {"$ref": "#/definitions/base"},
            {"type": "object", "properties": {"b": {"type": "string"}}},
        ],
        "definitions": {
            "base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        },
    }

    assert [(field.name, field.schema) for field in read(node).fields] == [("a", STRING_SCHEMA), ("b", STRING_SCHEMA)]
    schema = read(node, JsonSchemaOptions(optional_unless_required=True))
    assert [field.schema.optional for field in schema.fields] == [False, True]


def test_references_are_followed_into_other_schemas() -> None:
    address = {"type": "object", "title": "Address", "properties": {"zip": {"$ref": "#/$defs/zip"}}}
    address["$defs"] = {"zip": {"type": "string", "title": "Zip"}}
    node = {
        "$id": "http://example.com/person.json",
        "type": "object",
        "properties": {
            "home": {"$ref": "address.json"},
            "work": {"oneOf": [{"type": "null"}, {"$ref": "address.json"}]},
        },
    }

    schema = read(node, PLAIN, **{"address.json": address})

    home, work = (field.schema for field in schema.fields)
    assert (home.name, home.optional, work.name, work.optional) == ("Address", False, "Address", True)
    assert home.fields[0].schema == SchemaBuilder.string().name("Zip").build()
    with pytest.raises(DataException, match=r"refers to address\.json.*there are none"):
        read(node)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({}, "takes values of any type"),
        (True, "says of no type"),
        ({"type": "null"}, "null and nothing else"),
        ({"type": "array"}, "did not specify the items type"),
        ({"type": "integer", "connect.type": "int12"}, "Unsupported type int12"),
        ({"type": "colour"}, "no type 'colour'"),
        ({"type": "object", "properties": {"me": {"$ref": "#"}}}, "holds itself by way of #"),
        ({"allOf": [{"$ref": "#"}]}, "holds itself by way of #"),
        ({"type": "object", "properties": 5}, "no JSON Schema"),
        ({"type": "integer", "default": []}, None),
        (5, "no JSON Schema"),
    ],
)
def test_what_has_no_connect_schema_is_refused(node: Any, message: str | None) -> None:
    if message is None:
        assert read(node).default == 0
        return
    with pytest.raises(DataException, match=message):
        read(node)


def test_the_registrys_version_counts_where_the_schema_has_none() -> None:
    own = json_schema_text(SchemaBuilder.struct().version(3).build(), PLAIN)
    none = json_schema_text(SchemaBuilder.struct().field("a", INT32_SCHEMA).build(), PLAIN)

    assert connect_schema(own, {}, PLAIN, version=8).version == 3
    schema = connect_schema(none, {}, PLAIN, version=8)
    assert (schema.version, schema.fields[0].schema.version) == (8, None)


# ------------------------------------------------------------------------------------------------ everything
def _any_schema() -> st.SearchStrategy[Schema]:
    leaves = finished(primitive_schemas(), described=True)
    keys = finished(primitive_schemas(), described=False)
    return st.recursive(
        leaves,
        lambda inner: finished(
            inner.map(SchemaBuilder.array)
            | st.tuples(keys, inner).map(lambda pair: SchemaBuilder.map(*pair))
            | structs(inner, lambda: None),
            described=True,
        ),
        max_leaves=5,
    )


@examples(12)
@given(st.data(), st.booleans())
def test_any_schema_and_any_value_come_back_and_the_json_is_valid(data: st.DataObject, numeric: bool) -> None:
    options = NUMERIC if numeric else PLAIN
    schema = data.draw(_any_schema())
    value = data.draw(values_of(schema))
    expected = schema.default if value is None else value

    text = json_schema_text(schema, options)
    encoded = encode(value_writer(schema, options), value)

    assert connect_schema(text, {}, options) == schema
    read_back = value_reader(schema)(decode(encoded, exact=has_decimals(schema)))
    assert _filled(schema, read_back) == _filled(schema, expected)
    if b"Infinity" not in encoded:
        jsonschema.validate(json.loads(encoded), json.loads(text))


def _filled(schema: Schema, value: Any) -> Any:
    """The value with defaults in place of nulls, at every depth."""
    if value is None:
        return schema.default
    if schema.type is Type.STRUCT:
        return [_filled(field.schema, one) for field, one in zip(schema.fields, value.values, strict=True)]
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [_filled(schema.value_schema, one) for one in value]
    if schema.type is Type.MAP:
        assert schema.value_schema is not None
        return {key: _filled(schema.value_schema, one) for key, one in value.items()}
    return value
