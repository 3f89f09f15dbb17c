"""Source offsets of a cluster, in its offsets topic or in a connector's own.

Main type: `OffsetTopicStore`. Keys and values are the bytes that Kafka Connect writes (`penstock.stores.offsets`), and
keys that are equal as JSON are one key: a stored key keeps its spelling, and of several spellings a write leaves one.
Invariant 5. `MergedOffsetStore` combines a connector's own topic with the shared one: entries of its own topic take
precedence; the shared topic has copies, so that the connector continues at its offsets if its own topic is removed.

Threads: any reads and writes; records come on the thread of the log.
Source: KafkaOffsetBackingStore and ConnectorOffsetBackingStore of Kafka Connect.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.errors import KafkaException, OffsetStoreException
from penstock.stores.interface import RecordLog
from penstock.stores.offsets import OffsetEntries, key_identity
from penstock.telemetry import waiting_for
from penstock.telemetry.logs import SeldomLog

if TYPE_CHECKING:
    from penstock.kafka.topic_log.reader import LogRecord

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 60.0


class OffsetTopicStore:
    """An `OffsetStore` on a log.

    Args:
        log: The log of the topic.
        topic: Its name.
        timeout_s: The default time limit of a read or a write.
    """

    def __init__(self, log: RecordLog, topic: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._log = log
        self._topic = topic
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._entries = OffsetEntries()
        self._seldom = SeldomLog(logger)
        # During the first read of the topic: the partition and time of the last write of each key.
        self._found: dict[bytes, tuple[int, int]] | None = None
        self._moved = 0

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._topic

    def start(self) -> None:
        """See `OffsetStore`."""
        with self._lock:
            self._entries, self._found, self._moved = OffsetEntries(), {}, 0
        try:
            self._log.start(self._take, self._timeout_s)
        except KafkaException as error:
            raise OffsetStoreException(f"The source offsets cannot be read: {error}") from error
        with self._lock:
            self._found = None
            self._entries.warn_of_spellings(f"The offsets topic {self._topic}")
        if self._moved:
            logger.warning(
                "The offsets topic %s holds %d keys in two partitions: partitions were added to it. Of each the newest "
                "offset counts; one that is removed may come back once Kafka has forgotten that it was. Create the "
                "topic anew",
                self._topic,
                self._moved,
            )

    def stop(self) -> None:
        """See `OffsetStore`."""
        self._log.stop()

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        """See `OffsetStore`; first reads all earlier writes of every worker."""
        self._read(timeout_s)
        with self._lock:
            return {key: self._entries.get(key) for key in keys}

    def entries(self) -> dict[bytes, bytes]:
        """See `OffsetStore`; first reads all earlier writes of every worker."""
        self._read(None)
        with self._lock:
            return self._entries.copy()

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        """See `OffsetStore`."""
        try:
            with waiting_for("broker", f"source offsets are written to the topic {self._topic}"):
                self._log.write(self.records(entries), self._timeout_s if timeout_s is None else timeout_s)
        except KafkaException as error:
            raise OffsetStoreException(f"The source offsets could not be written: {error}") from error

    def copy(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Writes copies of entries that are stored elsewhere; does not wait, and only logs a failure."""
        for key, value in self.records(entries):
            self._log.write_async(key, value, self._copied)

    def records(
        self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None
    ) -> list[tuple[bytes, bytes | None]]:
        """The records for these entries: each key in its stored spelling, and tombstones for its other spellings.

        A caller that writes offsets in its own transaction sends these.
        """
        with self._lock:
            return list(self._entries.changes(entries).items())

    def written(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Does nothing: a committed transaction needs no copies."""

    def _read(self, timeout_s: float | None) -> None:
        try:
            with waiting_for("broker", f"source offsets are read from the topic {self._topic}"):
                self._log.read_to_end(self._timeout_s if timeout_s is None else timeout_s)
        except KafkaException as error:
            raise OffsetStoreException(f"The source offsets could not be read: {error}") from error

    def _copied(self, error: Exception | None) -> None:
        if error is not None:
            self._seldom.warning(
                "copy",
                "Source offsets could not be copied to %s, they are in the connector's own topic: %s",
                self._topic,
                error,
            )

    # ------------------------------------------------------------------ the log's thread
    def _take(self, records: Sequence[LogRecord]) -> None:
        with self._lock:
            for record in records:
                if record.key is None:
                    self._seldom.warning("key", "Ignoring a record of %s without a key", self._topic)
                elif self._is_newest(record, record.key):
                    self._entries.apply({record.key: record.value})

    def _is_newest(self, record: LogRecord, key: bytes) -> bool:
        """True if no other partition has a newer record of this key; partitions arrive in any order."""
        if self._found is None:
            return True
        partition, timestamp_ms = self._found.get(key, (record.partition, record.timestamp_ms))
        if partition != record.partition:
            self._moved += 1
            if timestamp_ms > record.timestamp_ms:
                return False
        self._found[key] = (record.partition, record.timestamp_ms)
        return True


class MergedOffsetStore:
    """An `OffsetStore` over two stores.

    Args:
        own: The connector's store; started and stopped by this one.
        shared: The worker's store; it is running, and this store does not stop it.
        clock: Monotonic seconds.
    """

    def __init__(
        self, own: OffsetTopicStore, shared: OffsetTopicStore, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._own = own
        self._shared = shared
        self._clock = clock

    def start(self) -> None:
        """See `OffsetStore`."""
        self._own.start()

    def stop(self) -> None:
        """See `OffsetStore`."""
        self._own.stop()

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        """See `OffsetStore`."""
        left = self._limit(timeout_s)
        wanted = list(keys)
        found = self._own.get(wanted, left())
        missing = [key for key in wanted if found[key] is None]
        return {**found, **self._shared.get(missing, left())} if missing else found

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        """See `OffsetStore`.

        Removes offsets from the shared topic first: an offset left there would count again once the connector's topic
        has none. Writes offsets to the connector's topic first, and then copies them to the shared topic.
        """
        left = self._limit(timeout_s)
        self._remove_shared(entries, left())
        self._own.set(entries, left())
        self.written(entries)

    def entries(self) -> dict[bytes, bytes]:
        """See `OffsetStore`."""
        own = self._own.entries()
        known = {key_identity(key) for key in own}
        shared = self._shared.entries()
        return {**{key: value for key, value in shared.items() if key_identity(key) not in known}, **own}

    @property
    def topic(self) -> str:
        """The name of the connector's topic."""
        return self._own.topic

    def records(
        self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None
    ) -> list[tuple[bytes, bytes | None]]:
        """The records for the connector's topic, for a transaction: in the order of writes of `set`.

        Raises:
            OffsetStoreException: the removed entries could not be removed from the shared topic.
        """
        self._remove_shared(entries, timeout_s)
        return self._own.records(entries)

    def written(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Copies committed entries to the shared topic. Does not wait."""
        self._shared.copy({key: value for key, value in entries.items() if value is not None})

    def _remove_shared(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None) -> None:
        removed = {key: None for key, value in entries.items() if value is None}
        if removed:
            self._shared.set(removed, timeout_s)

    def _limit(self, timeout_s: float | None) -> Callable[[], float | None]:
        """Returns a function that gives the remaining time of one limit for both stores."""
        if timeout_s is None:
            return lambda: None
        deadline = self._clock() + timeout_s
        return lambda: max(0.0, deadline - self._clock())
