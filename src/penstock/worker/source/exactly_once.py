"""The commit of a source task that delivers exactly once: records and source offsets in one transaction. Invariant 7.

A transaction begins with the first batch after the last commit. Its records go to the producer as they come. At its end
the offsets of all of them follow, and the commit is requested once Kafka has stored everything. Only then are the
task's hooks called. A transaction that can never be committed is aborted, and the task is created again at its
committed offsets, because the records themselves cannot be polled again from the running task.

Thread: as for `Committer`; hooks are called on the delivery thread, and on the task's at its end.

Source: ExactlyOnceWorkerSourceTask of Kafka Connect; KIP-618.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.api import Avg, Max, Min, SampleWindow, Stat
from penstock.errors import (
    CommitOutcomeUnknownException,
    ConnectException,
    DataException,
    KafkaException,
    KafkaRetriableException,
    OffsetStoreException,
    ProducerFencedException,
    TransactionAbortableException,
)
from penstock.kafka.producer.in_flight import ProducerClosedException
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.model import ConnectorTaskId
from penstock.stores.interface import TransactionalOffsetStore
from penstock.stores.offsets import Offset, Partition, key_bytes, value_bytes
from penstock.telemetry import waiting_for
from penstock.threads import Deadline
from penstock.worker.source.offset_commit import CommitCounts, CommitHooks, Committer
from penstock.worker.source.submitted import SubmittedOffsets
from penstock.worker.source.transaction_boundaries import Boundaries, BoundaryAction
from penstock.worker.task.engine import TransactionLostException
from penstock.worker.task.waiting import OffsetsHeldUp

if TYPE_CHECKING:
    from penstock.worker.source.delivery import Outgoing


class TransactionSizes:
    """Records in each committed transaction. Thread: any."""

    def __init__(self, window: SampleWindow, clock: Callable[[], float]) -> None:
        self._window = window
        self._clock = clock
        self._lock = threading.Lock()
        self._stats: Mapping[str, Stat] = {"min": Min(), "max": Max(), "avg": Avg()}

    def add(self, records: int) -> None:
        with self._lock:
            for stat in self._stats.values():
                stat.record(records, self._clock(), self._window)

    def measure(self, name: str) -> float:
        """`min`, `max` or `avg` of the latest ones."""
        with self._lock:
            return self._stats[name].measure(self._clock(), self._window)


logger = logging.getLogger(__name__)

#: Names of the points of a transaction, for `probe`: the first batch was handed over; all records were; the offsets
#: were; the commit was requested; it was answered.
TRANSACTION_BEGUN: Final = "transaction-begun"
RECORDS_SENT: Final = "transaction-records-sent"
OFFSETS_SENT: Final = "transaction-offsets-sent"
COMMIT_SENT: Final = "transaction-commit-sent"
COMMIT_ANSWERED: Final = "transaction-commit-answered"

#: The interval at which a wait checks whether it is in vain.
_SLICE_S: Final = 0.5
#: The time limit of an abort: the next transaction of the same id also aborts the records that are left.
_ABORT_S: Final = 10.0
#: The extra time for the producer to notice by itself that its transaction is over.
_OVER_S: Final = 0.05
#: The time of one read of the offsets topic, between two checks for a stop of the task.
_READ_S: Final = 5.0
#: The silence of Kafka about records in flight after which Kafka is blamed for a transaction that took too long.
_PATIENCE_S: Final = 5.0
#: Every transaction is open for a while; a shorter one is not reported.
_WORTH_A_WORD_S: Final = 2.0
#: The same as for an abort, when a task ends.
_LAST_ABORT_S: Final = 1.0


class TransactionCommitter(Committer):
    """Commits records and source offsets of one task together. See the module. Invariant 7.

    Args:
        start: Takes the producer's transactional id; blocks. False if the task is to stop first.
    """

    def __init__(
        self,
        task: ConnectorTaskId,
        hooks: CommitHooks,
        *,
        producer: TransactionalProducer,
        offsets: TransactionalOffsetStore,
        start: Callable[[threading.Event], bool],
        boundaries: Boundaries,
        sizes: TransactionSizes,
        clock: Callable[[], float],
        probe: Callable[[str], None],
    ) -> None:
        self.submitted = SubmittedOffsets()
        self.hooks = hooks
        self.counts = CommitCounts()
        self.own_topic = offsets.topic
        self.whole_polls = True
        self.commits_at_rest = True
        self.sizes = sizes
        self._task = task
        self._producer = producer
        self._offsets = offsets
        self._start = start
        self._boundaries = boundaries
        self._clock = clock
        self._probe = probe
        self._patience_s = min(_PATIENCE_S, boundaries.timeout_s / 2)
        self._has_committed = False
        #: True if only a part of the last batch was sent: the offsets after it wait for Kafka's answer.
        self._cut = False
        #: The time since which Kafka has been silent while records are in flight.
        self._silent_since: float | None = None
        self._asked_at: float | None = None
        self._held_up = OffsetsHeldUp(task, clock)
        self._refused = threading.Event()
        self._cancelled = threading.Event()
        #: Held while a commit is requested, and after commits are forbidden.
        self._turn = threading.Lock()

    @property
    def has_committed(self) -> bool:
        return self._has_committed

    @property
    def all_committed(self) -> bool:
        return self._boundaries.began is None

    @property
    def held_up(self) -> str | None:
        return self._held_up.text

    @property
    def hint(self) -> str | None:
        now, records = self._clock(), self._boundaries.records
        if (asked := self._asked_at) is not None and now - asked >= _WORTH_A_WORD_S:
            return f"Kafka was asked {now - asked:.0f} s ago to commit a transaction of {records} records"
        if (began := self._boundaries.began) is None or not records or now - began < _WORTH_A_WORD_S:
            return None
        return (
            f"a transaction of {records} records has been open for {now - began:.0f} s; it is ended after "
            f"{self._boundaries.timeout_s:g} s (producer.override.transaction.timeout.ms)"
        )

    def begin(self, stopping: threading.Event) -> bool:
        """See `Committer`: takes the transactional id, then reads the offsets, which no other producer can write any
        more.
        """
        if not self._start(stopping):
            return False
        self._offsets.start()
        try:
            while not stopping.is_set():
                try:
                    with waiting_for("broker"):
                        self._offsets.get((), _READ_S)
                except OffsetStoreException as error:
                    # An open transaction of another task hides the records after it until it ends.
                    if not isinstance(error.__cause__, KafkaRetriableException):
                        raise
                    self._held_up.waits(error)
                else:
                    self._boundaries.ended(self._clock())
                    return True
            return False
        finally:
            self._held_up.goes_on()

    # ---------------------------------------------------------------- delivered records
    def settled(self) -> None:
        """See `Committer`: the task's hooks are called after the commit of the transaction."""
        self._silent_since = self._clock() if self.submitted.rows_left else None

    def delivered(self, outgoing: Outgoing, *, waiting: bool) -> None:
        now = self._clock()
        moves = outgoing.counts
        if moves and self._boundaries.began is None:
            self._probe(TRANSACTION_BEGUN)
        if self.submitted.rows_left and self._silent_since is None:
            self._silent_since = now
        last = outgoing.failure is not None
        self._cut = self._cut or last
        sent = outgoing.batch.table.num_rows if outgoing.rows is None else len(outgoing.rows)
        match self._boundaries.after(outgoing.end, sent, now, moves=moves, waiting=waiting, last=last):
            case BoundaryAction.COMMIT:
                self._commit()
            case BoundaryAction.ABORT:
                self._abort_on_purpose()
                self._commit()

    def due_in_s(self) -> float | None:
        now = self._clock()
        due, over = self._boundaries.due_in_s(now), self._boundaries.over_in_s(now)
        if over is not None:
            # A producer notices by itself when its transaction is over.
            due = over + _OVER_S if due is None else min(due, over + _OVER_S)
        return due

    def run_if_due(self) -> None:
        now = self._clock()
        if (ended := self._producer.ended) is not None:
            raise ended
        if self._boundaries.over_in_s(now) == 0:
            raise TransactionAbortableException(f"it was open for longer than {self._boundaries.timeout_s:g} s")
        if self._boundaries.due_in_s(now) == 0:
            self._commit()

    def refuse(self) -> None:
        self._refused.set()

    # ---------------------------------------------------------------- the end
    def finish(self, timeout_s: float, *, failed: bool) -> None:
        """See `Committer`: whole polls count, unless the task says itself where its transactions end."""
        try:
            if not failed and not self._refused.is_set() and self._boundaries.whole:
                self._commit(Deadline(timeout_s, self._clock))
            elif self._boundaries.began is not None:
                self._abort(timeout_s)
        except Exception as error:
            logger.error(
                "The last transaction of task %s was not committed; its records are read again (%s: %s)",
                self._task,
                type(error).__name__,
                error,
            )
            self._abort_quietly(_LAST_ABORT_S)

    def cancel(self) -> None:
        """See `Committer`. A commit that was requested before still ends. Invariant 4."""
        with self._turn:
            self._cancelled.set()

    def named(self, error: BaseException) -> BaseException:
        """See `Committer`: a lost transaction does not fail the task, which is created again."""
        silent = self._silent_since
        outside = silent is not None and self._clock() - silent >= self._patience_s
        if isinstance(error, TransactionAbortableException | KafkaRetriableException):
            # After this call the producer's thread has reported everything, including a record that failed the task.
            self._abort_quietly(_ABORT_S)
        match error:
            case TransactionAbortableException() | ProducerFencedException():
                return self._lost(error, outside=outside)
            case KafkaRetriableException() | CommitOutcomeUnknownException() | OffsetStoreException():
                return self._lost(error, outside=True)
        return error

    def _lost(self, error: BaseException, *, outside: bool) -> TransactionLostException:
        timeout_s = self._boundaries.timeout_s
        lost = TransactionLostException(
            f"A transaction of task {self._task} with {self._boundaries.records} records will not be committed: "
            f"{error}. If that happens again and again, let transactions end sooner (transaction.boundary, "
            f"transaction.boundary.interval.ms), or raise producer.override.transaction.timeout.ms, which is "
            f"{timeout_s * 1000:.0f}, up to transaction.max.timeout.ms of the brokers",
            outside=outside,
        )
        lost.__cause__ = error
        return lost

    # ---------------------------------------------------------------- one transaction
    def _commit(self, deadline: Deadline | None = None) -> None:
        """Commits the open transaction, if any, and calls the task's hooks.

        Args:
            deadline: None: until Kafka has ended the transaction.
        """
        started = self._clock()
        is_open = self._boundaries.began is not None
        try:
            entries = self._write(deadline) if is_open else {}
        except BaseException:
            self.counts.failures += 1
            raise
        finally:
            self._asked_at = None
            self.counts.last_duration_s = self._clock() - started
        self.counts.successes += 1
        if is_open:
            self._has_committed = True
            self.sizes.add(self._boundaries.records)
        self._boundaries.ended(self._clock())
        self._silent_since = None
        self._offsets.written(entries)
        self.hooks.advance()
        self.hooks.committed()

    def _write(self, deadline: Deadline | None) -> dict[bytes, bytes | None]:
        """One transaction, up to the answer to its commit; the offsets that it holds."""
        offsets = self._offsets
        if self._cut:
            self._await_delivered(deadline)
            entries = self._entries(self.submitted.take_committable())
        else:
            entries = self._entries(self.submitted.take_all())
        self._probe(RECORDS_SENT)
        records = offsets.records(entries, None if deadline is None else deadline.remaining())
        self._producer.send_offsets_entries(offsets.topic, records)
        if self._silent_since is None:
            self._silent_since = self._clock()
        self._probe(OFFSETS_SENT)
        self._await_delivered(deadline)
        self._silent_since = None
        self._ask(deadline)
        self._probe(COMMIT_ANSWERED)
        return entries

    def _entries(self, taken: Sequence[tuple[Partition, Offset]]) -> dict[bytes, bytes | None]:
        connector = self._task.connector
        try:
            return {key_bytes(connector, partition): value_bytes(offset) for partition, offset in taken}
        except DataException as error:
            raise ConnectException(
                f"The source offsets of task {self._task} cannot be stored, so that none of its records can: "
                f"{error}. The connector must be corrected"
            ) from error

    @waiting_for("transaction")
    def _await_delivered(self, deadline: Deadline | None) -> None:
        while not self._producer.wait_delivered(_SLICE_S if deadline is None else min(_SLICE_S, deadline.remaining())):
            self._check_wanted()
            if (ended := self._producer.ended) is not None:
                raise ended
            if deadline is not None and deadline.passed:
                raise KafkaRetriableException(
                    f"Kafka has not stored everything: {self._producer.trouble or 'no answer'}"
                )

    @waiting_for("transaction")
    def _ask(self, deadline: Deadline | None) -> None:
        """Ask for the commit, again and again until it is answered, or the coordinator has ended the transaction."""
        with self._turn:
            # Under the lock: after a cancel returns, no commit is requested.
            self._check_wanted()
            try:
                self._producer.commit(0.0)
            except CommitOutcomeUnknownException:
                self._asked_at = self._clock()
            else:
                return
        self._probe(COMMIT_SENT)
        timeout_s = self._boundaries.timeout_s
        limit = Deadline(timeout_s if deadline is None else min(timeout_s, deadline.remaining()), self._clock)
        while True:
            try:
                self._producer.commit(min(_SLICE_S, limit.remaining()))
            except CommitOutcomeUnknownException:
                if limit.passed or self._cancelled.is_set() or self._producer.ended is not None:
                    raise
            else:
                return

    def _check_wanted(self) -> None:
        if self._cancelled.is_set():
            raise ProducerClosedException(f"Task {self._task} was cancelled: nothing of it is committed any more")
        if self._refused.is_set():
            raise TransactionAbortableException("a record of it has failed")

    def _abort_on_purpose(self) -> None:
        """Aborts as the task asked: its records are dropped, and its offsets are committed."""
        if not self._boundaries.records:
            logger.warning(
                "Task %s asks for the end of a transaction that has no records; its source offsets are committed",
                self._task,
            )
            return
        logger.info("Task %s aborts its transaction of %d records", self._task, self._boundaries.records)
        self._abort(_ABORT_S)
        self.hooks.give_up()
        self.submitted.settle_all()

    @waiting_for("transaction")
    def _abort(self, timeout_s: float) -> None:
        self._producer.abort_transaction(timeout_s)

    def _abort_quietly(self, timeout_s: float) -> None:
        if self._cancelled.is_set():
            return
        try:
            self._abort(timeout_s)
        except KafkaException as error:
            logger.debug("The transaction of task %s is left to the next one: %s", self._task, error)
