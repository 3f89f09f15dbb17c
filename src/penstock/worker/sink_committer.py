"""Committing a sink task's offsets: asks the task, then the group coordinator.

Main type: ``SinkCommitter``.

Owning thread: the task's thread.

Source: ``WorkerSinkTask.commitOffsets``, ``doCommit`` and ``onCommitCompleted``; KIP-275.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.api import AnySinkTask, OffsetAndMetadata, TopicPartition
from penstock.errors import ConnectException
from penstock.worker.error_report import ErrorReporter
from penstock.worker.sink_commit import CommitProgress, accept_offsets
from penstock.worker.sink_context import WorkerSinkTaskContext
from penstock.worker.sink_partitions import SinkPartitions
from penstock.worker.sink_stages import CommitAnswered, SinkConsumer, SinkStages
from penstock.worker.task_spec import TaskSpec

logger = logging.getLogger(__name__)


class SinkCommitter:
    """Commits for one task.

    Args:
        spec: The task; asked with ``pre_commit``, told with ``close``. Reports and the last commit are waited for as
            long as it says.
        context: Says ``is_closing``.
        partitions: How far delivery got.
        stages: The way to the consumer.
        progress: Numbers the commits.
        reporters: Their reports are waited for before offsets pass the reported records.
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
        except Exception:
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
            Exception: What ``close`` raised.
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
        except Exception:
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
        """What to send; None when there is nothing new."""
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
        # Invariant 2: without an offset in the group, records that come while nobody reads would be passed over.
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
