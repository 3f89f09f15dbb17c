"""What is tried on columns and on single records: what was recorded in Java, and values at the ends of all values."""

from __future__ import annotations

import decimal
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN
from itertools import cycle
from pathlib import Path
from typing import Any

from conformance.vectors.adapter import decode_record
from conformance.vectors.model import load_vectors
from tests.real.transforms.columns import Case, made

from penstock.api import ConnectRecord, SinkRecord, SourceRecord, Transformation
from penstock.data import (
    INT64_SCHEMA,
    ConnectHeaders,
    Date,
    Decimal,
    Header,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
)

VECTORS = Path(__file__).parents[2] / "data" / "vectors"


def recorded() -> Iterator[Case]:
    """The records of vectors, with those that one class and configuration has together.

    Of one configuration in six, unless ``PENSTOCK_EXAMPLES`` asks for more. All are tried by
    ``python -m conformance.vectors``, and with ``apply`` by a unit test.
    """
    setups: dict[tuple[str, str, str], tuple[Transformation, list[ConnectRecord]]] = {}
    for path in sorted(VECTORS.glob("*.jsonl")):
        for vector in load_vectors(path):
            if vector.kind != "transform" or vector.input is None or (vector.error or {}).get("phase") == "configure":
                continue
            if vector.setup not in setups:
                setups[vector.setup] = made(vector.cls, vector.config), []
            setups[vector.setup][1].append(decode_record(vector.input))
    every = 1 if "PENSTOCK_EXAMPLES" in os.environ else 6
    for (_, cls, settings), (transform, records) in list(setups.items())[::every]:
        yield Case((transform,), records, f"{cls} {settings}")


# ------------------------------------------------------------------------------------------ values that fail, or nearly
TEXT = SchemaBuilder.string().optional().build()
INNER = SchemaBuilder.struct().field("a", TEXT).field("n", SchemaBuilder.int32().optional().build()).optional().build()
ALL = (
    SchemaBuilder.struct()
    .name("all")
    .field("i", SchemaBuilder.int32().build())
    .field("f", SchemaBuilder.float64().build())
    .field("s", TEXT)
    .field("b", SchemaBuilder.boolean().build())
    .field("raw", SchemaBuilder.bytes().optional().build())
    .field("dec", Decimal.builder(2).optional().build())
    .field("day", Date.builder().optional().build())
    .field("clock", Time.builder().optional().build())
    .field("at", Timestamp.builder().optional().build())
    .field("d", SchemaBuilder.int64().optional().default_value(7).build())
    .field("in", INNER)
    .optional()
    .build()
)
MOMENT = datetime(2017, 1, 3, 6, 30, 1, 864_000, UTC)
TEXTS = [
    "2017-01-03 06:30",
    "2017-13-45 24:61",
    " 1-2-3 4:5x",
    "soon",
    "",
    "12",
    "+5",
    "1e3",
    "NaN",
    "inf",
    " 1",
    "99999999999",
]


def _structs() -> list[Struct | None]:
    def row(number: int, fraction: float, text: str | None) -> Struct:
        dates = [date(1970, 1, 2), time(6, 30), MOMENT] if text else [None, None, None]
        amount = decimal.Decimal(number).scaleb(-2)
        inner = Struct.unchecked(INNER, [text, number]) if text else None
        return Struct.unchecked(ALL, [number, fraction, text, number > 0, b"hi", amount, *dates, None, inner])

    numbers = [0, -1, 300, 2**31 - 1]
    floats = [0.5, -1.9, 1e300, float("nan"), float("-inf"), 1e7]
    rows = [row(numbers[index % 4], floats[index % 6], text) for index, text in enumerate([*TEXTS, None])]
    return [*rows, None]


def _maps() -> list[object]:
    values: list[object] = [*TEXTS, 5, -1.5, 1e300, True, b"hi", None, MOMENT, date(2017, 1, 3), time(6, 30)]
    values += [decimal.Decimal("1.50"), [1, {"a": 2}], {}, {"x": {"y": {"z": {"deep": {"er": 1}}}}, "e": {}}]
    return [*[{"v": value, "k": 1} for value in values], {"k": 1}, "text", 5, [1], None, {1: 2, "v": 5}]


CASES: Sequence[tuple[str, dict[str, Any]]] = [
    ("MaskField$Value", {"fields": "i,f,s,dec,day,clock,at,d,v"}),
    ("MaskField$Value", {"fields": "i,f,s,dec,v", "replacement": "4.25"}),
    ("Cast$Value", {"spec": "i:int8,f:int16,s:int64,b:string,raw:string,dec:int32,day:string,at:string,v:int32"}),
    ("Cast$Value", {"spec": "i:float32,f:string,s:float64,dec:string,clock:int64,at:boolean,v:string"}),
    ("Cast$Value", {"spec": "s:boolean,f:int64,v:float64"}),
    ("Flatten$Value", {"delimiter": "_"}),
    ("SetSchemaMetadata$Value", {"schema.name": "n", "schema.version": "3"}),
    ("TimestampConverter$Value", {"field": "at", "target.type": "Date"}),
    ("TimestampConverter$Value", {"field": "v", "target.type": "unix", "format": "yyyy-MM-dd HH:mm"}),
    ("TimestampConverter$Value", {"field": "s", "target.type": "string", "format": "yy-M-d H:m z"}),
    ("TimestampConverter$Value", {"field": "v", "target.type": "Time", "format": "yyyy"}),
    ("HoistField$Value", {"field": None}),
    ("RegexRouter", {"regex": "(t)(.*)", "replacement": "$2-$1"}),
    ("TimestampRouter", {"timestamp.format": "YYYY-ww"}),
]


def odd_values() -> Iterator[Case]:
    """Values that fail, or nearly do, with a schema and without."""
    for cls, config in CASES:
        for schema, values in ((None, _maps()), (ALL, _structs())):
            if "field" in config and config["field"] is not None and (config["field"] == "v") is (schema is not None):
                continue  # it has no such field
            records = [
                SinkRecord("topic", 0, seq, value, value_schema=schema, timestamp=1483425001864 + seq * 10**9)
                for seq, value in enumerate(values)
            ]
            yield Case((made(cls, config),), records, f"{cls} {config}")


# ------------------------------------------------------------------------------------------------ Debezium's envelopes
ROW = (
    SchemaBuilder.struct()
    .name("row")
    .field("id", SchemaBuilder.int32().build())
    .field("dst", SchemaBuilder.string().optional().default_value("else").build())
    .field("n", SchemaBuilder.int64().default_value(5).build())
    .field("dec", Decimal.builder(2).optional().build())
    .optional()
    .build()
)
ORIGIN = SchemaBuilder.struct().field("table", TEXT).field("ts_ms", INT64_SCHEMA).build()


def envelope_schema(name: str) -> Schema:
    builder = SchemaBuilder.struct().name(name).field("before", ROW).field("after", ROW).field("source", ORIGIN)
    return builder.field("op", SchemaBuilder.string().build()).field("inner", INNER).build()


UNWRAPPED: Sequence[dict[str, str]] = [
    *[
        {"delete.tombstone.handling.mode": mode, "route.by.field": "dst", "add.headers": "op,table,inner"}
        for mode in ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
    ],
    {"delete.handling.mode": "none", "drop.tombstones": "false", "add.fields": "op,source.ts_ms:at,inner,none"},
    {"delete.tombstone.handling.mode": "rewrite", "replace.null.with.default": "false", "add.fields": "table,inner.a"},
    {"delete.tombstone.handling.mode": "rewrite", "add.fields": "table:id", "add.fields.prefix": ""},
    {"route.by.field": "n"},
    {"route.by.field": "none", "delete.handling.mode": "rewrite"},
]


def _rows() -> list[Struct | None]:
    texts = ["t2", None, "", " \t", "\u00a0", "a b"]
    rows = [Struct.unchecked(ROW, [at, text, at, decimal.Decimal("1.50")]) for at, text in enumerate(texts)]
    # A null where none may be.
    broken: list[list[object]] = [[None, "t", 1, None], [1, "t", None, None], [None, None, None, None]]
    return [*rows, *[Struct.unchecked(ROW, values) for values in broken], None]


def envelopes() -> Iterator[Case]:
    """Changes, deletes, truncates and tombstones, of tables, and what has no envelope."""
    schema, other = envelope_schema("a.Envelope"), envelope_schema("a.Other")
    origin, inner = Struct.unchecked(ORIGIN, ["t", 7]), Struct.unchecked(INNER, ["x", 1])
    pairs = [(before, after) for before in (None, _rows()[0]) for after in _rows()]
    pairs += [(before, None) for before in _rows()]
    values: list[tuple[Schema | None, object]] = [
        (one, Struct.unchecked(one, [before, after, origin, "u" if before else "c", inner if after else None]))
        for one in (schema, other)
        for before, after in pairs
    ]
    values += [(schema, None), (None, None), (other, None), (None, "text"), (None, {"op": "c"}), (TEXT, "text")]
    records = [
        SinkRecord("topic", 0, seq, value, value_schema=one, key={"id": seq}, headers=ConnectHeaders([Header("h", 1)]))
        for seq, (one, value) in enumerate(values)
    ]
    for config in UNWRAPPED:
        yield Case((made("ExtractNewRecordState", config),), records, f"ExtractNewRecordState {config}")


# --------------------------------------------------------------------------------------- moments at the ends of 64 bits
MOMENTS = [1_483_425_001_864, -(2**63), 2**63 - 1, 1 - 2**63, 9_000_000_000_000_001, -9_000_000_000_000_001, 0]
SETTINGS = [
    {"target.type": "Timestamp"},
    {"target.type": "Timestamp", "unix.precision": "seconds"},
    {"target.type": "Timestamp", "unix.precision": "nanoseconds"},
    {"target.type": "Time"},
    {"target.type": "unix", "unix.precision": "seconds"},
    {"target.type": "string", "format": "yyyy-MM-dd HH:mm:ss.SSS"},
]


def moments() -> Iterator[Case]:
    """Moments at the ends of 64 bits."""
    for settings in SETTINGS:
        for schema in (None, INT64_SCHEMA):
            records = [SinkRecord("t", 0, 0, moment, value_schema=schema) for moment in MOMENTS]
            yield Case((made("TimestampConverter$Value", settings),), records, str(settings))


# ------------------------------------------------------------------------------- decimals of more digits than Spark has
EXACT = decimal.Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
DIGITS = [0, 7, -7, 10**38 - 1, 10**38, -(10**38), 10**39 - 1, -(10**45), 2**255, -(2**255), 10**1000 - 1]
NINES = "9" * 39


def schema_of(scale: int) -> Schema:
    return SchemaBuilder.struct().field("a", Decimal.schema(scale)).build()


def struct_of(digits: int, scale: int) -> Struct:
    return Struct(schema_of(scale)).put("a", decimal.Decimal(digits).scaleb(-scale, EXACT))


def decimals() -> Iterator[Case]:
    """Decimals of many digits, cast to each type and masked."""
    targets = ("string", "int8", "int32", "int64", "float32", "float64", "boolean")
    settings = [("Cast$Value", {"spec": f"a:{target}"}) for target in targets]
    settings.append(("MaskField$Value", {"fields": "a", "replacement": "-0.1234567890123456789012345678"}))
    for cls, config in settings:
        for scale in (0, 45, -70):
            records = [SinkRecord("t", 0, 0, struct_of(one, scale), value_schema=schema_of(scale)) for one in DIGITS]
            yield Case((made(cls, config),), records, f"{cls} {config}")


# -------------------------------------------------------------------------------------- schemaless maps that look alike
SCALARS: list[object] = [
    {"z": 1, "text": 'ä "q" \\ 😀', "number": "-12", "real": 1.5, "yes": True, "at": 0, "day": "2024-02-29"},
    {"z": -(2**63), "text": "", "number": "0x", "real": -0.0, "yes": False, "at": 1_700_000_000_123, "day": "x"},
    {"z": None, "text": None, "number": None, "real": None, "yes": None, "at": None, "day": None},
    {"z": 300, "text": "true", "number": "1e3", "real": 1e300, "yes": True, "at": -1, "day": "1900-01-01"},
    {"z": 70_000, "text": "NaN", "number": "99999999999", "real": -3.99, "yes": True, "at": 2**62, "day": "2024-2-3"},
]
NESTED: list[object] = [
    {"b": {"y": 1, "x": {"deep": "a", "n": 2.5}}, "a": "t", "a.b": 1},
    {"b": {"y": None, "x": {"deep": None, "n": -1.0}}, "a": None, "a.b": 2},
]
CLASHING: list[object] = [{"a": {"b": 1}, "a.b": 2}]

_ALL = ("z", "number", "real", "yes", "no")
#: What is cast. How a large float32 prints is the JVM's affair in columns, and not in rows.
NAMES = {"int8": _ALL, "float32": ("z", "real", "yes", "no"), "boolean": _ALL, "string": _ALL}
#: What is done, and to which values.
CHAINS: dict[str, tuple[list[Transformation], list[object]]] = {
    "nothing": ([made("RegexRouter", {"regex": "t", "replacement": "u"})], [*SCALARS, None]),
    "nothing, nested": ([made("RegexRouter", {"regex": "t", "replacement": "u"})], NESTED),
    **{
        f"cast to {kind}": (
            [made("Cast$Value", {"spec": ",".join(f"{name}:{kind}" for name in NAMES[kind])})],
            [*SCALARS, None],
        )
        for kind in NAMES
    },
    "cast a map": ([made("Cast$Value", {"spec": "b:string"})], NESTED),
    "mask": ([made("MaskField$Value", {"fields": "z,text,real,yes,no"})], [*SCALARS, None]),
    "mask by text": ([made("MaskField$Value", {"fields": "text,z,yes", "replacement": "77"})], SCALARS),
    "mask a map": ([made("MaskField$Value", {"fields": "b"})], NESTED),
    "exclude": ([made("ReplaceField$Value", {"exclude": "text,no"})], [*SCALARS, None]),
    "include": ([made("ReplaceField$Value", {"include": "text,no", "renames": "text:z"})], SCALARS),
    "exclude all": ([made("ReplaceField$Value", {"exclude": "a,b,a.b"})], NESTED),
    "rename onto another": ([made("ReplaceField$Value", {"renames": "text:z"})], SCALARS),
    "to text": (
        [made("TimestampConverter$Value", {"field": "at", "target.type": "string", "format": "yyyy-MM-dd HH:mm"})],
        [*SCALARS, None],
    ),
    "from text": (
        [made("TimestampConverter$Value", {"field": "day", "target.type": "unix", "format": "yyyy-MM-dd"})],
        SCALARS,
    ),
    "missing moment": (
        [made("TimestampConverter$Value", {"field": "no", "target.type": "unix", "unix.precision": "seconds"})],
        SCALARS,
    ),
    "no moment": ([made("TimestampConverter$Value", {"field": "yes", "target.type": "unix"})], SCALARS),
    "key": (
        [made("ValueToKey", {"fields": "z,no,text"}), made("Cast$Key", {"spec": "z:string"})],
        [*SCALARS, None],
    ),
    "headers, copied": (
        [made("HeaderFrom$Value", {"fields": "z,no,text", "headers": "h,i,j", "operation": "copy"})],
        [*SCALARS, None],
    ),
    "headers, moved": (
        [made("HeaderFrom$Value", {"fields": "b,a", "headers": "h,i", "operation": "move"})],
        NESTED,
    ),
    "extract": ([made("ExtractField$Value", {"field": "real"})], [*SCALARS, None]),
    "extract below": ([made("ExtractField$Value", {"field": "b.x", "field.syntax.version": "V2"})], NESTED),
    "extract missing": ([made("ExtractField$Value", {"field": "no"})], SCALARS),
    "hoist": ([made("HoistField$Value", {"field": "all"}), made("Flatten$Value", {})], [*SCALARS, None]),
    "hoist and flatten": ([made("HoistField$Value", {"field": "all"}), made("Flatten$Value", {})], NESTED),
    "flatten": ([made("Flatten$Value", {"delimiter": "_"})], NESTED),
    "flatten onto another": ([made("Flatten$Value", {})], CLASHING),
    "insert": (
        [made("InsertField$Value", {"static.field": "z", "static.value": '"é', "topic.field": "topic"})],
        [*SCALARS, None],
    ),
    "insert what may be null": (
        [made("InsertField$Value", {"partition.field": "p", "timestamp.field": "t"})],
        SCALARS,
    ),
}


def alike() -> Iterator[Case]:
    """Maps that look alike, through chains that have columns for them and others."""
    for name, (chain, values) in CHAINS.items():
        # Each combination of what a record need not have.
        times, partitions = cycle([5, None]), cycle([None, None, 1, 1])
        records = [
            SourceRecord({}, {}, "t", value, timestamp=next(times), partition=next(partitions)) for value in values
        ]
        yield Case(tuple(chain), records, name)
