"""Every converter that comes with Penstock, through the suite of the authors' kit."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from testkit.processes.schema_registry import RegistryStandIn

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
from penstock.converters.registry.converters import AvroConverter, JsonSchemaConverter, ProtobufConverter
from penstock.converters.string import StringConverter
from penstock.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_BOOLEAN_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_FLOAT32_SCHEMA,
    OPTIONAL_FLOAT64_SCHEMA,
    OPTIONAL_INT16_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
)
from penstock.plugins.kinds import PluginKind
from penstock.plugins.stock import STOCK
from penstock.testing import ConverterSuite

INNER = SchemaBuilder.struct().name("Inner").field("a", OPTIONAL_STRING_SCHEMA).build()
ROW = (
    SchemaBuilder.struct()
    .name("Row")
    .field("number", INT64_SCHEMA)
    .field("text", OPTIONAL_STRING_SCHEMA)
    .field("list", SchemaBuilder.array(INT32_SCHEMA).build())
    .field("map", SchemaBuilder.map(STRING_SCHEMA, FLOAT64_SCHEMA).build())
    .field("inner", INNER)
    .field("at", Timestamp.SCHEMA)
    .field("price", Decimal.schema(2))
    .build()
)
STRUCT = (
    Struct(ROW)
    .put("number", 1 << 40)
    .put("text", "é\N{SNOWMAN}")
    .put("list", [1, 2])
    .put("map", {"k": 0.5})
    .put("inner", Struct(INNER).put("a", None))
    .put("at", dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC))
    .put("price", decimal.Decimal("1.50"))
)
PLAIN: Sequence[tuple[Schema, object]] = (
    (BOOLEAN_SCHEMA, True),
    (INT8_SCHEMA, -128),
    (INT16_SCHEMA, 32767),
    (INT32_SCHEMA, -(1 << 31)),
    (INT64_SCHEMA, (1 << 63) - 1),
    (FLOAT32_SCHEMA, 0.5),
    (FLOAT64_SCHEMA, 1e300),
    (STRING_SCHEMA, ""),
    (STRING_SCHEMA, "é\N{SNOWMAN}\0"),
    (BYTES_SCHEMA, b"\0\xff"),
)
LOGICAL: Sequence[tuple[Schema, object]] = (
    (Date.SCHEMA, dt.date(2026, 1, 2)),
    (Time.SCHEMA, dt.time(1, 2, 3, 4000)),
    (Timestamp.SCHEMA, dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
    (Decimal.schema(2), decimal.Decimal("-12.34")),
)


class TestJsonConverter(ConverterSuite):
    converter = JsonConverter
    wrong = {"decimal.format": "roman", "schemas.cache.size": "many"}

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [*PLAIN, *LOGICAL, (ROW, STRUCT)]


class TestJsonConverterWithoutSchemas(ConverterSuite):
    converter = JsonConverter
    settings = {"schemas.enable": "false"}

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(None, one) for one in ("text", 1, 1.5, True, [1, "a", None], {"a": {"b": [1]}, "c": None}, {}, [])]


class TestStringConverter(ConverterSuite):
    converter = StringConverter
    wrong = {"converter.encoding": "no-such"}

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(OPTIONAL_STRING_SCHEMA, "é\N{SNOWMAN}"), (OPTIONAL_STRING_SCHEMA, "")]


class TestStringConverterOfOtherValues(TestStringConverter):
    lossless = False

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(ROW, STRUCT), *PLAIN, *LOGICAL, (None, {"a": [1]})]


class TestByteArrayConverter(ConverterSuite):
    converter = ByteArrayConverter

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(OPTIONAL_BYTES_SCHEMA, b"\0\xff"), (OPTIONAL_BYTES_SCHEMA, b"")]


class TestBooleanConverter(ConverterSuite):
    converter = BooleanConverter

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(OPTIONAL_BOOLEAN_SCHEMA, True), (OPTIONAL_BOOLEAN_SCHEMA, False)]


class TestShortConverter(ConverterSuite):
    converter = ShortConverter

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(OPTIONAL_INT16_SCHEMA, -(1 << 15)), (OPTIONAL_INT16_SCHEMA, 7)]


class TestIntegerConverter(ConverterSuite):
    converter = IntegerConverter

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(OPTIONAL_INT32_SCHEMA, -(1 << 31)), (OPTIONAL_INT32_SCHEMA, 7)]


class TestLongConverter(ConverterSuite):
    converter = LongConverter

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(OPTIONAL_INT64_SCHEMA, -(1 << 63)), (OPTIONAL_INT64_SCHEMA, 7)]


class TestFloatConverter(ConverterSuite):
    converter = FloatConverter

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(OPTIONAL_FLOAT32_SCHEMA, 0.5), (OPTIONAL_FLOAT32_SCHEMA, float("inf"))]


class TestDoubleConverter(ConverterSuite):
    converter = DoubleConverter

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(OPTIONAL_FLOAT64_SCHEMA, 1e300), (OPTIONAL_FLOAT64_SCHEMA, -0.5)]


class RegistrySuite(ConverterSuite):
    """Converters with a schema registry; each test has one of its own."""

    wrong = {"auto.register.schemas": "perhaps"}
    same_schema = False  # They come back with names, and with the parameters of their format.

    @pytest.fixture(autouse=True)
    def _registry(self) -> Iterator[None]:
        with RegistryStandIn() as self.registry:
            yield

    def make(self, settings: Mapping[str, str] | None = None, *, is_key: bool | None = None) -> Any:
        given = dict(self.settings if settings is None else settings)
        return super().make({"schema.registry.url": self.registry.url, **given}, is_key=is_key)

    def _errors(self, made: Any, settings: Mapping[str, str]) -> dict[str, list[str]]:
        return super()._errors(made, {"schema.registry.url": self.registry.url, **settings})


class TestAvroConverter(RegistrySuite):
    converter = AvroConverter

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [*PLAIN[3:], *LOGICAL, (ROW, STRUCT)]


class TestJsonSchemaConverter(RegistrySuite):
    converter = JsonSchemaConverter

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [*PLAIN, *LOGICAL, (ROW, STRUCT)]


class TestProtobufConverter(RegistrySuite):
    converter = ProtobufConverter
    lossless = False  # Names of messages and decimals come back as Protobuf has them.

    def values(self) -> Sequence[tuple[Schema | None, object]]:
        return [(ROW, STRUCT)]


def test_there_is_a_suite_for_each_converter() -> None:
    there = {value.converter for name, value in globals().items() if name.startswith("Test")}

    assert {one.target.rpartition(":")[2] for one in STOCK if one.kind is PluginKind.CONVERTER} == {
        one.__name__ for one in there
    }
