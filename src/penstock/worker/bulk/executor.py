"""The part of bulk work that runs on Spark's executors: rows become messages, and go to Kafka in transactions.

The bytes are the same as the worker's: the same classes convert a batch, handle failed records and send the messages.
The marker of a partition counts its written rows, and is in the same transaction as the rows. The attempt reads the
marker after it has taken the transactional id, which fences earlier writers of the partition: an attempt that died, one
of a worker that has lost the task, or a speculative copy. So each row counts once.

Thread: the main thread of a Python worker of Spark, which works on one partition after the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import RecordMetadata, SourceFrame
from penstock.errors import (
    ConnectException,
    KafkaException,
    KafkaRetriableException,
    RetriableException,
    TransactionalIdAuthorizationException,
)
from penstock.kafka.admin import NewTopic, TopicAdmin, TopicCreator
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.producer.in_flight import FailedDelivery
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.kafka.settings.producer import ColumnSettings
from penstock.kafka.topic_log.internal_topics import InternalTopic, LogSettings
from penstock.kafka.topic_log.log import MadeLog
from penstock.pipeline.batch.batches import Failures, PendingBatch, PipelineSpec, PolledBatch, ProduceBatch, Submit
from penstock.pipeline.batch.headers import HeaderWriter
from penstock.pipeline.batch.source.assembly import frame_batch
from penstock.pipeline.batch.source.frame_input import FrameColumns, columns_of_table
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.chain import FaultPlace, outcome_of_bytes
from penstock.pipeline.plan.step import Shape
from penstock.worker.bulk.runs import (
    EXAMPLES,
    PART_ROWS,
    AttemptFailedException,
    Failure,
    Marker,
    Markers,
    PartLimits,
    RunKey,
    Skipping,
    is_final,
    part_ends,
    text_of,
)
from penstock.worker.errors import ErrorHandler, ErrorPolicy, ErrorReporter, FailedRecord, failure_text
from penstock.worker.source.batcher import TakenBatch
from penstock.worker.source.delivery import BatchPipeline, SourceConverter
from penstock.worker.source.submitted import FramePart

if TYPE_CHECKING:
    from penstock.worker.bulk.shipping import Parts

#: The column of a number for each row, by which it is known again.
HASH: Final = "penstock_hash"
#: The time limit of the coordinator of an id, of reading the markers, and of a commit.
_PATIENCE_S: Final = 60.0
_SLICE_S: Final = 5.0
#: Refusals of brokers, by the ends of Kafka's names, whose texts do not say what to do.
_REMEDIES: Final = {
    "KafkaStorageException": ". A disk of a broker is full or broken: free or add space below its log.dirs, or lower "
    "the retention of topics there",
    "TopicAuthorizationException": ". Allow the connector's user the operation Write on the topic",
    "PolicyViolationException": ". A policy of the brokers refuses it: its text says what records have to be",
    "NotEnoughReplicasException": ". Start the brokers that are away, or lower min.insync.replicas of the topic",
    "TimeoutException": ". The brokers did not store it within delivery.timeout.ms: look at their state and disks",
}


# ------------------------------------------------------------------------------------------------------------- paths
@dataclass(frozen=True)
class PlannedPath:
    """Rows that a compiled plan has made bytes of.

    Attributes:
        places: The steps in which errors arise.
        carried: Names of the columns of the query other than keys and values.
    """

    shape: Shape
    places: Mapping[int, FaultPlace]
    carried: frozenset[str]
    parts: Parts

    def pipeline(self) -> BatchPipeline:
        return _Planned(self, HeaderWriter(self.parts.header_converter()))


class _Planned:
    """A ``BatchPipeline`` of rows that have their bytes."""

    def __init__(self, path: PlannedPath, headers: HeaderWriter) -> None:
        self._path = path
        self._headers = headers
        self._columns = FrameColumns(path.shape, {}, {}, None, None, path.carried)

    def run(self, batch: PolledBatch) -> ProduceBatch:
        assert isinstance(batch, SourceFrame), "bulk work has no records"
        outcome = outcome_of_bytes(batch.data, self._path.shape, self._path.places)
        return frame_batch(batch, self._columns, outcome, batch.num_rows or 0, self._headers, Failures())

    def begin(self, batch: PolledBatch, submit: Submit) -> PendingBatch[ProduceBatch]:
        return PendingBatch(partial(self.run, batch))


@dataclass(frozen=True)
class RowPath:
    """Rows as the query gives them, which go record by record through transforms and converters.

    Attributes:
        leaves_headers: True if the rows keep their headers as bytes.
    """

    parts: Parts
    leaves_headers: bool = False

    def pipeline(self) -> BatchPipeline:
        key, value = self.parts.converters()
        spec = PipelineSpec(
            key, value, self.parts.header_converter(), self.parts.transforms(), self.parts.connector, without_spark=True
        )
        nothing: Any = None  # without_spark: no job is ever run
        made = SourcePipeline(nothing, spec)
        return _HeadersLeft(made) if self.leaves_headers else made


class _HeadersLeft:
    """A ``BatchPipeline`` without transforms; headers go to Kafka unchanged."""

    def __init__(self, pipeline: SourcePipeline) -> None:
        self._pipeline = pipeline

    def run(self, batch: PolledBatch) -> ProduceBatch:
        assert isinstance(batch, SourceFrame), "bulk work has no records"
        table: Any = batch.data
        if "headers" not in table.column_names or "headers" in (batch.value_fields or ()):
            return self._pipeline.run(batch)
        headers = columns_of_table(batch, table).others["headers"]
        made = self._pipeline.run(replace(batch, data=table.drop_columns(["headers"])))
        place = made.table.schema.get_field_index("headers")
        whole = made.table.set_column(place, made.table.schema.field(place), headers)
        return replace(made, table=whole, has_headers=True)

    def begin(self, batch: PolledBatch, submit: Submit) -> PendingBatch[ProduceBatch]:
        return PendingBatch(partial(self.run, batch))


ExecutorPath = PlannedPath | RowPath


# ------------------------------------------------------------------------------------------------------------ the work
@dataclass(frozen=True)
class MessageTarget:
    """The target of messages, and the way they are sent.

    Attributes:
        producer: Settings of the producer; a transactional id is added.
        stops_at_failure: True if the first failed record ends the partition.
        markers: The topic of the markers.
        log: Settings of that topic's clients.
        admin: Settings of the admin clients, by librdkafka's names.
        topics: The topics to be made, by their names; None if the broker creates them.
        part_rows: The most rows of one transaction.
    """

    producer: ColumnSettings
    transactions: bool
    stops_at_failure: bool
    markers: InternalTopic
    log: LogSettings
    admin: Mapping[str, object]
    topics: Callable[[str], NewTopic] | None
    part_rows: int = PART_ROWS


@dataclass(frozen=True)
class PartitionWork:
    """The function of ``mapInArrow``: writes the rows of one Spark partition; gives none.

    Attributes:
        frame: The properties that all rows share; without data.
    """

    key: RunKey
    frame: SourceFrame
    path: ExecutorPath
    delivery: MessageTarget
    policy: ErrorPolicy
    probe: Callable[[str], None]
    include_messages: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Writes one partition.

        Raises:
            AttemptFailedException: With a ``Failure`` as its text.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "Spark runs it"
        partition = context.partitionId()
        try:
            self.write(partition, batches)
        except Exception as error:
            raise AttemptFailedException(Failure(partition, is_final(error), text_of(error)).to_text()) from error
        return iter(())

    def write(
        self,
        partition: int,
        batches: Iterator[pa.RecordBatch],
        cluster: Callable[[MessageTarget], BulkClients] | None = None,
    ) -> None:
        """Writes the rows of one partition that its marker does not cover."""
        with _Attempt(self, partition, (cluster or _cluster)(self.delivery)) as attempt:
            if not attempt.marker.done:
                attempt.run(batches)


@dataclass(frozen=True)
class BulkClients:
    """Kafka, as an attempt uses it.

    Attributes:
        producer: Makes the producer of an attempt, by its name: a ``TransactionalProducer`` if its settings have an
            id, else a ``ColumnProducer``.
    """

    log: MadeLog
    markers: Markers
    producer: Callable[[ColumnSettings, str, bool], Any]


def _cluster(delivery: MessageTarget) -> BulkClients:
    def producer(settings: ColumnSettings, name: str, stops_at_failure: bool) -> ColumnProducer:
        make = TransactionalProducer if settings.transactional_id else ColumnProducer
        return make(settings, name=name, stops_at_failure=stops_at_failure)

    return BulkClients(*_markers_of(delivery), producer)


#: The log of the markers, for one partition after the other.
_opened: list[tuple[tuple[InternalTopic, str], MadeLog, Markers]] = []


def _markers_of(delivery: MessageTarget) -> tuple[MadeLog, Markers]:
    requested = (delivery.markers, repr(sorted(delivery.log.reader.items())))
    for what, made, markers in _opened:
        if what == requested:
            return made, markers
    while _opened:
        _opened.pop()[1].stop()
    made, markers = MadeLog(delivery.markers, delivery.log, delivery.admin), Markers()
    made.start(markers.take, _PATIENCE_S)
    _opened.append((requested, made, markers))
    return made, markers


@dataclass
class _Counts:
    sent: int = 0
    nbytes: int = 0
    failed: int = 0
    examples: list[str] = field(default_factory=list)


class _Attempt:
    def __init__(self, work: PartitionWork, partition: int, cluster: BulkClients) -> None:
        self._work, self._partition, self._log = work, partition, cluster.log
        self._name = f"{work.key.connector} (run {work.key.run}, Spark partition {partition})"
        self._id = work.key.transactional_id(partition)
        self._limits = replace(
            PartLimits.within(work.delivery.producer.transaction_timeout), rows=work.delivery.part_rows
        )
        self._lock = threading.Lock()
        self._counts = _Counts()
        self._refused: FailedDelivery | None = None
        self._admin: TopicAdmin | None = None
        own_id = self._id if work.delivery.transactions else None
        settings = replace(work.delivery.producer, transactional_id=own_id)
        self._producer = cluster.producer(settings, self._name, work.delivery.stops_at_failure)
        self._in_transaction = work.delivery.transactions
        #: True if sent records are not committed yet.
        self._open = False
        try:
            if self._in_transaction:
                self._take_id(self._producer)
            # After the id is taken: all commits of older attempts are visible now, and no further ones follow.
            cluster.log.read_to_end(_PATIENCE_S)
        except BaseException:
            self._producer.close(0)
            raise
        self.marker = cluster.markers.of(work.key).get(partition, Marker())
        self._creator = TopicCreator(self._name, work.delivery.topics, _LaterAdmin(self))
        self._errors = ErrorHandler(work.policy, [_Examples(self)], owner=self._name)
        self._converter = SourceConverter(self._name, work.path.pipeline(), self._errors)

    def __enter__(self) -> _Attempt:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and self._in_transaction and self._open:
            # Readers of committed messages then need not wait for the timeout of the transaction.
            with suppress(KafkaException):
                self._producer.abort_transaction(_SLICE_S)
        self._producer.close(0)
        if self._admin is not None:
            self._admin.close()

    # ------------------------------------------------------------------ rows
    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        skipping = Skipping(self._work.key, self._partition, self.marker)
        rows = self.marker.rows
        digest = self.marker.digest
        pending = 0
        opened = waited_from = time.monotonic()
        for batch in batches:
            waited_s = time.monotonic() - waited_from
            hashes = batch.column(batch.schema.get_field_index(HASH)).to_numpy(zero_copy_only=False)
            known = skipping.take(hashes)
            fresh = batch.num_rows - known
            if fresh:
                open_s = time.monotonic() - opened
                if part_ends(self._limits, rows=pending, following=fresh, open_s=open_s, waited_s=waited_s):
                    self._commit(rows, digest, done=False)
                    pending = 0
                if not pending:
                    opened = time.monotonic()
                self._send(batch.slice(known), rows)
                rows, pending, digest = rows + fresh, pending + fresh, skipping.digest
                open_s = time.monotonic() - opened
                if part_ends(self._limits, rows=pending, following=0, open_s=open_s, waited_s=waited_s):
                    self._commit(rows, digest, done=False)
                    pending = 0
            waited_from = time.monotonic()
        skipping.end()
        self._commit(rows, digest, done=True)

    def _send(self, batch: pa.RecordBatch, first: int) -> None:
        work = self._work
        table = pa.Table.from_batches([batch]).drop_columns([HASH])
        whole = work.frame
        frame = FramePart(
            data=table,
            topic=whole.topic,
            value_schema=whole.value_schema,
            source_partition=whole.source_partition,
            source_offset=whole.source_offset,
            key_schema=whole.key_schema,
            timestamp=whole.timestamp,
            partition=whole.partition,
            value_fields=whole.value_fields,
            whole=whole,
            first=first,
        )
        outgoing = self._converter.begin(TakenBatch(frame), PendingBatch).result()
        sent = outgoing.to_send()
        if sent.num_rows and outgoing.failure is None:
            topic = outgoing.batch.topic
            self._creator.ensure([topic] if topic is not None else pc.unique(sent.column("topic")).to_pylist())
            self._open = True
            self._producer.send(outgoing.batch, _Receipts(self), rows=outgoing.rows)
            self._counts.sent += sent.num_rows
            self._counts.nbytes += sum(
                pc.sum(pc.binary_length(sent.column(name))).as_py() or 0 for name in ("key", "value")
            )
        if outgoing.failure is not None:
            raise outgoing.failure
        self._check()

    def _commit(self, rows: int, digest: int, *, done: bool) -> None:
        """Makes the rows count, and says so."""
        topic = self._log.topic
        if not self._in_transaction:
            if not self._producer.wait_delivered(self._work.delivery.producer.delivery_timeout):
                self._check()
                raise KafkaRetriableException(f"The records of {self._name} were not stored in time")
        else:
            # Wait for all answers, so that the marker counts the refused records.
            self._producer.wait_delivered(_PATIENCE_S)
        self._check()
        before, counts = self.marker, self._counts
        with self._lock:
            marker = Marker(
                rows,
                before.sent + counts.sent - counts.failed,
                before.nbytes + counts.nbytes,
                before.failed + counts.failed + self._errors.counts.total_records_skipped,
                digest,
                done,
                (*before.examples, *counts.examples)[:EXAMPLES],
            )
        entry = (self._work.key.marker(self._partition), marker.to_bytes())
        self._work.probe(f"before-commit-{self._partition}")
        if self._in_transaction:
            self._producer.send_offsets_entries(topic, [entry])
            self._producer.commit(_PATIENCE_S)
        else:
            self._log.write([entry], _PATIENCE_S)
        self._work.probe(f"after-commit-{self._partition}")
        self.marker, self._counts = marker, _Counts()
        self._open = False
        self._errors.counts.total_records_skipped = 0

    # ------------------------------------------------------------------ Kafka
    def _take_id(self, producer: TransactionalProducer) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                producer.init_transactions(_SLICE_S)
            except TransactionalIdAuthorizationException as error:
                raise TransactionalIdAuthorizationException(
                    f"The connector's user may not use the transactional id {self._id}: {error}. Allow it the "
                    "operations Write and Describe on transactional ids with the prefix "
                    f"{self._work.key.group}-{self._work.key.connector}-, or let the connector return its bulk frames "
                    "with transactions=False, where rows may come twice after a failure"
                ) from error
            except KafkaRetriableException:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def _check(self) -> None:
        with self._lock:
            refused = self._refused
        if refused is None:
            return
        if refused.unknown_topic:
            raise ConnectException(
                f"{self._name} cannot write to topic {refused.topic}: it does not exist and the broker does not create "
                "it. Create the topic, set topic.creation.default.partitions and "
                "topic.creation.default.replication.factor for the connector, or allow auto.create.topics.enable"
            ) from refused.error
        passes = isinstance(refused.error, RetriableException | KafkaRetriableException)
        todo = next((text for name, text in _REMEDIES.items() if refused.java_name.endswith(name)), "")
        kind = KafkaRetriableException if passes else ConnectException
        raise kind(
            f"Kafka refused a record of {self._name} for topic {refused.topic}: {refused.error}{todo}"
        ) from refused.error

    def delivered(self, failures: Sequence[FailedDelivery]) -> None:
        """Kafka has answered. Thread: the producer's."""
        with self._lock:
            for one in failures:
                if one.unknown_topic or one.fatal or not self._work.policy.tolerance_all:
                    self._refused = self._refused or one
                    continue
                self._counts.failed += 1
                if len(self._counts.examples) < EXAMPLES:
                    self._counts.examples.append(f"Kafka refused a record for topic {one.topic}: {one.error}")

    def failed(self, record: FailedRecord) -> None:
        """A record has failed before it was sent."""
        if len(self._counts.examples) < EXAMPLES:
            text = failure_text(self._name, record, self._work.include_messages)
            self._counts.examples.append(f"{text} {record.error.exception_class}: {record.error.message}")

    def admin(self) -> TopicAdmin:
        if self._admin is None:
            self._admin = TopicAdmin(dict(self._work.delivery.admin), name=self._name)
        return self._admin


class _LaterAdmin:
    """An admin client that is created for the first missing topic."""

    def __init__(self, attempt: _Attempt) -> None:
        self._attempt = attempt

    def topic_exists(self, topic: str) -> bool:
        return self._attempt.admin().topic_exists(topic)

    def create_topic(self, topic: NewTopic) -> None:
        self._attempt.admin().create_topic(topic)


class _Receipts:
    def __init__(self, attempt: _Attempt) -> None:
        self._attempt = attempt

    def delivered(
        self, first: int, end: int, failures: Sequence[FailedDelivery], metadata: Mapping[int, RecordMetadata] | None
    ) -> None:
        if failures:
            self._attempt.delivered(failures)


class _Examples(ErrorReporter):
    def __init__(self, attempt: _Attempt) -> None:
        self._attempt = attempt

    def report(self, failed: FailedRecord) -> None:
        self._attempt.failed(failed)
