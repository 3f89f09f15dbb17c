"""Clients of Kafka that do what a test says, for the parts of a log."""

from __future__ import annotations

import queue
import threading
from typing import Any

import confluent_kafka as ck

from penstock.api import RecordMetadata
from penstock.errors import KafkaException
from penstock.kafka.producer.in_flight import FailedDelivery, Receipts
from penstock.kafka.settings.producer import ColumnSettings
from penstock.pipeline.batch.batches import ProduceBatch

E = ck.KafkaError


class Message:
    """A message or an event."""

    def __init__(
        self, offset: int, key: bytes = b"k", value: bytes | None = b"v", partition: int = 0, error: int | None = None
    ) -> None:
        self._values = partition, offset, key, value
        self._error = None if error is None else E(error)

    def error(self) -> ck.KafkaError | None:
        return self._error

    def partition(self) -> int:
        return self._values[0]

    def offset(self) -> int:
        return self._values[1]

    def key(self) -> bytes:
        return self._values[2]

    def value(self) -> bytes | None:
        return self._values[3]

    def timestamp(self) -> tuple[int, int]:
        return 1, 7


class FakeConsumer:
    """Gives batches that a test puts in."""

    def __init__(self, conf: dict[str, Any], logger: object = None) -> None:
        self.conf = conf
        self.batches: queue.Queue[list[Message]] = queue.Queue()
        self.rest: list[Message] = []
        self.assigned: list[list[tuple[int, int]]] = []
        self.closed = threading.Event()

    def assign(self, places: list[ck.TopicPartition]) -> None:
        self.assigned.append([(place.partition, place.offset) for place in places])

    def poll(self, timeout: float) -> Message | None:
        try:
            first, *self.rest = self.batches.get(timeout=0.01)
            return first
        except (queue.Empty, ValueError):
            return None

    def consume(self, count: int, timeout: float) -> list[Message]:
        rest, self.rest = self.rest, []
        return rest

    def close(self) -> None:
        self.closed.set()


class FakeTransactions:
    """A producer with transactions that does what a test says; records are refused by key, or stored one by one."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.errors: dict[str, list[Exception]] = {}
        self.refused: dict[bytes, KafkaException] = {}
        self.made_with: dict[str, Any] = {}
        self.trouble: str | None = None
        self._offset = 0

    def __call__(self, settings: ColumnSettings, **own: Any) -> FakeTransactions:
        self.made_with = own
        self._call("made")
        return self

    def init_transactions(self, timeout_s: float) -> None:
        self._call("init")

    def send(self, batch: ProduceBatch, receipts: Receipts, *, within_s: float) -> None:
        self._call("send")
        keys = batch.table.column("key").to_pylist()
        failures = [
            FailedDelivery(row, "t", self.refused[key], "") for row, key in enumerate(keys) if key in self.refused
        ]
        places = {
            row: RecordMetadata("t", 0, self._offset + row) for row, key in enumerate(keys) if key not in self.refused
        }
        receipts.delivered(0, len(keys), failures, places)
        self._offset += len(keys)

    def commit(self, timeout_s: float) -> None:
        self._call("commit")

    def abort_transaction(self, timeout_s: float) -> None:
        self._call("abort")

    def abort(self) -> None:
        self.calls.append("given up")

    def close(self, timeout_s: float) -> bool:
        self.calls.append("closed")
        return True

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.errors.get(name):
            raise self.errors[name].pop(0)
