"""Compiled plans in front of what executors write of a topic: the frames are those of the same messages one by one."""

from __future__ import annotations

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
from penstock.pipeline.batch.batches import InstanceRecipe
from penstock.pipeline.batch.sink.ahead import plan_ahead
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.telemetry import no_probe
from penstock.transforms.fields.insert_field import InsertFieldValue
from penstock.transforms.fields.replace_field import ReplaceFieldValue
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
            (row, str(frame.key_schema), str(frame.value_schema))
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


def check(given: InMemory, session: SparkSession, jobs: SparkJobs) -> None:
    """Compares what three ranges are with a plan and without."""
    ranges = (TopicRange(*PLACE, 0, 3_000), TopicRange(*PLACE, 3_000, 4_000), TopicRange(*PLACE, 5_000, 5_001))
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
