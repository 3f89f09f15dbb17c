"""Whole batches through both pipelines on Spark: what shares a job, what goes around it, what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.api import Converter, SourceRecord
from penstock.converters.primitives import ByteArrayConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, ConnectHeaders, Header, Schema, SchemaAndValue
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, Moved, PipelineSpec, Why
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow]


class Brackets(Converter):
    """A user's own converter: in Python."""

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        return f"<{value}>".encode()

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        return SchemaAndValue(None, None if data is None else f"<{data.decode()}>")


def spec(key: Converter, value: Converter, settings: Mapping[str, Any] | None = None) -> PipelineSpec:
    for one, is_key in ((key, True), (value, False)):
        if not isinstance(one, Brackets):
            one.configure(settings or {}, is_key)
    header = SimpleHeaderConverter()
    header.configure({})
    return PipelineSpec(key, value, header)


def record(value: object, schema: Schema | None = None, **more: Any) -> SourceRecord:
    return SourceRecord({}, {}, "batches", value, value_schema=schema, **more)


def messages(values: list[bytes | None]) -> pa.Table:
    rows = len(values)
    columns: dict[str, Any] = {
        "topic": ["batches"] * rows,
        "partition": [3] * rows,
        "offset": list(range(100, 100 + rows)),
        "timestamp": [None, *range(1, rows)],
        "timestamp_type": [-1] + [0] * (rows - 1),
        "key": [b"k"] * rows,
        "value": values,
        "headers": [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], *[None] * (rows - 1)],
    }
    return pa.table([pa.array(columns[one.name], one.type) for one in CONSUMED_SCHEMA], CONSUMED_SCHEMA)


def test_values_that_deny_their_schema_do_not_displace_schemaless_ones(spark_runtime: SparkRuntime) -> None:
    pipeline = SourcePipeline(spark_runtime, spec(StringConverter(), StringConverter()))
    records = [record("a"), record("x", INT32_SCHEMA), record("b"), record("y", INT32_SCHEMA), record(7, INT32_SCHEMA)]

    made = pipeline.run(records)

    assert not made.errors
    assert made.table.column("value").to_pylist() == [b"a", b"x", b"b", b"y", b"7"]


def test_bytes_that_are_no_text_in_their_encoding_cost_no_other_message(spark_runtime: SparkRuntime) -> None:
    settings = {"converter.encoding": "UTF-16"}
    pipeline = SinkPipeline(spark_runtime, spec(ByteArrayConverter(), StringConverter(), settings))

    read = pipeline.run(messages(["é".encode("utf-16-be"), b"\xff\xfe\x00", None, b"\xd8\x00\x00a"]))

    assert not read.errors
    assert [one and one.value for one in read.records or ()] == ["é", "\ufffd", None, "\ufffd"]


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("ISO-8859-1", b"h\xe9?"),
        ("windows-1252", b"h\xe9\x80"),
        ("US-ASCII", b"h??"),
        ("GB18030", b"h\xa8\xa6\xa2\xe3"),
    ],
)
def test_text_is_written_in_any_of_the_jvm_s_character_sets(
    encoding: str, data: bytes, spark_runtime: SparkRuntime
) -> None:
    settings = {"converter.encoding": encoding}
    pipeline = SourcePipeline(spark_runtime, spec(StringConverter(), StringConverter(), settings))

    made = pipeline.run([record("hé€", STRING_SCHEMA)])

    assert made.table.column("value").to_pylist() == [data]


@pytest.mark.parametrize("whole", [False, True])
def test_a_batch_is_the_same_whether_columns_go_around_spark_or_not(whole: bool, spark_runtime: SparkRuntime) -> None:
    own = replace(spec(StringConverter(), StringConverter()), nothing_beside_spark=whole)
    records = [
        record("a", key="k", partition=2, timestamp=9, headers=ConnectHeaders([Header("h", 1), Header("i", None)])),
        record("b"),
    ]

    made = SourcePipeline(spark_runtime, own).run(records)
    read = SinkPipeline(spark_runtime, own).run(messages([b"x", b"y", None]))

    assert made.table.to_pylist() == [
        {
            "seq": 0,
            "topic": "batches",
            "partition": 2,
            "timestamp": 9,
            "key": b"k",
            "value": b"a",
            "headers": [{"key": "h", "value": b"1"}, {"key": "i", "value": None}],
            "dropped": False,
        },
        {
            "seq": 1,
            "topic": "batches",
            "partition": None,
            "timestamp": None,
            "key": None,
            "value": b"b",
            "headers": None,
            "dropped": False,
        },
    ]
    found = [one for one in read.records or () if one is not None]
    assert [(one.value, one.kafka_offset, one.timestamp) for one in found] == [
        ("x", 100, None),
        ("y", 101, 1),
        (None, 102, 2),
    ]
    assert [(one.key, one.value) for one in found[0].headers] == [("h", 1), ("h", None)]


def test_every_record_of_a_batch_goes_through_spark_and_is_counted(
    spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[int] = []
    through = SparkJobs.through

    def watched(jobs: SparkJobs, table: pa.Table) -> pa.Table:
        whole.append(table.num_rows)
        return through(jobs, table)

    monkeypatch.setattr(SparkJobs, "through", watched)
    moved: list[Mapping[Why | None, int]] = []
    count: Moved = moved.append
    jobs = SparkJobs(spark_runtime)
    records = [record("a"), record(1, INT32_SCHEMA), record("z", INT32_SCHEMA)]

    stock = SourcePipeline(spark_runtime, spec(StringConverter(), StringConverter()), jobs, count)
    assert stock.run(records).table.column("value").to_pylist() == [b"a", b"1", b"z"]
    assert (moved, whole) == ([{None: 3}], [])
    own = SourcePipeline(spark_runtime, spec(Brackets(), Brackets()), jobs, count)
    assert own.run(records).table.column("value").to_pylist() == [b"<a>", b"<1>", b"<z>"]
    assert (moved, whole) == ([{None: 3}, {Why.OWN_CLASS: 3}], [3])
    sink = SinkPipeline(spark_runtime, spec(Brackets(), Brackets()), jobs, count)
    assert [one and one.value for one in sink.run(messages([b"q", None])).records or ()] == ["<q>", None]
    assert moved[2:] == [{Why.OWN_CLASS: 2}]
    assert own.run([]).table.num_rows == 0
    assert moved[3:] == [{}]
