"""Notes the topics that tasks use, between a task and its producer or pipeline.

Main types: ``TrackingProducer``, ``TrackingPipeline``; they add one look at the topic column to a batch. Each belongs
to the thread that its task calls it from; acknowledgements come on the producer's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import RecordMetadata
from penstock.kafka.producer.in_flight import FailedDelivery, Receipts
from penstock.pipeline.batch.batches import ConsumedBatch, ProduceBatch, SinkBatch, Submit, when_asked
from penstock.worker.sink.conversion import BatchConverter
from penstock.worker.source.delivery import BatchProducer

NoteTopics = Callable[[Sequence[str]], None]
"""Notes that a record of each of these topics has arrived."""


class TrackingProducer:
    """A producer that notes the topics of acknowledged records.

    Args:
        producer: Does the work.
        note: Notes topics.
    """

    def __init__(self, producer: BatchProducer, note: NoteTopics) -> None:
        self._producer = producer
        self._note = note

    def send(self, batch: ProduceBatch, receipts: Receipts, *, rows: pa.Array | None = None) -> None:
        """See ``BatchProducer.send``."""
        tracked = _TrackedReceipts(receipts, _topics_sent(batch, rows), self._note)
        self._producer.send(batch, tracked, rows=rows)

    @property
    def trouble(self) -> str | None:
        """See ``BatchProducer.trouble``."""
        return self._producer.trouble

    def wait_delivered(self, timeout_s: float) -> bool:
        """See ``BatchProducer.wait_delivered``."""
        return self._producer.wait_delivered(timeout_s)

    def abort(self) -> None:
        """See ``BatchProducer.abort``."""
        self._producer.abort()

    def close(self, timeout_s: float) -> bool:
        """See ``BatchProducer.close``."""
        return self._producer.close(timeout_s)


class _TrackedReceipts:
    __slots__ = ("_note", "_receipts", "_sent")

    def __init__(self, receipts: Receipts, sent: Sequence[str], note: NoteTopics) -> None:
        self._receipts = receipts
        self._sent = sent
        self._note = note

    def delivered(
        self,
        first: int,
        end: int,
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        if len(failures) < end - first:
            failed = {failure.topic for failure in failures} if len(failures) else ()
            self._note([topic for topic in self._sent if topic not in failed])
        self._receipts.delivered(first, end, failures, metadata)


class TrackingPipeline:
    """A sink task's pipeline that notes the topics of converted records.

    Args:
        pipeline: Does the work.
        note: Notes topics.
    """

    def __init__(self, pipeline: BatchConverter, note: NoteTopics) -> None:
        self._pipeline = pipeline
        self._note = note

    def run(self, batch: ConsumedBatch) -> SinkBatch:
        """Converts one batch; see ``SinkPipeline.run``."""
        return self.begin(batch, when_asked)()

    def begin(self, batch: ConsumedBatch, submit: Submit) -> Callable[[], SinkBatch]:
        """Begins one batch; see ``SinkPipeline.begin``. Its topics are noted at its end."""
        finish = self._pipeline.begin(batch, submit)

        def noted() -> SinkBatch:
            converted = finish()
            if len(converted.errors) < batch.table.num_rows:
                self._note(_distinct(batch.table.column("topic")))
            return converted

        return noted


def _topics_sent(batch: ProduceBatch, rows: pa.Array | None) -> Sequence[str]:
    if batch.topic is not None:
        return (batch.topic,)
    column = batch.table.column("topic")
    return _distinct(column if rows is None else column.take(rows))


def _distinct(column: pa.ChunkedArray) -> list[str]:
    return [topic for topic in pc.unique(column).to_pylist() if topic is not None]
