"""What connectors and tasks wait for, by what their threads say and where they stand."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from testkit.processes.schema_registry import RegistryStandIn

import penstock
from penstock.converters.registry.client import RegistryUnavailableException
from penstock.converters.registry.converters import AvroConverter
from penstock.errors import DataException, ServiceUnavailableException
from penstock.model import State
from penstock.pipeline.batch.batches import RecordError
from penstock.telemetry import Wait, waiting_for
from penstock.worker.errors import ErrorCounts, ErrorHandler, ErrorPolicy
from penstock.worker.task.waiting import (
    REASONS,
    CodeLocation,
    Hints,
    StackEntry,
    WaitReason,
    connector_waiting,
    places,
    task_waiting,
)

PACKAGE = Path(penstock.__file__).parent


def ours(path: str, function: str) -> StackEntry:
    """A frame of the worker."""
    return StackEntry(str(PACKAGE / path), 1, function)


USERS = StackEntry("/somewhere/my_source.py", 42, "poll")
LIBRARY = StackEntry(threading.__file__, 9, "wait")
IN_WORKER = ours("worker/source/task.py", "_poll")
POLLING = CodeLocation([LIBRARY, IN_WORKER])
NO_HINTS, SINK = Hints(), Hints(assigned=1)


def in_user(*frames: StackEntry) -> CodeLocation:
    """A thread in a method of a user, which has called further."""
    return CodeLocation([*POLLING.frames, USERS, *frames])


def saying(wait: str, detail: str | None = None) -> CodeLocation:
    """A thread of the worker that says what it waits for."""
    return CodeLocation([IN_WORKER, LIBRARY], Wait(wait, time.monotonic(), detail))


def waiting(
    state: State = State.RUNNING,
    spark_up: bool = True,
    kafka_up: bool = True,
    hints: Hints = NO_HINTS,
    **threads: CodeLocation,
) -> WaitReason:
    """Why the task does not go on; threads by the first part of their names."""
    named = {f"{name}-a-0": place for name, place in threads.items()}
    return task_waiting("a-0", state, named, spark_up=spark_up, kafka_up=kafka_up, hints=hints)


def reason(state: State = State.RUNNING, **given: Any) -> str:
    """The reason alone, which is one of those there are."""
    found = waiting(state, **given).reason
    assert found in REASONS
    return found


@pytest.mark.parametrize(
    ("state", "expected"),
    [(State.PAUSED, "paused"), (State.FAILED, "failed"), (State.UNASSIGNED, "not_started")],
)
def test_a_task_that_rests_waits_for_its_user(state: State, expected: str) -> None:
    assert reason(state, task=POLLING) == expected


def test_a_users_method_is_named_with_its_stack() -> None:
    assert waiting(task=in_user(LIBRARY)).to_json() == {
        "reason": "user_code",
        "text": "Its own code runs: poll in my_source.py",
        "stack": ["my_source.py:42 in poll", "threading.py:9 in wait"],
    }
    # A paused task whose poll does not come back is in its user's code, too.
    assert reason(State.PAUSED, hints=SINK, task=in_user()) == "user_code"


def test_built_in_connectors_are_users_of_the_worker_unless_they_wait_for_data() -> None:
    reading = ours("connectors/file/source.py", "poll")
    assert reason(task=CodeLocation([*POLLING.frames, reading])) == "user_code"
    assert reason(task=CodeLocation([*POLLING.frames, reading, LIBRARY])) == "no_data"


def test_a_connector_that_waits_for_a_store_of_files_is_in_its_own_code() -> None:
    source = [
        *POLLING.frames,
        ours("connectors/files/source/task.py", "poll"),
        ours("files/arrow.py", "__call__"),
    ]
    assert reason(task=CodeLocation([*source, LIBRARY])) == "user_code"
    sink = [*POLLING.frames, ours("connectors/files/sink/task.py", "put"), ours("files/rolling.py", "put")]
    client = StackEntry("/usr/lib/site-packages/botocore/client.py", 5, "_api_call")
    for inner in ([client, LIBRARY], [LIBRARY], [ours("files/publishing.py", "publish"), LIBRARY]):
        assert reason(task=CodeLocation([*sink, *inner]), hints=SINK) == "user_code"


@pytest.mark.parametrize(("spark_up", "expected"), [(True, "spark"), (False, "spark_starting")])
def test_a_batch_waits_for_the_session_or_for_spark(spark_up: bool, expected: str) -> None:
    for hints in (NO_HINTS, SINK):
        assert reason(task=POLLING, convert=saying("spark"), spark_up=spark_up, hints=hints) == expected
    # The task asks for the session itself, or for the one in which it puts again.
    assert reason(task=CodeLocation(in_user().frames, Wait("spark", 0)), spark_up=spark_up) == expected
    assert reason(task=saying("spark"), hints=SINK, spark_up=spark_up) == expected


@pytest.mark.parametrize("wait", ["broker", "record_retry", "schema_registry", "ownership", "transaction"])
@pytest.mark.parametrize("stage", ["task", "convert", "delivery"])
def test_a_stage_says_what_it_waits_for(wait: str, stage: str) -> None:
    threads: dict[str, Any] = {"task": POLLING, stage: saying(wait)}
    assert reason(**threads) == wait


def test_the_last_stage_that_stands_still_counts() -> None:
    full, spark = saying("back_pressure"), saying("spark")
    assert reason(task=full) == "back_pressure"
    assert reason(task=POLLING, convert=full) == "back_pressure"
    assert reason(task=full, convert=spark) == "spark"
    assert reason(task=full, convert=spark, delivery=saying("broker")) == "broker"
    assert reason(task=full, convert=in_user()) == "user_code"
    assert reason(task=in_user(), convert=full) == "back_pressure"


def test_a_wait_has_its_detail_and_says_since_when() -> None:
    found = waiting(task=POLLING, convert=saying("record_retry", "TRANSFORMATION: not yet")).to_json()
    assert found["cause"] == "TRANSFORMATION: not yet"
    assert str(found["since"]).startswith(f"{datetime.now(UTC):%Y-}")
    assert waiting(delivery=saying("broker"), hints=Hints(kafka="refused")).cause == "refused"


def test_a_client_of_a_registry_that_a_users_converter_brings_is_its_registry() -> None:
    client = StackEntry("/usr/lib/site-packages/confluent_kafka/schema_registry/client.py", 5, "get_schema")
    assert reason(task=POLLING, convert=in_user(client, LIBRARY)) == "schema_registry"


def test_a_converter_whose_registry_is_slow_or_down_waits_for_it() -> None:
    """The same with real threads: their names and frames are what the reason is told by."""
    cancelled = threading.Event()
    handler = ErrorHandler(
        ErrorPolicy(retry_timeout_ms=-1),
        [],
        counts=ErrorCounts(),
        clock=lambda: 0,
        random=lambda: 0.5,
        cancelled=cancelled,
    )
    failed = {
        task: RecordError(0, "VALUE_CONVERTER", "C", error.java_name, str(error), retriable=True, exception=error)
        for task, error in (("y-0", RegistryUnavailableException("down")), ("z-0", ServiceUnavailableException("down")))
    }
    converter = AvroConverter()
    with RegistryStandIn() as registry:
        registry.delay_s = 30
        # Without further tries: else the converter might be closed while it opens its next connection.
        converter.configure({"schema.registry.url": registry.url, "max.retries": "0"}, False)
        threads = [
            threading.Thread(target=_quietly, args=(converter.to_connect_data, "t", b"\0\0\0\0\1"), name="convert-x-0"),
            *(
                threading.Thread(target=handler.retry, args=({0: error}, lambda again: again), name=f"convert-{task}")
                for task, error in failed.items()
            ),
        ]
        for one in threads:
            one.start()
        try:
            for task, expected in (("x-0", "schema_registry"), ("y-0", "schema_registry"), ("z-0", "service")):
                _await_reason(task, expected)
        finally:
            cancelled.set()
            registry.close()
            for one in threads:
                one.join(10)
            converter.close()


def _quietly(call: Callable[..., object], *arguments: object) -> None:
    # The registry that is closed either cuts the answer off, or has it say that there is no such schema.
    with contextlib.suppress(RegistryUnavailableException, DataException):
        call(*arguments)


def _await_reason(task: str, expected: str) -> None:
    deadline = time.monotonic() + 10
    found = ""
    while found != expected:
        assert time.monotonic() < deadline, f"{task} waits for {found}, not for {expected}"
        found = task_waiting(task, State.RUNNING, places(), spark_up=True).reason


def test_a_task_without_work_has_no_data() -> None:
    assert reason(task=POLLING) == "no_data"
    assert reason() == "not_started"


def test_a_sink_without_records_waits_for_the_broker_when_kafka_does_not_answer() -> None:
    assert [reason(task=POLLING, kafka_up=up, hints=SINK) for up in (True, False)] == ["no_data", "broker"]


def test_a_connector_waits_for_its_method_or_its_user() -> None:
    inside = {"connector-a": in_user()}
    assert connector_waiting("a", State.UNASSIGNED, inside).reason == "user_code"
    assert connector_waiting("a", State.STOPPED, {}).reason == "stopped"
    assert connector_waiting("a", State.RUNNING, {}).reason == "no_data"
    assert connector_waiting("a", None, {}).reason == "not_started"


def test_places_are_those_of_the_threads_by_name() -> None:
    entered, leave = threading.Event(), threading.Event()

    def stand_here() -> None:
        with waiting_for("a test"):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=stand_here, name="task-x-0")
    thread.start()
    entered.wait(10)
    try:
        found = places()["task-x-0"]
        functions = [frame.function for frame in found.frames]
        assert functions.index("run") < functions.index("stand_here")
        assert found.wait is not None
        assert found.wait.reason == "a test"
    finally:
        leave.set()
        thread.join(10)


def test_a_transaction_waits_for_its_commit_with_what_is_known_of_it() -> None:
    hints = Hints(transaction="Kafka was asked 3 s ago to commit a transaction of 5 records", kafka="it refused")
    found = waiting(task=POLLING, delivery=saying("transaction"), hints=hints)
    assert found.text == (
        "It has a transaction that is not committed yet: Kafka was asked 3 s ago to commit a transaction of 5 records; "
        "it refused."
    )
    assert reason(task=POLLING, hints=hints) == "transaction"


def isolated(*stack: StackEntry) -> CodeLocation:
    """A thread that waits for a method of an isolated task, whose process says this of its own stack."""
    elsewhere = [(one.file, one.line, one.function) for one in stack]
    return CodeLocation([IN_WORKER, LIBRARY], Wait("user_code", time.monotonic(), "poll", lambda: elsewhere))


def test_a_method_in_a_process_of_its_own_is_told_as_any_other() -> None:
    serving = ours("worker/isolation/child.py", "poll")
    found = waiting(task=isolated(LIBRARY, serving, USERS, LIBRARY))
    assert (found.text, found.stack) == (waiting(task=in_user(LIBRARY)).text, waiting(task=in_user(LIBRARY)).stack)
    reading = ours("connectors/file/source.py", "poll")
    assert reason(task=isolated(serving, reading, LIBRARY)) == "no_data"
    assert reason(task=isolated(LIBRARY)) == "no_data", "it has answered meanwhile"
    assert reason(task=isolated(serving, USERS), convert=saying("spark")) == "spark"


def test_a_process_that_does_not_answer_runs_the_code_of_its_task() -> None:
    found = waiting(hints=SINK, task=isolated())
    assert found.reason == "user_code"
    assert found.text == "Its own code runs: poll in its process, which does not say where it stands"
    assert found.since is not None


def test_what_is_known_of_a_wait_for_kafka_or_spark_is_told() -> None:
    writing = saying("broker", "source offsets are written to the topic o")
    assert waiting(task=POLLING, delivery=writing, hints=Hints(kafka="it refuses")).text == (
        "Kafka has not answered for the records in flight: source offsets are written to the topic o; it refuses."
    )
    assert waiting(convert=saying("spark", "others come first")).text == "Spark works on a batch: others come first."
