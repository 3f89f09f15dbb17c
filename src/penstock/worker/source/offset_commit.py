"""Commits the delivered records of a source task: calls the task's hooks and commits its source offsets.

`OffsetCommitter` writes offsets after Kafka has acknowledged their records, on a schedule of the task's own, so that a
slow store or a slow ``commit`` hook delays no other task. `CommitHooks` calls only hooks that the task overrides, in
the order of the polled records: a record that is done early waits for the records before it.

Thread: `begin` and `finish` belong to the task's thread, `settled` to the thread that settles rows, `cancel` and the
properties to any, the rest to the delivery thread. Hooks are called on the producer's thread, on the delivery thread
for batches that send nothing, and with exactly-once always there; never two at a time, but at the same time as
``poll``.

Source: WorkerSourceTask (commitOffsets), SourceTaskOffsetCommitter, AbstractWorkerSourceTask (recordSent,
recordDropped) and ExactlyOnceWorkerSourceTask of Kafka Connect; KIP-416.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from penstock.api import RecordMetadata, SourceFrame, SourceTask
from penstock.errors import DataException, OffsetStoreException
from penstock.pipeline.batch.batches import PolledBatch
from penstock.stores.offsets import OffsetWriter
from penstock.worker.source.submitted import FramePart, Submission, SubmittedOffsets

if TYPE_CHECKING:
    from penstock.worker.source.delivery import Outgoing

logger = logging.getLogger(__name__)


def wants_metadata(task: SourceTask) -> bool:
    """True if a task uses the topic, partition and offset of each of its records."""
    return type(task).record_acknowledged is not SourceTask.record_acknowledged or _commits_with_metadata(task)


def wants_batch_ends(task: SourceTask) -> bool:
    """True if a task uses the places of the first and last row of each record batch of its frames."""
    return type(task).frame_acknowledged is not SourceTask.frame_acknowledged


def _commits_with_metadata(task: SourceTask) -> bool:
    """True if ``commit_record`` has Java's form, or one for both: with ``metadata`` as its second argument.

    Any other second argument that may be left out is the author's own.
    """
    if type(task).commit_record is SourceTask.commit_record:
        return False
    given = [
        one
        for one in inspect.signature(task.commit_record).parameters.values()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    return len(given) > 1 and (given[1].default is given[1].empty or "metadata" in given[1].name)


@dataclass
class _Told:
    """A batch, and the number of its rows that the hooks were called for."""

    source: PolledBatch
    submission: Submission
    metadata: dict[int, RecordMetadata] = field(default_factory=dict)
    acknowledged: int = 0
    next_row: int = 0


class CommitHooks:
    """The acknowledgement hooks of one task."""

    def __init__(self, task: SourceTask) -> None:
        kind = type(task)
        self._task = task
        self._commit_record: Callable[..., object] = task.commit_record
        self._each = kind.commit_record is not SourceTask.commit_record
        self._tells_places = wants_batch_ends(task)
        self.wants_frames = self._tells_places or kind.commit_batch is not SourceTask.commit_batch
        self._each_with_metadata = _commits_with_metadata(task)
        self._wants_metadata = kind.record_acknowledged is not SourceTask.record_acknowledged
        self._queue: deque[_Told] = deque()
        self._by_submission: dict[int, _Told] = {}
        # Rows of the current frame, whose parts are being reported, that Kafka has stored.
        self._stored_of_frame = 0
        self._places_of_frame: dict[int, RecordMetadata] = {}
        self._calling = threading.Lock()

    def add(self, source: PolledBatch, submission: Submission) -> None:
        """Note a batch, in the order of polls, before any of its rows is settled."""
        requested = self.wants_frames if isinstance(source, SourceFrame) else self._each or self._wants_metadata
        if requested:
            told = _Told(source, submission)
            self._by_submission[id(submission)] = told
            self._queue.append(told)

    def acknowledged(self, submission: Submission, count: int, metadata: Mapping[int, RecordMetadata] | None) -> None:
        """Kafka has stored ``count`` rows of a batch; ``metadata`` has their places if the task uses them."""
        told = self._by_submission.get(id(submission))
        if told is not None:
            told.acknowledged += count
            if metadata:
                told.metadata.update(metadata)

    def advance(self) -> None:
        """Call the hooks for everything that is settled up to the first row that is not."""
        if not self._queue:
            return
        with self._calling:
            while self._queue:
                told = self._queue[0]
                if not self._tell(told):
                    return
                self._queue.popleft()
                del self._by_submission[id(told.submission)]

    def give_up(self) -> None:
        """Marks the records without a call of the hooks as aborted: Kafka has stored none of them."""
        for told in self._queue:
            told.metadata.clear()
            told.acknowledged = 0
        self._stored_of_frame = 0
        self._places_of_frame = {}

    def committed(self) -> None:
        try:
            self._task.commit()
        except BaseException:
            logger.exception("The task's commit() raised; the offsets are committed anyway")

    def _tell(self, told: _Told) -> bool:
        """Call the hooks for the settled rows of one batch; True if all of its rows are settled."""
        gap = told.submission.done.find(0, told.next_row)
        end = told.submission.size if gap < 0 else gap
        if isinstance(told.source, SourceFrame):
            if gap >= 0:
                return False
            self._stored_of_frame += told.acknowledged
            frame = told.source
            first = frame.first if isinstance(frame, FramePart) else 0
            self._places_of_frame |= {first + row: place for row, place in told.metadata.items()}
            if not isinstance(frame, FramePart) or frame.is_last:
                # The task knows the frame that it returned. All its parts are settled, because the calls come in order.
                whole = frame.whole if isinstance(frame, FramePart) else None
                self._call_frame(whole or frame, self._stored_of_frame)
                self._stored_of_frame, self._places_of_frame = 0, {}
            return True
        records = told.source
        for row in range(told.next_row, end):
            metadata = told.metadata.pop(row, None)
            try:
                if self._wants_metadata and metadata is not None:
                    self._task.record_acknowledged(records[row], metadata)
            except BaseException:
                logger.exception("The task's record_acknowledged() raised; the record is acknowledged anyway")
            try:
                if self._each_with_metadata:
                    self._commit_record(records[row], metadata)
                elif self._each:
                    self._commit_record(records[row])
            except BaseException:
                logger.exception("The task's commit_record() raised; the record is done anyway")
        told.next_row = end
        return gap < 0

    def _call_frame(self, frame: SourceFrame, acknowledged: int) -> None:
        try:
            if self._tells_places and self._places_of_frame:
                self._task.frame_acknowledged(frame, dict(sorted(self._places_of_frame.items())))
        except BaseException:
            logger.exception("The task's frame_acknowledged() raised; the frame is acknowledged anyway")
        try:
            self._task.commit_batch(frame, acknowledged)
        except BaseException:
            logger.exception("The task's commit_batch() raised; the frame is done anyway")


@dataclass
class CommitCounts:
    """Plain counters; read by metrics from any thread."""

    successes: int = 0
    failures: int = 0
    last_duration_s: float = 0.0


class Committer(Protocol):
    """Commits the delivered records of a source task.

    Attributes:
        submitted: The rows in flight to Kafka; rows are settled there.
        own_topic: The offsets topic, which the task must not write records to; None if it may.
        whole_polls: True if only whole polls are committed.
        commits_at_rest: True if the committer must see a pause of the task, after the polled records.
    """

    submitted: SubmittedOffsets
    hooks: CommitHooks
    counts: CommitCounts
    own_topic: str | None = None
    whole_polls: bool = False
    commits_at_rest: bool = False

    @property
    def has_committed(self) -> bool:
        """True if anything that the task has delivered is committed by now."""

    @property
    def all_committed(self) -> bool:
        """True if everything that was delivered by now is committed."""

    @property
    def hint(self) -> str | None:
        """The condition that an open transaction waits for, as a text, or None if there is nothing to say."""
        return None

    @property
    def held_up(self) -> str | None:
        """The reason why the task cannot begin, as a text: an open transaction of another producer; None if it can."""
        return None

    def begin(self, stopping: threading.Event) -> bool:
        """Gets ready, before the task is initialized; may block until `stopping` is set.

        Returns:
            False if the task is to stop first.

        Raises:
            ConnectException, KafkaException: The task cannot run.
        """

    def settled(self) -> None:
        """Rows were settled."""

    def delivered(self, outgoing: Outgoing, *, waiting: bool) -> None:
        """A batch was handed to the producer.

        Args:
            waiting: True if the next batch is there already.

        Raises:
            ConnectException, KafkaException: The task fails.
        """

    def due_in_s(self) -> float | None:
        """Seconds until `run_if_due` is to be called without new records; None for never."""

    def run_if_due(self) -> None:
        """Commits when it is time; raises as `delivered`."""

    def refuse(self) -> None:
        """A row in flight has failed the task: an open transaction must not be committed. Thread: any."""
        return

    def named(self, error: BaseException) -> BaseException:
        """The error that the task fails with after sending or committing has raised; ends an open transaction."""
        return error

    def run_early(self, timeout_s: float) -> None:
        """Commits the records that are already acknowledged, before a bulk run or while the end of the task takes long.

        Thread: task.
        """
        return

    def finish(self, timeout_s: float, *, failed: bool) -> None:
        """Makes the last commit: everything was delivered or abandoned.

        Args:
            failed: True if an error ends the task.
        """

    def cancel(self) -> None:
        """Nothing may be committed any more; returns at once. Invariant 4."""


#: Name of the point between the acknowledgement of records and the write of their offsets, for `probe`.
AFTER_ACK_BEFORE_OFFSETS = "after-ack-before-offsets"
#: The longest time that a position moved without a record waits for its commit, once Kafka has the records before it.
_SOON_S: Final = 1.0


class OffsetCommitter(Committer):
    """Moves acknowledged offsets into the store, again and again.

    Args:
        hooks: the task's hooks; ``commit`` is called after each successful commit, also one with nothing new.
        interval_s: time from the end of a commit to the next one.
        open_store: called before the task is initialized.
    """

    def __init__(
        self,
        hooks: CommitHooks,
        writer: OffsetWriter,
        *,
        interval_s: float,
        timeout_s: float,
        clock: Callable[[], float],
        probe: Callable[[str], None],
        open_store: Callable[[], None] = lambda: None,
    ) -> None:
        self.submitted = SubmittedOffsets()
        self.hooks = hooks
        self.counts = CommitCounts()
        self._batches = 0
        self._writer = writer
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._probe = probe
        self._open_store = open_store
        self._next = clock() + interval_s
        self._one_at_a_time = threading.Lock()

    @property
    def has_committed(self) -> bool:
        return self._batches > 0

    @property
    def all_committed(self) -> bool:
        return self.submitted.is_empty and not self._writer.has_pending

    def begin(self, stopping: threading.Event) -> bool:
        self._open_store()
        return True

    def settled(self) -> None:
        """See `Committer`: the task's hooks are called at once."""
        self.hooks.advance()

    def delivered(self, outgoing: Outgoing, *, waiting: bool) -> None:
        """See `Committer`. A task that has failed commits once more, at its end."""
        self._batches += 1
        if outgoing.moved:
            self._soon()
        if outgoing.failure is None:
            self.run_if_due()

    def _soon(self) -> None:
        """Commits soon: readers outside often watch a position that moved without a record, so it does not wait an
        interval.
        """
        self._next = min(self._next, self._clock() + _SOON_S)

    def due_in_s(self) -> float:
        return max(0.0, self._next - self._clock())

    def run_if_due(self) -> None:
        if self.due_in_s() == 0:
            self.run()

    def run_early(self, timeout_s: float) -> None:
        self.run(timeout_s)

    def finish(self, timeout_s: float, *, failed: bool) -> None:
        """See `Committer`: acknowledged offsets are committed even if the task has failed."""
        self.run(timeout_s)

    def cancel(self) -> None:
        """See `Committer`. Invariant 4."""
        self._writer.fence(0)

    def run(self, timeout_s: float | None = None) -> bool:
        """Commit only the offsets that are acknowledged now. Invariant 1.

        Args:
            timeout_s: the longest wait; None for ``offset.flush.timeout.ms``.

        Returns:
            True if all acknowledged offsets are in the store. A failure is logged; the offsets are written next time.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        if self._writer.fenced or not self._one_at_a_time.acquire(timeout=limit):
            return False
        try:
            return self._run(limit)
        finally:
            self._one_at_a_time.release()

    def _run(self, timeout_s: float) -> bool:
        started = self._clock()
        taken = self.submitted.take_committable()
        try:
            for partition, offset in taken:
                self._writer.put(partition, offset)
            self._probe(AFTER_ACK_BEFORE_OFFSETS)
            written = self._writer.flush(timeout_s)
        except (OffsetStoreException, DataException) as error:
            self.counts.failures += 1
            text = "The offset commit failed; the offsets are kept and written with the next one (%s): %s"
            logger.error(text, _shown(taken), error)
            return False
        finally:
            now = self._clock()
            self.counts.last_duration_s = now - started
            self._next = now + self._interval_s
        self.counts.successes += 1
        if written:
            logger.debug("Committed the offsets of %d source partitions", written)
        self.hooks.committed()
        self._next = self._clock() + self._interval_s
        if self.submitted.moves_left:
            self._soon()
        return True


def _shown(taken: Sequence[tuple[object, object]], most: int = 3) -> str:
    places = [f"source partition {partition} up to source offset {offset}" for partition, offset in taken[:most]]
    more = [f"{len(taken) - most} more"] if len(taken) > most else []
    return "; ".join([*places, *more]) or "nothing new since the last one"
