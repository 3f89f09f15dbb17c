"""Columns that frame tasks return, with the same values as a record task would return them.

Main objects: ``LEAVES`` (columns of every Arrow type, under every schema that takes them), ``SPARK_LEAVES`` (the same
for Spark) and ``NESTINGS`` (them inside of others).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from penstock.data import Date, Decimal, Schema, SchemaBuilder, Struct, Time, Timestamp, Type

UTC = dt.UTC


def of(kind: Type) -> Schema:
    """An optional schema of a type."""
    return Schema(kind, optional=True)


TIMESTAMP = Timestamp.builder().optional().build()
TIME = Time.builder().optional().build()
DATE = Date.builder().optional().build()


def decimal(scale: int) -> Schema:
    """An optional Decimal."""
    return Decimal.builder(scale).optional().build()


@dataclass(frozen=True)
class Case:
    """A column, and what a record task returns for its cells.

    Attributes:
        kind: Its type: Arrow's or Spark's.
        cells: What the column is made of.
        schema: The schema of the values.
        values: Those of records with the schema.
        plain: Those of records without.
    """

    kind: Any
    cells: list[Any]
    schema: Schema
    values: list[Any]
    plain: list[Any]

    def __str__(self) -> str:
        kind = self.kind.simpleString() if isinstance(self.kind, T.DataType) else self.kind
        return f"{kind} as {self.schema.name or self.schema.type.name}"

    def array(self) -> pa.Array:
        """The column."""
        if pa.types.is_run_end_encoded(self.kind):
            return pc.run_end_encode(pa.array(self.cells, self.kind.value_type))
        return pa.array(self.cells, self.kind)


def case(kind: Any, cells: list[Any], schema: Schema, values: list[Any] | None = None, plain: Any = None) -> Case:
    """A case whose records have the cells themselves, unless others are given."""
    values = cells if values is None else values
    return Case(kind, cells, schema, values, cells if plain is None else plain)


INTS = [1, None, -7]
SMALL = [1, None, 7]
FLOATS = [1.5, None, -2.0]
TEXTS = ["a", None, 'é"\\😀\n']
DATA = [b"a\xff", None, b""]
PADDED = [b"ab", None, b"\x00\xff"]
DAYS = [dt.date(2026, 1, 1), None, dt.date(1903, 2, 28)]
NUMBERS = [Number("1.50"), None, Number("-200.25")]
TIMES = [dt.time(12, 0, 1), None, dt.time(23, 59, 59)]
FINE_TIMES = [dt.time(12, 0, 1, 999_999), None, dt.time(0, 0, 0, 999)]
INSTANTS = [dt.datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC), None, dt.datetime(1903, 2, 28, 23, tzinfo=UTC)]
FINE = [dt.datetime(2026, 1, 1, 12, 0, 1, 999_999, UTC), None, dt.datetime(1903, 2, 28, 23, 59, 59, 500, UTC)]
MIDNIGHTS = [None if day is None else dt.datetime(day.year, day.month, day.day, tzinfo=UTC) for day in DAYS]


def _millis(values: list[Any]) -> list[Any]:
    """What is left of times in a unit of milliseconds."""
    return [v if v is None else v.replace(microsecond=v.microsecond // 1000 * 1000) for v in values]


def _naive(values: list[Any]) -> list[Any]:
    return [v if v is None else v.replace(tzinfo=None) for v in values]


def _arrow_leaves() -> Iterator[Case]:
    signed = {Type.INT8: pa.int8(), Type.INT16: pa.int16(), Type.INT32: pa.int32(), Type.INT64: pa.int64()}
    unsigned = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    for wanted in signed:
        for kind in signed.values():
            yield case(kind, INTS, of(wanted))
        for kind in unsigned:
            yield case(kind, SMALL, of(wanted))
        yield case(pa.float64(), [1.0, None, -7.0], of(wanted), INTS)
    for wanted in (Type.FLOAT32, Type.FLOAT64):
        for kind in (pa.float16(), pa.float32(), pa.float64()):
            yield case(kind, FLOATS, of(wanted))
        for kind in signed.values():
            yield case(kind, INTS, of(wanted), [1.0, None, -7.0], INTS)
    yield case(pa.float64(), [0.1, None, 1e-300], of(Type.FLOAT32))
    yield case(pa.float64(), [float("nan"), float("inf"), -0.0], of(Type.FLOAT64))
    yield case(pa.bool_(), [True, None, False], of(Type.BOOLEAN))
    texts = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
    for kind in (*texts, pa.run_end_encoded(pa.int32(), pa.string())):
        yield case(kind, TEXTS, of(Type.STRING))
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield case(kind, DATA, of(Type.BYTES))
    yield case(pa.binary(2), PADDED, of(Type.BYTES))
    for unit in ("s", "ms", "us", "ns"):
        cells = {"s": INSTANTS, "ms": _millis(FINE)}.get(unit, FINE)
        for zone in (None, "UTC", "Europe/Berlin"):
            yield case(pa.timestamp(unit, zone), cells if zone else _naive(cells), TIMESTAMP)
        yield case(pa.timestamp(unit), _naive(MIDNIGHTS), DATE)
    yield case(pa.int64(), [1, None, -(2**60)], TIMESTAMP)
    yield case(pa.date32(), DAYS, DATE)
    yield case(pa.date64(), DAYS, DATE)
    yield case(pa.int32(), INTS, DATE)
    yield case(pa.date32(), DAYS, TIMESTAMP, MIDNIGHTS)
    yield case(pa.time32("s"), TIMES, TIME)
    yield case(pa.time32("ms"), _millis(FINE_TIMES), TIME)
    yield case(pa.time64("us"), FINE_TIMES, TIME)
    yield case(pa.time64("ns"), FINE_TIMES, TIME)
    yield case(pa.int32(), [86_400_000, None, 1], TIME)
    for kind in (pa.decimal128(10, 2), pa.decimal256(60, 2), pa.decimal32(7, 2), pa.decimal64(15, 2)):
        yield case(kind, NUMBERS, decimal(2))
        longer = [None if one is None else one.quantize(Number("1.0000")) for one in NUMBERS]
        yield case(kind, NUMBERS, decimal(4), longer)
    long = [Number("9" * 50 + ".01"), None, Number("-1.00")]
    yield case(pa.decimal256(60, 2), long, decimal(2))
    yield case(pa.decimal128(10, -2), [Number("1E+2"), None], decimal(-2))
    yield case(pa.int64(), INTS, decimal(2), [Number("1.00"), None, Number("-7.00")])
    yield case(pa.null(), [None, None], of(Type.STRING))
    yield case(pa.null(), [None, None], SchemaBuilder.array(TIMESTAMP).optional().build())
    ints = SchemaBuilder.array(of(Type.INT16)).optional().build()
    lists = (pa.list_(pa.int64()), pa.large_list(pa.int8()), pa.list_view(pa.int64()), pa.large_list_view(pa.int64()))
    for kind in lists:
        yield case(kind, [[1, None], None, []], ints)
    yield case(pa.list_(pa.int64(), 2), [[1, None], None, [3, 4]], ints)
    by_number = SchemaBuilder.map(of(Type.INT32), DATE).optional().build()
    yield case(
        pa.map_(pa.int64(), pa.date64()),
        [[(1, DAYS[0]), (2, None)], None, []],
        by_number,
        [
            {1: DAYS[0], 2: None},
            None,
            {},
        ],
        [{1: DAYS[0], 2: None}, None, {}],
    )
    person = SchemaBuilder.struct().optional().field("a", of(Type.INT8)).field("at", TIMESTAMP).build()
    swapped = pa.struct([pa.field("at", pa.timestamp("us")), pa.field("a", pa.int64())])
    rows = [{"at": _naive(FINE)[0], "a": 1}, None, {"at": None, "a": None}]
    structs = [None if row is None else Struct(person).put("a", row["a"]).put("at", row["at"]) for row in rows]
    yield case(swapped, rows, person, structs)
    yield case(pa.struct([("a", pa.uint8())]), [{"a": 1}, None], person, [Struct(person).put("a", 1), None])


LEAVES = list(_arrow_leaves())

Nesting = Callable[[Case], Case]


def _in_list(one: Case) -> Case:
    kind = T.ArrayType(one.kind) if isinstance(one.kind, T.DataType) else pa.large_list(one.kind)
    schema = SchemaBuilder.array(one.schema).optional().build()

    def lists(values: list[Any]) -> list[Any]:
        return [values, None, [], values[:1]]

    return Case(kind, lists(one.cells), schema, lists(one.values), lists(one.plain))


def _in_map(one: Case) -> Case:
    of_spark = isinstance(one.kind, T.DataType)
    kind = T.MapType(T.StringType(), one.kind) if of_spark else pa.map_(pa.large_string(), one.kind)
    schema = SchemaBuilder.map(of(Type.STRING), one.schema).optional().build()

    def maps(values: list[Any]) -> list[Any]:
        return [{f"k{index}": value for index, value in enumerate(values)}, None, {}]

    cells = maps(one.cells)
    if not of_spark:
        cells = [None if cell is None else list(cell.items()) for cell in cells]
    return Case(kind, cells, schema, maps(one.values), maps(one.plain))


def _in_struct(one: Case) -> Case:
    schema = SchemaBuilder.struct().optional().field("n", of(Type.INT8)).field("x", one.schema).build()
    if isinstance(one.kind, T.DataType):
        kind: Any = T.StructType([T.StructField("x", one.kind), T.StructField("n", T.LongType())])
    else:
        kind = pa.struct([pa.field("x", one.kind), pa.field("n", pa.int64())])
    cells = [{"x": cell, "n": 1} for cell in one.cells]
    values = [Struct(schema).put("n", 1).put("x", value) for value in one.values]
    plain = [{"n": 1, "x": value} for value in one.plain]
    if not isinstance(one.kind, T.DataType):
        # Spark has the members of VARIANT objects by name.
        plain = [{"x": value, "n": 1} for value in one.plain]
    return Case(kind, [*cells, None], schema, [*values, None], [*plain, None])


NESTINGS: dict[str, Nesting] = {
    "top": lambda one: one,
    "list": _in_list,
    "map": _in_map,
    "struct": _in_struct,
    "list of structs": lambda one: _in_list(_in_struct(one)),
}


def together(cases: list[Case]) -> Case:
    """Columns as the fields of one struct, of which Spark makes one plan; short ones begin again."""
    names = [f"f{number}" for number in range(len(cases))]
    schema = SchemaBuilder.struct().optional()
    for name, one in zip(names, cases, strict=True):
        schema = schema.field(name, one.schema)
    built = schema.build()

    def rows(columns: list[list[Any]]) -> list[dict[str, Any]]:
        longest = max(map(len, columns))
        return [
            {name: column[row % len(column)] for name, column in zip(names, columns, strict=True)}
            for row in range(longest)
        ]

    kind: Any
    if isinstance(cases[0].kind, T.DataType):
        kind = T.StructType([T.StructField(name, one.kind) for name, one in zip(names, cases, strict=True)])
    else:
        kind = pa.struct([(name, one.kind) for name, one in zip(names, cases, strict=True)])
    values = []
    for row in rows([one.values for one in cases]):
        struct = Struct(built)
        for name, value in row.items():
            struct.put(name, value)
        values.append(struct)
    return Case(kind, rows([one.cells for one in cases]), built, values, rows([one.plain for one in cases]))


def _spark_leaves() -> Iterator[Case]:
    kind: T.DataType
    signed: dict[Type, T.DataType] = {
        Type.INT8: T.ByteType(),
        Type.INT16: T.ShortType(),
        Type.INT32: T.IntegerType(),
        Type.INT64: T.LongType(),
    }
    for wanted in signed:
        for kind in signed.values():
            yield case(kind, INTS, of(wanted))
        yield case(T.DoubleType(), [1.0, None, -7.0], of(wanted), INTS)
    for wanted in (Type.FLOAT32, Type.FLOAT64):
        for kind in (T.FloatType(), T.DoubleType()):
            yield case(kind, FLOATS, of(wanted))
        for kind in signed.values():
            yield case(kind, INTS, of(wanted), [1.0, None, -7.0], INTS)
    yield case(T.DoubleType(), [0.1, None, 1e-300], of(Type.FLOAT32))
    yield case(T.DoubleType(), [float("nan"), float("inf"), -0.0], of(Type.FLOAT64))
    yield case(T.BooleanType(), [True, None, False], of(Type.BOOLEAN))
    for kind in (T.StringType(), T.StringType("UTF8_LCASE")):
        yield case(kind, TEXTS, of(Type.STRING))
    yield case(T.BinaryType(), DATA, of(Type.BYTES))
    yield case(T.TimestampType(), FINE, TIMESTAMP)
    yield case(T.TimestampNTZType(), _naive(FINE), TIMESTAMP)
    yield case(T.TimestampNTZType(), _naive(MIDNIGHTS), DATE)
    yield case(T.LongType(), [1, None, -(2**60)], TIMESTAMP)
    yield case(T.IntegerType(), INTS, TIMESTAMP)
    yield case(T.DateType(), DAYS, DATE)
    yield case(T.DateType(), DAYS, TIMESTAMP, MIDNIGHTS)
    yield case(T.LongType(), INTS, DATE)
    yield case(T.TimeType(6), FINE_TIMES, TIME)
    yield case(T.TimeType(0), TIMES, TIME)
    yield case(T.IntegerType(), [86_400_000, None, 1], TIME)
    longer = [None if one is None else one.quantize(Number("1.0000")) for one in NUMBERS]
    yield case(T.DecimalType(10, 2), NUMBERS, decimal(2))
    yield case(T.DecimalType(38, 2), NUMBERS, decimal(2))
    yield case(T.DecimalType(10, 2), NUMBERS, decimal(4), longer)
    yield case(T.DecimalType(10, 4), longer, decimal(2), NUMBERS)
    yield case(T.LongType(), INTS, decimal(2), [Number("1.00"), None, Number("-7.00")])
    yield case(T.NullType(), [None, None], of(Type.STRING))
    by_number = SchemaBuilder.map(of(Type.INT32), DATE).optional().build()
    yield case(T.MapType(T.LongType(), T.DateType()), [{1: DAYS[0], 2: None}, None, {}], by_number)
    person = SchemaBuilder.struct().optional().field("a", of(Type.INT8)).field("at", TIMESTAMP).build()
    swapped = T.StructType([T.StructField("at", T.TimestampNTZType()), T.StructField("a", T.LongType())])
    rows = [{"at": _naive(FINE)[0], "a": 1}, None, {"at": None, "a": None}]
    structs = [None if row is None else Struct(person).put("a", row["a"]).put("at", row["at"]) for row in rows]
    by_name = [None if row is None else dict(sorted(row.items())) for row in rows]
    yield case(swapped, rows, person, structs, by_name)


SPARK_LEAVES = list(_spark_leaves())


def repeated(one: Case, times: int) -> Case:
    """The same cells several times over."""
    return replace(one, cells=one.cells * times, values=one.values * times, plain=one.plain * times)
