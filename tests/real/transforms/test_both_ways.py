"""Columns and single records go the same way: transforms through Spark and by ``apply``, bad values among them."""

import decimal
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Any

import pytest

from penstock.api import SinkRecord, Transformation
from penstock.data import Date, Decimal, Schema, SchemaBuilder, Struct, Time, Timestamp
from penstock.pipeline.session import SparkRuntime
from penstock.plugins import PluginKind, Plugins
from penstock.testing.vectors.adapter import PipelineAdapter, encode_record
from penstock.testing.vectors.codec import equal_values
from penstock.testing.vectors.model import Failure, Outcome, Success

pytestmark = [pytest.mark.java, pytest.mark.slow]

CLASSES = "org.apache.kafka.connect.transforms"
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


def structs() -> list[Struct | None]:
    def row(number: int, fraction: float, text: str | None) -> Struct:
        dates = [date(1970, 1, 2), time(6, 30), MOMENT] if text else [None, None, None]
        amount = decimal.Decimal(number).scaleb(-2)
        inner = Struct.unchecked(INNER, [text, number]) if text else None
        return Struct.unchecked(ALL, [number, fraction, text, number > 0, b"hi", amount, *dates, None, inner])

    numbers = [0, -1, 300, 2**31 - 1]
    floats = [0.5, -1.9, 1e300, float("nan"), float("-inf"), 1e7]
    rows = [row(numbers[index % 4], floats[index % 6], text) for index, text in enumerate([*TEXTS, None])]
    return [*rows, None]


def maps() -> list[object]:
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


@pytest.mark.parametrize("schema", [None, ALL], ids=["schemaless", "typed"])
@pytest.mark.parametrize(("cls", "config"), CASES)
def test_columns_give_what_apply_gives(
    cls: str, config: dict[str, Any], schema: Schema | None, spark_runtime: SparkRuntime
) -> None:
    values = maps() if schema is None else structs()
    records = [
        SinkRecord("topic", 0, seq, value, value_schema=schema, timestamp=1483425001864 + seq * 10**9)
        for seq, value in enumerate(values)
    ]
    plugins = Plugins.discover()
    outcomes = PipelineAdapter(spark_runtime, plugins).apply_transform(records, cls, config)
    transform = plugins.new(PluginKind.TRANSFORMATION, f"{CLASSES}.{cls}")
    assert isinstance(transform, Transformation)
    transform.configure(config)
    singles = [single(transform, record) for record in records]
    different = [
        f"{record.value!r}: columns gave {outcome}, apply {expected}"
        for record, outcome, expected in zip(records, outcomes, singles, strict=True)
        if not same(expected, outcome)
    ]
    assert not different, "\n".join(different)


def single(transform: Transformation, record: SinkRecord) -> Outcome:
    """What ``apply`` makes of a record."""
    try:
        made = transform.apply(record)
    except Exception as error:
        return Failure.of("apply", error)
    return Success({"record": None if made is None else encode_record(made)})


def same(expected: Outcome, found: Outcome) -> bool:
    if isinstance(expected, Success) and isinstance(found, Success):
        return equal_values(expected.data["record"], found.data["record"])
    if isinstance(expected, Failure) and isinstance(found, Failure):
        return (expected.error, expected.message) == (found.error, found.message)
    return False
