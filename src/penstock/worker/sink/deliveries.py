"""The partitions of a sink task: which rows still count, up to which offset they are delivered, and which is committed.

Fetching, conversion and delivery overlap, so records may be in flight when their partition is revoked or sought to
another offset. Each fetch carries an epoch, a number that grows with every assignment and seek; a partition accepts
only records fetched in or after the epoch of its own last assignment or seek. A partition that is not assigned
accepts none. All but ``SinkCommitter`` is pure: no thread, clock or I/O. Owning thread: the task's.

Source: ``WorkerSinkTask`` (``convertMessages``, ``commitOffsets``, ``doCommit``, ``onCommitCompleted``); KIP-275.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import AnySinkTask, OffsetAndMetadata, SinkFrame, SinkRecord, TopicPartition
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import SinkBatch
from penstock.worker.errors import ConsumedMessage, ErrorHandler, ErrorReporter
from penstock.worker.sink.queues import CommitAnswered, ConvertedBatch, SinkConsumer, SinkCounts, SinkStages, ends_of
from penstock.worker.task.engine import TaskSpec

if TYPE_CHECKING:
    from penstock.worker.sink.context import WorkerSinkTaskContext

logger = logging.getLogger(__name__)


@dataclass
class _Position:
    current: OffsetAndMetadata
    committed: OffsetAndMetadata
    accepts_from: int
    delivering: int | None = None
    stored: bool = True


class SinkPartitions:
    """Offsets of the assigned partitions; nothing is kept of a partition that was revoked or lost.

    >>> t0 = TopicPartition("t", 0)
    >>> partitions = SinkPartitions()
    >>> partitions.assign({t0: 5}, epoch=1)
    >>> partitions.begin_delivery({t0: 9})
    >>> partitions.end_delivery()
    >>> partitions.current([t0])[t0].offset, partitions.committed([t0])[t0].offset
    (9, 5)
    """

    def __init__(self) -> None:
        # Replaced, never given or robbed of a partition, so that other threads can go through it.
        self._positions: Mapping[TopicPartition, _Position] = {}

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions)

    def assign(
        self, starts: Mapping[TopicPartition, int], epoch: int, *, unstored: Collection[TopicPartition] = ()
    ) -> None:
        """Take partitions on, each at the offset its next record will have.

        Args:
            starts: The first offset of each; it counts as committed.
            epoch: Records of earlier epochs do not count.
            unstored: Partitions whose offset is still to be committed, because the group does not have it.
        """
        begun = {
            partition: _Position(
                OffsetAndMetadata(offset), OffsetAndMetadata(offset), epoch, stored=partition not in unstored
            )
            for partition, offset in starts.items()
        }
        self._positions = {**self._positions, **begun}

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self._positions = {partition: at for partition, at in self._positions.items() if partition not in gone}

    def rewind(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """Continues at another offset; records of earlier epochs do not count."""
        known = self._positions.get(partition)
        self.assign({partition: offset}, epoch, unstored=() if known is None or known.stored else [partition])

    def discard_fetched(self, partition: TopicPartition, epoch: int) -> None:
        """Stop counting records fetched before ``epoch``; offsets stay as they are."""
        self._positions[partition].accepts_from = epoch

    def next_to_deliver(self, partition: TopicPartition) -> int:
        """The offset after the last record that was delivered or is being delivered."""
        position = self._positions[partition]
        return position.current.offset if position.delivering is None else position.delivering

    def behind(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the lag of delivery after the ends of assigned partitions, in offsets. Thread: any."""
        return {
            partition: max(0, ends[partition] - position.current.offset)
            for partition, position in self._positions.items()
            if partition in ends
        }

    def stale(self, partitions: Iterable[TopicPartition], epoch: int) -> set[TopicPartition]:
        """Returns the partitions whose records, fetched in ``epoch``, must not be delivered. Invariant 2."""
        return {
            partition
            for partition in partitions
            if (position := self._positions.get(partition)) is None or position.accepts_from > epoch
        }

    def begin_delivery(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note the end of a batch: the offset after each partition's last record, dropped or not."""
        for partition, end in ends.items():
            if (position := self._positions.get(partition)) is not None:
                position.delivering = end

    def end_delivery(self) -> None:
        """The batch was delivered: its offsets may be committed. Invariant 2."""
        for position in self._positions.values():
            if position.delivering is not None:
                position.current = OffsetAndMetadata(position.delivering)
                position.delivering = None

    def deliver_at_once(self, ends: Mapping[TopicPartition, int]) -> None:
        """Partitions were written up to these offsets by somebody else than the loop. Invariant 2."""
        for partition, end in ends.items():
            if (position := self._positions.get(partition)) is not None:
                position.current = OffsetAndMetadata(end)

    def drop_delivery(self) -> None:
        """The batch was abandoned; it will be fetched again."""
        for position in self._positions.values():
            position.delivering = None

    def current(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the delivered offsets of the assigned partitions among these."""
        return {tp: self._positions[tp].current for tp in partitions if tp in self._positions}

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The last committed offsets of the assigned partitions among these."""
        return {tp: self._positions[tp].committed for tp in partitions if tp in self._positions}

    def unstored(self, partitions: Iterable[TopicPartition]) -> bool:
        """True if the offset of one of the partitions must be committed to the group, even if it does not change."""
        return any((position := self._positions.get(tp)) is not None and not position.stored for tp in partitions)

    def note_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A commit was acknowledged; partitions that the task has lost since are left out."""
        for partition, offset in offsets.items():
            if (position := self._positions.get(partition)) is not None:
                position.committed = offset
                position.stored = True


@dataclass
class SinkDelivery:
    """A batch on its way into the task; kept and tried again while ``put`` asks for that.

    Attributes:
        table: The consumed rows it came from.
        records: For record tasks: the records to put, without dropped and failed ones, each with its row in ``table``.
        frames: For frame tasks: the frames still to be put, in order.
        ends: The offset after the last consumed row of each partition, whether that row is delivered or not.
        fatal: The error that fails the task after this delivery; the next record caused it.
    """

    table: pa.Table
    records: Sequence[SinkRecord] | None
    frames: list[SinkFrame] | None
    ends: Mapping[TopicPartition, int]
    fatal: ConnectException | None = None

    @property
    def size(self) -> int:
        if self.frames is not None:
            return sum(frame.num_rows for frame in self.frames)
        return len(self.records or ())

    def without(self, partitions: Collection[TopicPartition]) -> SinkDelivery:
        ends = {partition: end for partition, end in self.ends.items() if partition not in partitions}
        table = self.table.filter(pc.invert(rows_of(self.table, partitions)))
        if self.frames is not None:
            return SinkDelivery(table, None, _frames_before(self.frames, ends), ends, self.fatal)
        kept = [
            record
            for record in self.records or ()
            if (record.original_topic, record.original_kafka_partition) not in partitions
        ]
        return SinkDelivery(table, kept, None, ends, self.fatal)


def delivery_of(
    converted: ConvertedBatch,
    partitions: SinkPartitions,
    errors_of: ErrorHandler,
    counts: SinkCounts,
    note_topics: Callable[[Sequence[str]], None],
) -> SinkDelivery | None:
    """Leaves out rows of partitions that have gone or were rewound, handles failed records, cuts at a fatal one.

    Returns None if no row of the batch counts any more.
    """
    fetched, batch = converted.fetched, converted.batch
    table, records, errors = fetched.table, records_by_row(batch, fetched.table.num_rows), dict(batch.errors)
    attempts = dict(converted.attempts)
    stale = partitions.stale(fetched.ends, fetched.epoch)
    if len(stale) == len(fetched.ends):
        return None
    ends = {partition: end for partition, end in fetched.ends.items() if partition not in stale}
    if stale:
        kept = pc.indices_nonzero(pc.invert(rows_of(table, stale))).to_pylist()
        table = table.take(pa.array(kept, pa.int64()))
        records = None if records is None else [records[row] for row in kept]
        attempts = {new: attempts[old] for new, old in enumerate(kept) if old in attempts}
        errors = {new: errors[old] for new, old in enumerate(kept) if old in errors}
    counts.records_read += table.num_rows
    if len(errors) < table.num_rows:
        note_topics(sorted({partition.topic for partition in ends}))
    fatal = errors_of.handle_batch(errors, lambda row: message_at(table, row), attempts=attempts)
    whole = table
    if fatal is not None:
        # Invariant 2: the delivered and committed rows end before the record that fails the task.
        table = whole.slice(0, fatal.seq)
        ends = prefix_ends(whole, fatal.seq)
        records = None if records is None else records[: fatal.seq]
    fatal_error = None if fatal is None else fatal.exception
    if records is None:
        frames = list(batch.frames or ())
        if stale or fatal is not None:
            frames = _frames_before(frames, ends)
        return SinkDelivery(table, None, frames, ends, fatal_error)
    if batch.origins is not None:
        spread = cast("Sequence[Sequence[SinkRecord]]", records)
        return SinkDelivery(table, list(chain.from_iterable(spread)), None, ends, fatal_error)
    if errors or batch.count_dropped:
        records = [record for record in records if record is not None]
    # Without errors and dropped ones every row has its record.
    return SinkDelivery(table, cast("Sequence[SinkRecord]", records), None, ends, fatal_error)


def records_by_row(batch: SinkBatch, rows: int) -> Sequence[object] | None:
    """Returns the result of each consumed row: its record or None; a list of records if transforms made several."""
    if batch.records is None or batch.origins is None:
        return batch.records
    found: list[list[SinkRecord]] = [[] for _ in range(rows)]
    for origin, record in zip(batch.origins.tolist(), batch.records, strict=True):
        if record is not None:
            found[origin].append(record)
    return found


def _frames_before(frames: Sequence[SinkFrame], ends: Mapping[TopicPartition, int]) -> list[SinkFrame]:
    """The rows of messages in front of the end of their partition; none of partitions that have no end here."""
    kept: list[SinkFrame] = []
    for frame in frames:
        read = frame.origin
        mask = pa.repeat(pa.scalar(False), frame.num_rows)
        for partition, end in ends.items():
            mask = pc.or_(mask, pc.and_(rows_of(read, [partition]), pc.less(read["offset"], end)))
        part = frame if pc.all(mask).as_py() else frame.take(mask)
        if part.num_rows:
            kept.append(part)
    return kept


def rows_of(table: pa.Table, partitions: Collection[TopicPartition]) -> pa.Array:
    """A mask of the rows that are of one of the partitions."""
    mask = pa.repeat(pa.scalar(False), table.num_rows)
    for topic, partition in partitions:
        mask = pc.or_(
            mask,
            pc.and_(pc.equal(table["topic"], topic), pc.equal(table["partition"], pa.scalar(partition, pa.int32()))),
        )
    return mask


def prefix_ends(table: pa.Table, rows: int) -> dict[TopicPartition, int]:
    """The offset after the last of the first ``rows`` rows, for each partition."""
    return ends_of(table.slice(0, rows)) if rows else {}


def place_of(table: pa.Table, most: int = 5) -> str:
    """The place of some messages, for an error message.

    >>> place_of(pa.table({"topic": ["t", "t"], "partition": [0, 0], "offset": [7, 9]}))
    't-0 from offset 7 to 9'
    """
    if table.num_rows == 0:
        return "no records"
    grouped = table.group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
    places = [f"{at['topic']}-{at['partition']} from offset {at['offset_min']} to {at['offset_max']}" for at in grouped]
    more = f" and {len(places) - most} more partitions" if len(places) > most else ""
    return ", ".join(places[:most]) + more


def message_at(table: pa.Table, row: int) -> ConsumedMessage:
    """The message of one row, as it was fetched."""
    found = table.slice(row, 1).to_pylist()[0]
    headers = tuple((header["key"], header["value"]) for header in found["headers"] or ())
    return ConsumedMessage(
        found["topic"],
        found["partition"],
        found["offset"],
        found["timestamp"],
        found["timestamp_type"],
        found["key"],
        found["value"],
        headers,
    )


Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class AcceptedOffsets:
    """The offsets to commit, and those to report to the author of the task.

    Attributes:
        to_commit: One offset for each requested partition: the task's if it is valid, else the last committed one.
        warnings: One text for each entry that was ignored because it is wrong.
        notes: One text for each entry that was ignored because its partition was not requested.
    """

    to_commit: dict[TopicPartition, OffsetAndMetadata]
    changed: bool
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def accept_offsets(
    returned: Offsets, *, asked: Offsets, committed: Offsets, assigned: Collection[TopicPartition]
) -> AcceptedOffsets:
    """Check the answer of ``pre_commit``. Invariant 2.

    Args:
        asked: The current offsets it was asked about: an upper bound for each partition.

    >>> t0, at = TopicPartition("t", 0), OffsetAndMetadata
    >>> accept_offsets({t0: at(7)}, asked={t0: at(9)}, committed={t0: at(5)}, assigned=[t0]).to_commit[t0].offset
    7
    >>> accept_offsets({t0: at(10)}, asked={t0: at(9)}, committed={t0: at(5)}, assigned=[t0]).changed
    False
    """
    accepted = {partition: committed[partition] for partition in asked if partition in committed}
    warnings: list[str] = []
    notes: list[str] = []
    for partition, offset in returned.items():
        where = f"{partition.topic}-{partition.partition}"
        if partition in asked:
            limit = asked[partition].offset
            if offset.offset <= limit:
                accepted[partition] = offset
            else:
                warnings.append(
                    f"Ignoring the offset {offset.offset} that pre_commit returned for {where}: "
                    f"records were delivered up to {limit} only"
                )
        elif partition in assigned:
            notes.append(
                f"Ignoring the offset {offset.offset} of {where}: pre_commit was not called for this partition"
            )
        else:
            warnings.append(
                f"Ignoring the offset {offset.offset} that pre_commit returned for {where}: "
                f"the partition is not assigned to this task"
            )
    return AcceptedOffsets(accepted, accepted != dict(committed), warnings, notes)


class CommitProgress:
    """One commit at a time, numbered; answers of older numbers are late and do not count.

    Args:
        now_s: The first commit is due one interval from here; monotonic, as all moments here.
    """

    def __init__(self, interval_s: float, timeout_s: float, now_s: float) -> None:
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._next_s = now_s + interval_s
        self._started_s = 0.0
        self._sequence = 0
        self.committing = False
        self.successes = 0
        self.failures = 0
        self.skipped = 0

    @property
    def sequence(self) -> int:
        return self._sequence

    def due(self, now_s: float, *, requested: bool) -> bool:
        """True if it is time to commit: nothing is in progress, and the interval has passed or the task asked."""
        return not self.committing and (requested or now_s >= self._next_s)

    def schedule(self, now_s: float) -> None:
        self._next_s = now_s + self._interval_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until a commit is due, or the commit in progress times out."""
        until = self._started_s + self._timeout_s if self.committing else self._next_s
        return max(0.0, until - now_s)

    def begin(self, now_s: float) -> int:
        self._sequence += 1
        self._started_s = now_s
        self.committing = True
        return self._sequence

    def end(self, sequence: int, *, failed: bool) -> bool:
        """An answer came; False when it is a late one: a newer commit was begun since."""
        if sequence != self._sequence:
            self.skipped += 1
            return False
        self.committing = False
        if failed:
            self.failures += 1
        else:
            self.successes += 1
        return True

    def give_up_if_late(self, now_s: float) -> bool:
        """Forget a commit without an answer in time: counts as a failure; a new one may begin."""
        if not self.committing or now_s < self._started_s + self._timeout_s:
            return False
        self.committing = False
        self.failures += 1
        return True


class SinkCommitter:
    """Commits for one task.

    Args:
        reporters: Offsets pass a reported record only after its reports are stored.
        probe: Called at ``sink.closing``, between the task's ``close`` and the last commit; for kill tests.
    """

    def __init__(
        self,
        spec: TaskSpec[AnySinkTask],
        context: WorkerSinkTaskContext,
        partitions: SinkPartitions,
        stages: SinkStages,
        progress: CommitProgress,
        *,
        reporters: Sequence[ErrorReporter],
        probe: Callable[[str], None],
    ) -> None:
        self._name = spec.name
        self._task = spec.task
        self._timeout_s = spec.offset_flush_timeout_s
        self._context = context
        self._partitions = partitions
        self._stages = stages
        self.progress = progress
        self._reporters = reporters
        self._probe = probe

    def commit(self, now_s: float) -> bool:
        """Commit all partitions without waiting for the answer.

        Returns:
            False when ``pre_commit`` failed: the caller must rewind to the committed offsets.
        """
        asked = self._partitions.current(self._partitions.assigned)
        if not asked:
            return True
        sequence = self.progress.begin(now_s)
        if not self._reports_stored(asked):
            self.progress.end(sequence, failed=True)
            return True
        try:
            returned = self._pre_commit(asked, closing=False)
        except BaseException:
            logger.exception("%s: pre_commit failed; rewinding to the last committed offsets", self._name)
            self.progress.end(sequence, failed=True)
            return False
        offsets = self._to_commit(returned, asked)
        if offsets is None:
            self.progress.end(sequence, failed=False)
            return True
        stages = self._stages

        def answer(error: Exception | None) -> None:
            stages.post(CommitAnswered(sequence, offsets, error))

        def send(consumer: SinkConsumer) -> None:
            consumer.commit_async(offsets, answer)

        stages.submit(send)
        return True

    def answered(self, event: CommitAnswered) -> None:
        if not self.progress.end(event.sequence, failed=event.error is not None):
            logger.debug("%s: ignoring the late answer to offset commit %d", self._name, event.sequence)
        elif event.error is not None:
            logger.error("%s: offset commit %d failed: %s", self._name, event.sequence, event.error)
        else:
            self._partitions.note_committed(event.offsets)

    def commit_and_close(
        self, now_s: float, partitions: Collection[TopicPartition], *, cancelled: Callable[[], bool]
    ) -> None:
        """The partitions go away: ask the task for the last time, close them, commit and wait for the answer."""
        asked = self._partitions.current(partitions)
        if not asked:
            return
        sequence = self.progress.begin(now_s)
        stored = self._reports_stored(asked)
        returned: Mapping[TopicPartition, OffsetAndMetadata] = {}
        failed = not stored
        try:
            returned = self._pre_commit(asked, closing=True)
        except BaseException:
            logger.warning("%s: pre_commit failed while closing; nothing is committed", self._name, exc_info=True)
            failed = True
        finally:
            self._task.close(list(asked))
        self._probe("sink.closing")
        # Invariant 4: the task may have been cancelled while it closed.
        offsets = None if failed or cancelled() else self._to_commit(returned, asked)
        if offsets is not None:
            failed = not self._commit_and_wait(offsets)
        self.progress.end(sequence, failed=failed)

    def _pre_commit(
        self, asked: Mapping[TopicPartition, OffsetAndMetadata], *, closing: bool
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self._context.set_closing(closing)
        try:
            returned: Mapping[TopicPartition, OffsetAndMetadata] | None = self._task.pre_commit(dict(asked))
        finally:
            self._context.set_closing(False)
        if returned is None:
            raise ConnectException(
                f"{self._name}: pre_commit returned None; return the offsets that are safe, or an empty map"
            )
        if not isinstance(returned, Mapping) or not all(
            isinstance(partition, tuple) and len(partition) == 2 and isinstance(offset, OffsetAndMetadata)
            for partition, offset in returned.items()
        ):
            raise ConnectException(
                f"{self._name}: pre_commit must return a map of TopicPartition to OffsetAndMetadata, got {returned!r}"
            )
        return returned

    def _to_commit(
        self, returned: Mapping[TopicPartition, OffsetAndMetadata], asked: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata] | None:
        """Returns the offsets to send, or None if there is nothing new."""
        if not returned:
            return None
        accepted = accept_offsets(
            {TopicPartition(*partition): offset for partition, offset in returned.items()},
            asked=asked,
            committed=self._partitions.committed(asked),
            assigned=self._partitions.assigned,
        )
        for warning in accepted.warnings:
            logger.warning("%s: %s", self._name, warning)
        for note in accepted.notes:
            logger.debug("%s: %s", self._name, note)
        # Invariant 2: without an offset in the group, records that arrive while the task does not read would be
        # skipped.
        return accepted.to_commit if accepted.changed or self._partitions.unstored(asked) else None

    def _commit_and_wait(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        def send(consumer: SinkConsumer) -> None:
            consumer.commit_sync(offsets)

        try:
            self._stages.submit(send).result(self._timeout_s)
        except Exception as failure:
            text = "%s: the last offset commit of %s failed; records since the one before come again: %s"
            logger.error(text, self._name, ", ".join(map(str, offsets)), failure or "no answer in time")
            return False
        self._partitions.note_committed(offsets)
        return True

    def _reports_stored(self, partitions: Collection[TopicPartition]) -> bool:
        """Wait for reports of failed records: a committed offset never passes one that is not stored. Invariant 2."""
        wanted = list(partitions)
        stored = all(reporter.await_reports(wanted, self._timeout_s) for reporter in self._reporters)
        if not stored:
            logger.error("%s: failed records are not reported yet; offsets are not committed", self._name)
        return stored
