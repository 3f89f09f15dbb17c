"""Random Connect schemas and values, for the property tests of the registry's converters."""

import decimal
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from hypothesis import strategies as st

from penstock.converters.registry.client import Reference, SchemaText
from penstock.data import (
    INT32_SCHEMA,
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
    round_to_float32,
)

_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAMES = st.text("abcxyz_", min_size=1, max_size=5).map(lambda text: f"f{text}")
FINITE = st.floats(allow_nan=False, allow_infinity=False)
MILLIS = st.integers(0, 86_399_999)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _decimals(scale: int) -> st.SearchStrategy[decimal.Decimal]:
    return st.integers(-(10**20), 10**20).map(lambda number: decimal.Decimal(number).scaleb(-scale))


def primitive_values(schema: Schema) -> st.SearchStrategy[Any]:
    """Values of a schema without parts, never null."""
    if schema.name == Decimal.LOGICAL_NAME:
        return _decimals(Decimal.scale(schema))
    if schema.name == Date.LOGICAL_NAME:
        return st.dates(date(1, 1, 1), date(9999, 12, 31))
    if schema.name == Time.LOGICAL_NAME:
        return MILLIS.map(lambda millis: (EPOCH + timedelta(milliseconds=millis)).time())
    if schema.name == Timestamp.LOGICAL_NAME:
        return st.integers(-(10**13), 10**13).map(lambda millis: EPOCH + timedelta(milliseconds=millis))
    if schema.type in _BITS:
        limit = 1 << (_BITS[schema.type] - 1)
        return st.integers(-limit, limit - 1)
    if schema.type is Type.FLOAT32:
        return st.floats(width=32, allow_nan=False).map(round_to_float32)
    if schema.type is Type.FLOAT64:
        return st.floats(allow_nan=False)
    return {Type.BOOLEAN: st.booleans(), Type.STRING: TEXTS, Type.BYTES: st.binary(max_size=6)}[schema.type]


def values_of(schema: Schema) -> st.SearchStrategy[Any]:
    """Values of a schema, null where it is optional."""
    found = _present(schema)
    return st.none() | found if schema.optional else found


def _present(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.type is Type.STRUCT:
        parts = st.tuples(*(values_of(field.schema) for field in schema.fields))
        return parts.map(lambda values: Struct.unchecked(schema, list(values)))
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return st.lists(values_of(schema.value_schema), max_size=3)
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        return st.dictionaries(values_of(schema.key_schema), values_of(schema.value_schema), max_size=3)
    return primitive_values(schema)


def primitive_schemas() -> st.SearchStrategy[SchemaBuilder]:
    """Builders of every type without parts, logical ones among them."""
    plain = [kind for kind in Type if kind.is_primitive]
    logical = st.sampled_from([Date.builder, Time.builder, Timestamp.builder]).map(lambda make: make())
    return st.sampled_from(plain).map(SchemaBuilder.type) | logical | st.integers(0, 6).map(Decimal.builder)


@st.composite
def finished(draw: st.DrawFn, builders: st.SearchStrategy[SchemaBuilder], *, described: bool) -> Schema:
    """A schema of a builder: optional or not, and described if wished."""
    builder = draw(builders)
    if draw(st.booleans()):
        builder.optional()
    plain = builder.build()
    if described and plain.name is None:
        builder.name(draw(st.none() | NAMES))
        if plain.type.is_primitive and draw(st.booleans()):
            builder.default_value(draw(primitive_values(plain)))
        builder.version(draw(st.none() | st.integers(1, 9))).doc(draw(st.none() | TEXTS))
        builder.parameters(draw(st.dictionaries(NAMES, TEXTS, max_size=2)))
    return builder.build()


@st.composite
def structs(draw: st.DrawFn, fields: st.SearchStrategy[Schema], name: Callable[[], str | None]) -> SchemaBuilder:
    """A builder of a struct with some fields."""
    builder = SchemaBuilder.struct().name(name())
    for field in draw(st.lists(NAMES, max_size=4, unique=True)):
        builder.field(field, draw(fields))
    return builder


INNER = SchemaBuilder.struct().name("app.Inner").field("x", INT32_SCHEMA).build()


def every_type(items: Schema) -> SchemaBuilder:
    """A struct with a field of each type; its array holds ``items``."""
    return (
        SchemaBuilder.struct()
        .name("app.Everything")
        .field("i8", Schema(Type.INT8))
        .field("i16", Schema(Type.INT16))
        .field("i32", Schema(Type.INT32))
        .field("i64", Schema(Type.INT64))
        .field("f32", Schema(Type.FLOAT32))
        .field("f64", Schema(Type.FLOAT64))
        .field("b", Schema(Type.BOOLEAN))
        .field("s", STRING_SCHEMA)
        .field("raw", Schema(Type.BYTES))
        .field("none", OPTIONAL_STRING_SCHEMA)
        .field("fallback", SchemaBuilder.int32().optional().default_value(4).build())
        .field("amount", Decimal.schema(2))
        .field("day", Date.SCHEMA)
        .field("clock", Time.SCHEMA)
        .field("moment", Timestamp.SCHEMA)
        .field("list", SchemaBuilder.array(items).build())
        .field("named", SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build())
        .field("numbered", SchemaBuilder.map(INT32_SCHEMA, INNER).optional().build())
        .field("inner", INNER)
    )


def every_value(texts: list[str | None] | list[str]) -> list[object]:
    """A value for each field of ``every_type``; ``texts`` is that of the array."""
    inner = Struct(INNER).put("x", 7)
    return [
        -128, 32767, -(2**31), 2**63 - 1, 0.5, 1e300, True, "grün \U0001f600", b"\x00\xff", None, 9,
        decimal.Decimal("-12.30"), date(2024, 2, 29), time(23, 59, 59, 999000),
        datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC), texts, {"one": 1}, {1: inner}, inner,
    ]  # fmt: skip


def protobuf_text(text: str, references: Mapping[str, str] | None = None) -> SchemaText:
    """A Protobuf schema as the registry has it, with the texts that it imports."""
    named = [Reference(name, name, 1, SchemaText("PROTOBUF", one)) for name, one in (references or {}).items()]
    return SchemaText("PROTOBUF", text, tuple(named))
