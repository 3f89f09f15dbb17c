"""What one source task is made with: numbers, and the parts that it works with.

Main types: `SourceTaskSettings`, `SourceTaskServices`. Values; the task factory makes them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.stores.offsets import OffsetReader
from penstock.worker.committer import Committer
from penstock.worker.plugin_metrics import InstanceMetrics
from penstock.worker.shared_load import SharedLoad
from penstock.worker.source_convert import BatchPipeline
from penstock.worker.source_delivery import BatchProducer
from penstock.worker.source_stages import BatchLimits
from penstock.worker.task_session import TaskSession
from penstock.worker.tolerance import ErrorHandler
from penstock.worker.topic_creation import TopicCreator
from penstock.worker.transaction_requests import TransactionRequests


def no_probe(point: str) -> None:
    """The probe outside of kill tests."""


@dataclass(frozen=True)
class SourceTaskSettings:
    """Numbers that govern one source task.

    Attributes:
        limits: how large batches may grow.
        offset_flush_timeout_s: ``offset.flush.timeout.ms``: for what is in flight at the end, and the last commit.
    """

    limits: BatchLimits = field(default_factory=BatchLimits)
    offset_flush_timeout_s: float = 5.0


@dataclass(frozen=True)
class SourceTaskServices:
    """What one source task works with. The runner ends what can be ended, also when the task never starts.

    Attributes:
        pipeline: transforms and converters.
        producer: the task's own.
        errors: what happens to failed records.
        topics: makes sure that topics exist.
        committer: makes count what is delivered; ended when the task is cancelled.
        offset_reader: for the task's context; closed when the task is cancelled.
        read_configs: the task's newest configuration, placeholders resolved again.
        session: Spark's, as this instance of the task uses it.
        requests: what the task says of its transactions; None where it has no say.
        closers: called in order when all else has ended: transforms, reporters, admin client.
        load: of all tasks of the worker.
        metrics: those that the task and its parts add themselves.
        given_up: set when nothing more is to be waited for; make `errors` with the same event.
        abandoned: called when the task is cancelled and commits nothing more; must not block.
        clock: monotonic seconds.
        probe: told named points of the data path, for kill tests.
    """

    pipeline: BatchPipeline
    producer: BatchProducer
    errors: ErrorHandler
    topics: TopicCreator
    committer: Committer
    offset_reader: OffsetReader
    read_configs: Callable[[], Mapping[str, str]]
    session: TaskSession
    requests: TransactionRequests | None = None
    closers: Sequence[Callable[[], None]] = ()
    load: SharedLoad = field(default_factory=SharedLoad)
    metrics: InstanceMetrics = field(default_factory=InstanceMetrics.unread)
    given_up: threading.Event = field(default_factory=threading.Event)
    abandoned: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    probe: Callable[[str], None] = no_probe
