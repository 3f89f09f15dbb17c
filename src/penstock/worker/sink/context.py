"""The context of a sink task, and its requests, which are kept until the loop takes them.

Main type: ``WorkerSinkTaskContext``. The loop takes the task's requests with the ``take_*`` methods.

Owning thread: the task's, except where ``penstock.api.SinkTaskContext`` says otherwise.

Source: ``WorkerSinkTaskContext``; KIP-275 for ``is_closing``.
"""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, SupportsIndex, overload

from penstock.api import (
    Closing,
    ErrantRecordReporter,
    PluginMetrics,
    Rows,
    SinkFrame,
    SinkTaskContext,
    TopicPartition,
)
from penstock.errors import ConnectException, IllegalWorkerStateException
from penstock.model.progress import Progress
from penstock.worker.sink.errant_records import ErrantRecords
from penstock.worker.sink.timed_calls import ClockCalls
from penstock.worker.task.plugin_metrics import InstanceMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


class WorkerSinkTaskContext(SinkTaskContext):
    """The context of one task instance.

    Args:
        task: The task, for error messages.
        read_config: Reads the task's configuration again.
        assignment: The partitions owned now.
        reporter: Receives bad records; None when error reporting is not configured.
        errant: Receives bad rows of frames, also when error reporting is not configured; None: they are not reported.
        lost_session: True if the loss of a Spark session caused an error.
        wake: Wakes the loop for a request from another thread.
        metrics: The metrics of this instance; None: they are not shown.
        progress: Receives the task's progress.
        spark: Gives the Spark session; None: there is none.
        is_backfill: True for the task of a backfill.

    Attributes:
        calls: The timed calls that the task has scheduled.
    """

    def __init__(
        self,
        task: str,
        *,
        read_config: Callable[[], Mapping[str, str]],
        assignment: Callable[[], frozenset[TopicPartition]],
        reporter: ErrantRecordReporter | None,
        wake: Callable[[], None],
        errant: ErrantRecords | None = None,
        lost_session: Callable[[BaseException], bool] = lambda error: False,
        metrics: InstanceMetrics | None = None,
        progress: Callable[[Progress | None], None] = lambda progress: None,
        spark: Callable[[], SparkSession] | None = None,
        is_backfill: bool = False,
    ) -> None:
        self._task = task
        self._is_backfill = is_backfill
        self._read_config = read_config
        self._assignment = assignment
        self._reporter = reporter
        self._errant = errant
        self._lost_session = lost_session
        self._progress = progress
        self._spark = spark
        self.calls = ClockCalls()
        self._wake = wake
        self._plugin_metrics = (metrics or InstanceMetrics.unread()).plugin()
        self._rewinds: dict[TopicPartition, int] = {}
        self._timeout_ms = -1
        self._paused: set[TopicPartition] = set()
        self._commit_requested = False
        self._closing = False
        self._closed = False

    # -- For the author of the task ----------------------------------------------------------------------------------

    def configs(self) -> dict[str, str]:
        """The task's newest configuration."""
        self._check_open()
        return dict(self._read_config())

    @overload
    def offset(self, offsets: TopicPartition, offset: int) -> None: ...

    @overload
    def offset(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def offset(self, offsets: TopicPartition | Mapping[TopicPartition, int], offset: int | None = None) -> None:
        """Rewind partitions before the next ``put``."""
        self._check_open()
        wanted = {offsets: offset} if isinstance(offsets, TopicPartition) else offsets
        for partition, position in wanted.items():
            if position is None:
                logger.warning("%s: ignoring a rewind of %s without an offset", self._task, partition)
            else:
                self._rewinds[TopicPartition(*partition)] = self._whole(partition, position)

    def _whole(self, partition: TopicPartition, position: SupportsIndex) -> int:
        try:
            offset = operator.index(position)
        except TypeError:
            offset = -1
        if offset < 0:
            raise ConnectException(
                f"{self._task} cannot go on with {partition} at offset {position!r}: "
                "it must be a whole number, 0 or more"
            )
        return offset

    def timeout(self, timeout_ms: int) -> None:
        """Bound the time to the next ``put``, once."""
        self._check_open()
        self._timeout_ms = timeout_ms

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        """Reports the progress of the task."""
        self._progress(None if done is None else Progress(done, total, unit))

    def spark(self) -> SparkSession:
        """See ``SinkTaskContext``."""
        return super().spark() if self._spark is None else self._spark()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this task has now."""
        self._check_open()
        return self._assignment()

    def pause(self, *partitions: TopicPartition) -> None:
        """No records of these until ``resume``."""
        self._check_assigned("pause", partitions)
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Records of these again."""
        self._check_assigned("resume", partitions)
        self._paused.difference_update(partitions)

    def request_commit(self) -> None:
        """Commit at the next round. Thread: any."""
        self._check_open()
        self._commit_requested = True
        self._wake()

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """Returns the reporter for records that cannot be put. Thread: any."""
        self._check_open()
        return self._reporter

    def report(self, frame: SinkFrame, rows: Rows, error: BaseException) -> Future[None]:
        """Report rows of a frame. Thread: any."""
        self._check_open()
        return (
            super().report(frame, rows, error) if self._errant is None else self._errant.report_rows(frame, rows, error)
        )

    def blames_rows(self, error: BaseException) -> bool:
        """See ``SinkTaskContext``."""
        return super().blames_rows(error) and not self._lost_session(error)

    def every(self, seconds: float, call: Callable[[], object]) -> Callable[[], None]:
        """Have a function called by the clock."""
        self._check_open()
        return self.calls.add(seconds, call, now=time.monotonic())

    def plugin_metrics(self) -> PluginMetrics:
        """Returns the registry for the task's own metrics. Thread: any."""
        self._check_open()
        return self._plugin_metrics

    @property
    def is_backfill(self) -> bool:
        """True for the task of a backfill."""
        self._check_open()
        return self._is_backfill

    @property
    def is_closing(self) -> Closing:
        """True if this ``pre_commit`` is the last one for its partitions."""
        self._check_open()
        return Closing(self._closing)

    # -- For the loop ------------------------------------------------------------------------------------------------

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that the task itself has paused."""
        return frozenset(self._paused)

    def retain(self, assigned: frozenset[TopicPartition]) -> None:
        """Drops the pauses of partitions that a rebalance took away."""
        self._paused &= assigned

    def forget_rewinds(self, partitions: frozenset[TopicPartition]) -> None:
        """Drops the requests for partitions that leave the task."""
        for partition in partitions:
            self._rewinds.pop(partition, None)

    def take_rewinds(self) -> dict[TopicPartition, int]:
        """Returns the offsets that were requested with ``offset`` since the last call."""
        rewinds, self._rewinds = self._rewinds, {}
        return rewinds

    def take_timeout_ms(self) -> int | None:
        """Returns the timeout that was requested with ``timeout`` since the last call."""
        timeout, self._timeout_ms = self._timeout_ms, -1
        return timeout if timeout > 0 else None

    @property
    def commit_requested(self) -> bool:
        """True if ``request_commit`` was called since ``clear_commit_request``."""
        return self._commit_requested

    def clear_commit_request(self) -> None:
        """A commit was begun."""
        self._commit_requested = False

    def set_closing(self, closing: bool) -> None:
        """Sets the answer of ``is_closing`` (KIP-275)."""
        self._closing = closing

    def close(self) -> None:
        """Every later call fails."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalWorkerStateException(f"The context of {self._task} is closed: the task has ended")

    def _check_assigned(self, what: str, partitions: tuple[TopicPartition, ...]) -> None:
        self._check_open()
        strange = [str(partition) for partition in partitions if partition not in self._assignment()]
        if strange:
            raise IllegalWorkerStateException(
                f"{self._task} cannot {what} {', '.join(strange)}: not assigned to this task"
            )
