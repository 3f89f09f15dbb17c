"""``RecordWriter``: writes single records to the small topics of a connector.

Thread: any, one at a time; ``send`` and ``flush`` process the responses.

Source: org.apache.kafka.clients.producer.KafkaProducer.
"""

from __future__ import annotations

import threading
from typing import Any

import confluent_kafka as ck

from penstock.clients.trouble import Trouble
from penstock.errors import KafkaException


class RecordWriter:
    """Writes records to a cluster, in order and once each.

    Args:
        client: Of librdkafka.
        trouble: What it tells between calls.
        name: Whose cluster it is, for messages.

    Source: org.apache.kafka.clients.producer.KafkaProducer.
    """

    def __init__(self, client: ck.Producer, trouble: Trouble, *, name: str) -> None:
        self._client: Any = client
        self._trouble = trouble
        self._name = name
        self._lock = threading.Lock()
        self._failed: ck.KafkaError | None = None

    def send(self, topic: str, key: bytes | None, value: bytes | None, *, partition: int = 0) -> None:
        """Queues a record, which is sent in the background.

        Args:
            topic: Its topic.
            key: Its key.
            value: Its value.
            partition: Its partition.

        Raises:
            KafkaException: An earlier record could not be stored, or too many records are queued.
        """
        with self._lock:
            self._client.poll(0)
            self._raise_failed()
            try:
                self._client.produce(topic, value, key, partition=partition, on_delivery=self._delivered)
            except (BufferError, ck.KafkaException) as error:
                raise KafkaException(f"{self._name} takes no more records for {topic}: {error}") from error

    def flush(self, timeout_s: float) -> bool:
        """Waits until all is stored; False when the time is over.

        Raises:
            KafkaException: A record could not be stored.
        """
        with self._lock:
            left = self._client.flush(timeout_s)
            self._raise_failed()
            return bool(left == 0)

    @property
    def trouble(self) -> str | None:
        """The error of the connection that the client reports; None if there is none."""
        return self._trouble.text

    def close(self) -> None:
        """Drops queued records, and releases the client."""
        with self._lock:
            self._client.purge()
            self._client.flush(1.0)

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is None:
            self._trouble.clear()
        elif error.code() != ck.KafkaError._PURGE_QUEUE:
            self._failed = error

    def _raise_failed(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise self._trouble.named(f"{self._name} did not store a record", "", failed)
