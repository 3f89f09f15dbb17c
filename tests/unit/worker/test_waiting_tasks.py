"""Each reason that ``explain`` gives for a task that does not go on, brought about by a running task."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from testkit.doubles.source_doubles import WAIT_S, ScriptedTask, record
from testkit.waiting import await_true
from tests.unit.worker.source.test_task import Rig

from penstock.api import SourceRecord
from penstock.errors import ConnectException
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings
from penstock.model import State
from penstock.pipeline.batch.batches import PendingBatch
from penstock.pipeline.spark.session import SparkRuntime
from penstock.worker.source.task import SourceTaskRunner
from penstock.worker.task.waiting import Hints, WaitReason, places, task_waiting

NO_HINTS = Hints()
REGISTRY_CLIENT = """
def get_schema():
    asked.set()
    answer.wait(20)
"""


class Polled(ScriptedTask):
    """Its poll does what the test says."""

    def __init__(self, poll: Callable[[], list[SourceRecord] | None]) -> None:
        super().__init__()
        self.do = poll

    def poll(self) -> list[SourceRecord] | None:
        return self.do()


Run = Callable[..., Rig]


@pytest.fixture
def run() -> Iterator[Run]:
    """Starts a task; it is ended after the test."""
    made: list[tuple[Rig, SourceTaskRunner]] = []

    def started(poll: Callable[[], list[SourceRecord] | None], **services: Any) -> Rig:
        rig = Rig(task=Polled(poll), retry_timeout_ms=600_000)
        runner = rig.runner = SourceTaskRunner(rig.spec, rig.services, replace(rig.source, **services))
        made.append((rig, runner))
        runner.start()
        return rig

    yield started
    for rig, runner in made:
        rig.pipeline.hold.set()
        rig.producer.abort()
        runner.cancel()
        runner.join(WAIT_S)
    # A batch that was given up may still be ending, on a thread of the name that the next test looks at.
    await_true(lambda: not any(thread.name.endswith("-c-0") for thread in threading.enumerate()))


def waiting(spark_up: bool = True, hints: Hints = NO_HINTS) -> WaitReason:
    return task_waiting("c-0", State.RUNNING, places(), spark_up=spark_up, hints=hints)


def becomes(reason: str, spark_up: bool = True) -> None:
    await_true(lambda: waiting(spark_up).reason == reason, lambda: f"{waiting()}")


def on_its_own_thread(call: Callable[[object], None]) -> Callable[..., PendingBatch[None]]:
    """A pipeline's ``begin`` that runs code as it runs that of users: only jobs go to other threads."""
    return lambda batch, submit: PendingBatch(partial(call, batch))


def one_record() -> list[SourceRecord]:
    return [record(1)]


def test_a_poll_that_gives_nothing_has_no_data(run: Run) -> None:
    run(lambda: None)
    becomes("no_data")


def test_a_poll_that_blocks_is_user_code_since_then(run: Run) -> None:
    leave = threading.Event()

    def ask_a_database() -> None:
        leave.wait(WAIT_S)

    rig = run(ask_a_database)
    becomes("user_code")
    began = waiting(hints=rig.runner.hints).since
    assert began is not None
    assert timedelta() <= datetime.now(UTC) - began < timedelta(seconds=WAIT_S)
    assert any("in ask_a_database" in line for line in waiting().stack)
    leave.set()


@pytest.mark.slow
def test_a_kafka_that_does_not_answer_is_the_broker(run: Run) -> None:
    client = producer_settings({"bootstrap.servers": "127.0.0.1:1"}, {}, client_id="c-0")
    producer = ColumnProducer(ColumnSettings.of(client), name="c-0")
    try:
        run(one_record, producer=producer)
        becomes("broker")
        await_true(lambda: producer.trouble is not None)

        def told() -> str:
            hints = Hints(kafka=producer.trouble)
            return task_waiting("c-0", State.RUNNING, places(), spark_up=True, hints=hints).text

        # Now and then the task looks for more to poll, and waits for nothing in that moment.
        await_true(lambda: "127.0.0.1:1" in (text := told()) and "refused" in text)
    finally:
        producer.abort()


def test_a_full_queue_is_back_pressure(run: Run) -> None:
    rig = run(one_record)
    rig.producer.full = True
    becomes("back_pressure")


def test_a_record_that_fails_for_now_is_a_retry(run: Run) -> None:
    given = iter([[record(1, "later")]])
    rig = run(lambda: None)
    rig.pipeline.retriable_failures = 1_000_000
    assert isinstance(rig.task, Polled)
    rig.task.do = lambda: next(given, None)
    becomes("record_retry")
    found = waiting()
    assert found.cause == "TRANSFORMATION: not yet"
    assert found.text.startswith("A record failed with an error that may pass, and is tried again")


def test_a_batch_waits_for_a_session_that_is_not_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkRuntime, "start", lambda self: None)
    runtime = SparkRuntime({})
    rig = run(lambda: None)

    def convert(batch: object) -> None:
        runtime.run(lambda session: None)

    rig.pipeline.run = convert  # type: ignore[assignment,method-assign]
    assert isinstance(rig.task, Polled)
    rig.task.do = one_record
    becomes("spark_starting", spark_up=False)
    becomes("spark")
    runtime.stop()


def test_a_converter_waits_for_its_schema_registry(run: Run) -> None:
    asked, answer = threading.Event(), threading.Event()
    names: dict[str, Any] = {"asked": asked, "answer": answer}
    exec(compile(REGISTRY_CLIENT, "/usr/lib/confluent_kafka/schema_registry/client.py", "exec"), names)
    rig = run(lambda: None)

    def convert(batch: object) -> None:
        names["get_schema"]()
        raise ConnectException("no schema")

    rig.pipeline.begin = on_its_own_thread(convert)  # type: ignore[assignment,method-assign]
    assert isinstance(rig.task, Polled)
    rig.task.do = one_record
    assert asked.wait(WAIT_S)
    assert waiting().reason == "schema_registry"
    answer.set()


def test_a_transform_of_a_user_is_user_code(run: Run) -> None:
    entered, leave = threading.Event(), threading.Event()
    rig = run(lambda: None)

    def translate(batch: object) -> None:
        entered.set()
        leave.wait(WAIT_S)
        raise ConnectException("enough")

    rig.pipeline.begin = on_its_own_thread(translate)  # type: ignore[assignment,method-assign]
    assert isinstance(rig.task, Polled)
    rig.task.do = one_record
    assert entered.wait(WAIT_S)
    becomes("user_code")
    found = waiting()
    assert any("in translate" in line for line in found.stack)
    leave.set()
