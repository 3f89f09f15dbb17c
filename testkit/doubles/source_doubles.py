"""Stand-ins for what a source task works with: a task, a pipeline, a producer and a store that tests can steer."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.api import RecordMetadata, SourceFrame, SourceRecord, SourceTask
from penstock.errors import CommitOutcomeUnknownException, KafkaException
from penstock.kafka.producer.in_flight import FailedDelivery, ProducerClosedException, Receipts
from penstock.pipeline.batch.batches import PRODUCE_SCHEMA, PendingBatch, PolledBatch, ProduceBatch, RecordError, Submit
from penstock.stores.interface import OffsetStore
from penstock.stores.offsets import OffsetWriter
from penstock.worker.source.offset_commit import CommitHooks, OffsetCommitter

WAIT_S = 30.0


def record(position: int, value: str = "v", *, source: str = "f", topic: str = "t") -> SourceRecord:
    return SourceRecord({"file": source}, {"position": position}, topic, value)


class ScriptedTask(SourceTask):
    """Polls what tests put into it; waits when there is nothing. A function is called with the task, and gives it."""

    def __init__(self) -> None:
        self.polls: deque[object] = deque()
        self.available = threading.Condition()
        self.calls: list[str] = []
        self.stopped = threading.Event()
        self.polled = threading.Semaphore(0)

    def give(self, *polls: object) -> None:
        with self.available:
            self.polls.extend(polls)
            self.available.notify_all()

    def start(self, props: Mapping[str, str]) -> None:
        self.calls.append("start")

    def poll(self) -> Sequence[SourceRecord] | SourceFrame | None:
        self.polled.release()
        with self.available:
            self.available.wait_for(lambda: self.polls or self.context.stopping.is_set(), 0.02)
            found = self.polls.popleft() if self.polls else None
            self.available.notify_all()
        if callable(found):
            found = found(self)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[return-value]

    def stop(self) -> None:
        self.calls.append("stop")
        self.stopped.set()

    def version(self) -> str:
        return "1"


class HookedTask(ScriptedTask):
    """Also notes what it is told about its records."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, object]] = []

    def commit(self) -> None:
        self.told.append(("commit", None))

    def commit_record(self, record: SourceRecord) -> None:
        self.told.append(("record", record.value))

    def record_acknowledged(self, record: SourceRecord, metadata: RecordMetadata) -> None:
        self.told.append(("acknowledged", (record.value, metadata.offset)))

    def commit_batch(self, frame: SourceFrame, acknowledged: int) -> None:
        self.told.append(("frame", acknowledged))


def offset_committer(
    task: SourceTask,
    store: OffsetStore,
    *,
    interval_s: float = 60.0,
    timeout_s: float = 5.0,
    clock: Callable[[], float] = time.monotonic,
    probe: Callable[[str], None] = lambda point: None,
) -> OffsetCommitter:
    """Creates the committer of offsets for a task of the connector ``c`` that delivers at least once."""
    writer = OffsetWriter(store, "c")
    return OffsetCommitter(
        CommitHooks(task), writer, interval_s=interval_s, timeout_s=timeout_s, clock=clock, probe=probe
    )


class FakePipeline:
    """UTF-8 of the values. Values that begin with a word of `bad` fail; "drop" is dropped; tests may hold it."""

    def __init__(self) -> None:
        self.batches: list[list[object]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.entered = threading.Event()
        self.retriable_failures = 0
        self.error: Exception | None = None

    def begin(self, batch: PolledBatch, submit: Submit) -> PendingBatch[ProduceBatch]:
        return submit(lambda: self.run(batch))

    def run(self, batch: PolledBatch) -> ProduceBatch:
        self.entered.set()
        assert self.hold.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        if isinstance(batch, SourceFrame):
            values = _arrow(batch).column("value").to_pylist()
            topics: list[str | None] = [batch.topic] * len(values)
            timestamps: list[int | None] = [batch.timestamp] * len(values)
        else:
            values = [one.value for one in batch]
            topics = [one.topic for one in batch]
            timestamps = [one.timestamp for one in batch]
        self.batches.append(values)
        errors = {}
        for row, value in enumerate(values):
            if str(value).startswith("bad"):
                errors[row] = RecordError(
                    row, "VALUE_CONVERTER", "X", "org.apache.kafka.connect.errors.DataException", f"{value} is bad"
                )
            elif str(value).startswith("later") and self.retriable_failures > 0:
                self.retriable_failures -= 1
                errors[row] = RecordError(row, "TRANSFORMATION", "X", "R", "not yet", retriable=True)
        return produce_batch([str(value) for value in values], topics, timestamps, errors)


def _arrow(frame: SourceFrame) -> pa.Table:
    assert isinstance(frame.data, pa.Table)
    return frame.data


def produce_batch(
    values: Sequence[str],
    topics: Sequence[str | None],
    timestamps: Sequence[int | None] | None = None,
    errors: Mapping[int, RecordError] | None = None,
) -> ProduceBatch:
    rows = range(len(values))
    errors = errors or {}
    dropped = [value.startswith("drop") for value in values]
    table = pa.table(
        {
            "seq": list(rows),
            "topic": [None if row in errors else topics[row] for row in rows],
            "partition": [None for _ in rows],
            "timestamp": list(timestamps or [None] * len(values)),
            "key": [None for _ in rows],
            "value": [None if row in errors else values[row].encode() for row in rows],
            "headers": [None for _ in rows],
            "dropped": dropped,
        },
        schema=PRODUCE_SCHEMA,
    )
    one = set(topics)
    return ProduceBatch(
        table=table,
        errors=errors,
        topic=topics[0] if len(one) == 1 and not errors else None,
        has_headers=False,
        has_dropped=any(dropped),
        has_keys=False,
        has_partition=False,
        timestamp=None,
    )


@dataclass
class Sent:
    """One send."""

    rows: list[int]
    values: list[str]
    receipts: Receipts


class FakeProducer:
    """Notes what is sent; acknowledges at once, or when told to. Values with "refused" fail."""

    def __init__(self, *, acknowledge: bool = True) -> None:
        self.sent: list[Sent] = []
        self.open: deque[Sent] = deque()
        self.acknowledge = acknowledge
        self.changed = threading.Condition()
        self.aborted = False
        self.closed = False
        self.offset = 0
        self.full = False
        self.unknown_topic = False

    def values(self) -> list[str]:
        return [value for sent in self.sent for value in sent.values]

    def send(self, batch: ProduceBatch, receipts: Receipts, *, rows: pa.Array | None = None) -> None:
        table = batch.table if rows is None else batch.table.take(rows)
        positions = list(range(len(table))) if rows is None else rows.to_pylist()
        sent = Sent(positions, [value.decode() for value in table.column("value").to_pylist()], receipts)
        with self.changed:
            self.changed.wait_for(lambda: self.aborted or not self.full, WAIT_S)
            if self.aborted:
                raise ProducerClosedException("aborted")
            self.sent.append(sent)
            self.open.append(sent)
            self.changed.notify_all()
        if self.acknowledge:
            self.answer()

    def answer(self) -> None:
        """Answer the oldest send."""
        sent = self.open[0]
        failures = [
            FailedDelivery(row, "t", KafkaException("refused"), "x.Refused", unknown_topic=self.unknown_topic)
            for row, value in zip(sent.rows, sent.values, strict=True)
            if "refused" in value
        ]
        lost = {failure.row for failure in failures}
        places = {}
        for row in sent.rows:
            if row not in lost:
                places[row] = RecordMetadata("t", 0, self.offset)
                self.offset += 1
        sent.receipts.delivered(sent.rows[0], sent.rows[-1] + 1, failures, places)
        with self.changed:
            self.open.popleft()
            self.changed.notify_all()

    def wait_sent(self, sends: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.sent) >= sends, WAIT_S)

    def wait_delivered(self, timeout_s: float) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.aborted or not self.open, timeout_s) and not self.aborted

    @property
    def trouble(self) -> str | None:
        return "no broker answers"

    def abort(self) -> None:
        with self.changed:
            self.aborted = True
            self.changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        self.closed = True
        return True


class FakeTransactions(FakeProducer):
    """The same with transactions: what is committed is in ``transactions``, values and offsets of each.

    Attributes:
        calls: What was asked, in order: ``init``, ``records``, ``offsets``, ``commit``, ``abort``.
        fail: Raised by the next call of that name.
        unanswered: How many times a commit is not answered.
    """

    def __init__(self, *, acknowledge: bool = True) -> None:
        super().__init__(acknowledge=acknowledge)
        self.calls: list[str] = []
        self.transactions: list[tuple[list[str], dict[bytes, bytes | None]]] = []
        self.fail: dict[str, Exception] = {}
        self.unanswered = 0
        self.ended: KafkaException | None = None
        self._values: list[str] = []
        self._offsets: dict[bytes, bytes | None] = {}

    def init_transactions(self, timeout_s: float) -> None:
        self._call("init")

    def send(self, batch: ProduceBatch, receipts: Receipts, *, rows: pa.Array | None = None) -> None:
        self._call("records")
        super().send(batch, receipts, rows=rows)
        self._values += self.sent[-1].values

    def send_offsets_entries(self, topic: str, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._call("offsets")
        self._offsets.update(entries)

    def commit(self, timeout_s: float) -> None:
        self._call("commit")
        if self.unanswered:
            self.unanswered -= 1
            raise CommitOutcomeUnknownException("no answer")
        self.transactions.append((self._values, self._offsets))
        self._values, self._offsets = [], {}

    def abort_transaction(self, timeout_s: float) -> None:
        self._call("abort")
        with self.changed:
            self.open.clear()
        self._values, self._offsets, self.ended = [], {}, None

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.aborted:
            raise ProducerClosedException("aborted")
        if (error := self.fail.pop(name, None)) is not None:
            raise error


class MemoryOffsets:
    """An offset store in memory; can fail."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}
        self.fail: Exception | None = None
        self.changed = threading.Condition()
        self.attempts = 0

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        return {key: self.data.get(key) for key in keys}

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        with self.changed:
            self.attempts += 1
            self.changed.notify_all()
            if self.fail is not None:
                raise self.fail
            for key, value in entries.items():
                if value is None:
                    self.data.pop(key, None)
                else:
                    self.data[key] = value

    def entries(self) -> dict[bytes, bytes]:
        return dict(self.data)

    @property
    def topic(self) -> str:
        return "offsets"

    def records(
        self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None
    ) -> list[tuple[bytes, bytes | None]]:
        return list(entries.items())

    def written(self, entries: Mapping[bytes, bytes | None]) -> None:
        self.set(entries)

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        with self.changed:
            return self.changed.wait_for(condition, WAIT_S)
