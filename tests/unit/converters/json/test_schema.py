"""Schemas in JSON: what their defaults may be, and which values they have."""

import pytest

from penstock.converters.json.converter import JsonConverter
from penstock.errors import DataException, SchemaBuilderException

DECIMAL = '"type":"bytes","name":"org.apache.kafka.connect.data.Decimal"'


def read(schema, payload, **config):
    converter = JsonConverter()
    converter.configure({name.replace("_", "."): setting for name, setting in config.items()}, False)
    return converter.to_connect_data("t", f'{{"schema":{schema},"payload":{payload}}}'.encode())


@pytest.mark.parametrize("kind", ["string", "bytes"])
@pytest.mark.parametrize("default", ["5", "true", "[]", "{}", "1.5", "null"])
def test_a_default_that_is_no_text_is_no_default_of_an_optional_schema(kind, default):
    found = read(f'{{"type":"{kind}","optional":true,"default":{default}}}', "null")
    assert (found.schema.default, found.value) == (None, None)


@pytest.mark.parametrize("kind", ["string", "bytes"])
def test_a_default_that_is_no_text_is_refused_where_a_value_is_required(kind):
    with pytest.raises(SchemaBuilderException, match="Invalid default value"):
        read(f'{{"type":"{kind}","default":5}}', '"eA=="')


@pytest.mark.parametrize(
    "schema",
    [
        '"type":"int32"',
        '"type":"string"',
        '"type":"boolean"',
        '"type":"array","items":{"type":"int32"}',
        '"type":"struct","fields":[]',
        '"type":"int64","name":"org.apache.kafka.connect.data.Timestamp"',
    ],
)
def test_null_is_no_default_of_a_required_schema(schema):
    with pytest.raises(DataException, match="Invalid null value for required"):
        read(f'{{{schema},"default":null}}', "1")


@pytest.mark.parametrize("scale", ["", ',"parameters":{"scale":"x"}', ',"parameters":{"scale":"99999999999"}'])
def test_base64_is_no_decimal_without_a_scale(scale):
    with pytest.raises(DataException, match="Invalid bytes for Decimal field"):
        read(f"{{{DECIMAL}{scale}}}", '"AQ=="')
    assert str(read(f"{{{DECIMAL}{scale}}}", "1.50").value) == "1.50"


def test_no_bytes_are_no_decimal():
    with pytest.raises(DataException, match="Invalid bytes for Decimal field"):
        read(f'{{{DECIMAL},"parameters":{{"scale":"2"}}}}', '""')


@pytest.mark.parametrize("payload", ["1", '"text"', "[]"])
def test_a_string_that_is_named_date_has_no_values(payload):
    with pytest.raises(DataException, match="type STRING cannot be named"):
        read('{"type":"string","name":"org.apache.kafka.connect.data.Date"}', payload)


@pytest.mark.parametrize(("kind", "value"), [("int32", 0), ("boolean", False), ("string", None)])
def test_a_blank_message_of_a_fixed_schema_is_no_null(kind, value):
    converter = JsonConverter()
    converter.configure({"schema.content": f'{{"type":"{kind}"}}'}, False)
    for blank in (b"", b" \t\n", b"\xef\xbb\xbf "):
        assert converter.to_connect_data("t", blank).value == value
