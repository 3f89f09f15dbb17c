"""Compiled plans in front of what executors write of a topic: the frames are those of the same messages one by one."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from testkit.connectors.bulk_tasks import Marked
from tests.unit.worker.bulk.test_range_work import PLACE, InMemory, Rows, Topic, reading

from penstock.api import SinkFrame
from penstock.api.bulk import TopicRange
from penstock.converters.json.converter import JsonConverter
from penstock.data import Decimal, SchemaBuilder, Struct, Time, Timestamp
from penstock.pipeline.batch.batches import InstanceRecipe
from penstock.pipeline.batch.sink.ahead import plan_ahead
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.telemetry import no_probe
from penstock.transforms.field_values import InsertFieldValue
from penstock.transforms.restructuring import ReplaceFieldValue
from penstock.transforms.topics import RegexRouter
from penstock.worker.bulk import planning as module
from penstock.worker.bulk.planning import run_session, samples_of, written_rows
from penstock.worker.bulk.range_work import RangeAnswer, RangeFetch, RangeWork
from penstock.worker.bulk.shipping import packed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java]
COUNT = 4_000


@pytest.fixture(scope="module")
def session(spark_runtime: SparkRuntime) -> SparkSession:
    return run_session(spark_runtime.session(120), 2)


class All(Rows):
    """Returns all columns of all frames, with their schemas."""

    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> Any:
        return [
            (row, str(frame.key_schema), str(frame.value_schema), frame.value_schema and str(frame.table.schema))
            for frame in batches
            for row in frame.table.to_pylist()
        ]


def plain(number: int) -> bytes:
    return json.dumps({"id": number, "name": f"n{number % 7}", "price": number / 4}).encode()


def odd(number: int) -> bytes:
    if number == 3_500:
        return b"{"
    return json.dumps({"name": str(number)}).encode() if number > 3_900 else plain(number)


CHAIN = [
    InstanceRecipe(ReplaceFieldValue, {"exclude": "price", "renames": "name:title"}),
    InstanceRecipe(
        InsertFieldValue, {"topic.field": "of", "offset.field": "at", "static.field": "s", "static.value": "x"}
    ),
    InstanceRecipe(RegexRouter, {"regex": "(.*)", "replacement": "to-$1"}),
    # Its author's, and stateless.
    InstanceRecipe(Marked, {}),
]


def test_frames_behind_a_plan_are_those_of_the_same_messages_one_by_one(
    session: SparkSession, spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_PLANNED", 1)
    topic = Topic({number: odd(number) for number in range(COUNT)}, once=1_000)
    given = reading(topic, JsonConverter, *CHAIN, tolerant=True)
    check(given, session, SparkJobs(spark_runtime))


SCHEMA = (
    SchemaBuilder.struct()
    .field("tiny", SchemaBuilder.int8().build())
    .field("double", SchemaBuilder.float64().optional().build())
    .field("octets", SchemaBuilder.bytes().optional().build())
    .field("money", Decimal.builder(2).optional().build())
    .field("clock", Time.SCHEMA)
    .field("moment", Timestamp.builder().optional().build())
    .field("many", SchemaBuilder.array(Decimal.builder(1).optional().build()).build())
    .field("dropped", SchemaBuilder.string().optional().build())
    .build()
)


def typed(number: int) -> Struct:
    values: dict[str, Any] = {
        "tiny": number % 100 - 50,
        "double": number / 3,
        "octets": b"%d" % number,
        "money": decimal.Decimal(number - 9).scaleb(-2),
        "clock": dt.time(number % 24, 1, 2, 3_000),
        "moment": dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=number),
        "many": [decimal.Decimal(number).scaleb(-1), None][: number % 3],
    }
    made = Struct(SCHEMA)
    optional = {one.name for one in SCHEMA.fields if one.schema.optional}
    for name, value in values.items():
        made.put(name, None if number % 7 == 0 and name in optional else value)
    return made


def test_values_with_a_schema_behind_a_plan_are_those_of_the_same_messages_one_by_one(
    session: SparkSession, spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_PLANNED", 1)
    writer = JsonConverter()
    writer.configure({}, False)
    topic = Topic({number: writer.from_connect_data("t", SCHEMA, typed(number)) for number in range(60)}, once=30)
    given = reading(topic, JsonConverter, InstanceRecipe(ReplaceFieldValue, {"exclude": "dropped"}))
    given = replace(given, parts=replace(given.parts, value=InstanceRecipe(JsonConverter, {})))
    ranges = (TopicRange(*PLACE, 0, 30), TopicRange(*PLACE, 30, 60))
    check(given, session, SparkJobs(spark_runtime), ranges)


RANGES = (TopicRange(*PLACE, 0, 3_000), TopicRange(*PLACE, 3_000, 4_000), TopicRange(*PLACE, 5_000, 5_001))


def check(given: InMemory, session: SparkSession, jobs: SparkJobs, ranges: tuple[TopicRange, ...] = RANGES) -> None:
    """Compares what ranges are with a plan and without."""
    work = RangeWork(All(), ranges, given, no_probe)
    made = plan_ahead(given.pipeline(), jobs, samples_of(ranges, given))
    assert made is not None
    planned = [one.column("is_planned")[0].as_py() for one in RangeFetch(ranges, given, made[0]).fetched(0)]
    assert any(planned)
    rows = written_rows(session, work, packed(work, "it"), jobs, "it")
    answers = [pickle.loads(one[0]) for one in rows.collect()]
    expected = [work.write(place) for place in range(len(ranges))]
    for answer, other in zip(answers, expected, strict=True):
        found: Any = other.file
        unlike = [pair for pair in zip(answer.file, found, strict=True) if pair[0] != pair[1]]
        assert not unlike, unlike[0]
        assert told(answer) == told(other)
    assert answers[0].rows > 0


def told(answer: RangeAnswer) -> object:
    counts = {name: count for name, count in answer.counts.items() if name != "last_error_timestamp"}
    return (replace(answer.range, attempt=""), answer.file, answer.read, answer.rows, answer.nbytes, counts)
