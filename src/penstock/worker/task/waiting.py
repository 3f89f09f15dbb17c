"""The conditions that connectors and tasks wait for: as their threads say, or as the stack of a user's code shows.

The worker's own code announces each wait (``penstock.telemetry.waiting_for``), with a reason of ``REASONS``; stacks
only locate a user's code. All is pure but ``places``, which looks at the threads of this process, at no cost to them.

``Retries`` counts and reports calls that asked to be made again; ``OffsetsHeldUp`` reports a task that cannot start
because its offsets topic cannot be read to its end. Both are shown in ``explain``, the status and ``/health``.
Owning thread of both: the task's or connector's; their properties may be asked from any.

Source: RetryWithToleranceOperator of Kafka Connect for the growth of the delay; AbstractWorkerSourceTask calls ``poll``
again at once.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from random import random as any_share
from typing import Final

from penstock.api import RetryPolicy
from penstock.errors import KafkaRetriableException, RetriableException, SparkStoppedException
from penstock.model import ConnectorTaskId, State
from penstock.model.states import Progress
from penstock.telemetry import Wait, waits
from penstock.telemetry.logs import SeldomLog
from penstock.telemetry.waits import Standstill, connector_owner, goes_on, stacks, stands_still, task_owner
from penstock.traces import is_authors_part, is_library

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
#: Every reason there is.
REASONS: Final = (*_TEXTS, "user_code")
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
        return PurePath(self.file).stem


@dataclass(frozen=True)
class CodeLocation:
    """The position of a thread in the code.

    Attributes:
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
        stack: For a user's code: its stack, innermost last, without the worker's own frames.
        since: The time at which the user's code was called, or the wait began.
        cause: Its cause, such as the error that failed a task; the text has it as well.
        count: The number of times in a row that a call asked for a retry.
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
        joined: True if its consumer group has assigned it partitions, perhaps none.
        assigned: The number of its partitions; None for a source.
        held_up: The transaction of another producer that blocks reading its offsets topic to the end.
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
        kafka_up: True if Kafka answers; a sink without records cannot know.
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


logger = logging.getLogger(__name__)

REASON: Final = "open_transaction"
#: The wait after which the report is a WARNING.
_LONG_S: Final = 15.0


class OffsetsHeldUp:
    """The messages about offsets that are held up, for one task.

    Attributes:
        text: The cause of the wait; None if there is none, or it is unknown.
    """

    def __init__(self, task: ConnectorTaskId, clock: Callable[[], float]) -> None:
        self.text: str | None = None
        self._task = task
        self._clock = clock
        self._since: float | None = None
        self._seldom = SeldomLog(logger, clock)
        self._standstill: Standstill | None = None

    def waits(self, error: Exception) -> None:
        """The topic was not read to its end in time.

        Args:
            error: The cause; its own cause may name the open transaction (``HeldUpException``).
        """
        now = self._clock()
        self._since = now if self._since is None else self._since
        self.text = held_up = getattr(error.__cause__, "held_up", None)
        if now - self._since < _LONG_S:
            logger.info("Task %s waits for the end of its offsets topic: %s", self._task, error)
        else:
            self._seldom.warning(
                "waits",
                "Task %s has waited for the end of its offsets topic for %.0f s, and starts when it is read: %s",
                self._task,
                now - self._since,
                error,
            )
        told = because(REASON if held_up is not None else "broker").because(held_up or str(error))
        self._standstill = stands_still(
            task_owner(self._task), told.reason, told.text, details=told.to_json(), connector=self._task.connector
        )

    def goes_on(self) -> None:
        """It was read, or the task ends."""
        if self._since is not None:
            logger.info("Task %s no longer waits for the end of its offsets topic", self._task)
        self.text = self._since = None
        if self._standstill is not None:
            goes_on(task_owner(self._task), self._standstill)


#: The least delay after the first, whatever a task requests: a call that always fails must not keep a core busy.
_LEAST_S: Final = 0.01


#: Least time between two lines of one task that keeps asking, and between two that say that it has begun to.
REPEAT_S: Final = 600.0


_BEGIN_AGAIN_S: Final = 60.0


def asks_again(error: BaseException) -> bool:
    """If an error of a task's own call asks for the same call again.

    >>> asks_again(RetriableException("busy")), asks_again(ValueError("no"))
    (True, False)
    """
    retriable = isinstance(error, RetriableException | KafkaRetriableException)
    return retriable and not isinstance(error, SparkStoppedException)


@dataclass(frozen=True)
class AskedAgain:
    """The last failure, as it is reported."""

    call: str
    cause: str
    count: int
    since_s: float
    next_s: float
    asked_delay: bool


class Retries:
    """The failures of the calls of one task, or of one connector, in a row.

    Args:
        unit: The id of the task, or the name of the connector.
        reason: ``source_retry`` or ``sink_retry``.

    Attributes:
        asked: The last failure; None if no call asks to be made again.
    """

    def __init__(
        self,
        unit: object,
        reason: str,
        backoff: RetryBackoff,
        clock: Callable[[], float] = time.monotonic,
        *,
        of_connector: bool = False,
    ) -> None:
        self._owner = connector_owner(str(unit)) if of_connector else task_owner(unit)
        self._shown = f"{'Connector' if of_connector else 'Task'} {unit}"
        self._connector = str(unit) if of_connector else getattr(unit, "connector", None)
        self._reason = reason
        self._backoff = backoff
        self._clock = clock
        self.asked: AskedAgain | None = None
        self._told_at = float("-inf")
        self._standstill: Standstill | None = None
        self.total = 0

    def failed(self, call: str, error: BaseException, delay_s: float | None = None) -> float:
        """A call asks to be made again.

        Args:
            delay_s: The delay that the task requested other than in the error, if any.

        Returns:
            The seconds to wait.
        """
        now, before = self._clock(), self.asked
        again = before if before is not None and before.call == call else None
        count = 1 if again is None else again.count + 1
        said = getattr(error, "retry_after_s", None)
        asked = delay_s if said is None else said
        wait_s = self._backoff.delay_s(count) if asked is None else asked
        if count > 1:
            wait_s = max(_LEAST_S, wait_s)
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        since_s = now if again is None else again.since_s
        found = self.asked = AskedAgain(call, cause, count, since_s, now + wait_s, asked is not None)
        self.total += 1
        self._tell(found, wait_s, now)
        waiting = self.waiting
        if waiting is not None:
            self._standstill = stands_still(
                self._owner,
                self._reason,
                waiting.text,
                since=waiting.since,
                details=waiting.to_json(),
                connector=self._connector,
            )
        return wait_s

    def succeeded(self, call: str | None = None) -> None:
        """A call has returned.

        Args:
            call: The name of the method: failures of other methods still count. None: any method.
        """
        asked = self.asked
        if asked is None or (call is not None and call != asked.call):
            return
        self.ended()
        logger.info(
            "%s: %s() works again, after it was tried %d times in %.1f s",
            self._shown,
            asked.call,
            asked.count,
            self._clock() - asked.since_s,
        )

    def ended(self, call: str | None = None) -> None:
        """Nothing waits to be called again any more, or not this call. Thread: any."""
        if call is not None and self.asked is not None and self.asked.call != call:
            return
        self.asked = None
        if self._standstill is not None:
            goes_on(self._owner, self._standstill)
            self._standstill = None

    @property
    def count(self) -> int:
        """The number of calls in a row that have asked to be made again. Thread: any."""
        asked = self.asked
        return 0 if asked is None else asked.count

    @property
    def waiting(self) -> WaitReason | None:
        """The status of a task that asks for a call again, or None if it does not. Thread: any."""
        asked = self.asked
        if asked is None:
            return None
        now_s, now = self._clock(), datetime.now(UTC)
        next_try = now + timedelta(seconds=asked.next_s - now_s)
        when = next_try.isoformat(timespec="milliseconds")
        then = f"That is done at {when}." if asked.next_s > now_s else "That is being done."
        times = "once" if asked.count == 1 else f"{asked.count} times"
        what = (
            "put() asked for the same records again"
            if asked.call == "put"
            else "a call by the clock (context.every) asked to be made again"
            if asked.call == "every"
            else f"{asked.call}() asked to be called again"
        )
        told = WaitReason(
            self._reason,
            f"{what}, {times} by now.",
            since=now - timedelta(seconds=now_s - asked.since_s),
            count=asked.count,
            next_try=next_try,
        )
        return told.because(asked.cause, then)

    def _tell(self, asked: AskedAgain, wait_s: float, now: float) -> None:
        if now - self._told_at < (_BEGIN_AGAIN_S if asked.count == 1 else REPEAT_S):
            return
        self._told_at = now
        later = (
            ""
            if asked.asked_delay
            else (f", then less often, {self._backoff.most_s:g} s apart at most ({self._backoff.setting})")
        )
        logger.warning(
            "%s: %s() asks to be called again%s: %s. It is called again in %.1f s%s; explain shows when",
            self._shown,
            asked.call,
            "" if asked.count == 1 else f", for the {asked.count}th time since {now - asked.since_s:.0f} s",
            asked.cause,
            wait_s,
            later,
        )


FIRST_DELAY_S: Final = 0.25


@dataclass(frozen=True)
class RetryBackoff:
    """The wait before a call is made again.

    Attributes:
        share: A uniform random number in [0, 1), so that tasks that failed together do not come back together.
    """

    most_s: float
    setting: str
    share: Callable[[], float] = any_share

    def delay_s(self, count: int) -> float:
        """The delay after this many failures in a row: doubled each time, minus up to a fifth.

        >>> backoff = RetryBackoff(60, "", share=lambda: 0.0)
        >>> [backoff.delay_s(count) for count in (1, 2, 3, 9, 100)]
        [0.25, 0.5, 1.0, 60.0, 60.0]
        """
        return RetryPolicy(FIRST_DELAY_S, self.most_s).wait_s(count, chance=self.share)
