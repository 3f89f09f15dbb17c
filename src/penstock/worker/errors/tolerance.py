"""The handling of a record that failed: retry it, skip it or fail the task, and inform the reporters.

Main types: ``ErrorPolicy`` (the ``errors.*`` settings), ``ErrorHandler`` (applies it to the failed records of a batch,
or to one) and ``FatalRecord`` (the record that ends the task). The decisions are the pure functions
``retry_delay_ms`` and ``verdict``.

Owning thread: batches are handled on the task's thread (or its pipeline thread); ``handle_failure`` and
``execute_failed`` may also come from a producer's callback thread. The counters are guarded by a lock.

Source: ``RetryWithToleranceOperator`` and ``ErrorHandlingMetrics`` of Kafka Connect 4.3.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from penstock.api import SourceRecord
from penstock.errors import (
    ConnectException,
    ServiceDeniedException,
    ServiceUnavailableException,
    ToleranceExceededException,
)
from penstock.pipeline.batch.batches import RecordError
from penstock.telemetry import waiting_for
from penstock.worker.errors.reporters import ConsumedMessage, ErrorCounts, ErrorReporter, FailedRecord, exception_of

logger = logging.getLogger(__name__)

KAFKA_PRODUCE: Final = "KAFKA_PRODUCE"
KAFKA_CONSUME: Final = "KAFKA_CONSUME"
TASK_PUT: Final = "TASK_PUT"
TASK_POLL: Final = "TASK_POLL"

#: Stages in which any exception may be tolerated; in other stages only Connect's retriable one. Java lacks the first of
#: them: its consumer cannot skip an unreadable message.
TOLERABLE_STAGES: Final = frozenset(
    {KAFKA_CONSUME, "TRANSFORMATION", "KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER"}
)

#: Delay before the first retry; doubled for each further one.
RETRY_DELAY_MIN_MS: Final = 300

TOLERANCE_EXCEEDED: Final = "Tolerance exceeded in error handler"
UNHANDLED: Final = "Unhandled exception in error handler."


@dataclass(frozen=True)
class ErrorPolicy:
    """The ``errors.*`` settings of one connector.

    Attributes:
        tolerance_all: ``errors.tolerance=all``.
        retry_timeout_ms: ``errors.retry.timeout``; 0 = never, -1 = no limit.
        retry_delay_max_ms: ``errors.retry.delay.max.ms``.
        log_enable: ``errors.log.enable``.
        log_include_messages: ``errors.log.include.messages``.
    """

    tolerance_all: bool = False
    retry_timeout_ms: int = 0
    retry_delay_max_ms: int = 60_000
    log_enable: bool = False
    log_include_messages: bool = False

    def deadline_ms(self, started_ms: int) -> int | None:
        """Until when an operation that began at ``started_ms`` is retried; None = for ever."""
        return None if self.retry_timeout_ms < 0 else started_ms + self.retry_timeout_ms


class ToleranceVerdict(enum.Enum):
    """The decision on a record that failed for good."""

    SKIP = "skip"
    """The record is left out, the task continues."""
    EXCEEDED = "exceeded"
    """The task fails: nothing is tolerated (``errors.tolerance=none``)."""
    UNHANDLED = "unhandled"
    """The task fails: this kind of error is not tolerable in its stage, whatever the setting."""


@dataclass(frozen=True)
class FatalRecord:
    """The record whose failure ends the task.

    Attributes:
        seq: Its position in the batch; the failure does not affect records before it.
        exception: The error that fails the task.
    """

    seq: int
    exception: ConnectException


def retry_delay_ms(
    attempt: int, *, now_ms: int, deadline_ms: int | None, max_delay_ms: int, random: Callable[[], float]
) -> int | None:
    """Returns the delay after the failed ``attempt`` (1, 2, ...), or None if no time is left for another attempt.

    >>> retry_delay_ms(1, now_ms=0, deadline_ms=None, max_delay_ms=60_000, random=lambda: 0.5)
    300
    >>> retry_delay_ms(3, now_ms=0, deadline_ms=1_000, max_delay_ms=60_000, random=lambda: 0.5)
    1000
    >>> retry_delay_ms(30, now_ms=0, deadline_ms=None, max_delay_ms=60_000, random=lambda: 0.5)
    30000
    >>> retry_delay_ms(1, now_ms=1_000, deadline_ms=1_000, max_delay_ms=60_000, random=lambda: 0.5) is None
    True
    """
    if deadline_ms is not None and now_ms >= deadline_ms:
        return None
    # The shift is bounded: after 40 doublings every possible maximum is exceeded.
    delay = RETRY_DELAY_MIN_MS << min(attempt - 1, 40)
    if delay > max_delay_ms:
        delay = int(random() * max_delay_ms)
    if deadline_ms is not None and now_ms + delay > deadline_ms:
        delay = max(0, deadline_ms - now_ms)
    return delay


#: ``errors.tolerance=all`` does not skip records while a service that a converter asks is unreachable.
_OF_NO_RECORD: Final = (ServiceUnavailableException, ServiceDeniedException)


def verdict(policy: ErrorPolicy, error: RecordError) -> ToleranceVerdict:
    """Decides the outcome of an error that is not retried: the record is skipped, or the task fails."""
    if error.stage not in TOLERABLE_STAGES and not error.retriable:
        return ToleranceVerdict.UNHANDLED
    tolerated = policy.tolerance_all and not isinstance(error.exception, _OF_NO_RECORD)
    return ToleranceVerdict.SKIP if tolerated else ToleranceVerdict.EXCEEDED


class ErrorHandler:
    """Applies one task's ``ErrorPolicy``.

    Args:
        policy: The settings.
        reporters: Log and dead letter queue; they get each record that failed for good.
        counts: The counters; the dead letter queue counts into the same ones.
        clock: Milliseconds since the epoch.
        random: Uniform in [0, 1).
        cancelled: Ends waiting for a retry, as ``give_up`` does; None: an event of its own.
        owner: The task, for the exceptions it fails with.

    Thread: see the module; the reporters are called outside of the lock.
    """

    def __init__(
        self,
        policy: ErrorPolicy,
        reporters: Sequence[ErrorReporter],
        *,
        counts: ErrorCounts,
        clock: Callable[[], int],
        random: Callable[[], float],
        cancelled: threading.Event | None = None,
        owner: str = "",
    ) -> None:
        self.policy = policy
        self._owner = owner
        self.counts = counts
        self._reporters = list(reporters)
        self._clock = clock
        self._random = random
        self._cancelled = threading.Event() if cancelled is None else cancelled
        self._lock = threading.Lock()
        self._abandoned = False

    @property
    def has_reporters(self) -> bool:
        """True if failed records are reported (``errant_record_reporter`` depends on it)."""
        return bool(self._reporters)

    @property
    def ending(self) -> bool:
        """True if retries have ended because the task stops; retriable errors may be left over."""
        return self._cancelled.is_set()

    def give_up(self) -> None:
        """Nothing more is tried again. Thread: any."""
        self._cancelled.set()

    def abandon(self) -> None:
        """The task was cancelled: nothing is reported any more. Thread: any."""
        self._abandoned = True
        self._cancelled.set()

    def report_to(self, reporters: Sequence[ErrorReporter]) -> None:
        """Adds reporters; called before the first record fails."""
        self._reporters.extend(reporters)

    def handle_batch(
        self,
        errors: Mapping[int, RecordError],
        describe: Callable[[int], object],
        *,
        attempts: Mapping[int, int] | None = None,
    ) -> FatalRecord | None:
        """Report the failed records of a batch in order, up to the first one that the task cannot get over.

        Args:
            errors: By position in the batch.
            describe: The original record of a position, for the reporters.
            attempts: The number of attempts of each, if more than one.

        Returns:
            The record that ends the task (its report has been made), or None if all are skipped.
        """
        for seq in sorted(errors):
            fatal = self.handle_failure(errors[seq], describe(seq), attempt=(attempts or {}).get(seq, 1))
            if fatal is not None:
                return FatalRecord(seq, fatal)
        return None

    def handle_failure(self, error: RecordError, origin: object, *, attempt: int = 1) -> ConnectException | None:
        """Report one failed record; the exception to fail the task with, or None to skip the record."""
        decision = verdict(self.policy, error)
        self._count_failure(skipped=decision is ToleranceVerdict.SKIP)
        self.report(FailedRecord(error, origin, attempt))
        if decision is ToleranceVerdict.SKIP:
            return None
        return self._caused(TOLERANCE_EXCEEDED if decision is ToleranceVerdict.EXCEEDED else UNHANDLED, error, origin)

    def execute_failed(self, error: RecordError, origin: object) -> list[Future[None]]:
        """Report an error found outside of the pipeline: asynchronous send errors and reports of a sink task.

        Any such error is tolerable with ``errors.tolerance=all``.

        Returns:
            Futures of the reports.

        Raises:
            ToleranceExceededException: With ``errors.tolerance=none``, after the report was made.
        """
        self._count_failure(skipped=False)
        futures = self.report(FailedRecord(error, origin))
        if not self.policy.tolerance_all:
            raise self._caused(TOLERANCE_EXCEEDED, error, origin)
        return futures

    def retry(
        self,
        errors: Mapping[int, RecordError],
        rerun: Callable[[list[int]], Mapping[int, RecordError]],
    ) -> tuple[dict[int, RecordError], dict[int, int]]:
        """Try the records with retriable errors again until they pass, fail otherwise, or time is up.

        Records after an error that ends the task anyway are not retried.

        Args:
            errors: Failed records of a batch, by position.
            rerun: Runs these positions (or more) again and returns the errors found, by the same positions; the caller
                keeps the results of the other ones.

        Returns:
            The remaining errors, and the number of attempts of each retried record.
        """
        left = dict(errors)
        tries: dict[int, int] = {}
        started = self._clock()
        attempt = 1
        while True:
            again = retriable_positions(left, tolerance_all=self.policy.tolerance_all)
            if not again or not self._wait_for_retry(left[again[0]], attempt, started, len(again)):
                return left, tries
            attempt += 1
            remaining = rerun(again)
            for seq in again:
                tries[seq] = attempt
                del left[seq]
            left.update(remaining)

    def report(self, failed: FailedRecord) -> list[Future[None]]:
        """Inform all reporters; the failure of one is logged, and the rest are still informed."""
        futures = []
        for reporter in () if self._abandoned else self._reporters:
            try:
                future = reporter.report(failed)
            except Exception:
                logger.exception("A report of a failed record could not be made by %s", type(reporter).__name__)
                continue
            if future is not None:
                futures.append(future)
        return futures

    def _caused(self, text: str, error: RecordError, origin: object) -> ConnectException:
        """Returns the exception that the task fails with: Kafka's words, and where it happened."""
        owner = f"task {self._owner}, " if self._owner else ""
        message = f"{text.removesuffix('.')} ({owner}stage {error.stage}, {place_of(origin)})"
        exception: ConnectException
        exception = ToleranceExceededException(message) if text == TOLERANCE_EXCEEDED else ConnectException(message)
        exception.__cause__ = exception_of(error)
        return exception

    def _wait_for_retry(self, error: RecordError, attempt: int, started_ms: int, records: int) -> bool:
        """Count the failed attempt and wait; False if there is no further attempt."""
        now = self._clock()
        delay = retry_delay_ms(
            attempt,
            now_ms=now,
            deadline_ms=self.policy.deadline_ms(started_ms),
            max_delay_ms=self.policy.retry_delay_max_ms,
            random=self._random,
        )
        if delay is None or self._cancelled.is_set():
            return False
        with self._lock:
            self.counts.total_record_failures += records
        away = error.exception if isinstance(error.exception, ServiceUnavailableException) else None
        reason = "record_retry" if away is None else away.waits_for
        with waiting_for(reason, f"{error.stage}: {error.message}"):
            if self._cancelled.wait(delay / 1000):
                return False
        with self._lock:
            self.counts.total_retries += records
        return True

    def _count_failure(self, *, skipped: bool) -> None:
        with self._lock:
            self.counts.total_record_failures += 1
            self.counts.total_record_errors += 1
            self.counts.last_error_timestamp = self._clock()
            if skipped:
                self.counts.total_records_skipped += 1


def retriable_positions(errors: Mapping[int, RecordError], *, tolerance_all: bool) -> list[int]:
    """Positions to try again; without tolerance only those before the first error that ends the task.

    >>> bad = RecordError(1, "TRANSFORMATION", "T", "E", "m")
    >>> slow = RecordError(0, "TRANSFORMATION", "T", "R", "m", retriable=True)
    >>> retriable_positions({0: slow, 1: bad, 2: slow}, tolerance_all=False)
    [0]
    >>> retriable_positions({0: slow, 1: bad, 2: slow}, tolerance_all=True)
    [0, 2]
    """
    found = []
    for seq in sorted(errors):
        if errors[seq].retriable:
            found.append(seq)
        elif not tolerance_all:
            break
    return found


def place_of(origin: object) -> str:
    """Describes the origin of a record, for messages: never its content.

    >>> place_of(ConsumedMessage("t", 1, 2))
    'topic t, partition 1, offset 2'
    >>> place_of(SourceRecord({"file": "a"}, {"line": 3}, "t", "text"))
    "topic t, source partition {'file': 'a'}, source offset {'line': 3}"
    """
    if isinstance(origin, ConsumedMessage):
        return f"topic {origin.topic}, partition {origin.partition}, offset {origin.offset}"
    if isinstance(origin, SourceRecord):
        source = f"source partition {origin.source_partition}, source offset {origin.source_offset}"
        return f"topic {origin.topic}, {source}"
    return "an unknown record" if origin is None else str(origin)
