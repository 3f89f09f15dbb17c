"""Conversion of fetched messages, with records that are tried again.

Main type: ``MessageConverter``. Thread: the one that converts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa

from penstock.errors import KafkaException
from penstock.kafka.consumer.unreadable import UnreadableRecords
from penstock.pipeline.batch.batches import ConsumedBatch, RecordError, SinkBatch, Submit
from penstock.worker.errors.tolerance import KAFKA_CONSUME, ErrorHandler
from penstock.worker.sink.queues import ConvertedBatch, FetchedBatch
from penstock.worker.task.overlap import begun

_CONSUMER_CLASS = "org.apache.kafka.clients.consumer.KafkaConsumer"


class BatchConverter(Protocol):
    """The part of ``pipeline.sink.SinkPipeline`` that the converter needs."""

    def run(self, batch: ConsumedBatch) -> SinkBatch:
        """Convert one batch; failed records are in its errors."""

    def begin(self, batch: ConsumedBatch, submit: Submit) -> Callable[[], SinkBatch]:
        """Begin a batch and hand its job to `submit`; the returned function ends it."""


class MessageConverter:
    """Converts fetched batches, and tries records with retriable errors again.

    Args:
        pipeline: Converters and transforms.
        errors: Has the retry limits.
    """

    def __init__(self, pipeline: BatchConverter, errors: ErrorHandler) -> None:
        self._pipeline = pipeline
        self._errors = errors

    def begin(self, fetched: FetchedBatch, submit: Submit) -> Callable[[], ConvertedBatch]:
        """Begin one batch; Spark can work on it while the previous batch is in progress."""
        if fetched.unreadable is not None:
            converted = ConvertedBatch(fetched, SinkBatch([None], None, {0: _unread(fetched.unreadable)}, 0))
            return lambda: converted
        finish = begun(lambda: self._pipeline.begin(ConsumedBatch(fetched.table), submit))
        return lambda: self._retried(fetched, finish())

    def _retried(self, fetched: FetchedBatch, batch: SinkBatch) -> ConvertedBatch:
        """The batch, after all retries of its records."""
        if not any(error.retriable for error in batch.errors.values()):
            return ConvertedBatch(fetched, batch)
        latest = [batch]
        dropped_at_first = batch.count_dropped

        def rerun(rows: list[int]) -> Mapping[int, RecordError]:
            if latest[0].records is None or latest[0].origins is not None:
                # Frames, and records that became several, cannot be put together from parts: all is converted again.
                latest[0] = self._pipeline.run(ConsumedBatch(fetched.table))
                return latest[0].errors
            part = self._pipeline.run(ConsumedBatch(fetched.table.take(pa.array(rows, pa.int64()))))
            records = list(latest[0].records)
            for index, record in enumerate(part.records or ()):
                records[rows[index]] = record
            latest[0] = SinkBatch(records, None, {}, dropped_at_first + part.count_dropped)
            return {rows[index]: error for index, error in part.errors.items()}

        errors, attempts = self._errors.retry(batch.errors, rerun)
        last = latest[0]
        return ConvertedBatch(
            fetched, SinkBatch(last.records, last.frames, errors, last.count_dropped, last.origins), attempts
        )


def _unread(records: UnreadableRecords) -> RecordError:
    """The error of records that the client could not read; Java's class of it."""
    error = KafkaException(str(records))
    return RecordError(0, KAFKA_CONSUME, _CONSUMER_CLASS, KafkaException.java_name, str(records), exception=error)
