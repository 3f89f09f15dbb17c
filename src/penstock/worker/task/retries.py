"""Retries calls of a task or connector that asked for it: decides the time, and reports until a call succeeds.

Main types: ``Retries``, of one task or connector; ``RetryBackoff``, the pure rule for the delay. Main function:
``asks_again``. A task asks with ``RetriableException``; the loop makes the same call again before anything else. The
first failure is a line in the log at WARNING, then one in ten minutes; until a call succeeds ``explain``, the status
and ``/health`` show the cause, the count and the time of the next try.

Owning thread: the task's or connector's; ``waiting`` may be asked from any.
Source: RetryWithToleranceOperator of Kafka Connect for the growth of the delay; AbstractWorkerSourceTask calls ``poll``
again at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import random as any_share
from typing import Final

from penstock.api import RetryPolicy
from penstock.errors import KafkaRetriableException, RetriableException, SparkStoppedException
from penstock.telemetry.standstills import Standstill, connector_owner, goes_on, stands_still, task_owner
from penstock.worker.task.waiting import WaitReason

logger = logging.getLogger(__name__)

FIRST_DELAY_S: Final = 0.25
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
class RetryBackoff:
    """The wait before a call is made again.

    Attributes:
        most_s: The longest wait.
        setting: The setting that says so, for messages.
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


@dataclass(frozen=True)
class _Asked:
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
        backoff: The delay if the task does not give one.
        clock: Monotonic seconds.
        of_connector: True for a connector.

    Attributes:
        total: The number of calls that asked for a retry.
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
        self._asked: _Asked | None = None
        self._told_at = float("-inf")
        self._standstill: Standstill | None = None
        self.total = 0

    def failed(self, call: str, error: BaseException, delay_s: float | None = None) -> float:
        """A call asks to be made again.

        Args:
            call: The name of the method.
            error: The error that it raised.
            delay_s: The delay that the task requested other than in the error, if any.

        Returns:
            The seconds to wait.
        """
        now, before = self._clock(), self._asked
        again = before if before is not None and before.call == call else None
        count = 1 if again is None else again.count + 1
        said = getattr(error, "retry_after_s", None)
        asked = delay_s if said is None else said
        wait_s = self._backoff.delay_s(count) if asked is None else asked
        if count > 1:
            wait_s = max(_LEAST_S, wait_s)
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        since_s = now if again is None else again.since_s
        found = self._asked = _Asked(call, cause, count, since_s, now + wait_s, asked is not None)
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
        asked = self._asked
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
        if call is not None and self._asked is not None and self._asked.call != call:
            return
        self._asked = None
        if self._standstill is not None:
            goes_on(self._owner, self._standstill)
            self._standstill = None

    @property
    def count(self) -> int:
        """The number of calls in a row that have asked to be made again. Thread: any."""
        asked = self._asked
        return 0 if asked is None else asked.count

    @property
    def waiting(self) -> WaitReason | None:
        """The status of a task that asks for a call again, or None if it does not. Thread: any."""
        asked = self._asked
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

    def _tell(self, asked: _Asked, wait_s: float, now: float) -> None:
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
