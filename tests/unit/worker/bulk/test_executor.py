"""The work on executors against a Kafka in memory: attempts that die anywhere, and others that go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.api import SourceFrame
from penstock.errors import (
    ConnectException,
    KafkaException,
    KafkaRetriableException,
    ProducerFencedException,
    ToleranceExceededException,
    TransactionalIdAuthorizationException,
)
from penstock.kafka.producer.in_flight import FailedDelivery, too_large
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings
from penstock.kafka.topic_log.clients import LogRecord
from penstock.kafka.topic_log.internal_topics import InternalTopic, Kind, connector_offset_log
from penstock.pipeline.batch.batches import InstanceRecipe
from penstock.pipeline.plan.chain import FaultPlace
from penstock.pipeline.plan.step import RAW, Shape
from penstock.testing.kit.lives import KilledException
from penstock.worker.bulk.executor import (
    HASH,
    BulkClients,
    MessageTarget,
    PartitionWork,
    PlannedPath,
)
from penstock.worker.bulk.runs import Failure, Marker, Markers, NotRepeatableException, RunKey, digest, is_final
from penstock.worker.bulk.shipping import Parts
from penstock.worker.errors import ErrorPolicy

WORKER = {"bootstrap.servers": "localhost:9092", "offset.storage.topic": "offsets"}
RUN = RunKey("group", "orders", "first")


@dataclass
class Memory:
    """A topic and the markers in memory, with transactions and their ids."""

    messages: list[bytes] = field(default_factory=list)
    entries: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    owners: dict[str, object] = field(default_factory=dict)
    refuses: frozenset[bytes] = frozenset()
    refusal: tuple[KafkaException, str] = (KafkaException("too large"), "x.RecordTooLarge")
    commits: int = 0
    topic: str = "penstock-bulk"
    sizes: list[int] = field(default_factory=list)

    def cluster(self, delivery: MessageTarget) -> BulkClients:
        markers = Markers()
        made: Any = _Log(self, markers)
        return BulkClients(made, markers, lambda settings, name, stops: Producer(self, settings, stops))

    def markers(self) -> dict[int, Marker]:
        found = Markers()
        found.take([LogRecord(0, 0, key, value) for key, value in self.entries])
        return found.of(RUN)


@dataclass
class _Log:
    memory: Memory
    markers: Markers
    topic: str = "penstock-bulk"

    def read_to_end(self, timeout_s: float) -> None:
        self.markers.take([LogRecord(0, 0, key, value) for key, value in self.memory.entries])

    def write(self, entries: Sequence[tuple[bytes, bytes | None]], timeout_s: float) -> None:
        self.memory.entries += entries


class Producer:
    """What is sent counts when it is committed, or at once without an id."""

    def __init__(self, memory: Memory, settings: ColumnSettings, stops: bool) -> None:
        self._memory, self._id, self._stops = memory, settings.transactional_id, stops
        self._pending: list[bytes] = []
        self._entries: list[tuple[bytes, bytes | None]] = []
        self._stopped = False

    def init_transactions(self, timeout_s: float) -> None:
        assert self._id is not None
        self._memory.owners[self._id] = self

    def _mine(self) -> None:
        if self._id is not None and self._memory.owners.get(self._id) is not self:
            raise ProducerFencedException("another producer has the id")

    def send(self, batch: Any, receipts: Any, *, rows: pa.Array | None = None) -> None:
        self._mine()
        table = batch.table if rows is None else batch.table.take(rows)
        failures = []
        for row, value in enumerate(table.column("value").to_pylist()):
            if self._stopped:
                break
            if value in self._memory.refuses:
                failures.append(FailedDelivery(row, "t", *self._memory.refusal))
                self._stopped = self._stops
                continue
            (self._pending if self._id else self._memory.messages).append(value)
        receipts.delivered(0, table.num_rows, failures, None)

    def send_offsets_entries(self, topic: str, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._mine()
        self._entries += entries

    def wait_delivered(self, timeout_s: float) -> bool:
        return True

    def commit(self, timeout_s: float) -> None:
        self._mine()
        self._memory.messages += self._pending
        self._memory.entries += self._entries
        self._memory.sizes.append(len(self._pending))
        self._memory.commits += 1
        self._pending, self._entries = [], []

    def abort_transaction(self, timeout_s: float) -> None:
        self._pending, self._entries = [], []

    def close(self, timeout_s: float) -> bool:
        return True


def work(**own: Any) -> PartitionWork:
    from penstock.converters.string import SimpleHeaderConverter

    nothing = InstanceRecipe(SimpleHeaderConverter, {})
    tolerant = own.pop("tolerant", False)
    places = {0: FaultPlace("VALUE_CONVERTER", "Json", "org.apache.kafka.connect.errors.DataException", 0)}
    path = PlannedPath(Shape(RAW, RAW), places, frozenset(), Parts("orders", nothing, nothing, nothing))
    producer = ColumnSettings.of(producer_settings(WORKER, {}, client_id="x", transactional_id="x"))
    delivery = MessageTarget(
        producer,
        transactions=own.pop("transactions", True),
        stops_at_failure=not tolerant,
        markers=InternalTopic(Kind.BULK, "penstock-bulk", "bulk.storage.topic", 1, 1),
        log=connector_offset_log(WORKER, {}, "orders", 0, transactional=True),
        admin={},
        topics=None,
        part_rows=own.pop("part_rows", 25),
    )
    frame = SourceFrame(None, "t", None, {"shop": "a"}, {"next": 100})
    return PartitionWork(
        RUN, frame, path, delivery, ErrorPolicy(tolerance_all=tolerant), own.pop("probe", lambda point: None)
    )


def rows(count: int, size: int = 10, bad: Sequence[int] = (), first: int = 0) -> Iterator[pa.RecordBatch]:
    for start in range(0, count, size):
        numbers = range(start, min(start + size, count))
        errors = [{"place": 0, "message": f"row {n}"} if n in bad else None for n in numbers]
        yield pa.RecordBatch.from_pydict(
            {
                "key": pa.array([b"k%d" % n for n in numbers], pa.binary()),
                "value": pa.array([None if n in bad else b"%d" % (n + first) for n in numbers], pa.binary()),
                "error": pa.array(errors, pa.struct([("place", pa.int32()), ("message", pa.string())])),
                HASH: pa.array([n + first for n in numbers], pa.int64()),
            }
        )


def values(count: int, without: Sequence[int] = ()) -> list[bytes]:
    return [b"%d" % n for n in range(count) if n not in without]


def test_a_partition_is_written_in_order_in_transactions_that_are_full() -> None:
    memory = Memory()
    work().write(3, rows(95), memory.cluster)
    assert memory.messages == values(95)
    assert memory.sizes == [20, 20, 20, 20, 15]
    marker = memory.markers()[3]
    sizes = sum(len(b"k%d%d" % (n, n)) for n in range(95))
    assert marker == Marker(95, 95, sizes, 0, digest(0, np.arange(95)), done=True)
    # It is done: no row is asked for.
    work().write(3, iter([None]), memory.cluster)
    assert memory.messages == values(95)


def test_a_partition_without_rows_has_its_marker() -> None:
    memory = Memory()
    work().write(0, rows(0), memory.cluster)
    assert memory.markers() == {0: Marker(done=True)}


POINTS = [f"{when}-{number}" for number in range(1, 6) for when in ("before-commit", "after-commit")]


class Ends:
    """Kills the attempt that comes to a point for the n-th time."""

    def __init__(self, place: str) -> None:
        self._point, _, number = place.rpartition("-")
        self._left = int(number)

    def __call__(self, point: str) -> None:
        if point == f"{self._point}-3":
            self._left -= 1
            if not self._left:
                raise KilledException


@pytest.mark.parametrize("place", POINTS)
@pytest.mark.parametrize("size", [10, 7])
def test_whatever_kills_an_attempt_the_next_one_writes_the_rest_once(place: str, size: int) -> None:
    memory = Memory()
    with pytest.raises(KilledException):
        work(probe=Ends(place)).write(3, rows(95), memory.cluster)
    work().write(3, rows(95, size), memory.cluster)
    assert memory.messages == values(95)
    assert memory.markers()[3].done


@pytest.mark.parametrize("place", POINTS)
def test_a_copy_of_an_attempt_that_is_still_at_work_takes_its_place(place: str) -> None:
    """A speculative copy, or one of a worker that has taken the task over: the slower one writes nothing more."""
    memory = Memory()
    point, _, number = place.rpartition("-")
    left = int(number)

    def overtaken(at: str) -> None:
        nonlocal left
        left -= at == f"{point}-3"
        if left == 0:
            left = -1
            work().write(3, rows(95), memory.cluster)

    if place == "after-commit-5":
        work(probe=overtaken).write(3, rows(95), memory.cluster)
    else:
        with pytest.raises(ProducerFencedException):
            work(probe=overtaken).write(3, rows(95), memory.cluster)
    assert memory.messages == values(95)


def test_without_transactions_nothing_is_lost_and_at_most_one_part_comes_twice() -> None:
    for place in POINTS:
        memory = Memory()
        with pytest.raises(KilledException):
            work(transactions=False, probe=Ends(place)).write(3, rows(95), memory.cluster)
        work(transactions=False).write(3, rows(95), memory.cluster)
        assert set(memory.messages) == set(values(95))
        assert len(memory.messages) <= 95 + 25
        assert memory.markers()[3].done
        assert not memory.owners


def test_without_tolerance_the_first_error_ends_the_attempt_before_its_part_counts() -> None:
    memory = Memory()
    with pytest.raises(ToleranceExceededException, match="row 12"):
        work(part_rows=1000).write(3, rows(95, bad=[12, 40]), memory.cluster)
    assert (memory.messages, memory.markers()) == ([], {})


def test_with_tolerance_failed_rows_are_counted_with_examples() -> None:
    memory = Memory(refuses=frozenset([b"50"]))
    bad = [1, 2, 3, 12, 40, 41, 94]
    work(tolerant=True).write(3, rows(95, bad=bad), memory.cluster)
    assert memory.messages == values(95, [*bad, 50])
    marker = memory.markers()[3]
    assert (marker.rows, marker.sent, marker.failed, marker.done) == (95, 87, 8, True)
    assert len(marker.examples) == 5
    assert "Executing stage 'VALUE_CONVERTER'" in marker.examples[0]
    assert "row 1" in marker.examples[0]


def test_a_record_that_kafka_refuses_ends_the_attempt() -> None:
    memory = Memory(refuses=frozenset([b"50"]))
    with pytest.raises(ConnectException, match="Kafka refused a record"):
        work().write(3, rows(95), memory.cluster)
    assert memory.messages == values(40)
    assert not memory.markers()[3].done


@pytest.mark.parametrize(
    ("error", "name", "told", "final"),
    [
        (too_large(2_000_000, "max.message.bytes", 1_000_012), "RecordTooLargeException", "max.message.bytes", True),
        (KafkaRetriableException("Disk error"), "KafkaStorageException", "below its log.dirs", False),
        (KafkaRetriableException("timed out"), "TimeoutException", "delivery.timeout.ms", False),
        (KafkaRetriableException("too few"), "NotEnoughReplicasException", "min.insync.replicas", False),
        (KafkaException("not authorized"), "TopicAuthorizationException", "operation Write", True),
    ],
)
def test_a_topic_without_room_or_rights_is_told_with_what_to_do(
    error: KafkaException, name: str, told: str, final: bool
) -> None:
    memory = Memory(refuses=frozenset([b"50"]), refusal=(error, f"org.apache.kafka.common.errors.{name}"))
    wanted = ConnectException if final else KafkaRetriableException
    with pytest.raises(wanted, match=f"Kafka refused a record .* for topic t: .*{told}") as caught:
        work().write(3, rows(95), memory.cluster)
    assert is_final(caught.value) is final, "what may pass is tried again"
    assert memory.messages == values(40)


def test_a_user_without_rights_to_transactional_ids_is_told_which_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Producer, timeout_s: float) -> None:
        raise TransactionalIdAuthorizationException("Transactional Id authorization failed.")

    monkeypatch.setattr(Producer, "init_transactions", denied)
    memory = Memory()
    with pytest.raises(TransactionalIdAuthorizationException, match=r"Write and Describe on .* prefix group-orders-, "):
        work().write(0, rows(5), memory.cluster)
    assert memory.messages == []


def test_other_rows_than_before_are_refused_before_one_is_written() -> None:
    memory = Memory()
    with pytest.raises(KilledException):
        work(probe=Ends("after-commit-2")).write(3, rows(95), memory.cluster)
    with pytest.raises(NotRepeatableException):
        work().write(3, rows(95, first=1), memory.cluster)
    assert memory.messages == values(40)


def test_the_end_of_an_attempt_is_found_in_what_spark_raises() -> None:
    failure = Failure(3, True, 'it said "no"\nand more: é')
    spark = RuntimeError(f"Job aborted ... AttemptFailedException: {failure.to_text()}\n at org.apache.spark")
    assert Failure.of(spark) == failure
    assert Failure.of(RuntimeError("ExecutorLostFailure")) is None
    assert Failure.of(RuntimeError("penstock-bulk:[1:penstock-bulk")) is None
