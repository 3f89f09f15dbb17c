"""Columns of every schema pass through a real Spark session unharmed, and Spark reads the variants Python writes."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal as Number

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.data import (
    INT8_SCHEMA,
    INT32_SCHEMA,
    STRING_SCHEMA,
    ConnectHeaders,
    Date,
    Decimal,
    Header,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    Type,
)
from penstock.pipeline.batch.headers import headers_column, headers_of_column
from penstock.pipeline.columns.layout import LayoutKind, collectable, physical_of_spark, spark_type
from penstock.pipeline.columns.records import from_arrow, to_arrow
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow]

ODD_NAMES = ["a.b", "`x`", "A", "a", "value", "metadata", "ü😀", " ", "a`b.c", "schema", "\n", "$", "a b"]
EMPTY = SchemaBuilder.struct().build()
DATES = SchemaBuilder.map(STRING_SCHEMA, Date.SCHEMA).build()
LEAVES = SchemaBuilder.struct().field("l", SchemaBuilder.array(INT8_SCHEMA).build()).field("e", EMPTY).build()


def odd_names() -> Schema:
    builder = SchemaBuilder.struct()
    for name in ODD_NAMES:
        builder.field(name, INT32_SCHEMA)
    return builder.build()


ODD = odd_names()
VALUES: list[tuple[list[object], Schema]] = [
    ([1, None, -128], INT8_SCHEMA),
    (["a", None, "", "\x00é😀", "a lone \ud800 surrogate"], STRING_SCHEMA),
    ([b"\xff", None, b""], Schema(Type.BYTES)),
    ([1.5, None, float("-inf"), 3.4028234663852886e38], Schema(Type.FLOAT32)),
    ([5e-324, None, 0.1], Schema(Type.FLOAT64)),
    ([True, None, False], Schema(Type.BOOLEAN)),
    ([datetime(1, 1, 1, tzinfo=UTC), None, 1 << 62, -(1 << 63)], Timestamp.SCHEMA),
    ([date(9999, 12, 31), None, -(1 << 31)], Date.SCHEMA),
    ([time(23, 59, 59, 999_000), None, -1], Time.SCHEMA),
    ([Number("1.10"), None, Number("-" + "9" * 36 + ".01")], Decimal.schema(2)),
    ([Number("1.10"), None, Number("9" * 50 + ".01")], Decimal.schema(2)),
    ([Number("0." + "0" * 37 + "1"), None], Decimal.schema(38)),
    ([[1, None], None, []], SchemaBuilder.array(INT32_SCHEMA).build()),
    ([["x", 1, None, {"a": [None]}], None, []], Schema(Type.ARRAY)),
    ([{"a": date(2020, 1, 1), "A": None, "": None}, None, {}], DATES),
    ([{"a": date(2020, 1, 1), None: None}, None, {}], DATES),
    ([{1: "a"}, None, {}], SchemaBuilder.map(INT32_SCHEMA, STRING_SCHEMA).build()),
    ([{1: "a", "2": 3, None: {"x": None}}, None], Schema(Type.MAP)),
    ([Struct.unchecked(ODD, range(len(ODD_NAMES))), None, Struct(ODD)], ODD),
    ([Struct.unchecked(LEAVES, [[1], Struct(EMPTY)]), None, Struct(LEAVES)], LEAVES),
    ([Struct(EMPTY), None], EMPTY),
]
SCHEMALESS: list[object] = [
    None,
    True,
    0,
    -129,
    40_000,
    1 << 40,
    -(1 << 63),
    1.0,
    0.1,
    "x" * 63,
    "é" * 64,
    b"\x00\xff",
    Number("1.50"),
    Number("9" * 38),
    date(2020, 2, 29),
    datetime(2020, 1, 1, 2, 3, 4, 5000, UTC),
    [],
    {},
    [1, [2, {"a": None}]],
    {"b": {"c": {"a": 1, "b": [True]}}, "a": "x" * 300},
    {f"k{number}": number for number in range(300)},
    {1: "a", None: 2},
    {"\x00map": 1},
    Struct.unchecked(LEAVES, [[1], None]),
    Number("1E+3"),
    time(1, 2, 3),
]


# Below the threshold rows are evaluated inside of the optimizer, above it by generated code.
@pytest.fixture(params=["200k", "0"], ids=["local", "jobs"])
def session(spark_runtime: SparkRuntime, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    found = spark_runtime.session(120.0)
    key = "spark.sql.execution.arrow.localRelationThreshold"
    before = found.conf.get(key) or ""
    found.conf.set(key, request.param)
    yield found
    found.conf.set(key, before)


def test_columns_of_every_schema_pass_through_spark(session: SparkSession) -> None:
    built = [to_arrow(values * 2, schema) for values, schema in VALUES]
    rows = max(len(array) for array, _, _ in built)
    padded = [pa.concat_arrays([array, pa.nulls(rows - len(array), array.type)]) for array, _, _ in built]
    frame = session.createDataFrame(pa.table({f"c{index}": array for index, array in enumerate(padded)}))
    names = [f"c{index}" for index in range(len(built))]
    output = frame.select(*names).toArrow()

    for name, (values, schema), (array, _, physical) in zip(names, VALUES, built, strict=True):
        assert frame.schema[name].dataType == spark_type(schema, physical), schema
        assert physical_of_spark(frame.schema[name].dataType, schema) == physical
        assert output.schema.field(name).type == array.type
        assert from_arrow(output[name], schema, physical)[: len(values) * 2] == values * 2


def test_variants_pass_through_spark_when_null_is_made_collectable(session: SparkSession) -> None:
    array, errors, physical = to_arrow(SCHEMALESS, None)
    frame = session.createDataFrame(pa.table({"v": array}))

    assert errors == {}
    assert physical.form is LayoutKind.VARIANT
    assert from_arrow(frame.select(collectable(F.col("v")).alias("v")).toArrow()["v"], None) == SCHEMALESS


def test_spark_reads_the_variants_python_writes(session: SparkSession) -> None:
    plain = [one for one in SCHEMALESS if isinstance(one, (bool, int, str, list, dict))]
    values = [one for one in plain if one not in ({1: "a", None: 2}, {"\x00map": 1})]
    array, _, _ = to_arrow(values, None)
    frame = session.createDataFrame(pa.table({"v": array, "i": list(range(len(values)))}))
    texts = frame.select("i", F.to_json("v").alias("j"), F.schema_of_variant("v").alias("s")).toArrow().to_pylist()
    wide = frame.where(F.length(F.to_json("v")) > 1000)

    assert [json.loads(one["j"]) for one in sorted(texts, key=lambda one: one["i"])] == values
    # Spark finds a key among many by bisection, in Java's order of strings.
    assert wide.select(F.variant_get("v", "$.k299", "int").alias("k")).toArrow()["k"].to_pylist() == [299]


def test_python_reads_the_variants_spark_writes(session: SparkSession) -> None:
    texts = ['{"b":1,"a":{"x":[1.5,"é",null,true],"b":{}}}', "[]", '"x"', "12345678901234", "1.50", "1e10", "null"]
    table = pa.table({"j": texts})
    output = session.createDataFrame(table).select(F.parse_json("j").alias("v")).toArrow()
    found = from_arrow(output["v"], None)

    assert found == [
        json.loads(one, parse_float=lambda text: float(text) if "e" in text else Number(text)) for one in texts
    ]
    assert isinstance(found[0], dict)
    assert list(found[0]) == ["b", "a"]


def test_headers_pass_through_spark(session: SparkSession) -> None:
    headers = [
        ConnectHeaders([Header("a", 1, INT8_SCHEMA), Header("t", datetime(2020, 1, 1, tzinfo=UTC), Timestamp.SCHEMA)]),
        None,
        ConnectHeaders(
            [Header("a", None), Header("s", Struct.unchecked(LEAVES, [[1], None]), LEAVES), Header("", {"x": [1]})]
        ),
    ]
    errors: dict[int, Exception] = {}
    array = headers_column(headers, errors.__setitem__)
    output = session.createDataFrame(pa.table({"h": array})).select("h").toArrow()

    assert headers_of_column(output["h"]) == headers
    assert not errors
