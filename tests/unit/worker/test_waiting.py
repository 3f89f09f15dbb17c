"""What connectors and tasks wait for, told by where their threads stand."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.converters.registry.avro import AvroConverter
from penstock.converters.registry.client import RegistryUnavailableException
from penstock.errors import DataException
from penstock.model import State
from penstock.pipeline.batches import RecordError
from penstock.testing.schema_registry import RegistryStandIn
from penstock.worker.error_report import ErrorCounts
from penstock.worker.tolerance import ErrorHandler, ErrorPolicy
from penstock.worker.waiting import REASONS, Frame, Hints, connector_waiting, stacks, task_waiting

PACKAGE = Path(penstock.__file__).parent


def ours(path: str, function: str) -> Frame:
    """A frame of the worker."""
    return Frame(str(PACKAGE / path), 1, function)


USERS = Frame("/somewhere/my_source.py", 42, "poll")
LIBRARY = Frame(threading.__file__, 9, "wait")
POLLING = [LIBRARY, ours("worker/source_task.py", "_poll")]
IN_SESSION = [ours("worker/source_task.py", "_convert"), ours("pipeline/session.py", "_await"), LIBRARY]


NO_HINTS, SINK = Hints(), Hints(assigned=1)


def reason(state: State = State.RUNNING, spark_up: bool = True, hints: Hints = NO_HINTS, **threads: list[Frame]) -> str:
    """Why the task does not go on; threads by the first part of their names."""
    named = {f"{name}-a-0": frames for name, frames in threads.items()}
    found = task_waiting("a-0", state, named, spark_up=spark_up, hints=hints)
    assert found.reason in REASONS
    return found.reason


@pytest.mark.parametrize(
    ("state", "expected"),
    [(State.PAUSED, "paused"), (State.FAILED, "failed"), (State.UNASSIGNED, "not_started")],
)
def test_a_task_that_rests_waits_for_its_user(state: State, expected: str) -> None:
    assert reason(state, task=POLLING) == expected


def test_a_users_method_is_named_with_its_stack() -> None:
    threads = {"task-a-0": [*POLLING, USERS, LIBRARY]}
    found = task_waiting("a-0", State.RUNNING, threads, spark_up=True)
    assert found.to_json() == {
        "reason": "user_code",
        "text": "Its own code runs: poll in my_source.py",
        "stack": ["my_source.py:42 in poll", "threading.py:9 in wait"],
    }
    # A paused task whose poll does not come back is in its user's code, too.
    assert reason(State.PAUSED, hints=SINK, task=[*POLLING, USERS]) == "user_code"


def test_built_in_connectors_are_users_of_the_worker() -> None:
    assert reason(task=[*POLLING, ours("connectors/file/source.py", "poll")]) == "user_code"


def test_a_batch_waits_for_the_session_or_for_spark() -> None:
    assert reason(task=POLLING, convert=IN_SESSION, spark_up=False) == "spark_starting"
    assert reason(task=POLLING, convert=IN_SESSION) == "spark"
    on_another_thread = [
        ours("worker/source_task.py", "_convert"),
        ours("worker/lookahead.py", "_of"),
        LIBRARY,
    ]
    assert reason(task=POLLING, convert=on_another_thread, spark_up=False) == "spark_starting"
    assert reason(task=POLLING, convert=on_another_thread) == "spark"
    assert reason(hints=SINK, task=POLLING, convert=IN_SESSION, spark_up=False) == "spark_starting"


def test_a_task_that_asks_for_the_session_waits_for_it() -> None:
    asking = [*POLLING, USERS, *IN_SESSION[1:]]
    assert reason(task=asking, spark_up=False) == "spark_starting"
    assert reason(hints=SINK, task=asking, spark_up=False) == "spark_starting"
    kept = [ours("worker/sink_put.py", "_await_session"), ours("worker/sink_stages.py", "wait_in_task"), LIBRARY]
    assert reason(hints=SINK, task=kept, spark_up=False) == "spark_starting"


def test_records_under_way_wait_for_the_broker() -> None:
    assert reason(task=POLLING, delivery=[ours("kafka/producer.py", "_admit"), LIBRARY]) == "broker"
    assert reason(task=POLLING, delivery=[ours("kafka/admin.py", "_ask"), LIBRARY]) == "broker"


def test_records_that_are_tried_again_say_so_and_when() -> None:
    assert reason(hints=SINK, task=POLLING, convert=[ours("worker/tolerance.py", "retry"), LIBRARY]) == "record_retry"
    found = task_waiting("a-0", State.RUNNING, {"task-a-0": POLLING}, spark_up=True, retry_at_ms=1_000)
    assert found.reason == "sink_retry"
    assert found.text == "put() asked for the same records again. That is done at 1970-01-01T00:00:01.000+00:00."


def test_records_that_need_the_schema_registry_say_so_also_between_two_tries() -> None:
    asking = [ours("converters/registry/client.py", "_ask"), LIBRARY]
    assert reason(task=POLLING, convert=asking) == "schema_registry"
    assert reason(hints=SINK, task=POLLING, convert=asking) == "schema_registry"
    between = [ours("worker/tolerance.py", "_wait_for_registry"), ours("worker/tolerance.py", "_wait_for_retry")]
    assert reason(hints=SINK, task=POLLING, convert=between) == "schema_registry"


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
    error = RegistryUnavailableException("down")
    failed = RecordError(0, "VALUE_CONVERTER", "C", error.java_name, str(error), retriable=True, exception=error)
    converter = AvroConverter()
    with RegistryStandIn() as registry:
        registry.delay_s = 30
        converter.configure({"schema.registry.url": registry.url}, False)
        threads = [
            threading.Thread(target=_quietly, args=(converter.to_connect_data, "t", b"\0\0\0\0\1"), name="convert-x-0"),
            threading.Thread(target=handler.retry, args=({0: failed}, lambda again: {0: failed}), name="convert-y-0"),
        ]
        for one in threads:
            one.start()
        try:
            for task in ("x-0", "y-0"):
                _await_reason(task, "schema_registry")
        finally:
            cancelled.set()
            registry.close()
            converter.close()
            for one in threads:
                one.join(10)


def _quietly(call: Callable[..., object], *arguments: object) -> None:
    # The registry that is closed either cuts the answer off, or has it say that there is no such schema.
    with contextlib.suppress(RegistryUnavailableException, DataException):
        call(*arguments)


def _await_reason(task: str, expected: str) -> None:
    deadline = time.monotonic() + 10
    found = ""
    while found != expected:
        assert time.monotonic() < deadline, f"{task} waits for {found}, not for {expected}"
        found = task_waiting(task, State.RUNNING, stacks(), spark_up=True).reason


@pytest.mark.parametrize("function", ["put", "wait_to_poll"])
def test_a_full_queue_is_back_pressure(function: str) -> None:
    assert reason(task=[*POLLING, ours("worker/source_stages.py", function), LIBRARY]) == "back_pressure"


def test_a_task_without_work_has_no_data() -> None:
    assert reason(task=[*POLLING, LIBRARY]) == "no_data"


def test_a_sink_without_records_waits_for_the_broker_when_kafka_does_not_answer() -> None:
    threads = {"task-a-0": [ours("worker/sink_stages.py", "wait_in_task"), LIBRARY]}
    found = [task_waiting("a-0", State.RUNNING, threads, spark_up=True, kafka_up=up).reason for up in (True, False)]
    assert found == ["no_data", "broker"]
    assert reason() == "not_started"


def test_a_connector_waits_for_its_method_or_its_user() -> None:
    inside = {"connector-a": [ours("worker/connector_runner.py", "_call"), USERS]}
    assert connector_waiting("a", State.UNASSIGNED, inside).reason == "user_code"
    assert connector_waiting("a", State.STOPPED, {}).reason == "stopped"
    assert connector_waiting("a", State.RUNNING, {}).reason == "no_data"
    assert connector_waiting("a", None, {}).reason == "not_started"


def test_stacks_are_those_of_the_threads_by_name() -> None:
    entered, leave = threading.Event(), threading.Event()

    def stand_here() -> None:
        entered.set()
        leave.wait(10)

    thread = threading.Thread(target=stand_here, name="task-x-0")
    thread.start()
    entered.wait(10)
    try:
        functions = [frame.function for frame in stacks()["task-x-0"]]
        assert functions.index("run") < functions.index("stand_here")
    finally:
        leave.set()
        thread.join(10)


def test_a_transaction_waits_for_its_commit_with_what_is_known_of_it() -> None:
    committing = [ours("worker/source_task.py", "_deliver"), ours("worker/transaction_commit.py", "_ask"), LIBRARY]
    assert reason(task=POLLING, delivery=committing) == "transaction"
    hints = Hints(transaction="Kafka was asked 3 s ago to commit a transaction of 5 records", kafka="it refused")
    found = task_waiting(
        "a-0", State.RUNNING, {"task-a-0": POLLING, "delivery-a-0": committing}, spark_up=True, hints=hints
    )
    assert found.text == (
        "It has a transaction that is not committed yet: Kafka was asked 3 s ago to commit a transaction of 5 records; "
        "it refused."
    )
    idle = task_waiting("a-0", State.RUNNING, {"task-a-0": POLLING}, spark_up=True, hints=hints)
    assert idle.reason == "transaction"


def test_a_task_that_comes_again_waits_for_word_that_it_is_this_workers() -> None:
    waiting = [ours("worker/source_task.py", "_start_task"), ours("worker/transaction_start.py", "_await_owner")]
    assert reason(State.RESTARTING, task=[*waiting, LIBRARY]) == "ownership"
    taking = [ours("worker/transaction_start.py", "__call__"), ours("kafka/transactional_producer.py", "_wait")]
    assert reason(State.RESTARTING, task=[*taking, LIBRARY]) == "broker"
