"""What a connector or task waits for now, told by where its threads stand.

Main types: ``Waiting``, ``Hints``, ``Frame``. Main functions: ``task_waiting``, ``connector_waiting``, ``stacks``. All
are pure but ``stacks``, which looks at the threads of this process, which costs the threads nothing.

The names of threads and of the functions that wait are those of ``docs/threads.md``; a test brings about each.
"""

from __future__ import annotations

import re
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final

from penstock.model import State
from penstock.traces import is_authors_part, is_library

#: Every reason there is.
REASONS: Final = (
    "paused",
    "stopped",
    "failed",
    "not_started",
    "user_code",
    "spark_starting",
    "spark",
    "record_retry",
    "schema_registry",
    "sink_retry",
    "broker",
    "transaction",
    "ownership",
    "back_pressure",
    "input_missing",
    "topic_missing",
    "group_join",
    "no_partitions",
    "no_data",
    "worker_away",
)

_TEXTS: Final[Mapping[str, str]] = {
    "paused": "It is paused; resume it.",
    "stopped": "It is stopped; resume it.",
    "failed": "It has failed.",
    "not_started": "It has not started yet, or its thread has ended.",
    "spark_starting": "The Spark session is not up; batches wait for it.",
    "spark": "Spark works on a batch.",
    "record_retry": "A record failed with an error that may pass, and is tried again (errors.retry.timeout).",
    "schema_registry": "The schema registry has not answered; records wait for it.",
    "sink_retry": "put() asked for the same records again.",
    "broker": "Kafka has not answered for what is under way.",
    "transaction": "It has a transaction that is not committed yet.",
    "ownership": "It waits until its worker's group says that the task is still this worker's.",
    "back_pressure": "What comes after is slower: the queue is full.",
    "input_missing": "What it reads from is not there.",
    "topic_missing": "What it reads from Kafka is not there.",
    "group_join": "It joins its consumer group; its partitions come when all members have.",
    "no_partitions": "It has no partitions: its topics have fewer than there are members of its group.",
    "no_data": "There is nothing to do.",
    "worker_away": "The worker that runs it does not tell what it waits for.",
}
_RESTING: Final = {
    State.PAUSED: "paused",
    State.STOPPED: "stopped",
    State.FAILED: "failed",
    State.UNASSIGNED: "not_started",
}
#: Where polling, or Spark, waits for what comes after.
_FULL: Final = ("put", "wait_to_poll", "wait_until_asked")
#: Modules that wait for brokers.
_KAFKA: Final = ("producer", "column_producer", "admin")
#: Where a transaction waits for brokers.
_COMMITTING: Final = ("_await_delivered", "_ask", "_abort")
#: In the paths of clients of schema registries that converters of users bring, Confluent's among them.
_REGISTRY: Final = "schema_registry"
#: What a sentence is not to end with twice.
_TEXT_END: Final = re.compile(r"[.\s]+$")
_PACKAGE: Final = str(PurePath(__file__).parents[1])


@dataclass(frozen=True)
class Frame:
    """One place in a stack, outermost first."""

    file: str
    line: int
    function: str

    @property
    def ours(self) -> bool:
        """Whether it is the worker's code, and not a connector's or a library's."""
        return self.file.startswith(_PACKAGE + "/") and not is_authors_part(self.file)

    @property
    def module(self) -> str:
        """The name of its file."""
        return PurePath(self.file).stem


@dataclass(frozen=True)
class Waiting:
    """Why something does not go on.

    Attributes:
        reason: One of ``REASONS``.
        text: The same for people.
        stack: For a user's code: where it stands, innermost last; without the worker's own part.
        since: For a user's code: since when it runs.
        cause: What is behind it, such as the error that a task has failed with; it is in the text as well.
    """

    reason: str
    text: str
    stack: Sequence[str] = ()
    since: datetime | None = None
    cause: str | None = None

    def because(self, cause: str | None, then: str = "") -> Waiting:
        """The same, with its cause and advice."""
        if not cause:
            return self
        shown = _TEXT_END.sub("", cause.replace("\nLed to: ", ", which led to "))
        told = f"{_TEXT_END.sub('', self.text)}: {shown}."
        return replace(self, text=f"{told} {then}" if then else told, cause=cause)

    def to_json(self) -> dict[str, object]:
        """The shape used by REST."""
        body: dict[str, object] = {"reason": self.reason, "text": self.text}
        if self.cause is not None:
            body["cause"] = self.cause
        if self.since is not None:
            body["since"] = self.since.isoformat(timespec="milliseconds")
        if self.stack:
            body["stack"] = list(self.stack)
        return body


@dataclass(frozen=True)
class Hints:
    """What a task knows of why it does not go on.

    Attributes:
        retried: The error of a record that is tried again.
        kafka: What its producer hears from Kafka.
        joined: Whether its consumer group has given it partitions, perhaps none.
        assigned: How many; None for a source.
        transaction: What its open transaction waits for.
    """

    retried: str | None = None
    kafka: str | None = None
    joined: bool = True
    assigned: int | None = None
    transaction: str | None = None


def stacks() -> dict[str, list[Frame]]:
    """Where each thread of this process stands, by the thread's name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = {}
    for ident, frame in sys._current_frames().items():
        name = names.get(ident)
        if name is not None:
            walked = reversed(list(traceback.walk_stack(frame)))
            found[name] = [Frame(one.f_code.co_filename, line, one.f_code.co_name) for one, line in walked]
    return found


def connector_waiting(name: str, state: State | None, threads: Mapping[str, Sequence[Frame]]) -> Waiting:
    """What a connector waits for; a method of the connector that runs counts as what it waits for."""
    inside = _user_code(threads.get(f"connector-{name}", ()))
    if inside is not None:
        return inside
    return because(_RESTING.get(state, "no_data") if state is not None else "not_started")


def task_waiting(
    task: str,
    state: State,
    threads: Mapping[str, Sequence[Frame]],
    *,
    spark_up: bool,
    kafka_up: bool = True,
    retry_at_ms: int | None = None,
    hints: Hints = Hints(),
    since: datetime | None = None,
) -> Waiting:
    """What a task waits for: the last of its stages that stands still, because the ones before it wait for that.

    Args:
        task: Its id, the end of its threads' names.
        state: What it says it is doing.
        threads: Where threads stand.
        spark_up: Whether there is a Spark session.
        kafka_up: Whether Kafka answers: a sink without records cannot tell.
        retry_at_ms: When records that ``put`` refused for now are put again; milliseconds since the epoch.
        hints: What it knows itself.
        since: When its loop last went on, so since when a method of it runs that does.
    """
    source, sink = threads.get(f"task-{task}", ()), threads.get(f"task-thread-{task}", ())
    own = source or sink
    inside = _user_code(own, since)
    if inside is not None and (sink or state in _RESTING):
        return inside
    if state in _RESTING:
        return because(_RESTING[state])
    if retry_at_ms is not None:
        moment = datetime.fromtimestamp(retry_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return Waiting("sink_retry", f"{_TEXTS['sink_retry']} That is done at {moment}.")
    if _stands_in(own, "session") or _calls(own, "sink_put", "_await_session"):
        return because("spark" if spark_up else "spark_starting")
    if _calls(own, "transaction_start", "_await_owner"):
        return because("ownership")
    delivering = threads.get(f"delivery-{task}") or ()
    if any(_calls(delivering, "transaction_commit", name) for name in _COMMITTING):
        return because("transaction").because(_joined(hints.transaction, hints.kafka))
    if _stands_in(own, "transactional_producer"):
        return because("broker").because(hints.kafka)
    if any(_stands_in(delivering, module) for module in _KAFKA):
        return because("broker").because(hints.kafka)
    converting = threads.get(f"pipeline-{task}") or threads.get(f"convert-{task}") or ()
    behind = _converting(converting, spark_up)
    if behind is not None:
        return behind.because(hints.retried) if behind.reason in ("record_retry", "schema_registry") else behind
    if any(_calls(frames, "source_stages", name) for frames in (own, converting) for name in _FULL):
        return because("back_pressure")
    if inside is not None and not _waits_for_data(own):
        return inside
    if not own:
        return because("not_started")
    if not kafka_up:
        return because("broker")
    if hints.assigned == 0:
        return because("no_partitions" if hints.joined else "group_join")
    if hints.transaction is not None:
        return because("transaction").because(hints.transaction)
    return because("no_data")


def _converting(frames: Sequence[Frame], spark_up: bool) -> Waiting | None:
    """What the conversion waits for; None if that is a batch or its turn."""
    asking = _calls(frames, "client", "_ask") or any(_REGISTRY in frame.file for frame in frames)
    if asking or _calls(frames, "tolerance", "_wait_for_registry"):
        return because("schema_registry")
    if _stands_in(frames, "tolerance"):
        return because("record_retry")
    inside = _user_code(frames)
    # The job may run on another thread.
    elsewhere = any(frame.function == "take_crowded" for frame in frames if frame.ours) or _calls(
        frames, "lookahead", "_of"
    )
    if _stands_in(frames, "session") or (elsewhere and inside is None):
        return because("spark" if spark_up else "spark_starting")
    return inside


def _waits_for_data(frames: Sequence[Frame]) -> bool:
    """Whether a built-in connector waits in its poll: that is no code of a user, and there is no data."""
    built_in = any(frame.file.startswith(f"{_PACKAGE}/connectors/") for frame in frames)
    return built_in and bool(frames) and frames[-1].module in ("threading", "watch")


def because(reason: str) -> Waiting:
    """One of ``REASONS`` with its text."""
    return Waiting(reason, _TEXTS[reason])


def _user_code(frames: Sequence[Frame], since: datetime | None = None) -> Waiting | None:
    """The part of a stack that is below the worker's last frame, when a connector's own file is in it."""
    last = max((number for number, frame in enumerate(frames) if frame.ours), default=-1)
    below = [frame for frame in frames[last + 1 :] if not is_library(frame.file)]
    if last < 0 or not below:
        return None
    first = below[0]
    listed = [f"{frame.module}.py:{frame.line} in {frame.function}" for frame in frames[last + 1 :]]
    return Waiting("user_code", f"Its own code runs: {first.function} in {first.module}.py", listed, since)


def _joined(*causes: str | None) -> str | None:
    return "; ".join(filter(None, causes)) or None


def _stands_in(frames: Sequence[Frame], module: str) -> bool:
    return any(frame.ours and frame.module == module for frame in frames)


def _calls(frames: Sequence[Frame], module: str, function: str) -> bool:
    return any(frame.ours and (frame.module, frame.function) == (module, function) for frame in frames)
