"""What one source task works with, beside what every task is given.

Main type: `SourceServices`. Values; the task factory makes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.stores.offsets import OffsetReader
from penstock.worker.committer import Committer
from penstock.worker.source_convert import BatchPipeline
from penstock.worker.source_delivery import BatchProducer
from penstock.worker.topic_creation import TopicCreator
from penstock.worker.transaction_requests import TransactionRequests


@dataclass(frozen=True)
class SourceServices:
    """What one source task works with. The runner ends what can be ended, also when the task never starts.

    Attributes:
        pipeline: transforms and converters.
        producer: the task's own.
        topics: makes sure that topics exist.
        committer: makes count what is delivered; ended when the task is cancelled.
        offset_reader: for the task's context; closed when the task is cancelled.
        requests: what the task says of its transactions; None where it has no say.
    """

    pipeline: BatchPipeline
    producer: BatchProducer
    topics: TopicCreator
    committer: Committer
    offset_reader: OffsetReader
    requests: TransactionRequests | None = None
