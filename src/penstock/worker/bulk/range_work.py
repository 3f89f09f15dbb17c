"""The part of a bulk sink that runs on Spark's executors: a range is fetched, converted, and written by the task.

Messages become frames through the classes that the worker uses, and failed messages are reported from here. A Python
worker has no session: where messages need a compiled plan, it is between ``RangeFetch`` and ``RangeWork``. Messages
that the plan was not made for go through its steps record by record.

Thread: the main thread of a Python worker of Spark.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame, TopicPartition, ValueForm
from penstock.api.bulk import BulkSinkTask, TopicRange
from penstock.clients.reader import RecordReader
from penstock.errors import ConnectException, IllegalWorkerStateException, KafkaRetriableException
from penstock.kafka.consumer.consumer import FetchedChunk
from penstock.kafka.producer.record_producer import RecordProducer
from penstock.kafka.settings.producer import ColumnSettings
from penstock.model import ConnectorTaskId
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PendingBatch, PipelineSpec, SinkBatch, Submit
from penstock.pipeline.batch.sink.ahead import PlanAhead
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.plan.chain import GroupOutcome
from penstock.worker.bulk.runs import EXAMPLES, AttemptFailedException, Failure, is_final, text_of
from penstock.worker.bulk.shipping import Parts
from penstock.worker.errors import (
    DeadLetterQueue,
    DeadLetterSettings,
    ErrorCounts,
    ErrorHandler,
    ErrorPolicy,
    ErrorReporter,
    FailedRecord,
    failure_text,
    message_as_text,
)
from penstock.worker.sink.context import DeliveredMessages, ErrantRecords, WorkerSinkTaskContext
from penstock.worker.sink.deliveries import SinkDelivery, message_at
from penstock.worker.sink.fetching import MessageConverter

#: Messages that become frames together, and their bytes.
ROWS_AT_ONCE: Final = 10_000
_BYTES_AT_ONCE: Final = 16 << 20
#: The longest time without a message of a range, and the time limit of reports.
_PATIENCE_S: Final = 60.0
_SLICE_S: Final = 1.0


@dataclass(frozen=True)
class DeadLetters:
    """The dead letter queue of the connector."""

    settings: DeadLetterSettings
    producer: ColumnSettings


@dataclass(frozen=True)
class TopicReading:
    """The way from a topic to frames.

    Attributes:
        consumer: Settings of the client; librdkafka's names.
        join: True if values of different schemas that one column can hold are one frame.
        dead_letters: The queue for failed messages; None: there is none.
    """

    task: ConnectorTaskId
    consumer: Mapping[str, object]
    parts: Parts
    policy: ErrorPolicy
    join: bool = False
    dead_letters: DeadLetters | None = None

    def pipeline(self) -> SinkPipeline:
        key, value = self.parts.converters()
        nothing: Any = None  # no_session: no job is ever run
        spec = PipelineSpec(
            key,
            value,
            self.parts.header_converter(),
            self.parts.transforms(),
            self.task.connector,
            self.task.task,
            ValueForm.COLUMNS,
            frames_join=self.join,
            no_session=True,
            session=_no_session,
        )
        return SinkPipeline(nothing, spec, nothing)

    def reader(self) -> RecordReader:
        return RecordReader(self.consumer, name=f"{self.task.connector} task {self.task.task}")

    def reporters(self, counts: ErrorCounts) -> list[ErrorReporter]:
        if self.dead_letters is None:
            return []
        producer = RecordProducer(self.dead_letters.producer, name=f"dead letter queue of {self.task}")
        return [DeadLetterQueue(self.dead_letters.settings, self.task, producer, counts)]


def _no_session() -> NoReturn:
    raise IllegalWorkerStateException("Executors have no Spark session: work with frame.table there")


@dataclass(frozen=True)
class RangeAnswer:
    """The outcome of a range.

    Attributes:
        file: The result of the task's ``write``.
        read: The number of messages read.
        rows: The number of rows given to ``write``.
    """

    range: TopicRange
    file: object
    read: int
    rows: int
    nbytes: int
    counts: Mapping[str, int]
    examples: tuple[str, ...]


#: Messages, and their outcomes if they have been through a plan.
GivenMessages = tuple[pa.Table, Sequence[GroupOutcome] | None]


def failed_attempt(ranges: Sequence[TopicRange], place: int, error: Exception) -> AttemptFailedException:
    """The failure of a range, as the worker reads it."""
    one = ranges[place]
    text = f"{one.topic}-{one.partition} from offset {one.start} to {one.end}: {text_of(error)}"
    return AttemptFailedException(Failure(place, is_final(error), text).to_text())


def _received(ahead: PlanAhead, batches: Iterator[pa.RecordBatch]) -> Iterator[GivenMessages]:
    for batch in batches:
        yield from ahead.received(pa.Table.from_batches([batch]))


@dataclass(frozen=True)
class RangeFetch:
    """The function of ``mapInArrow`` in front of a plan: gets the places of ranges, gives their messages laid out."""

    ranges: tuple[TopicRange, ...]
    reading: TopicReading
    ahead: PlanAhead

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fetches the ranges of one Spark partition.

        Raises:
            AttemptFailedException: With a ``Failure`` as its text.
        """
        for batch in batches:
            for place in batch.column(0).to_pylist():
                try:
                    yield from self.fetched(place)
                except Exception as error:
                    raise failed_attempt(self.ranges, place, error) from error

    def fetched(self, place: int, reading: TopicReading | None = None) -> Iterator[pa.RecordBatch]:
        """The messages of a range; `reading` stands in for the work's own in tests."""
        reading = reading or self.reading
        pipeline = reading.pipeline()
        for table in messages_of(self.ranges[place], reading):
            yield from self.ahead.laid_out(pipeline, table).combine_chunks().to_batches()


@dataclass(frozen=True)
class RangeWork:
    """The function of ``mapInArrow``: gets the places of ranges in a column, gives pickled answers.

    Attributes:
        task: The user's task, as ``start`` has left it.
        ahead: The plan in front; it gets the rows of that then, one range in each Spark partition. None: there is none.
    """

    task: BulkSinkTask
    ranges: tuple[TopicRange, ...]
    reading: TopicReading
    probe: Callable[[str], None]
    ahead: PlanAhead | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Writes the ranges of one Spark partition.

        Raises:
            AttemptFailedException: With a ``Failure`` as its text.
        """
        if self.ahead is not None:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None, "Spark runs it"
            yield self._answered(context.partitionId(), _received(self.ahead, batches))
            return
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield self._answered(place, None)

    def _answered(self, place: int, received: Iterator[GivenMessages] | None) -> pa.RecordBatch:
        try:
            answer = pickle.dumps(self.write(place, received=received), 5)
        except Exception as error:
            raise failed_attempt(self.ranges, place, error) from error
        return pa.RecordBatch.from_arrays([pa.array([answer], pa.binary())], ["answer"])

    def write(
        self, place: int, reading: TopicReading | None = None, received: Iterator[GivenMessages] | None = None
    ) -> RangeAnswer:
        """Writes one range.

        Args:
            received: Its messages after the plan; None: they are fetched.
        """
        one = replace(self.ranges[place], attempt=uuid.uuid4().hex[:12])
        frames = _Frames(one, reading or self.reading, received)
        try:
            self.probe(f"before-write-{place}")
            self.task.context = frames.context
            file = self.task.write(one, frames.given)
            frames.finish()
            self.probe(f"after-write-{place}")
        finally:
            frames.close()
        return frames.answer(file)


@dataclass
class _Totals:
    read: int = 0
    rows: int = 0
    nbytes: int = 0
    examples: list[str] = field(default_factory=list)


class _Frames:
    def __init__(self, one: TopicRange, reading: TopicReading, received: Iterator[GivenMessages] | None) -> None:
        self._range, self._reading = one, reading
        self._received = received
        self._name = f"{reading.task.connector} task {reading.task.task}"
        self._totals = _Totals()
        self._counts = ErrorCounts()
        self._reporters = reading.reporters(self._counts)
        examples = _Examples(str(reading.task), self._totals.examples, reading.policy)
        self._errors = ErrorHandler(
            reading.policy,
            [examples, *self._reporters] if self._reporters or reading.policy.log_enable else [],
            counts=self._counts,
            owner=str(reading.task),
        )
        self._errant = ErrantRecords(self._errors, DeliveredMessages(dict), message_as_text)
        self.context = WorkerSinkTaskContext(
            self._name,
            read_config=dict,
            assignment=lambda: frozenset([one.place]),
            reporter=self._errant if self._errant.has_reporters else None,
            errant=self._errant,
            wake=lambda: None,
        )
        self._ended = False
        #: The frames, once.
        self.given = self._made()

    def _made(self) -> Generator[SinkFrame]:
        pipeline = self._reading.pipeline()
        received = self._received
        if received is None:
            received = ((table, None) for table in messages_of(self._range, self._reading))
        for table, outcomes in received:
            converter = MessageConverter(pipeline if outcomes is None else _Planned(pipeline, outcomes), self._errors)
            ends = {self._range.place: int(table.column("offset")[-1].as_py()) + 1}
            converted = converter.begin(FetchedChunk(table, ends, 0), PendingBatch).result()
            batch, totals = converted.batch, self._totals
            totals.read += table.num_rows
            totals.nbytes += sum(pc.sum(pc.binary_length(table.column(one))).as_py() or 0 for one in ("key", "value"))
            fatal = self._errors.handle_batch(
                dict(batch.errors), partial(message_at, table), attempts=converted.attempts
            )
            if fatal is not None:
                raise fatal.exception
            delivery = SinkDelivery(table, None, list(batch.frames or ()), ends)
            messages = self._errant.remember(delivery)
            for frame in delivery.frames or ():
                totals.rows += frame.num_rows
                yield replace(frame, _context=self.context, _delivered=messages)
                self._errant.raise_if_exceeded()
        self._ended = True

    def finish(self) -> None:
        """The task has written the range.

        Raises:
            KafkaRetriableException: Reports are not stored in time.
            ConnectException: The task did not ask for all frames.
        """
        self._errant.raise_if_exceeded()
        if not self._ended:
            raise ConnectException(
                "write() has returned before it had taken all frames of the range: it loses the rest"
            )
        if not all(one.await_reports(None, _PATIENCE_S) for one in self._reporters):
            raise KafkaRetriableException(f"The dead letters of {self._name} were not stored in time")

    def answer(self, file: object) -> RangeAnswer:
        totals = self._totals
        return RangeAnswer(
            self._range,
            file,
            totals.read,
            totals.rows,
            totals.nbytes,
            {**asdict(self._counts), "total_errors_logged": 0},
            tuple(totals.examples),
        )

    def close(self) -> None:
        self.given.close()
        for one in self._reporters:
            one.close()


class _Planned:
    """A ``BatchConverter`` of messages that have been through their plan."""

    def __init__(self, pipeline: SinkPipeline, outcomes: Sequence[GroupOutcome]) -> None:
        self._pipeline, self._outcomes = pipeline, outcomes

    def run(self, batch: pa.Table) -> SinkBatch:
        """See ``BatchConverter``: converts the messages again, without the plan."""
        return self._pipeline.run(batch)

    def begin(self, batch: pa.Table, submit: Submit) -> PendingBatch[SinkBatch]:
        return PendingBatch(lambda: self._pipeline.end(batch, self._outcomes))


# ------------------------------------------------------------------------------------------------------------ messages
def messages_of(one: TopicRange, reading: TopicReading, patience_s: float | None = None) -> Generator[pa.Table]:
    """The messages of a range, some thousand at once, as ``CONSUMED_SCHEMA``.

    Args:
        patience_s: The longest time without a message.

    Raises:
        KafkaRetriableException: Kafka has given none for that time.
    """
    reader = reading.reader()
    try:
        reader.assign({one.place: one.start})
        waiting: list[pa.Table] = []
        for table in _fetched(one, reader, _PATIENCE_S if patience_s is None else patience_s):
            waiting.append(table)
            if sum(map(len, waiting)) >= ROWS_AT_ONCE or sum(one.nbytes for one in waiting) >= _BYTES_AT_ONCE:
                yield pa.concat_tables(waiting).combine_chunks()
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting).combine_chunks()
    finally:
        reader.close()


def _fetched(one: TopicRange, reader: RecordReader, patience_s: float) -> Iterator[pa.Table]:
    position, deadline = one.start, time.monotonic() + patience_s
    while position < one.end:
        chunks = reader.fetch(_SLICE_S)
        for chunk in chunks:
            offsets = chunk.table.column("offset")
            position = int(offsets[-1].as_py()) + 1
            table = chunk.table if position <= one.end else chunk.table.filter(pc.less(offsets, one.end))
            if table.num_rows:
                yield placed(table, one.place)
        if chunks:
            deadline = time.monotonic() + patience_s
        elif reader.at_end(one.place):
            # Offsets missing up to the end are transaction markers, or were compacted away.
            return
        elif time.monotonic() > deadline:
            raise KafkaRetriableException(
                f"Kafka has given no message of {one.topic}-{one.partition} from offset {position} on for "
                f"{patience_s:.0f} s: {reader.trouble or 'it has not said why'}. Executors need the names of the "
                "brokers that the worker has"
            )


def placed(table: pa.Table, place: TopicPartition) -> pa.Table:
    """Messages of one partition with all columns of ``CONSUMED_SCHEMA``."""
    rows = table.num_rows
    columns = {
        "topic": pa.repeat(pa.scalar(place.topic, pa.string()), rows),
        "partition": pa.repeat(pa.scalar(place.partition, pa.int32()), rows),
    }
    made = [columns[name] if name in columns else table.column(name) for name in CONSUMED_SCHEMA.names]
    return pa.Table.from_arrays(made, schema=CONSUMED_SCHEMA)


class _Examples(ErrorReporter):
    def __init__(self, task: str, found: list[str], policy: ErrorPolicy) -> None:
        self._task, self._found, self._policy = task, found, policy

    def report(self, failed: FailedRecord) -> None:
        if self._policy.log_enable and len(self._found) < EXAMPLES:
            text = failure_text(self._task, failed, self._policy.log_include_messages)
            self._found.append(f"{text} {failed.error.exception_class}: {failed.error.message}")
