"""The stages of a source task after its polls: records become bytes, bytes go to the producer, answers come back.

Thread: ``SourceConverter`` belongs to the conversion thread, ``SourceDelivery.deliver`` to the delivery thread;
acknowledgements arrive on the producer's own thread.

Source: AbstractWorkerSourceTask.sendRecords and WorkerSourceTask.producerSendFailed of Kafka Connect.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import RecordMetadata, SourceFrame
from penstock.errors import ConnectException, DataException, ToleranceExceededException
from penstock.kafka.admin import TopicCreator
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.producer.in_flight import FailedDelivery
from penstock.pipeline.batch.batches import PRODUCE_SCHEMA, PendingBatch, PolledBatch, ProduceBatch, RecordError, Submit
from penstock.pipeline.batch.segments import malformed
from penstock.stores.offsets import partition_identity
from penstock.worker.errors import KAFKA_PRODUCE, ErrorHandler
from penstock.worker.source.batcher import TakenBatch
from penstock.worker.source.offset_commit import Committer
from penstock.worker.source.submitted import FramePart, Move, Submission, position_after
from penstock.worker.source.transaction_boundaries import PartEnd, whole_polls

logger = logging.getLogger(__name__)

_NOTHING: Final = ProduceBatch(
    PRODUCE_SCHEMA.empty_table(),
    {},
    None,
    has_headers=False,
    has_dropped=False,
    has_keys=False,
    has_partition=False,
    timestamp=None,
)


class BatchPipeline(Protocol):
    """The part of ``penstock.pipeline.batch.source.path.SourcePipeline`` that is needed here."""

    def run(self, batch: PolledBatch) -> ProduceBatch:
        """Transform and convert a batch; blocks until Spark is there and has done it."""

    def begin(self, batch: PolledBatch, submit: Submit) -> PendingBatch[ProduceBatch]:
        """Begin a batch and hand its job to `submit`."""


@dataclass(frozen=True)
class Outgoing:
    """A converted batch on its way to the producer.

    Attributes:
        rows: Positions of the rows to send; None for all.
        settled: Records without rows to send, which count as acknowledged: dropped by a transform, or failed and
            skipped.
        failure: The error that fails the task after the rows are sent; rows after the failed one are neither sent nor
            settled.
        moves: Positions that moved without a record, after all of the batch; see `moved`.
    """

    source: PolledBatch
    batch: ProduceBatch
    rows: pa.Array | None
    settled: Sequence[int]
    failure: Exception | None
    end: PartEnd = PartEnd.POLL
    moves: Sequence[Move] = ()

    @property
    def moved(self) -> Sequence[Move]:
        """The positions that moved; none if a record ends the task before them."""
        return self.moves if self.failure is None else ()

    @property
    def counts(self) -> bool:
        """True if it has anything that is committed: records, or positions without one."""
        return self.size > 0 or isinstance(self.source, SourceFrame) or bool(self.moved)

    @property
    def size(self) -> int:
        return count_records(self.source, self.batch)

    def record_of(self, row: int) -> int:
        origins = self.batch.origins
        return row if origins is None else int(origins[row])

    @property
    def nbytes(self) -> int:
        nbytes: int = self.batch.table.nbytes
        return nbytes

    def to_send(self) -> pa.Table:
        return self.batch.table if self.rows is None else self.batch.table.take(self.rows)


class SourceConverter:
    """Runs batches through the pipeline and applies the error policy.

    Args:
        whole_polls: True if a batch with a record that ends the task is cut before the poll of that record, not within
            it.
    """

    def __init__(self, owner: str, pipeline: BatchPipeline, errors: ErrorHandler, *, whole_polls: bool = False) -> None:
        self._owner = owner
        self._pipeline = pipeline
        self._errors = errors
        self._whole_polls = whole_polls

    def begin(self, taken: TakenBatch, submit: Submit) -> PendingBatch[Outgoing]:
        """Begin one batch; Spark can work on it while the previous batch is in progress.

        Retriable errors of records are retried when it is ended, so later batches wait for that. Invariant 3.

        Returns:
            The batch; its result is asked for in the order of the batches.

        Raises:
            ConnectException: The batch cannot run at all; raised by ``result`` too.
        """
        source = taken.batch
        if not isinstance(source, SourceFrame) and not source:
            # Nothing but a place where a transaction ends, or a position that has moved.
            return PendingBatch(lambda: Outgoing(source, _NOTHING, None, [], None, taken.end, taken.moves))
        with self._naming_malformed(source):
            begun = self._pipeline.begin(source, submit)
        return PendingBatch(partial(self._finish, taken, begun))

    @contextmanager
    def _naming_malformed(self, source: PolledBatch) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            refuse_malformed(self._owner, source, error)
            raise

    def _finish(self, taken: TakenBatch, begun: PendingBatch[ProduceBatch]) -> Outgoing:
        source = taken.batch
        with self._naming_malformed(source):
            batch = begun.result()
        limit, end = count_records(source, batch), taken.end
        failure: Exception | None = None
        errors: Mapping[int, RecordError] = batch.errors
        if errors:
            batch, errors, attempts = self._retried(source, batch)
            fatal = self._errors.handle_batch(errors, _describer(source), attempts=attempts)
            if fatal is not None:
                limit, end = self._cut(taken, fatal.seq)
                failure = fatal.exception
        rows, settled = rows_to_send(batch, errors, limit, count_records(source, batch))
        outgoing = Outgoing(source, batch, rows, settled, failure, end, taken.moves)
        return self._checked(taken, outgoing)

    def _cut(self, taken: TakenBatch, record: int) -> tuple[int, PartEnd]:
        """Returns the number of records before the one that ends the task, and the boundary after that piece."""
        if not self._whole_polls:
            return record, PartEnd.INSIDE
        limit = whole_polls(taken.polls, record)
        return limit, PartEnd.POLL if limit else PartEnd.INSIDE

    def _retried(
        self, source: PolledBatch, batch: ProduceBatch
    ) -> tuple[ProduceBatch, Mapping[int, RecordError], Mapping[int, int]]:
        if not any(error.retriable for error in batch.errors.values()) or not _can_cut(source):
            return batch, batch.errors, {}
        current = batch

        def rerun(positions: list[int]) -> Mapping[int, RecordError]:
            nonlocal current
            again = self._pipeline.run(_cut(source, positions))
            current = with_rows_replaced(current, positions, again)
            return {positions[row]: replace(error, seq=positions[row]) for row, error in again.errors.items()}

        errors, attempts = self._errors.retry(batch.errors, rerun)
        return current, errors, attempts

    def _checked(self, taken: TakenBatch, outgoing: Outgoing) -> Outgoing:
        """Cut the batch before the first row that no producer can take: that is an error of the connector."""
        found = _first_impossible(outgoing.batch, outgoing.to_send())
        if found is None:
            return outgoing
        index, what = found
        row: int = index if outgoing.rows is None else outgoing.rows[index].as_py()
        record = outgoing.record_of(row)
        topic = outgoing.batch.table.column("topic")[row].as_py()
        partition = outgoing.batch.table.column("partition")[row].as_py()
        failure = ConnectException(
            f"Task {self._owner} returned a record that cannot be sent: {what} (topic {topic}, partition {partition}, "
            f"{place_in_source(outgoing.source, record)}). The connector or one of its transforms must be corrected."
        )
        failure.__cause__ = DataException(what)
        limit, end = self._cut(taken, record)
        while row > 0 and outgoing.record_of(row - 1) >= limit:
            # A record goes with all of its rows, or not at all.
            row -= 1
        before = pa.array(range(row), pa.int64())
        if outgoing.rows is not None:
            before = outgoing.rows.filter(pc.less(outgoing.rows, row))
        settled = [other for other in outgoing.settled if other < limit]
        return replace(outgoing, rows=before, settled=settled, failure=failure, end=end)


def count_records(source: PolledBatch, batch: ProduceBatch) -> int:
    """Counts the records that a batch was made of."""
    if batch.origins is None:
        rows: int = batch.table.num_rows
        return rows
    found = source.num_rows if isinstance(source, SourceFrame) else len(source)
    if found is None:
        # Only Spark knows the number of rows of the frame; the last row with an output is the last that counts.
        return int(batch.origins[-1]) + 1 if len(batch.origins) else 0
    return found


def rows_to_send(
    batch: ProduceBatch, errors: Iterable[int], limit: int, records: int | None = None
) -> tuple[pa.Array | None, list[int]]:
    """Returns which rows before record `limit` are sent (None: all), and which records are settled unsent.

    Invariant 1: rows after the limit are neither sent nor settled.

    Args:
        limit: The first record that does not count.
        records: The number of records; None: one for each row.
    """
    settled = {record for record in errors if record < limit}
    dropped: list[int] = []
    if batch.has_dropped:
        dropped = pc.indices_nonzero(pc.fill_null(batch.table.column("dropped"), False)).to_pylist()
    if batch.origins is not None:
        return _spread_rows(batch.origins, settled, dropped, limit)
    settled.update(row for row in dropped if row < limit)
    if not settled and limit == (batch.table.num_rows if records is None else records):
        return None, []
    mask = np.ones(limit, dtype=bool)
    ordered = sorted(settled)
    mask[ordered] = False
    return pa.array(np.flatnonzero(mask), pa.int64()), ordered


def _spread_rows(
    origins: np.ndarray, settled: set[int], dropped: Sequence[int], limit: int
) -> tuple[pa.Array, list[int]]:
    """The same where records have become several rows, or none."""
    mask = (origins < limit) & ~np.isin(origins, list(settled))
    mask[list(dropped)] = False
    without = np.setdiff1d(np.arange(limit), origins[mask])
    return pa.array(np.flatnonzero(mask), pa.int64()), without.tolist()


def with_rows_replaced(batch: ProduceBatch, positions: Sequence[int], again: ProduceBatch) -> ProduceBatch:
    """The batch with these records taken from another one, which is made of them."""
    if batch.origins is not None or again.origins is not None:
        return _with_rows_spread(batch, positions, again)
    size = batch.table.num_rows
    order = np.arange(size)
    order[list(positions)] = size + np.arange(len(positions))
    table = pa.concat_tables([batch.table, again.table]).take(pa.array(order))
    return _joined(batch, again, table)


def _with_rows_spread(batch: ProduceBatch, positions: Sequence[int], again: ProduceBatch) -> ProduceBatch:
    before = np.arange(batch.table.num_rows) if batch.origins is None else batch.origins
    after = np.asarray(positions, dtype=np.int64)
    after = after if again.origins is None else after[again.origins]
    kept = np.flatnonzero(~np.isin(before, list(positions)))
    origins = np.concatenate([before[kept], after])
    order = np.argsort(origins, kind="stable")
    table = pa.concat_tables([batch.table.take(pa.array(kept)), again.table]).take(pa.array(order))
    return replace(_joined(batch, again, table), origins=origins[order])


def _joined(batch: ProduceBatch, again: ProduceBatch, table: pa.Table) -> ProduceBatch:
    seq = pa.array(np.arange(table.num_rows), pa.int64())
    return replace(
        batch,
        table=table.set_column(table.column_names.index("seq"), "seq", seq),
        topic=batch.topic if batch.topic == again.topic else None,
        has_headers=batch.has_headers or again.has_headers,
        has_dropped=batch.has_dropped or again.has_dropped,
        has_keys=batch.has_keys or again.has_keys,
        has_partition=batch.has_partition or again.has_partition,
        timestamp=batch.timestamp if batch.timestamp == again.timestamp else None,
    )


def _first_impossible(batch: ProduceBatch, table: pa.Table) -> tuple[int, str] | None:
    found: list[tuple[int, str]] = []
    topics = table.column("topic")
    if batch.topic is None and topics.null_count:
        found.append((pc.index(pc.is_null(topics), True).as_py(), "the topic is null"))
    if batch.has_partition:
        partitions = table.column("partition")
        row = pc.index(pc.less(partitions, 0), True).as_py()
        if row >= 0:
            found.append((row, f"the partition is negative ({partitions[row]})"))
    timestamps = table.column("timestamp")
    if timestamps.null_count < len(timestamps):
        row = pc.index(pc.less(timestamps, -1), True).as_py()
        if row >= 0:
            found.append((row, f"the timestamp is negative ({timestamps[row]})"))
    return min(found) if found else None


def _can_cut(source: PolledBatch) -> bool:
    return not isinstance(source, SourceFrame) or source.num_rows is not None


def _cut(source: PolledBatch, positions: Sequence[int]) -> PolledBatch:
    if isinstance(source, SourceFrame):
        table: pa.Table = source.data
        return replace(source, data=table.take(pa.array(positions, pa.int64())), offset_after=None)
    return [source[row] for row in positions]


def _describer(source: PolledBatch) -> Callable[[int], object]:
    if isinstance(source, SourceFrame):
        topic = "" if source.topic is None else f"topic {source.topic}, "
        first = source.first if isinstance(source, FramePart) else 0
        return lambda row: f"row {first + row} of a frame ({topic}{place_in_source(source, row)})"
    return source.__getitem__


def refuse_malformed(owner: str, source: PolledBatch, error: Exception) -> None:
    """Raises the error of the record with parts of wrong types that made the batch fail, if there is one.

    Asked afterwards only: looking at every record of every batch would cost more than it tells.

    Raises:
        ConnectException: one of the records is malformed; caused by the error.
    """
    if isinstance(source, SourceFrame):
        return
    for row, record in enumerate(source):
        what = malformed(record)
        partition: object = record.source_partition
        if what is None and not (partition is None or isinstance(partition, Mapping)):
            what = f"the source partition is {partition!r}"
        if what is not None:
            raise ConnectException(
                f"Task {owner} returned a record that cannot be sent: {what} ({place_in_source(source, row)}). "
                "The connector or one of its transforms must be corrected."
            ) from error


def place_in_source(source: PolledBatch, row: int) -> str:
    """Describes the position of a record in its source, for messages: never its content."""
    if not isinstance(source, SourceFrame):
        record = source[row]
        return f"source partition {record.source_partition}, source offset {record.source_offset}"
    partition = f"source partition {source.source_partition}"
    position = position_after(source, row)
    if position is None:
        at, whole = (source.first + row, source.whole or source) if isinstance(source, FramePart) else (row, source)
        return f"{partition}, row {at} of the frame that ends at {whole.source_offset}"
    return f"{partition}, source offset {position}"


#: Name of the point between handing records over and their acknowledgement, for `probe`.
AFTER_SEND_BEFORE_ACK = "after-send-before-ack"
_PRODUCER_CLASS = "org.apache.kafka.clients.producer.KafkaProducer"
#: The errors of a broker for a record that arrives after the end of its transaction.
_OF_TRANSACTIONS = frozenset(
    f"org.apache.kafka.common.errors.{name}" for name in ("InvalidTxnStateException", "TransactionAbortableException")
)


class SourceDelivery:
    """Sends the batches of one task and records which of their rows Kafka has acknowledged.

    Args:
        committer: commits delivered records; it has the task's hooks.
        fail: fails the task; the first failure counts. Called on the producer's thread.
        note_topics: gets the topics of acknowledged rows; called on the producer's thread.
    """

    def __init__(
        self,
        owner: str,
        producer: ColumnProducer,
        topics: TopicCreator,
        errors: ErrorHandler,
        *,
        committer: Committer,
        fail: Callable[[BaseException], None],
        probe: Callable[[str], None],
        note_topics: Callable[[Sequence[str]], None],
    ) -> None:
        #: Read by metrics from any thread.
        self.records_written = 0
        self._owner = owner
        self._producer = producer
        self._topics = topics
        self._errors = errors
        self._committer = committer
        self.submitted = committer.submitted
        self.hooks = committer.hooks
        self._fail = fail
        self._probe = probe
        self.note_topics = note_topics

    def deliver(self, outgoing: Outgoing) -> None:
        """Send one batch; batches come in the order of polls.

        Raises:
            ConnectException: a topic cannot be made, or must not be written to.
            ProducerClosedException: the producer was aborted.
        """
        source = outgoing.source
        if isinstance(source, SourceFrame):
            submission = Submission.of_frame(source, outgoing.size, partition_identity)
        else:
            try:
                submission = Submission.of_records(source, partition_identity)
            except Exception as error:
                refuse_malformed(self._owner, source, error)
                raise
        sends = outgoing.size > 0 and (outgoing.rows is None or len(outgoing.rows) > 0)
        # Invariant 1: the batch is queued below before its first row is sent.
        if sends:
            topics = _topics(outgoing)
            self._refuse_own(topics)
            self._topics.ensure(topics)
        self.hooks.add(source, submission)
        self.submitted.add(submission, outgoing.settled)
        if outgoing.settled or not sends:
            self._committer.settled()
        if sends:
            self._producer.send(outgoing.batch, _BatchReceipts(self, outgoing, submission), rows=outgoing.rows)
            self._probe(AFTER_SEND_BEFORE_ACK)
        if outgoing.moved:
            # Invariant 1: after the batch, and so after all records of these source partitions.
            self.submitted.add(Submission.of_moves(outgoing.moved, partition_identity))
            self._committer.settled()

    def _refuse_own(self, topics: Sequence[str]) -> None:
        if self._committer.own_topic in topics:
            raise ConnectException(
                f"Task {self._owner} returned a record for the topic {self._committer.own_topic}, in which its own "
                "source offsets are: with exactly-once it could never read them again, because a read waits for the "
                "end of the task's own transaction. Send records to another topic, or set offsets.storage.topic of "
                "the connector"
            )

    def arrived(self, written: int) -> None:
        """Counts rows that Kafka has stored, and tells the committer. Thread: the producer's."""
        self.records_written += written
        self._committer.settled()

    def tolerated(self, outgoing: Outgoing, failed: FailedDelivery) -> bool:
        """Report a record that Kafka refused; True if the task continues without it."""
        if failed.java_name in _OF_TRANSACTIONS:
            # Nothing is wrong with the record, and its transaction cannot be committed.
            return False
        record = outgoing.record_of(failed.row)
        where = f"topic {failed.topic}, {place_in_source(outgoing.source, record)}"
        if failed.unknown_topic:
            # Not a matter of one record: the next ones would be lost in the same way, without end.
            self._fail_with(
                f"Task {self._owner} cannot write to topic {failed.topic}: it does not exist and the broker does not "
                f"create it ({where}). Create the topic, set topic.creation.default.partitions and "
                "topic.creation.default.replication.factor for the connector, or allow auto.create.topics.enable on "
                "the broker.",
                failed,
            )
            return False
        if failed.fatal or not self._errors.policy.tolerance_all:
            self._fail_with(
                f"Unrecoverable exception from producer send callback: task {self._owner}, {where}: {failed.error}",
                failed,
            )
            return False
        source = outgoing.source
        origin: object = where if isinstance(source, SourceFrame) else source[record]
        error = RecordError(
            record, KAFKA_PRODUCE, _PRODUCER_CLASS, failed.java_name, str(failed.error), exception=failed.error
        )
        try:
            self._errors.execute_failed(error, origin)
        except ToleranceExceededException as exceeded:
            self._fail(exceeded)
            return False
        return True

    def _fail_with(self, text: str, failed: FailedDelivery) -> None:
        failure = ConnectException(text)
        failure.__cause__ = failed.error
        self._fail(failure)


class _BatchReceipts:
    """The answers for one batch. Thread: the producer's."""

    __slots__ = ("_delivery", "_left", "_outgoing", "_submission")

    def __init__(self, delivery: SourceDelivery, outgoing: Outgoing, submission: Submission) -> None:
        self._delivery = delivery
        self._outgoing = outgoing
        self._submission = submission
        #: The number of rows in flight of each record, if records became several rows.
        self._left: Counter[int] | None = None
        if outgoing.batch.origins is not None:
            self._left = Counter(map(outgoing.record_of, _rows_sent(outgoing)))

    def delivered(
        self, first: int, end: int, failures: Sequence[FailedDelivery], metadata: Mapping[int, RecordMetadata] | None
    ) -> None:
        """A chunk of the batch has its answers."""
        delivery, outgoing = self._delivery, self._outgoing
        if len(failures) < end - first:
            delivery.note_topics(self._topics(first, end, failures))
        # Invariant 1: a row that Kafka refused settles only when that is tolerated.
        lost = {failed.row for failed in failures if not delivery.tolerated(outgoing, failed)}
        if self._left is not None:
            self._settle_records(self._left, first, end, len(failures), lost, metadata)
            return
        sent = end - first - (bisect_left(outgoing.settled, end) - bisect_left(outgoing.settled, first))
        delivery.hooks.acknowledged(self._submission, sent - len(failures), metadata)
        if lost:
            delivery.submitted.settle_rows(self._submission, [row for row in range(first, end) if row not in lost])
        else:
            delivery.submitted.settle_range(self._submission, first, end)
        delivery.arrived(sent - len(failures))

    def _settle_records(
        self,
        left: Counter[int],
        first: int,
        end: int,
        failed: int,
        lost: set[int],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        """The same if a record became several rows: the last of them settles it, and then its hook is called."""
        outgoing = self._outgoing
        done: list[int] = []
        sent = _rows_sent(outgoing, first, end)
        for row in sent:
            record = outgoing.record_of(row)
            # A lost row is never counted down, so its record is never settled.
            left[record] -= row not in lost
            if not left[record]:
                done.append(record)
                del left[record]
        placed = {outgoing.record_of(row): place for row, place in (metadata or {}).items()}
        self._delivery.hooks.acknowledged(self._submission, len(done), placed)
        self._delivery.submitted.settle_rows(self._submission, done)
        self._delivery.arrived(len(sent) - failed)

    def _topics(self, first: int, end: int, failures: Sequence[FailedDelivery]) -> list[str]:
        """The topics of the rows of a chunk that Kafka has."""
        outgoing = self._outgoing
        if outgoing.batch.topic is not None:
            return [outgoing.batch.topic]
        column = outgoing.batch.table.column("topic")
        if not failures and outgoing.rows is None:
            return _distinct(column.slice(first, end - first))
        failed = {failure.row for failure in failures}
        return _distinct(column.take([row for row in _rows_sent(outgoing, first, end) if row not in failed]))


def _rows_sent(outgoing: Outgoing, first: int = 0, end: int | None = None) -> list[int]:
    size = outgoing.batch.table.num_rows
    last = size if end is None else min(end, size)
    if outgoing.rows is None:
        return list(range(first, last))
    rows = outgoing.rows.to_numpy()
    start, stop = np.searchsorted(rows, [first, last]).tolist()
    found: list[int] = rows[start:stop].tolist()
    return found


def _topics(outgoing: Outgoing) -> list[str]:
    if outgoing.batch.topic is not None:
        return [outgoing.batch.topic]
    return _distinct(outgoing.to_send().column("topic"))


def _distinct(column: pa.ChunkedArray) -> list[str]:
    return [topic for topic in pc.unique(column).to_pylist() if topic is not None]
