"""Compacted topics in memory, for stores and herders in tests: several workers read and write one.

Main types: ``MemoryTopic`` (the topic) and ``MemoryLog`` (one worker's view of it, a ``RecordLog``). Nothing happens by
itself: a log hands records over when it is asked to read to the end, or after its own write. A topic can be compacted,
and a log can be told to fail.

Thread: any, one call at a time for each log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.errors import KafkaException, KafkaRetriableException, ProducerFencedException
from penstock.kafka.producer.partitioner import murmur2
from penstock.kafka.topic_log.clients import LogRecord


class MemoryTopic:
    """A topic that several logs share.

    Args:
        partitions: How many it has; keys are spread as Java spreads them.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.lock = threading.RLock()
        self.partitions: list[list[LogRecord]] = [[] for _ in range(partitions)]
        self._ends = [0] * partitions
        #: The log whose transactions count.
        self.owner: MemoryLog | None = None

    def append(self, key: bytes, value: bytes | None, partition: int | None = None) -> None:
        """Adds a record."""
        hashed = int(murmur2(pa.array([key], pa.binary()))[0]) & 0x7FFFFFFF
        number = hashed % len(self.partitions) if partition is None else partition
        with self.lock:
            offset = self._ends[number]
            self._ends[number] += 1
            self.partitions[number].append(LogRecord(number, offset, key, value, offset))

    def compact(self) -> None:
        """Keeps the newest record of each key, and no tombstone."""
        with self.lock:
            for number, records in enumerate(self.partitions):
                newest = {record.key: record for record in records}
                self.partitions[number] = [one for one in records if newest[one.key] is one and one.value is not None]

    def values(self) -> dict[bytes | None, bytes]:
        """Returns the newest values in the topic, by key."""
        newest = {record.key: record.value for records in self.partitions for record in records}
        return {key: value for key, value in newest.items() if value is not None}

    def keys(self) -> list[str]:
        """The keys of all records in order, partition by partition."""
        return [(record.key or b"").decode() for records in self.partitions for record in records]


class MemoryLog:
    """One worker's view of a topic.

    Args:
        topic: Shared with other workers.
    """

    def __init__(self, topic: MemoryTopic) -> None:
        self.topic = topic
        self._handle: Callable[[Sequence[LogRecord]], None] | None = None
        self._read = [0] * len(topic.partitions)
        #: What the next writes raise.
        self.failures: list[Exception] = []
        #: Records that failed for now, with what sends them again.
        self.later: list[Callable[[], None]] = []

    def start(self, handle: Callable[[Sequence[LogRecord]], None], timeout_s: float = 60.0) -> None:
        """See ``RecordLog``."""
        self._handle = handle
        self._read = [0] * len(self.topic.partitions)
        self.read_to_end(timeout_s)

    def stop(self) -> None:
        """See ``RecordLog``."""
        self._handle = None

    def read_to_end(self, timeout_s: float) -> None:
        """See ``RecordLog``."""
        if self._handle is None:
            raise KafkaException("The log is closed, or was not started")
        with self.topic.lock:
            new = []
            for number, records in enumerate(self.topic.partitions):
                found = [record for record in records if record.offset >= self._read[number]]
                if found:
                    self._read[number] = found[-1].offset + 1
                new += found
        if new:
            self._handle(new)

    def write(
        self, entries: Sequence[tuple[bytes, bytes | None]], timeout_s: float = 30.0, *, transactional: bool = False
    ) -> None:
        """See ``RecordLog``."""
        if self._handle is None:
            raise KafkaException("The log is closed, or was not started")
        if transactional and self.topic.owner is not self:
            raise ProducerFencedException("Another worker has claimed the topic, or none has")
        if self.failures:
            raise self.failures.pop(0)
        for key, value in entries:
            self.topic.append(key, value)
        self.read_to_end(timeout_s)

    def write_async(
        self,
        key: bytes,
        value: bytes | None,
        done: Callable[[Exception | None], None],
        *,
        wanted: Callable[[], bool] = lambda: False,
    ) -> None:
        """See ``RecordLog``; what failed for now waits in ``later``."""
        if not self.failures:
            self.topic.append(key, value)
            done(None)
            return
        error = self.failures.pop(0)
        if isinstance(error, KafkaRetriableException) and wanted():

            def again() -> None:
                if wanted():
                    self.write_async(key, value, done, wanted=wanted)
                else:
                    done(error)

            self.later.append(again)
        else:
            done(error)

    def claim(self, timeout_s: float = 30.0) -> None:
        """See ``RecordLog``."""
        self.topic.owner = self

    def send_again(self) -> None:
        """Sends what failed for now, where it is still wanted."""
        later, self.later = self.later, []
        for again in later:
            again()
