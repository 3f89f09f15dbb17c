"""Patterns about topics, as users write them, end: in plans of sources and sinks, small and large."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from testkit.doubles.chains import configured, consumed

from penstock.api import BaseTransformation, Predicate, SourceFrame, SourceRecord, ValueForm
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import INT32_SCHEMA, INT64_SCHEMA, Schema, SchemaBuilder, Struct
from penstock.pipeline.batch.batches import (
    PipelineSpec,
    ProduceBatch,
    RecordError,
    SinkBatch,
    TransformStage,
)
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import InsertFieldValue
from penstock.transforms.predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from penstock.transforms.topics import RegexRouter, TimestampRouter

pytestmark = [pytest.mark.java, pytest.mark.slow]

#: Java's engine, and Spark's with it, would be at it for ever; RE2 is not.
LINEAR = "(.*a){20}b"
#: No engine can do it in linear time here.
HOSTILE = "(?=a)(a|aa)+b"
LONG = "a" * 60
#: More than share a job with others, and more than are one partition.
LARGE = 6_000
ROW = SchemaBuilder.struct().field("n", INT32_SCHEMA).build()


def json() -> JsonConverter:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, False)
    return converter


def stage(
    transform: BaseTransformation, predicate: Predicate | None = None, *, negate: bool = False, **settings: str
) -> TransformStage:
    named = {name.replace("__", "."): text for name, text in settings.items()}
    return TransformStage("t", configured(transform, named), predicate, negate)


def router(regex: str, replacement: str = "x", predicate: Predicate | None = None) -> TransformStage:
    return stage(RegexRouter(), predicate, regex=regex, replacement=replacement)


def spec(*stages: TransformStage) -> PipelineSpec:
    return PipelineSpec(json(), json(), SimpleHeaderConverter(), stages, "topics")


def matching(pattern: str) -> TopicNameMatches:
    return configured(TopicNameMatches(), {"pattern": pattern})


def record(topic: str, value: object = 1, schema: Schema | None = None) -> SourceRecord:
    return SourceRecord({}, {}, topic, value, value_schema=schema, timestamp=5)


def produced(runtime: SparkRuntime, topics: Sequence[str], *stages: TransformStage) -> ProduceBatch:
    return SourcePipeline(runtime, spec(*stages)).run([record(topic) for topic in topics])


def read(runtime: SparkRuntime, topics: Sequence[str], *stages: TransformStage, form: Any = None) -> SinkBatch:
    table = consumed([b"1"] * len(topics))
    batch = table.set_column(0, table.schema.field("topic"), pa.array(topics, pa.string()))
    return SinkPipeline(runtime, replace(spec(*stages), value_form=form)).run(batch)


def topics_of(batch: ProduceBatch | SinkBatch) -> list[str | None]:
    if isinstance(batch, ProduceBatch):
        found: list[str | None] = batch.table.column("topic").to_pylist()
        return found
    return [None if one is None else one.topic for one in batch.records or ()]


def assert_named(error: RecordError) -> None:
    assert error.stage == "TRANSFORMATION"
    assert error.exception_class == "org.apache.kafka.connect.errors.DataException"
    assert HOSTILE in str(error.message)
    assert f"'{LONG}'" in str(error.message)


RUNS = [produced, read, partial(read, form=ValueForm.COLUMNS)]


@pytest.mark.parametrize("rows", [3, LARGE])
@pytest.mark.parametrize("run", RUNS, ids=["source", "sink", "frame sink"])
@pytest.mark.parametrize("kind", ["router", "predicate", "split"])
def test_a_hostile_pattern_fails_the_records_of_its_topic_alone(
    kind: str, run: Any, rows: int, spark_runtime: SparkRuntime
) -> None:
    chain = {
        "router": router(HOSTILE),
        "predicate": stage(TimestampRouter(), matching(HOSTILE)),
        # The records end in other schemas.
        "split": stage(InsertFieldValue(), matching(HOSTILE), static__field="f", static__value="v"),
    }[kind]
    topics = [LONG if row % 3 == 1 else "c" for row in range(rows)]
    begun = time.monotonic()

    batch = run(spark_runtime, topics, chain)

    assert time.monotonic() - begun < 60
    assert sorted(batch.errors) == [row for row in range(rows) if topics[row] == LONG]
    assert_named(batch.errors[1])
    if run is not RUNS[2]:
        assert {topic for row, topic in enumerate(topics_of(batch)) if row not in batch.errors} == {"c"}


@pytest.mark.parametrize("rows", [3, LARGE])
@pytest.mark.parametrize("run", RUNS[:2], ids=["source", "sink"])
def test_a_pattern_that_would_hold_the_jvm_is_answered_at_once(
    run: Any, rows: int, spark_runtime: SparkRuntime
) -> None:
    topics = [LONG, f"{LONG}b", "c"] * (rows // 3)

    batch = run(spark_runtime, topics, router(LINEAR), stage(TimestampRouter(), matching(LINEAR)))

    assert not batch.errors
    assert topics_of(batch) == [LONG, "x", "c"] * (rows // 3)


CHAINS: list[tuple[list[TransformStage], list[str]]] = [
    ([router("db-(.*)", "$1"), router("a(.*)", "b$1")], ["b1", "b1", "c"]),
    ([router("db-(.*)", "$1", matching("db-a.*")), router("a.*", "x")], ["x", "x", "db-c"]),
    ([stage(TimestampRouter(), topic__format="${topic}!"), router("db-(.*)!", "$1")], ["a1", "a1!", "c"]),
    ([router("db-(.*)", "$1", RecordIsTombstone()), router("a.*", "x")], ["db-a1", "x", "db-c"]),
    (
        [router("db-(.*)", "$1"), stage(TimestampRouter(), matching("a.*"), topic__format="${topic}!")],
        ["a1!", "a1!", "c"],
    ),
    (
        [stage(RegexRouter(), matching("db-a1"), negate=True, regex=".*", replacement="y"), router("y", "z")],
        ["db-a1", "z", "z"],
    ),
    ([router("a1", "q", configured(HasHeaderKey(), {"name": "h"})), router("db-c", "x")], ["db-a1", "a1", "x"]),
]


@pytest.mark.parametrize("rows", [3, LARGE])
@pytest.mark.parametrize("run", RUNS[:2], ids=["source", "sink"])
@pytest.mark.parametrize(("chain", "expected"), CHAINS, ids=range(len(CHAINS)))
def test_what_follows_sees_topics_as_they_have_become(
    chain: list[TransformStage], expected: list[str], run: Any, rows: int, spark_runtime: SparkRuntime
) -> None:
    batch = run(spark_runtime, ["db-a1", "a1", "db-c"] * (rows // 3), *chain)

    assert not batch.errors
    assert topics_of(batch) == expected * (rows // 3)


def test_groups_that_share_a_job_have_their_own_topics(spark_runtime: SparkRuntime) -> None:
    pipeline = SourcePipeline(spark_runtime, spec(router("(.)", "$1$1"), router("bb", "x")))
    struct = Struct(ROW).put("n", 1)
    records = [record("a", struct, ROW), record("b", "text"), record("c", None), record("b", struct, ROW)]

    batch = pipeline.run(records)

    assert topics_of(batch) == ["aa", "x", "cc", "x"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_batch_is_routed_when_nothing_may_go_beside_spark(whole: bool, spark_runtime: SparkRuntime) -> None:
    made = replace(spec(router("db-(.*)", "$1")), nothing_beside_spark=whole)

    batch = SourcePipeline(spark_runtime, made).run([record("db-a"), record("b")])

    assert topics_of(batch) == ["a", "b"]


@pytest.mark.parametrize("topic", [None, "db-a"])
def test_frames_of_spark_are_routed(topic: str | None, spark_runtime: SparkRuntime) -> None:
    def made(session: SparkSession) -> Any:
        frame = session.createDataFrame(pa.table({"value": [1, 2], "topic": ["db-a", LONG]}))
        return frame.drop("topic") if topic else frame

    pipeline = SourcePipeline(spark_runtime, spec(router("db-(.*)", "$1"), router(HOSTILE)))

    batch = pipeline.run(SourceFrame(made, topic, INT64_SCHEMA, {}, {}))

    assert topics_of(batch)[0] == "a"
    assert sorted(batch.errors) == ([] if topic else [1])
    if not topic:
        assert_named(batch.errors[1])
