"""What a stock converter writes it reads again: ``to_connect(from_connect(x))`` is ``x``.

For JSON without schemas it is what JSON can say of ``x``; ``as_json`` states the rule.
"""

from __future__ import annotations

import base64
import math
import struct
from datetime import date, datetime, time
from decimal import Decimal as Number
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples, schemaless, schemas, values

from penstock.api import Converter
from penstock.converters.json.converter import JsonConverter
from penstock.converters.primitives import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
)
from penstock.converters.string import StringConverter
from penstock.data import Date, Decimal, Schema, Struct, Time, Timestamp, Type, round_to_float32
from penstock.plugins.kinds import PluginKind
from penstock.plugins.stock import STOCK

#: The converters of single values, with the type that each is for.
SINGLE: dict[type[Converter], Type] = {
    StringConverter: Type.STRING,
    ByteArrayConverter: Type.BYTES,
    BooleanConverter: Type.BOOLEAN,
    ShortConverter: Type.INT16,
    IntegerConverter: Type.INT32,
    LongConverter: Type.INT64,
    FloatConverter: Type.FLOAT32,
    DoubleConverter: Type.FLOAT64,
}

typed = schemas().flatmap(lambda schema: st.tuples(st.just(schema), values(schema)))


def json_converter(**config: str) -> JsonConverter:
    converter = JsonConverter()
    converter.configure({name.replace("_", "."): value for name, value in config.items()}, False)
    return converter


def there_and_back(converter: Converter, schema: Schema | None, value: object) -> tuple[Schema | None, object]:
    read = converter.to_connect_data("t", converter.from_connect_data("t", schema, value))
    return read.schema, read.value


def with_defaults(value: Any, schema: Schema | None) -> Any:
    """A value in which null has become the default, where its schema has one."""
    if value is None:
        return None if schema is None else schema.default
    match value:
        case Struct():
            fields = zip(value.schema.fields, value.values, strict=True)
            return Struct.unchecked(value.schema, [with_defaults(one, field.schema) for field, one in fields])
        case list() if schema is not None:
            return [with_defaults(one, schema.value_schema) for one in value]
        case dict() if schema is not None:
            return {key: with_defaults(one, schema.value_schema) for key, one in value.items()}
        case _:
            return value


def as_json(value: Any, schema: Schema | None, *, numeric: bool) -> Any:
    """What JSON says of a value: null, true, numbers, texts, lists and maps of texts.

    Bytes are base64, a Decimal too unless it is written as a number (which is read as float64, without a fraction as
    int64, of which it keeps the lowest 64 bits), a Date is its days, Time and Timestamp their milliseconds, a struct is
    a map, and a map whose keys are no strings a list of pairs.
    """
    if schema is not None:
        value = schema.default if value is None else value
    name = None if schema is None else schema.name
    match value:
        case Struct():
            fields = zip(value.schema.fields, value.values, strict=True)
            return {field.name: as_json(one, field.schema, numeric=numeric) for field, one in fields}
        case list():
            return [as_json(one, schema and schema.value_schema, numeric=numeric) for one in value]
        case dict():
            inner = {key: as_json(one, schema and schema.value_schema, numeric=numeric) for key, one in value.items()}
            texts = schema is None or (schema.key_schema is not None and schema.key_schema.type is Type.STRING)
            return inner if texts else [[key, one] for key, one in inner.items()]
        case Number():
            assert schema is not None
            if not numeric:
                return as_json(Decimal.from_logical(schema, value), None, numeric=False)
            return float(value) if Decimal.scale(schema) else (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime():
            return Timestamp.from_logical(Timestamp.SCHEMA, value)
        case date():
            return Date.from_logical(Date.SCHEMA, value)
        case time():
            return Time.from_logical(Time.SCHEMA, value)
        case _:
            assert name is None or not name.startswith("org.apache.kafka") or value is None
            return value


def same(left: Any, right: Any) -> bool:
    """Equality that tells 1 from 1.0 and from True, also in lists and maps."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(one, right[key]) for key, one in left.items())
    return type(left) is type(right) and bool(left == right)


def test_every_stock_converter_is_here() -> None:
    """Those with a schema registry have such tests in ``registry``."""
    own = {one.target for one in STOCK if one.kind is PluginKind.CONVERTER}
    targets = {one for one in own if not one.startswith("penstock.converters.registry.")}

    here: list[type[Converter]] = [JsonConverter, *SINGLE]
    assert targets == {f"{one.__module__}:{one.__name__}" for one in here}


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
@examples(15)
@given(pair=typed)
def test_json_with_schemas_gives_back_schema_and_value(decimals: str, pair: tuple[Schema, object]) -> None:
    schema, value = pair
    found = there_and_back(json_converter(decimal_format=decimals), schema, value)

    assert found[0] == schema
    assert same(found[1], with_defaults(value, schema))


@examples(12)
@given(pair=typed)
def test_json_with_schemas_gives_back_null_where_defaults_are_left_alone(pair: tuple[Schema, object]) -> None:
    schema, value = pair
    converter = json_converter(replace_null_with_default="false")

    found = there_and_back(converter, schema, value)

    assert found == (schema, value)


@examples(15)
@given(value=schemaless())
def test_json_without_schemas_gives_back_schemaless_values(value: object) -> None:
    schema, found = there_and_back(json_converter(schemas_enable="false"), None, value)

    assert schema is None
    assert same(found, value)


def has_float32(schema: Schema) -> bool:
    inner = [field.schema for field in schema.fields] if schema.type is Type.STRUCT else []
    if schema.type in (Type.ARRAY, Type.MAP) and schema.value_schema is not None:
        inner = [schema.value_schema]
    return schema.type is Type.FLOAT32 or any(map(has_float32, inner))


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
@examples(10)
@given(pair=typed.filter(lambda pair: not has_float32(pair[0])))
def test_json_without_schemas_gives_back_what_json_says_of_a_typed_value(
    decimals: str, pair: tuple[Schema, object]
) -> None:
    schema, value = pair
    converter = json_converter(schemas_enable="false", decimal_format=decimals)

    found = there_and_back(converter, schema, value)

    assert found[0] is None
    assert same(found[1], as_json(value, schema, numeric=decimals == "NUMERIC"))


@examples(12)
@given(value=st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_json_without_schemas_says_enough_of_a_float32_to_have_it_again(value: float) -> None:
    _, found = there_and_back(json_converter(schemas_enable="false"), Schema(Type.FLOAT32), value)

    assert isinstance(found, float)
    assert struct.unpack("f", struct.pack("f", found))[0] == value


@examples(12)
@given(value=st.floats(allow_nan=False, allow_infinity=False), narrow=st.booleans())
def test_json_gives_back_every_digit_of_a_float(value: float, narrow: bool) -> None:
    schema = Schema(Type.FLOAT32 if narrow else Type.FLOAT64)
    value = round_to_float32(value) if narrow else value
    value = value if math.isfinite(value) else 0.0

    assert there_and_back(json_converter(), schema, value) == (schema, value)


@pytest.mark.parametrize(("cls", "kind"), SINGLE.items(), ids=lambda one: getattr(one, "__name__", None))
@examples(8)
@given(data=st.data())
def test_a_converter_of_single_values_gives_back_values_of_its_type(
    cls: type[Converter], kind: Type, data: st.DataObject
) -> None:
    converter = cls()
    converter.configure({}, False)
    floating = kind in (Type.FLOAT32, Type.FLOAT64)
    full = st.floats(allow_nan=False, allow_infinity=False, width=32 if kind is Type.FLOAT32 else 64)
    finite = full if floating else values(Schema(kind, optional=True))
    value = data.draw(st.one_of(finite, st.sampled_from([math.nan, math.inf, -math.inf])) if floating else finite)
    schema = Schema(kind, optional=data.draw(st.booleans()) or value is None)

    found = there_and_back(converter, schema, value)

    assert found[0] == Schema(kind, optional=True)
    assert found[1] == value or (floating and math.isnan(value) and math.isnan(found[1]))  # type: ignore[arg-type]


def test_messages_with_one_schema_are_read_with_the_same_schema_object() -> None:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "true", "schemas.cache.size": "1"}, False)
    one, two = (
        b'{"schema":{"type":"%s","optional":%s},"payload":1}' % pair
        for pair in ((b"int32", b"true"), (b"int64", b"false"))
    )

    first, again = (converter.to_connect_data("t", one).schema for _ in range(2))
    other = converter.to_connect_data("t", two).schema
    forgotten = converter.to_connect_data("t", one).schema

    assert first is again
    assert other == Schema(Type.INT64)
    assert forgotten == first
    assert forgotten is not first
