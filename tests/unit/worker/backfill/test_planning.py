"""Plans of backfills out of the settings of connectors: what sources are asked, and what is refused with what to do."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from testkit.doubles.spark_doubles import FakeSessions

from penstock.api import BackfillPart, BackfillSpan, SourceConnector, SourceRecord, SourceTask, Task
from penstock.errors import (
    BadRequestException,
    ConflictException,
    ConnectException,
    NotReadyException,
    RetriableException,
)
from penstock.model import ConnectorType
from penstock.model.payloads import BackfillPlan, BackfillQuestion, BackfillRange, BackfillRequest
from penstock.plugins import Plugins
from penstock.settings.worker import StandaloneSettings
from penstock.worker.backfill.planning import BackfillPlanner
from penstock.worker.task.slot import TASK_CLASS


class AskedTask(SourceTask):
    """Plans what its settings say."""

    spans: list[BackfillSpan] = []
    error: Exception | None = None

    def start(self, props: Mapping[str, str]) -> None:
        self.rows = props["rows"]

    def poll(self) -> Sequence[SourceRecord] | None:
        return None

    def plan_backfill(self, span: BackfillSpan) -> Sequence[BackfillPart]:
        type(self).spans.append(span)
        error = type(self).error
        if error is not None:
            raise error
        if not self.rows:
            return []
        return [BackfillPart({"rows": self.rows}, {}, None if self.rows == "?" else int(self.rows))]


class UnmadeTask(SourceTask):
    def __init__(self) -> None:
        raise AssertionError("it is made")

    def poll(self) -> Sequence[SourceRecord] | None:
        return None


class AskedSource(SourceConnector):
    def task_class(self) -> type[Task]:
        return AskedTask


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    AskedTask.spans, AskedTask.error = [], None


def plan(request: BackfillRequest, *rows: str, cls: type = AskedTask, **config: str) -> BackfillPlan:
    settings = StandaloneSettings.parse(
        {
            "bootstrap.servers": "localhost:9092",
            "offset.storage.file.filename": "/nowhere",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        }
    )
    name = f"{AskedSource.__module__}.AskedSource"
    given = {"name": "a", "connector.class": name, **{key.replace("_", "."): value for key, value in config.items()}}

    def read(one: str) -> Mapping[str, str]:
        return {**given, TASK_CLASS: f"{cls.__module__}.{cls.__qualname__}", "rows": one}

    tasks = [lambda one=one: read(one) for one in rows]
    question = BackfillQuestion("a", ConnectorType.SOURCE, given, tasks, request)
    return BackfillPlanner(settings, Plugins(), FakeSessions())(question)


def test_the_parts_of_all_tasks_are_one_plan_with_the_settings_of_each() -> None:
    found = plan(BackfillRequest(span=("x", 7), of="t"), "3", "", "4")
    assert (found.reads, found.total) == ([{"partition": {"rows": one}, "rows": int(one)} for one in "34"], 7)
    assert found.writes == "Kafka, to the topics of connector a (AskedSource), through its transforms and converters"
    assert [one.read_config()["rows"] for one in found.shares] == ["3", "4"]
    assert AskedTask.spans == [BackfillSpan(first="x", end=7, of="t")] * 3
    assert plan(BackfillRequest(span=("x", 7)), "3", "?").total is None
    assert plan(BackfillRequest(span=("x", 7)), "").reads == []


def test_a_range_of_times_without_an_end_goes_up_to_now() -> None:
    before = time.time_ns() // 1_000_000
    plan(BackfillRequest(start_ms=5), "1")
    (span,) = AskedTask.spans
    assert (span.start_ms, before <= (span.end_ms or 0) <= time.time_ns() // 1_000_000) == (5, True)
    with pytest.raises(BadRequestException, match="is in the future"):
        plan(BackfillRequest(start_ms=2**50), "1")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (NotImplementedError("x"), BadRequestException, "its task AskedTask has no backfills: stop it, and set its"),
        (BadRequestException("give two numbers"), BadRequestException, "^give two numbers$"),
        (RetriableException("the database is away"), NotReadyException, "cannot be asked .* now: the database is away"),
        (
            ConnectException("no such table"),
            ConflictException,
            "cannot plan a backfill: ConnectException: no such table",
        ),
        (KeyError("x"), ConflictException, "cannot plan a backfill: KeyError: 'x'"),
    ],
)
def test_an_answer_says_what_to_do(error: Exception, kind: type[Exception], text: str) -> None:
    AskedTask.error = error
    with pytest.raises(kind, match=text):
        plan(BackfillRequest(span=(1, 2)), "1")


def test_sources_that_have_none_are_refused_before_one_of_their_tasks_is_made() -> None:
    with pytest.raises(
        BadRequestException, match=r"its task UnmadeTask has no backfills: stop it, and set its offsets back"
    ):
        plan(BackfillRequest(span=(1, 2)), "1", cls=UnmadeTask)
    with pytest.raises(BadRequestException, match=r"processes of their own \(task.isolation\)"):
        plan(BackfillRequest(span=(1, 2)), "1", task_isolation="process")
    ranges: Any = [BackfillRange("t", 0, 1, 2)]
    with pytest.raises(BadRequestException, match="is a source: the offsets of its backfill are an object with from"):
        plan(BackfillRequest(ranges=ranges), "1")
    assert AskedTask.spans == []
