"""The states of connectors and tasks: in memory for a standalone worker, in the status topic for a cluster.

In the topic, as Kafka Connect writes it, a report becomes visible once it was read back, on its own worker, too. A
failed write is retried, also in a later generation, until a newer record for the same key has come; so the final state
is shown in the end, and a worker that was cut off does not overwrite later reports of other workers.

Thread: any may report; records come on the thread of the log, answers to writes on another one.
Source: org.apache.kafka.connect.storage.KafkaStatusBackingStore, MemoryStatusBackingStore; KIP-558, KIP-891.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.data.text import json_string
from penstock.errors import KafkaRetriableException
from penstock.model import ConnectorStatus, ConnectorTaskId, State, TaskStatus
from penstock.stores.interface import RecordLog

if TYPE_CHECKING:
    from penstock.kafka.topic_log.clients import LogRecord


class LocalStatusStore:
    """A `StatusStore` in the memory of one worker.

    >>> store = LocalStatusStore()
    >>> store.note_topics("a", ["orders", "customers"], 0)
    >>> store.topics("a")
    ['customers', 'orders']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connectors: dict[str, ConnectorStatus] = {}
        self._tasks: dict[str, dict[int, TaskStatus]] = {}
        self._topics: dict[str, frozenset[str]] = {}
        self._listeners: tuple[Callable[[str], None], ...] = ()

    def start(self) -> None:
        """Does nothing: no states are stored."""

    def stop(self) -> None:
        """Does nothing: there are no resources to release."""

    def put(self, status: ConnectorStatus | TaskStatus, *, safe: bool = False) -> None:
        """See `StatusStore`; there is no other worker, so every report is safe."""
        if isinstance(status, ConnectorStatus):
            name = status.name
            with self._lock:
                self._connectors[name] = status
        else:
            name = status.id.connector
            with self._lock:
                self._tasks.setdefault(name, {})[status.id.task] = status
        self._tell(name)

    def forget(self, of: str | ConnectorTaskId) -> None:
        with self._lock:
            if isinstance(of, ConnectorTaskId):
                tasks = self._tasks.get(of.connector, {})
                found = tasks.pop(of.task, None) is not None
                if found and not tasks:
                    del self._tasks[of.connector]
            else:
                found = self._connectors.pop(of, None) is not None
        if found:
            self._tell(of.connector if isinstance(of, ConnectorTaskId) else of)

    def connector(self, name: str) -> ConnectorStatus | None:
        return self._connectors.get(name)

    def task(self, task: ConnectorTaskId) -> TaskStatus | None:
        """Returns the status of one task, or None if none was reported."""
        with self._lock:
            return self._tasks.get(task.connector, {}).get(task.task)

    def tasks(self, name: str) -> list[TaskStatus]:
        with self._lock:
            return [status for _, status in sorted(self._tasks.get(name, {}).items())]

    def names(self) -> set[str]:
        with self._lock:
            return {*self._connectors, *self._tasks}

    def listen(self, callback: Callable[[str], None]) -> None:
        with self._lock:
            self._listeners = (*self._listeners, callback)

    def note_topics(self, connector: str, topics: Iterable[str], task: int) -> None:
        used = frozenset(topics)
        # Nearly every call brings nothing new; one immutable set shows that without the lock.
        if used <= self._topics.get(connector, _NONE):
            return
        with self._lock:
            self._topics[connector] = self._topics.get(connector, _NONE) | used

    def forget_topic(self, connector: str, topic: str) -> None:
        """Forgets one topic of a connector."""
        with self._lock:
            if left := self._topics.pop(connector, _NONE) - {topic}:
                self._topics[connector] = left

    def topics(self, connector: str) -> list[str]:
        return sorted(self._topics.get(connector, _NONE))

    def reset_topics(self, connector: str) -> None:
        with self._lock:
            self._topics.pop(connector, None)

    def _tell(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)


_CONNECTOR: Final = "status-connector-"
_TASK: Final = "status-task-"
_TOPIC: Final = "status-topic-"
_OF_CONNECTOR: Final = ":connector-"
#: A record has to fit into a message of usual size; the beginning of a trace is the most useful part.
_LONGEST_TRACE: Final = 100_000


class UnusableRecordError(Exception):
    """A record is unusable; the text gives the reason."""


@dataclass(frozen=True)
class TopicUse:
    """A connector uses a topic."""

    connector: str
    topic: str


@dataclass(frozen=True)
class Gone:
    """A tombstone: earlier reports about its subject no longer count."""

    of: str | ConnectorTaskId | TopicUse


Said: TypeAlias = ConnectorStatus | TaskStatus | TopicUse | Gone


def key_of(what: str | ConnectorTaskId | TopicUse) -> bytes:
    """The key of the record for a connector, a task, or a connector's use of a topic.

    >>> key_of("c"), key_of(ConnectorTaskId("c", 0)), key_of(TopicUse("c", "t"))
    (b'status-connector-c', b'status-task-c-0', b'status-topic-t:connector-c')
    """
    match what:
        case TopicUse(connector, topic):
            return _bytes(f"{_TOPIC}{topic}{_OF_CONNECTOR}{connector}")
        case ConnectorTaskId():
            return _bytes(f"{_TASK}{what}")
        case _:
            return _bytes(f"{_CONNECTOR}{what}")


def status_record(status: ConnectorStatus | TaskStatus) -> tuple[bytes, bytes]:
    """Key and value of the record for the state of a connector or task."""
    trace = status.trace
    if trace is not None and len(trace) > _LONGEST_TRACE:
        trace = f"{trace[:_LONGEST_TRACE]}\n... ({len(trace) - _LONGEST_TRACE} more characters are in the worker's log)"
    value = (
        f'{{"state":"{status.state.value}","trace":{_text(trace)},"worker_id":{json_string(status.worker_id)},'
        f'"generation":{status.generation},"version":{_text(status.version)}}}'
    )
    return key_of(status.name if isinstance(status, ConnectorStatus) else status.id), _bytes(value)


def topic_record(use: TopicUse, task: int, discovered_ms: int) -> tuple[bytes, bytes]:
    """Key and value of the record for a connector's use of a topic.

    >>> topic_record(TopicUse("c", "t"), 0, 1795253743680)[1]
    b'{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":1795253743680}}'
    """
    value = (
        f'{{"topic":{{"name":{json_string(use.topic)},"connector":{json_string(use.connector)},"task":{task},'
        f'"discoverTimestamp":{discovered_ms}}}}}'
    )
    return key_of(use), _bytes(value)


def parse(key: bytes | None, value: bytes | None) -> Said:
    """Parses a record."""
    try:
        text = (key or b"").decode()
    except UnicodeDecodeError:
        raise UnusableRecordError("its key is no text") from None
    of = _subject(text)
    if value is None:
        return Gone(of)
    found = _object(value)
    if isinstance(of, TopicUse):
        if not isinstance(found.get("topic"), dict):
            raise UnusableRecordError("it has no object topic")
        return of
    return _status(of, found)


def _subject(key: str) -> str | ConnectorTaskId | TopicUse:
    if key.startswith(_CONNECTOR) and key != _CONNECTOR:
        return key.removeprefix(_CONNECTOR)
    if key.startswith(_TASK):
        connector, _, number = key.removeprefix(_TASK).rpartition("-")
        if connector and number.isdecimal() and len(number) < 10:
            return ConnectorTaskId(connector, int(number))
    if key.startswith(_TOPIC):
        topic, _, connector = key.removeprefix(_TOPIC).partition(_OF_CONNECTOR)
        if topic and connector:
            return TopicUse(connector, topic)
    raise UnusableRecordError("its key names no connector, task or topic")


def _status(of: str | ConnectorTaskId, found: Mapping[str, object]) -> ConnectorStatus | TaskStatus:
    state, worker_id, generation = found.get("state"), found.get("worker_id"), found.get("generation")
    trace, version = found.get("trace"), found.get("version")
    if not isinstance(worker_id, str) or not isinstance(generation, int):
        raise UnusableRecordError("a status has the fields worker_id and generation")
    if not isinstance(trace, str | None) or not isinstance(version, str | None):
        raise UnusableRecordError("its trace or version is no text")
    try:
        known = State(state)
    except ValueError:
        raise UnusableRecordError(f"there is no state {state!r}") from None
    if isinstance(of, ConnectorTaskId):
        return TaskStatus(of, known, worker_id, trace, version, generation)
    return ConnectorStatus(of, known, worker_id, trace, version, generation)


def _object(value: bytes) -> Mapping[str, object]:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UnusableRecordError(f"its value is no JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise UnusableRecordError("its value is no JSON object")
    return parsed


def _text(value: str | None) -> str:
    return "null" if value is None else json_string(value)


def _bytes(text: str) -> bytes:
    # Invalid Unicode becomes question marks, as in Java: a trace may hold any text.
    return text.encode(errors="replace")


logger = logging.getLogger(__name__)

_NONE: Final[frozenset[str]] = frozenset()


class StatusTopicStore(LocalStatusStore):
    """A `StatusStore` on a log; the base holds what was read back, under a lock that is taken last."""

    def __init__(self, log: RecordLog, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._log = log
        self._clock = clock
        # Held while a record is passed to the log, so that the records of a key are sent in the order of their numbers.
        # Reentrant, because the log may answer at once.
        self._writes = threading.RLock()
        self._numbers = itertools.count()
        # The number of the newest write of each key, and the numbers of removals written here that were not read yet.
        self._newest: dict[bytes, int] = {}
        self._removals: dict[bytes, set[int]] = {}
        # The topics that were read, or written here; each is written once.
        self._noted: dict[str, frozenset[str]] = {}

    def start(self) -> None:
        self._log.start(self._take)

    def stop(self) -> None:
        self._log.stop()

    # ------------------------------------------------------------------ states
    def put(self, status: ConnectorStatus | TaskStatus, *, safe: bool = False) -> None:
        """See `StatusStore`. Invariant 8."""
        key, value = status_record(status)
        with self._writes:
            if not safe or self._may_follow(status):
                self._write(key, value, lambda: self._may_follow(status))

    def forget(self, of: str | ConnectorTaskId) -> None:
        key = key_of(of)
        with self._writes:
            self._write(key, None, lambda: True)

    # ------------------------------------------------------------------ topics
    def note_topics(self, connector: str, topics: Iterable[str], task: int) -> None:
        used = frozenset(topics)
        # Nearly every call brings nothing new; one immutable set shows that without the lock.
        if used <= self._noted.get(connector, _NONE):
            return
        with self._writes:
            before = self._noted.get(connector, _NONE)
            self._noted[connector] = before | used
        for topic in used - before:
            self._note(TopicUse(connector, topic), task)

    def reset_topics(self, connector: str) -> None:
        with self._writes:
            noted = self._noted.pop(connector, _NONE)
        for topic in sorted(noted.union(self.topics(connector))):
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
        """Writes the state of a connector or task. Called with the lock."""
        number = self._newest[key] = next(self._numbers)
        if value is None:
            self._removals.setdefault(key, set()).add(number)

        def still_wanted() -> bool:
            with self._writes:
                return self._newest.get(key) == number and wanted()

        def done(error: Exception | None) -> None:
            if error is not None and value is None:
                with self._writes:
                    self._forget_removal(key, number)
            self._written(key, error)

        self._log.write_async(key, value, done, wanted=still_wanted)

    def _forget_removal(self, key: bytes, number: int) -> None:
        written = self._removals.get(key, set())
        written.discard(number)
        if not written:
            self._removals.pop(key, None)

    def _may_follow(self, status: ConnectorStatus | TaskStatus) -> bool:
        """True if a status may be sent: no newer status of another worker is known."""
        known = self._known_of(status)
        return known is None or known.worker_id == status.worker_id or known.generation <= status.generation

    def _known_of(self, status: ConnectorStatus | TaskStatus) -> ConnectorStatus | TaskStatus | None:
        if isinstance(status, ConnectorStatus):
            return self.connector(status.name)
        return self.task(status.id)

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
                    super().forget(of)
                case TopicUse():
                    self._learn_use(said)
                case ConnectorStatus() | TaskStatus():
                    if not self._is_late(said):
                        super().put(said)

    def _is_late(self, status: ConnectorStatus | TaskStatus) -> bool:
        """True if a unit had started on another worker before this status of its former worker arrived."""
        known = self._known_of(status)
        return (
            status.state is State.UNASSIGNED
            and known is not None
            and known.state is State.RUNNING
            and known.worker_id != status.worker_id
            and known.generation >= status.generation
        )

    def _removed(self, key: bytes) -> None:
        """Applies a tombstone; pending retries of this worker for a removed subject end."""
        with self._writes:
            if key not in self._removals:
                self._newest.pop(key, None)
                return
            number = min(self._removals[key])
            self._forget_removal(key, number)
            if self._newest.get(key) == number:
                del self._newest[key]

    def _learn_use(self, use: TopicUse) -> None:
        with self._writes:
            self._noted[use.connector] = self._noted.get(use.connector, _NONE) | {use.topic}
        super().note_topics(use.connector, [use.topic], 0)

    def _forget_use(self, use: TopicUse) -> None:
        with self._writes:
            if left := self._noted.pop(use.connector, _NONE) - {use.topic}:
                self._noted[use.connector] = left
        self.forget_topic(use.connector, use.topic)
