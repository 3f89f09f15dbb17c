"""What connectors and tasks of a cluster are doing, in its status topic.

Main type: `StatusTopicStore`. What a worker says becomes visible, here too, once it was read back. A write that failed
is sent again, also in a later generation, as long as nothing has come after it; so that what runs is shown in the end,
and a worker that was cut off does not take back what others have said since.

Threads: any may say something; records come on the thread of the log, answers to writes on another one.
Source: internal-topics.md section 3; org.apache.kafka.connect.storage.KafkaStatusBackingStore; KIP-558.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.errors import KafkaRetriableException
from penstock.model import ConnectorStatus, ConnectorTaskId, State, TaskStatus
from penstock.stores.interface import RecordLog
from penstock.stores.local_status import LocalStatusStore
from penstock.stores.status_records import (
    Gone,
    TopicUse,
    UnusableRecordError,
    key_of,
    parse,
    status_record,
    topic_record,
)

if TYPE_CHECKING:
    from penstock.kafka.topic_log import LogRecord

logger = logging.getLogger(__name__)

_NONE: Final[frozenset[str]] = frozenset()


class StatusTopicStore:
    """A `StatusStore` on a log.

    Args:
        log: Of the status topic.
        clock: Seconds since 1970.
    """

    def __init__(self, log: RecordLog, *, clock: Callable[[], float] = time.time) -> None:
        self._log = log
        self._clock = clock
        self._known = LocalStatusStore()
        # Held while a record is handed to the log, so that those of a key go out in the order of their numbers; the log
        # may answer at once.
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        # The number of the newest write of each key; and of the removals that were written here and not read yet.
        self._newest: dict[bytes, int] = {}
        self._removals: dict[bytes, set[int]] = {}
        # The topics that were read, or written here: each is written once.
        self._noted: dict[str, frozenset[str]] = {}

    def start(self) -> None:
        """See `StatusStore`."""
        self._log.start(self._take)

    def stop(self) -> None:
        """See `StatusStore`."""
        self._log.stop()

    # ------------------------------------------------------------------ states
    def put(self, status: ConnectorStatus | TaskStatus, *, safe: bool = False) -> None:
        """See `StatusStore`. Invariant 8."""
        key, value = status_record(status)
        with self._lock:
            if not safe or self._may_follow(status):
                self._write(key, value, lambda: self._may_follow(status))

    def forget(self, of: str | ConnectorTaskId) -> None:
        """See `StatusStore`."""
        key = key_of(of)
        with self._lock:
            self._write(key, None, lambda: True)

    def connector(self, name: str) -> ConnectorStatus | None:
        """See `StatusStore`."""
        return self._known.connector(name)

    def tasks(self, name: str) -> list[TaskStatus]:
        """See `StatusStore`."""
        return self._known.tasks(name)

    def names(self) -> set[str]:
        """See `StatusStore`."""
        return self._known.names()

    def listen(self, callback: Callable[[str], None]) -> None:
        """See `StatusStore`."""
        self._known.listen(callback)

    # ------------------------------------------------------------------ topics
    def note_topics(self, connector: str, topics: Iterable[str], task: int) -> None:
        """See `StatusStore`."""
        used = frozenset(topics)
        # Nearly every call brings nothing new; that is seen without the lock, on one immutable set.
        if used <= self._noted.get(connector, _NONE):
            return
        with self._lock:
            before = self._noted.get(connector, _NONE)
            self._noted[connector] = before | used
        for topic in used - before:
            self._note(TopicUse(connector, topic), task)

    def topics(self, connector: str) -> list[str]:
        """See `StatusStore`."""
        return self._known.topics(connector)

    def reset_topics(self, connector: str) -> None:
        """See `StatusStore`."""
        with self._lock:
            noted = self._noted.pop(connector, _NONE)
        for topic in sorted(noted.union(self._known.topics(connector))):
            key = key_of(TopicUse(connector, topic))
            self._log.write_async(
                key,
                None,
                lambda error, key=key: self._written(key, error),  # type: ignore[misc]
                wanted=lambda topic=topic: topic not in self._noted.get(connector, _NONE),  # type: ignore[misc]
            )

    def _note(self, use: TopicUse, task: int) -> None:
        key, value = topic_record(use, task, int(self._clock() * 1000))
        self._log.write_async(
            key,
            value,
            lambda error: self._written(key, error),
            wanted=lambda: use.topic in self._noted.get(use.connector, _NONE),
        )

    # ------------------------------------------------------------------ within
    def _write(self, key: bytes, value: bytes | None, wanted: Callable[[], bool]) -> None:
        """Writes what is said of a connector or task. Called with the lock."""
        number = self._newest[key] = next(self._numbers)
        if value is None:
            self._removals.setdefault(key, set()).add(number)

        def still_wanted() -> bool:
            with self._lock:
                return self._newest.get(key) == number and wanted()

        def done(error: Exception | None) -> None:
            if error is not None and value is None:
                with self._lock:
                    self._forget_removal(key, number)
            self._written(key, error)

        self._log.write_async(key, value, done, wanted=still_wanted)

    def _forget_removal(self, key: bytes, number: int) -> None:
        written = self._removals.get(key, set())
        written.discard(number)
        if not written:
            self._removals.pop(key, None)

    def _may_follow(self, status: ConnectorStatus | TaskStatus) -> bool:
        """Whether a status may be sent: no newer one of another worker is known."""
        known = self._known_of(status)
        return known is None or known.worker_id == status.worker_id or known.generation <= status.generation

    def _known_of(self, status: ConnectorStatus | TaskStatus) -> ConnectorStatus | TaskStatus | None:
        if isinstance(status, ConnectorStatus):
            return self._known.connector(status.name)
        return self._known.task(status.id)

    def _written(self, key: bytes, error: Exception | None) -> None:
        if error is None:
            return
        if isinstance(error, KafkaRetriableException):
            logger.debug("%s was not written, and something newer came after it: %s", key.decode(), error)
        else:
            logger.error("%s is not shown to other workers: %s", key.decode(errors="replace"), error)

    # ------------------------------------------------------------------ the log's thread
    def _take(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            try:
                said = parse(record.key, record.value)
            except UnusableRecordError as unusable:
                logger.warning(
                    "Ignoring the record %r of the status topic at %d-%d: %s",
                    record.key,
                    record.partition,
                    record.offset,
                    unusable,
                )
                continue
            match said:
                case Gone(TopicUse() as use):
                    self._forget_use(use)
                case Gone(str() | ConnectorTaskId() as of):
                    self._removed(key_of(of))
                    self._known.forget(of)
                case TopicUse():
                    self._learn_use(said)
                case ConnectorStatus() | TaskStatus():
                    if not self._is_late(said):
                        self._known.put(said)

    def _is_late(self, status: ConnectorStatus | TaskStatus) -> bool:
        """Whether a unit has started on another worker before this status of its former worker came."""
        known = self._known_of(status)
        return (
            status.state is State.UNASSIGNED
            and known is not None
            and known.state is State.RUNNING
            and known.worker_id != status.worker_id
            and known.generation >= status.generation
        )

    def _removed(self, key: bytes) -> None:
        """Takes a tombstone; what this worker still tries to say of something that others removed is not sent again."""
        with self._lock:
            if key not in self._removals:
                self._newest.pop(key, None)
                return
            number = min(self._removals[key])
            self._forget_removal(key, number)
            if self._newest.get(key) == number:
                del self._newest[key]

    def _learn_use(self, use: TopicUse) -> None:
        with self._lock:
            self._noted[use.connector] = self._noted.get(use.connector, _NONE) | {use.topic}
        self._known.note_topics(use.connector, [use.topic], 0)

    def _forget_use(self, use: TopicUse) -> None:
        with self._lock:
            if left := self._noted.pop(use.connector, _NONE) - {use.topic}:
                self._noted[use.connector] = left
        self._known.forget_topic(use.connector, use.topic)
