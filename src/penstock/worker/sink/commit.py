"""Commits a sink task's offsets: decides when to commit, which offsets of ``pre_commit`` to accept, and which answers
count.

Main types: ``CommitProgress`` (due, in progress, sequence numbers, late answers) and ``accept_offsets`` (the offsets of
``pre_commit``'s answer that may be committed), both pure: no thread, clock or I/O. ``SinkCommitter`` asks the task,
then the group coordinator.

Owning thread: the task's thread.

Source: ``WorkerSinkTask`` (``commitOffsets``, ``doCommit``, ``onCommitCompleted``); KIP-275.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.api import AnySinkTask, OffsetAndMetadata, TopicPartition
from penstock.errors import ConnectException
from penstock.worker.errors.reporters import ErrorReporter
from penstock.worker.sink.context import WorkerSinkTaskContext
from penstock.worker.sink.deliveries import SinkPartitions
from penstock.worker.sink.queues import CommitAnswered, SinkConsumer, SinkStages
from penstock.worker.task.spec import TaskSpec

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class AcceptedOffsets:
    """The offsets to commit, and those to report to the author of the task.

    Attributes:
        to_commit: One offset for each requested partition: the task's if it is valid, else the last committed one.
        changed: True if they differ from the committed offsets.
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
        returned: The task's answer.
        asked: The current offsets it was asked about: an upper bound for each partition.
        committed: The last committed offsets of the same partitions.
        assigned: Everything the task owns.

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
        interval_s: ``offset.flush.interval.ms``.
        timeout_s: ``offset.flush.timeout.ms``.
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
        """Number of the latest commit."""
        return self._sequence

    def due(self, now_s: float, *, requested: bool) -> bool:
        """True if it is time to commit: nothing is in progress, and the interval has passed or the task asked."""
        return not self.committing and (requested or now_s >= self._next_s)

    def schedule(self, now_s: float) -> None:
        """The next periodic commit is one interval from now."""
        self._next_s = now_s + self._interval_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until a commit is due, or the commit in progress times out."""
        until = self._started_s + self._timeout_s if self.committing else self._next_s
        return max(0.0, until - now_s)

    def begin(self, now_s: float) -> int:
        """A commit starts; returns its number."""
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


logger = logging.getLogger(__name__)


class SinkCommitter:
    """Commits for one task.

    Args:
        spec: The task, for ``pre_commit`` and ``close``, and the time limits for reports and the last commit.
        context: Holds ``is_closing``.
        partitions: The delivered offsets.
        stages: The way to the consumer.
        progress: Numbers the commits.
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
        """The answer to a commit came."""
        if not self.progress.end(event.sequence, failed=event.error is not None):
            logger.debug("%s: ignoring the late answer to offset commit %d", self._name, event.sequence)
        elif event.error is not None:
            logger.error("%s: offset commit %d failed: %s", self._name, event.sequence, event.error)
        else:
            self._partitions.note_committed(event.offsets)

    def commit_and_close(
        self, now_s: float, partitions: Collection[TopicPartition], *, cancelled: Callable[[], bool]
    ) -> None:
        """The partitions go away: ask the task for the last time, close them, commit and wait for the answer.

        Raises:
            Exception: The error that ``close`` raised.
        """
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
        self,
        returned: Mapping[TopicPartition, OffsetAndMetadata],
        asked: Mapping[TopicPartition, OffsetAndMetadata],
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
