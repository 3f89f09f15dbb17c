"""The records of the status topic, as Kafka Connect writes them, and what they say.

Main functions: `status_record`, `topic_record` and `key_of` write, `parse` reads; `TopicUse` and `Gone` are what a
record says beside a status.

Pure functions; any thread.
Source: internal-topics.md section 3; org.apache.kafka.connect.storage.KafkaStatusBackingStore; KIP-558, KIP-891.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.data.text import json_string
from penstock.model import ConnectorStatus, ConnectorTaskId, State, TaskStatus

_CONNECTOR: Final = "status-connector-"
_TASK: Final = "status-task-"
_TOPIC: Final = "status-topic-"
_OF_CONNECTOR: Final = ":connector-"
#: A record has to fit into a message of usual size; the beginning of a trace says the most.
_LONGEST_TRACE: Final = 100_000


class UnusableRecordError(Exception):
    """A record says nothing that could be used; the text says why."""


@dataclass(frozen=True)
class TopicUse:
    """A connector uses a topic."""

    connector: str
    topic: str


@dataclass(frozen=True)
class Gone:
    """A tombstone: what was said of this counts no more."""

    of: str | ConnectorTaskId | TopicUse


Said: TypeAlias = ConnectorStatus | TaskStatus | TopicUse | Gone


def key_of(what: str | ConnectorTaskId | TopicUse) -> bytes:
    """The key of what is said of a connector, of a task, or of a connector's use of a topic.

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
    """Key and value that say what a connector or task is doing."""
    trace = status.trace
    if trace is not None and len(trace) > _LONGEST_TRACE:
        trace = f"{trace[:_LONGEST_TRACE]}\n... ({len(trace) - _LONGEST_TRACE} more characters are in the worker's log)"
    value = (
        f'{{"state":"{status.state.value}","trace":{_text(trace)},"worker_id":{json_string(status.worker_id)},'
        f'"generation":{status.generation},"version":{_text(status.version)}}}'
    )
    return key_of(status.name if isinstance(status, ConnectorStatus) else status.id), _bytes(value)


def topic_record(use: TopicUse, task: int, discovered_ms: int) -> tuple[bytes, bytes]:
    """Key and value that say that a connector uses a topic.

    >>> topic_record(TopicUse("c", "t"), 0, 1795253743680)[1]
    b'{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":1795253743680}}'
    """
    value = (
        f'{{"topic":{{"name":{json_string(use.topic)},"connector":{json_string(use.connector)},"task":{task},'
        f'"discoverTimestamp":{discovered_ms}}}}}'
    )
    return key_of(use), _bytes(value)


def parse(key: bytes | None, value: bytes | None) -> Said:
    """What a record says.

    Raises:
        UnusableRecordError: nothing that could be used.
    """
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
        if connector and number.isdecimal():
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
    # What is no valid Unicode becomes a question mark, as in Java: a trace may hold anything.
    return text.encode(errors="replace")
