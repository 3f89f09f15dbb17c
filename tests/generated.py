"""Strategies of hypothesis for schemas of Connect and their values, schemaless values among them.

Main functions: ``schemas``, ``values``, ``schemaless``. Values stay within what every converter can carry back and
forth: finite floats, moments of Python's years with milliseconds. Floats have few digits: of longer ones Java before 19
prints more digits than are needed, so that the text depends on the JVM.

``examples`` says how many are tried: few and always the same in a run of all tests, a quarter of those in a run without
slow tests, as many new ones as ``PENSTOCK_EXAMPLES`` says where that is set.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Number
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st

from penstock.data import Date, Decimal, Schema, SchemaBuilder, Struct, Time, Timestamp, Type, round_to_float32
from tests.shares import QUICK

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_LOGICAL = {Date.LOGICAL_NAME: Date, Time.LOGICAL_NAME: Time, Timestamp.LOGICAL_NAME: Timestamp}
#: Few, so that settings that name a field meet one.
NAMES = ("a", "b", "c", "é x", "d.e", "A")


def examples(few: int, *, shrink: bool = True) -> settings:
    """The settings of a property: how many examples, and whether a failing one is made as small as it goes."""
    many = os.environ.get("PENSTOCK_EXAMPLES")
    if QUICK:
        few = max(few // 4, min(few, 8))
    phases = set(Phase) - {Phase.explain} - (set() if shrink else {Phase.shrink})
    if many is None:
        return settings(max_examples=few, deadline=None, derandomize=True, database=None, phases=phases)
    return settings(max_examples=int(many), deadline=None, phases=phases)


texts = st.text(max_size=8)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
floats = st.one_of(
    st.builds(lambda digits, scale: digits / 10**scale, st.integers(-(10**9), 10**9), st.integers(0, 12)),
    st.sampled_from([0.0, -0.0, 1e7, 1e-3, 1.5e300, -1e-300, 9007199254740993.0]),
)
float32s = st.builds(
    lambda digits, scale: round_to_float32(digits / 10**scale), st.integers(-(10**5), 10**5), st.integers(0, 12)
)


def _plain(kind: Type) -> st.SearchStrategy[Any]:
    """The values of a primitive type."""
    if kind in _BITS:
        half = 1 << (_BITS[kind] - 1)
        return st.one_of(st.integers(-half, half - 1), st.sampled_from([-half, half - 1, 0, 1]))
    return {
        Type.FLOAT32: float32s,
        Type.FLOAT64: floats,
        Type.BOOLEAN: st.booleans(),
        Type.STRING: texts,
        Type.BYTES: st.binary(max_size=6),
    }[kind]


def _logical(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.name == Decimal.LOGICAL_NAME:
        scale = Decimal.scale(schema)
        unscaled = st.integers(-(10**18) + 1, 10**18 - 1) | st.integers(-(10**30), 10**30)
        return unscaled.map(lambda number: Number((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))
    if schema.name == Date.LOGICAL_NAME:
        return st.dates()
    day = 86_400_000
    if schema.name == Time.LOGICAL_NAME:
        return st.integers(0, day - 1).map(lambda millis: (_EPOCH + timedelta(milliseconds=millis)).time())
    return st.integers(-62_135_596_800_000, 253_402_300_799_999).map(
        lambda millis: _EPOCH + timedelta(milliseconds=millis)
    )


def values(schema: Schema, *, nulls: bool = True) -> st.SearchStrategy[Any]:
    """Values of a schema; null among them where it is optional."""
    if schema.optional and nulls:
        return st.one_of(st.none(), values(schema, nulls=False))
    if schema.name in _LOGICAL or schema.name == Decimal.LOGICAL_NAME:
        return _logical(schema)
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return st.lists(values(schema.value_schema), max_size=3)
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        return st.dictionaries(values(schema.key_schema), values(schema.value_schema), max_size=3)
    if schema.type is Type.STRUCT:
        fields = [values(field.schema) for field in schema.fields]
        return st.tuples(*fields).map(lambda found: Struct.unchecked(schema, found))
    return _plain(schema.type)


@st.composite
def _builders(draw: st.DrawFn, kind: st.SearchStrategy[SchemaBuilder], *, defaults: bool) -> Schema:
    """A schema of a builder: optional or not, with a default or not."""
    builder = draw(kind)
    if draw(st.booleans()):
        builder.optional()
    if defaults and draw(st.integers(0, 4)) == 0:
        default = draw(values(builder.build(), nulls=False))
        builder.default_value(default)
    return builder.build()


def _scalars() -> st.SearchStrategy[SchemaBuilder]:
    kinds = st.sampled_from([one for one in Type if one.is_primitive]).map(SchemaBuilder.type)
    logical = st.sampled_from([Date.builder, Time.builder, Timestamp.builder]).map(lambda make: make())
    return st.one_of(kinds, kinds, logical, st.integers(0, 9).map(Decimal.builder))


@st.composite
def _named(draw: st.DrawFn) -> SchemaBuilder:
    """A primitive type with a name, a version and whatever else is carried along."""
    builder = SchemaBuilder.type(draw(st.sampled_from([Type.INT16, Type.STRING, Type.BYTES])))
    builder.name(draw(texts)).version(draw(st.integers(1, 99))).doc(draw(texts))
    return builder.parameter(draw(texts), draw(texts))


def _keys() -> st.SearchStrategy[Schema]:
    """Schemas of map keys: strings are written otherwise than all else."""
    return (
        st.sampled_from([Type.STRING, Type.STRING, Type.INT32, Type.BOOLEAN])
        .map(SchemaBuilder.type)
        .map(SchemaBuilder.build)
    )


def scalars(*, defaults: bool = True) -> st.SearchStrategy[Schema]:
    """Schemas of primitive and logical types."""
    return _builders(st.one_of(_scalars(), _scalars(), _named()), defaults=defaults)


@st.composite
def structs_of(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> SchemaBuilder:
    """A struct with up to four of the names."""
    builder = SchemaBuilder.struct()
    if draw(st.booleans()):
        builder.name(draw(st.sampled_from(["S", "com.shop.Order"]))).version(draw(st.integers(1, 3)))
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4)):
        builder.field(name, draw(inner))
    return builder


def schemas(*, defaults: bool = True) -> st.SearchStrategy[Schema]:
    """Schemas of every type, nested. Structs, arrays and maps have no default: JSON cannot carry one of a struct."""

    def deeper(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
        arrays = inner.map(SchemaBuilder.array)
        maps = st.tuples(_keys(), inner).map(lambda parts: SchemaBuilder.map(*parts))
        return _builders(st.one_of(structs_of(inner), structs_of(inner), arrays, maps), defaults=False)

    return st.recursive(scalars(defaults=defaults), deeper, max_leaves=5)


def struct_schemas(*, defaults: bool = True) -> st.SearchStrategy[Schema]:
    """Schemas of structs, whose fields may be anything."""
    return _builders(structs_of(schemas(defaults=defaults)), defaults=False)


def schemaless(*, moments: bool = False) -> st.SearchStrategy[Any]:
    """Values without a schema: what JSON can say; with ``moments`` also bytes, Decimals, dates and timestamps."""
    plain = st.one_of(st.none(), st.booleans(), int64s, floats, texts)
    if moments:
        extra = [Decimal.schema(2), Date.SCHEMA, Timestamp.SCHEMA, Schema(Type.BYTES)]
        plain = st.one_of(plain, plain, *[values(schema) for schema in extra])
    names = st.one_of(st.sampled_from(NAMES), texts)
    return st.recursive(
        plain,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
        max_leaves=5,
    )
