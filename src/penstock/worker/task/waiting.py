"""The conditions that connectors and tasks wait for: as their threads say, or as the stack of a user's code shows.

Main types: ``WaitReason``, ``Hints``, ``CodeLocation``. Main functions: ``task_waiting``, ``connector_waiting``,
``places``. All are pure but ``places``, which looks at the threads of this process, which costs the threads nothing.

The worker's own code announces each wait (``penstock.telemetry.waiting_for``), with a reason of ``REASONS``. Stacks
only locate a user's code. Names of threads are those of ``docs/threads.md``.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Final

from penstock.model import State
from penstock.model.progress import Progress
from penstock.telemetry import Wait, waits
from penstock.telemetry.stacks import stacks
from penstock.traces import is_authors_part, is_library

#: Every reason there is.
REASONS: Final = (
    "paused",
    "stopped",
    "failed",
    "not_started",
    "user_code",
    "spark_starting",
    "spark_executors",
    "spark",
    "record_retry",
    "schema_registry",
    "service",
    "source_retry",
    "sink_retry",
    "broker",
    "transaction",
    "open_transaction",
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
    "spark_executors": "Spark has no executor; batches wait for one.",
    "spark": "Spark works on a batch.",
    "record_retry": "A record failed with an error that may pass, and is tried again (errors.retry.timeout).",
    "schema_registry": "The schema registry has not answered; records wait for it.",
    "service": "A service that a converter or transform asks has not answered; records wait for it.",
    "source_retry": "It asked for a call again.",
    "sink_retry": "It asked for a call again.",
    "broker": "Kafka has not answered for the records in flight.",
    "transaction": "It has a transaction that is not committed yet.",
    "open_transaction": "Its offsets topic ends in a transaction that is still open; it cannot read past that.",
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
#: In the paths of clients of schema registries that converters of users bring, Confluent's among them.
_REGISTRY: Final = "schema_registry"
#: The ending that a sentence must not get twice.
_TEXT_END: Final = re.compile(r"[.\s]+$")
_PACKAGE: Final = str(PurePath(__file__).parents[2])


@dataclass(frozen=True)
class StackEntry:
    """One place in a stack, outermost first."""

    file: str
    line: int
    function: str

    @property
    def ours(self) -> bool:
        """True if it is the worker's code, and not a connector's or a library's."""
        return self.file.startswith(_PACKAGE + "/") and not is_authors_part(self.file)

    @property
    def module(self) -> str:
        """The name of its file."""
        return PurePath(self.file).stem


@dataclass(frozen=True)
class CodeLocation:
    """The position of a thread in the code.

    Attributes:
        frames: Its stack.
        wait: The wait that the worker's code has announced; None if it has not.
    """

    frames: Sequence[StackEntry] = ()
    wait: Wait | None = None

    @property
    def stands_still(self) -> bool:
        """True if the worker's code waits here, and not for the stage that follows."""
        return self.wait is not None and self.wait.reason not in ("back_pressure", "user_code")

    @property
    def is_held_up(self) -> bool:
        """True if the stage that follows is slower."""
        return self.wait is not None and self.wait.reason == "back_pressure"

    def whole(self) -> CodeLocation:
        """The same with the stack of the process that it waits for, where an isolated task's method runs there."""
        if self.wait is None or self.wait.elsewhere is None:
            return self
        inside = [StackEntry(*one) for one in self.wait.elsewhere()]
        return CodeLocation([*self.frames, *inside]) if inside else self


@dataclass(frozen=True)
class WaitReason:
    """The reason why something makes no progress.

    Attributes:
        reason: One of ``REASONS``.
        text: The same as a sentence.
        stack: For a user's code: its stack, innermost last, without the worker's own frames.
        since: The time at which the user's code was called, or the wait began.
        cause: Its cause, such as the error that failed a task; the text has it as well.
        count: The number of times in a row that a call asked for a retry.
        next_try: The time of the next try.
    """

    reason: str
    text: str
    stack: Sequence[str] = ()
    since: datetime | None = None
    cause: str | None = None
    count: int | None = None
    next_try: datetime | None = None

    def because(self, cause: str | None, then: str = "") -> WaitReason:
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
        if self.count is not None:
            body["count"] = self.count
        if self.next_try is not None:
            body["next_try"] = self.next_try.isoformat(timespec="milliseconds")
        if self.stack:
            body["stack"] = list(self.stack)
        return body


@dataclass(frozen=True)
class Hints:
    """A task's own information about its progress, and about the reasons for having none.

    Attributes:
        round_began: The start of the current round of its loop, and so of the method that runs; monotonic seconds.
        kafka: The state of its producer's connection to Kafka.
        joined: True if its consumer group has assigned it partitions, perhaps none.
        assigned: The number of its partitions; None for a source.
        transaction: The wait of its open transaction.
        retry: The reason for its retry; None if it asked for none.
        held_up: The transaction of another producer that blocks reading its offsets topic to the end.
        progress: The progress that it reports.
    """

    round_began: float | None = None
    kafka: str | None = None
    joined: bool = True
    assigned: int | None = None
    transaction: str | None = None
    retry: WaitReason | None = None
    held_up: str | None = None
    progress: Progress | None = None


_NOWHERE: Final = CodeLocation()


def places() -> dict[str, CodeLocation]:
    """Returns the position of each thread of this process in the code, by the thread's name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    waiting = waits()
    return {
        names[ident]: CodeLocation([StackEntry(*one) for one in stack], waiting.get(ident))
        for ident, stack in stacks().items()
        if ident in names
    }


def connector_waiting(
    name: str, state: State | None, threads: Mapping[str, CodeLocation], retry: WaitReason | None = None
) -> WaitReason:
    """Returns the wait of a connector: its call that is to be made again, or a method that runs, or its state."""
    inside = _user_code(threads.get(f"connector-{name}", _NOWHERE))
    if retry is not None:
        return retry if inside is None else replace(retry, stack=inside.stack)
    if inside is not None:
        return inside
    return because(_RESTING.get(state, "no_data") if state is not None else "not_started")


def task_waiting(
    task: str,
    state: State,
    threads: Mapping[str, CodeLocation],
    *,
    spark_up: bool,
    spark_trouble: str | None = None,
    kafka_up: bool = True,
    hints: Hints = Hints(),
) -> WaitReason:
    """Returns the wait of a task: that of its last stage without progress, because the stages before it wait for that
    one.

    Args:
        task: Its id, the end of its threads' names.
        state: The state that it reports.
        threads: The stacks and waits of threads.
        spark_up: True if there is a Spark session.
        spark_trouble: The reason why Spark does not work or start; None if it works.
        kafka_up: True if Kafka answers; a sink without records cannot know.
        hints: The task's own information.
    """
    stages = ("task", "convert", "delivery")
    own, convert, delivery = (threads.get(f"{stage}-{task}", _NOWHERE).whole() for stage in stages)
    inside = _user_code(own, hints.round_began)
    rests = state in _RESTING and state is not State.UNASSIGNED
    if hints.retry is not None and not rests:
        # Between two tries the task's code runs for a while, which explains less than the error of the tries.
        return hints.retry if inside is None else replace(hints.retry, stack=inside.stack)
    if inside is not None and (hints.assigned is not None or state in _RESTING):
        return inside
    if rests:
        return because(_RESTING[state])
    if hints.held_up is not None:
        return because("open_transaction").because(hints.held_up)
    for stage in (own, delivery, convert):
        if stage.wait is not None and stage.stands_still:
            return _told(stage.wait, hints, spark_up=spark_up, spark_trouble=spark_trouble)
    if state in _RESTING:
        return because(_RESTING[state])
    converting = _user_code(convert)
    if converting is not None:
        asks = any(_REGISTRY in frame.file for frame in convert.frames)
        return because("schema_registry") if asks else converting
    for stage in (own, convert):
        if stage.wait is not None and stage.is_held_up:
            return _told(stage.wait, hints, spark_up=spark_up, spark_trouble=spark_trouble)
    if inside is not None and not _waits_for_data(own.frames):
        return inside
    if not own.frames:
        return because("not_started")
    if not kafka_up:
        return because("broker")
    if hints.assigned == 0:
        return because("no_partitions" if hints.joined else "group_join")
    if hints.transaction is not None:
        return because("transaction").because(hints.transaction)
    return because("no_data")


def _told(wait: Wait, hints: Hints, *, spark_up: bool, spark_trouble: str | None) -> WaitReason:
    """Returns a stage's own statement, with the task's information about it."""
    match wait.reason:
        case "spark" if spark_trouble is not None:
            found = because("spark_executors").because(spark_trouble)
        case "spark":
            found = because("spark").because(wait.detail) if spark_up else because("spark_starting")
        case "broker":
            found = because("broker").because("; ".join(filter(None, (wait.detail, hints.kafka))))
        case "transaction":
            found = because("transaction").because("; ".join(filter(None, (hints.transaction, hints.kafka))))
        case reason:
            found = because(reason).because(wait.detail)
    return replace(found, since=_time_of_day(wait.since_s))


def _time_of_day(moment_s: float) -> datetime:
    """The time of a moment of the monotonic clock."""
    return datetime.now(UTC) - timedelta(seconds=time.monotonic() - moment_s)


def _waits_for_data(frames: Sequence[StackEntry]) -> bool:
    """True if a built-in connector waits in its poll: that is not a user's code, and there is no data."""
    inner = next((frame.file for frame in reversed(frames) if frame.file.startswith(f"{_PACKAGE}/")), "")
    return inner.startswith(f"{_PACKAGE}/connectors/") and frames[-1].file == threading.__file__


def because(reason: str) -> WaitReason:
    """One of ``REASONS`` with its text."""
    return WaitReason(reason, _TEXTS[reason])


def _user_code(place: CodeLocation, since_s: float | None = None) -> WaitReason | None:
    """The part of a stack that is below the worker's last frame, when a connector's own file is in it."""
    frames, wait = place.frames, place.wait
    if wait is not None and wait.reason == "user_code":
        told = f"Its own code runs: {wait.detail} in its process, which does not say where it stands"
        return WaitReason("user_code", told, since=_time_of_day(wait.since_s))
    last = max((number for number, frame in enumerate(frames) if frame.ours), default=-1)
    below = [frame for frame in frames[last + 1 :] if not is_library(frame.file)]
    if last < 0 or not below or wait is not None:
        return None
    first = below[0]
    listed = [f"{frame.module}.py:{frame.line} in {frame.function}" for frame in frames[last + 1 :]]
    since = None if since_s is None else _time_of_day(since_s)
    return WaitReason("user_code", f"Its own code runs: {first.function} in {first.module}.py", listed, since)
