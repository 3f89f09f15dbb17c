"""``RecordReader`` reads partitions as columns (``Fetched``); ``RecordWriter`` writes single records to small topics.

Thread: the thread that calls ``RecordReader.fetch`` makes its other calls too; a writer, any, one at a time.

Source: org.apache.kafka.clients.consumer.KafkaConsumer, with ``assign`` and ``seek``; KafkaProducer.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import confluent_kafka as ck
import numpy as np
import pyarrow as pa

from penstock.api import TopicPartition
from penstock.clients.trouble import Trouble
from penstock.errors import ConfigException, ConnectException, KafkaException, OffsetOutOfRangeException
from penstock.kafka.consumer.consumer import CHUNK_RECORDS, RecordConsumer
from penstock.kafka.consumer.messages import collector_paused, is_about_records, to_arrow
from penstock.kafka.settings.client import CLIENT_LOG

log = logging.getLogger(__name__)

_Error = ck.KafkaError
_PLACE: Final = ("topic", "partition")
#: A reader is not a member of a group; the client only requires a group's name.
_GROUP: Final = "penstock-reader"
#: The topic or partition does not exist, or has no leader now; the client keeps trying.
_PASSING: Final = frozenset(
    {
        _Error.UNKNOWN_TOPIC_OR_PART,
        _Error._UNKNOWN_TOPIC,
        _Error._UNKNOWN_PARTITION,
        _Error.LEADER_NOT_AVAILABLE,
        _Error.NOT_LEADER_FOR_PARTITION,
        _Error._TRANSPORT,
        _Error._ALL_BROKERS_DOWN,
        _Error._TIMED_OUT,
        _Error._RESOLVE,
    }
)
_LOST: Final = frozenset({_Error.OFFSET_OUT_OF_RANGE, _Error._AUTO_OFFSET_RESET})


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one partition, in the order of their offsets, which may have gaps.

    Attributes:
        place: The partition.
        table: Columns ``offset`` int64, ``timestamp`` int64 (milliseconds; null for none), ``timestamp_type`` int8,
            ``key`` and ``value`` binary, ``headers`` list of struct<key string, value binary> (null for none).

    Source: Penstock's own.
    """

    place: TopicPartition
    table: pa.Table


class RecordReader:
    """Reads given partitions from given offsets; commits nothing.

    Args:
        settings: librdkafka's settings.
        name: The name of the cluster, for messages.

    Source: org.apache.kafka.clients.consumer.KafkaConsumer.
    """

    def __init__(self, settings: Mapping[str, Any], *, name: str) -> None:
        self._name = name
        self._servers = str(settings.get("bootstrap.servers", ""))
        self._trouble = Trouble()
        self._waiting: deque[Exception] = deque()
        self._at_end: set[TopicPartition] = set()
        made = {
            **RecordConsumer.client_settings(settings),
            # Makes runs of one partition as long as Java's, because a frame has records of one partition.
            "max.partition.fetch.bytes": settings.get("max.partition.fetch.bytes", 1 << 20),
            "queued.max.messages.kbytes": settings.get("queued.max.messages.kbytes", 16_384),
            "group.id": settings.get("group.id", _GROUP),
            # The caller decides what to do about an offset that no longer exists.
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "enable.partition.eof": True,
            "error_cb": self._trouble.told,
        }
        made.pop("group.instance.id", None)
        try:
            self._client = ck.Consumer(made, logger=CLIENT_LOG)
        except (ck.KafkaException, ValueError, TypeError) as error:
            raise ConfigException(f"No consumer of {name} can be made: {error}") from error

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads exactly these partitions after this call.

        Args:
            positions: The offset of the first record to read, for each partition.
        """
        self._at_end.clear()
        self._client.assign([ck.TopicPartition(*place, offset) for place, offset in positions.items()])

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Reads one of the partitions starting at another offset."""
        self._at_end.discard(place)
        one = [ck.TopicPartition(*place, offset)]
        # Removes and adds the partition, which also works after it has ended with an error.
        self._client.incremental_unassign([ck.TopicPartition(*place)])
        self._client.incremental_assign(one)

    def fetch(self, timeout_s: float) -> list[Fetched]:
        """The records that have arrived, up to a few thousand; waits for the first one if there are none.

        Returns:
            One item for each run of records of one partition, in order of arrival.

        Raises:
            OffsetOutOfRangeException: The offset does not exist in a partition; the other partitions continue.
        """
        if self._waiting:
            raise self._waiting.popleft()
        with collector_paused():
            try:
                messages = self._client.consume(CHUNK_RECORDS, 0)
                if not messages and timeout_s > 0:
                    messages = self._client.consume(1, timeout_s)
                    if messages:
                        messages += self._client.consume(CHUNK_RECORDS - 1, 0)
            except ck.KafkaException as error:
                raise self._trouble.named(f"Reading from {self._name} failed", self._servers, error.args[0]) from error
            plain = not any(map(ck.Message.error, messages))
            good = messages if plain else self._without_errors(messages)
            if good:
                self._trouble.clear()
            elif self._waiting:
                raise self._waiting.popleft()
            fetched = [_fetched(run) for run in _runs(good)]
            if plain and self._at_end:
                self._at_end.difference_update(one.place for one in fetched)
            return fetched

    def at_end(self, place: TopicPartition) -> bool:
        """True if all records that a partition had a moment ago were fetched; False while that is unknown."""
        return place in self._at_end

    @property
    def trouble(self) -> str | None:
        """The connection error that the client has reported since the last records arrived; None if there is none."""
        return self._trouble.text

    def check(self, timeout_s: float) -> None:
        """Calls the cluster, and clears the trouble once it has answered.

        Raises:
            KafkaException: It does not answer; a ``KafkaRetriableException`` if it may answer later.
        """
        try:
            self._client.list_topics(timeout=timeout_s)
        except ck.KafkaException as error:
            raise self._trouble.named(f"{self._name} does not answer", self._servers, error.args[0]) from error
        self._trouble.clear()

    def bounds(self, place: TopicPartition, timeout_s: float = 10.0) -> tuple[int, int]:
        """The offsets of the first record of a partition, and of the next record to be written."""
        try:
            low, high = self._client.get_watermark_offsets(ck.TopicPartition(*place), timeout=timeout_s)
        except ck.KafkaException as error:
            doing = f"Asking {self._name} for the offsets of {place.topic}-{place.partition} failed"
            raise self._trouble.named(doing, self._servers, error.args[0]) from error
        return int(low), int(high)

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition, if known; makes no request."""
        found = {}
        for place in places:
            try:
                _, high = self._client.get_watermark_offsets(ck.TopicPartition(*place), cached=True)
            except ck.KafkaException:
                continue
            if high >= 0:
                found[place] = int(high)
        return found

    def close(self) -> None:
        """Releases the client."""
        self._client.close()

    def _without_errors(self, messages: Sequence[ck.Message]) -> list[ck.Message]:
        good = []
        broken: set[tuple[str, int]] = set()
        for message in messages:
            error, place = message.error(), (message.topic() or "", message.partition() or 0)
            if error is None:
                self._at_end.discard(TopicPartition(*place))
                # After an unreadable batch the client misreads bytes as records.
                if place not in broken:
                    good.append(message)
                continue
            code = error.code()
            if code == _Error._PARTITION_EOF:
                self._at_end.add(TopicPartition(*place))
            elif code in _LOST:
                self._waiting.append(_lost(self._name, message, error))
            elif is_about_records(error, message.topic()):
                if place not in broken:
                    self._waiting.append(self._unreadable(message, error))
                broken.add(place)
            elif code in _PASSING:
                self._trouble.told(error)
            else:
                where = "" if message.topic() is None else f" of {message.topic()}-{message.partition()}"
                self._waiting.append(
                    self._trouble.named(f"Reading{where} from {self._name} failed", self._servers, error)
                )
        return good

    def _unreadable(self, message: ck.Message, error: ck.KafkaError) -> Exception:
        return ConnectException(
            f"{self._name}: records of {message.topic()}-{message.partition()} at offset {message.offset()} or after "
            f"it cannot be read: {error.str()}. The batch is damaged; to skip it, stop the connector and set another "
            "offset (penstock connectors offsets)"
        )


def _lost(name: str, message: ck.Message, error: ck.KafkaError) -> OffsetOutOfRangeException:
    topic, partition, offset = message.topic() or "", message.partition(), message.offset()
    text = f"{name}: {topic}-{partition} cannot be read at offset {offset}: {error.str()}"
    known = offset if offset is not None and offset >= 0 else None
    return OffsetOutOfRangeException(text, topic, -1 if partition is None else partition, known)


def _runs(messages: Sequence[ck.Message]) -> list[Sequence[ck.Message]]:
    """Runs of messages of one partition, in order. All work for each message is done in C."""
    if not messages:
        return []
    topics: list[Any] = list(map(ck.Message.topic, messages))
    partitions = np.fromiter(map(ck.Message.partition, messages), np.int64, len(messages))
    changes = partitions[1:] != partitions[:-1]
    if topics.count(topics[0]) < len(topics):
        changes |= np.fromiter((one != other for one, other in pairwise(topics)), bool, len(messages) - 1)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(messages)]
    return [messages[start:end] for start, end in pairwise(cuts)]


def _fetched(run: Sequence[ck.Message]) -> Fetched:
    table, ends = to_arrow(run, one_partition=True)
    return Fetched(next(iter(ends)), table.drop_columns(list(_PLACE)))


class RecordWriter:
    """Writes records to a cluster, in order and once each.

    Args:
        name: The name of the cluster, for messages.

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
            value: Its value.
            partition: Its partition.
        """
        with self._lock:
            self._client.poll(0)
            self._raise_failed()
            try:
                self._client.produce(topic, value, key, partition=partition, on_delivery=self._delivered)
            except (BufferError, ck.KafkaException) as error:
                raise KafkaException(f"{self._name} takes no more records for {topic}: {error}") from error

    def flush(self, timeout_s: float) -> bool:
        """Waits until all records are stored; returns False if the timeout expires."""
        with self._lock:
            left = self._client.flush(timeout_s)
            self._raise_failed()
            return bool(left == 0)

    @property
    def trouble(self) -> str | None:
        """The connection error that the client reports; None if there is none."""
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
