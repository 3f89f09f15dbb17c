"""Tells a source task which of its records are done, and when something was committed.

The hooks are ``commit_record``, ``record_acknowledged``, ``commit_batch`` and ``commit``.

Main type: `CommitHooks`. Only hooks that the task overrides are called, found out once. Records are told in the order
in which they were polled: a record that is done early waits for those before it, so a task can trust what it is told
last.

Thread: the hooks are called on the producer's thread, or on the task's delivery thread for batches of which nothing is
sent, and with exactly-once always on that one; never two at a time for one task, beside ``poll``.

Source: KIP-416; AbstractWorkerSourceTask.recordSent and recordDropped of Kafka Connect.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.api import RecordMetadata, SourceFrame, SourceTask
from penstock.worker.source_stages import Batch
from penstock.worker.submitted import Submission

logger = logging.getLogger(__name__)


def wants_metadata(task: SourceTask) -> bool:
    """Whether a task wants the topic, partition and offset of each of its records."""
    return type(task).record_acknowledged is not SourceTask.record_acknowledged or _commits_with_metadata(task)


def _commits_with_metadata(task: SourceTask) -> bool:
    """Whether ``commit_record`` is written in Java's form, or in both in one: with ``metadata`` as its second argument.

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
    """A batch and how far the task was told about it."""

    source: Batch
    submission: Submission
    metadata: dict[int, RecordMetadata] = field(default_factory=dict)
    acknowledged: int = 0
    next_row: int = 0


class CommitHooks:
    """The acknowledgement hooks of one task.

    Args:
        task: the user's task.
    """

    def __init__(self, task: SourceTask) -> None:
        kind = type(task)
        self._task = task
        self._commit_record: Callable[..., object] = task.commit_record
        self._each = kind.commit_record is not SourceTask.commit_record
        self.wants_frames = kind.commit_batch is not SourceTask.commit_batch
        self._each_with_metadata = _commits_with_metadata(task)
        self._wants_metadata = kind.record_acknowledged is not SourceTask.record_acknowledged
        self._queue: deque[_Told] = deque()
        self._by_submission: dict[int, _Told] = {}
        self._calling = threading.Lock()

    def add(self, source: Batch, submission: Submission) -> None:
        """Note a batch, in the order of polls, before any of its rows is settled."""
        wanted = self.wants_frames if isinstance(source, SourceFrame) else self._each or self._wants_metadata
        if wanted:
            told = _Told(source, submission)
            self._by_submission[id(submission)] = told
            self._queue.append(told)

    def acknowledged(self, submission: Submission, count: int, metadata: Mapping[int, RecordMetadata] | None) -> None:
        """Kafka has stored so many rows of a batch; where, if that was asked for."""
        told = self._by_submission.get(id(submission))
        if told is not None:
            told.acknowledged += count
            if metadata:
                told.metadata.update(metadata)

    def advance(self) -> None:
        """Tell the task everything that is settled up to the first row that is not."""
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
        """Notes that what the task was not told yet was aborted: Kafka has stored none of it."""
        for told in self._queue:
            told.metadata.clear()
            told.acknowledged = 0

    def committed(self) -> None:
        """Call the task's ``commit``."""
        try:
            self._task.commit()
        except Exception:
            logger.exception("The task's commit() raised; the offsets are committed all the same")

    def _tell(self, told: _Told) -> bool:
        """Tell the task what is settled of one batch; True if all of it is."""
        gap = told.submission.done.find(0, told.next_row)
        end = told.submission.size if gap < 0 else gap
        if isinstance(told.source, SourceFrame):
            if gap >= 0:
                return False
            self._call_frame(told.source, told.acknowledged)
            return True
        records = told.source.records
        for row in range(told.next_row, end):
            metadata = told.metadata.pop(row, None)
            try:
                if self._wants_metadata and metadata is not None:
                    self._task.record_acknowledged(records[row], metadata)
            except Exception:
                logger.exception("The task's record_acknowledged() raised; the record is acknowledged all the same")
            try:
                if self._each_with_metadata:
                    self._commit_record(records[row], metadata)
                elif self._each:
                    self._commit_record(records[row])
            except Exception:
                logger.exception("The task's commit_record() raised; the record is done all the same")
        told.next_row = end
        return gap < 0

    def _call_frame(self, frame: SourceFrame, acknowledged: int) -> None:
        try:
            self._task.commit_batch(frame, acknowledged)
        except Exception:
            logger.exception("The task's commit_batch() raised; the frame is done all the same")
