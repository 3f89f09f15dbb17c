"""The configuration of a cluster: the records of its config topic, and the snapshot of them.

Each function ``..._entries`` returns the entries of one change, byte for byte as Kafka Connect writes them, in the
order in which they must be written: the last one makes the earlier ones count. They raise DataException for a text that
is not valid Unicode.

Task configurations count only after their commit record, and only as a complete set: a connector with an incomplete set
is ``inconsistent`` and has no tasks until its owner writes them again. So a snapshot never has a task without a
configuration, whatever records compaction has left.

Source: org.apache.kafka.connect.storage.KafkaConfigBackingStore, ClusterConfigState.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from penstock.data.text import json_string
from penstock.errors import DataException
from penstock.model.states import ConnectorTaskId, TargetState

Properties: TypeAlias = Mapping[str, "str | None"]

_NONE: Final[Mapping[str, str | None]] = MappingProxyType({})


def plain(config: Properties) -> dict[str, str]:
    """The settings that have a value."""
    return {key: value for key, value in config.items() if value is not None}


class ConfigRecord(NamedTuple):
    """A record of the config topic: its offset, its key, and its value; None is a tombstone."""

    offset: int
    key: str
    value: bytes | None


@dataclass(frozen=True)
class SessionKey:
    """The key with which workers sign internal requests; its `repr` never shows the key."""

    key: bytes = field(repr=False)
    algorithm: str
    created_ms: int


@dataclass(frozen=True)
class ConfiguredConnector:
    """One connector.

    Attributes:
        config: Its settings, placeholders unresolved.
        tasks: The task configurations in force, by number.
        applied: The connector's settings when these took effect; None before the first commit.
        generation: The number of commits with task configurations.
        inconsistent: True if task configurations of the last commit are missing.
        secrets: The settings that were secrets once, and are not secrets by their definition or name.
    """

    config: Properties
    tasks: tuple[Properties, ...] = ()
    applied: Properties | None = None
    generation: int = 0
    inconsistent: bool = False
    secrets: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ClusterConfig:
    """The result of all records up to an offset.

    Attributes:
        offset: The offset of the last record, plus one; -1 if none was read. Members of the group compare it.
        connectors: The connectors, by name.
        targets: The target states of connectors. A target state may come before its connector.
        fenced: The number of task producers of each connector at its last fencing round.
        unfenced: Connectors with a commit that is newer than their last fencing round.
        session_key: The key that signs internal requests; None before the first one.
        uncommitted: Task configurations without their commit record yet, by connector and number.
        recorded: The numbers of the task records in the topic, by connector, including records that no longer count.
    """

    offset: int = -1
    connectors: Mapping[str, ConfiguredConnector] = field(default_factory=lambda: MappingProxyType({}))
    targets: Mapping[str, TargetState] = field(default_factory=lambda: MappingProxyType({}))
    fenced: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    unfenced: frozenset[str] = frozenset()
    session_key: SessionKey | None = None
    uncommitted: Mapping[str, Mapping[int, Properties]] = field(default_factory=lambda: MappingProxyType({}))
    recorded: Mapping[str, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def task_counts(self) -> Mapping[str, int]:
        return {name: len(one.tasks) for name, one in self.connectors.items()}

    def target(self, connector: str) -> TargetState:
        """The state that a user requested for a connector; STARTED if nothing was requested."""
        return self.targets.get(connector, TargetState.STARTED)

    def task_ids(self, connector: str) -> tuple[ConnectorTaskId, ...]:
        return tuple(ConnectorTaskId(connector, number) for number in range(self.task_counts.get(connector, 0)))


# ------------------------------------------------------------------ changes
@dataclass(frozen=True)
class ConnectorChanged:
    """A connector was created, got settings, or was deleted; ``config`` distinguishes these.

    Storing the same settings again requests another instance, as in Java.
    """

    connector: str
    before: Properties | None
    config: Properties | None


@dataclass(frozen=True)
class TasksCommitted:
    """Other task configurations took effect, or none because the set is incomplete."""

    connector: str


@dataclass(frozen=True)
class TargetChanged:
    """A user requested another target state."""

    connector: str
    target: TargetState


@dataclass(frozen=True)
class RestartAsked:
    """A user requested a restart of the connector, with or without its tasks, or only of the failed ones."""

    connector: str
    include_tasks: bool
    only_failed: bool


@dataclass(frozen=True)
class SessionKeyChanged:
    """The session key changed."""


@dataclass(frozen=True)
class LoggerLevelAsked:
    """A user requested a level of a logger, on every worker."""

    logger: str
    level: str


@dataclass(frozen=True)
class RecordSkipped:
    """A record was unusable."""

    offset: int
    key: str
    reason: str


Change = (
    ConnectorChanged
    | TasksCommitted
    | TargetChanged
    | RestartAsked
    | SessionKeyChanged
    | LoggerLevelAsked
    | RecordSkipped
)


# ------------------------------------------------------------------ folding
def fold(config: ClusterConfig, records: Iterable[ConfigRecord]) -> tuple[ClusterConfig, list[Change]]:
    """The snapshot after some records, in the order of the topic, and their changes. Invariant 8.

    An unusable record gives a ``RecordSkipped`` and changes nothing.
    """
    folding = _Folding(config)
    for record in records:
        folding.take(record)
    return folding.snapshot(), folding.changes


class _UnusableError(Exception):
    """A record is unusable; the text gives the reason."""


class _Folding:
    """A snapshot to which records are being applied."""

    def __init__(self, config: ClusterConfig) -> None:
        self._before = config
        self._offset = config.offset
        self._connectors = dict(config.connectors)
        self._targets = dict(config.targets)
        self._fenced = dict(config.fenced)
        self._unfenced = set(config.unfenced)
        self._session_key = config.session_key
        self._uncommitted = {name: dict(tasks) for name, tasks in config.uncommitted.items()}
        # The numbers of the task records of each connector that has new task records.
        self._recorded: dict[str, set[int]] = {}
        self.changes: list[Change] = []

    def snapshot(self) -> ClusterConfig:
        recorded = {**self._before.recorded, **{name: frozenset(tasks) for name, tasks in self._recorded.items()}}
        return ClusterConfig(
            self._offset,
            MappingProxyType(self._connectors),
            MappingProxyType(self._targets),
            MappingProxyType(self._fenced),
            frozenset(self._unfenced),
            self._session_key,
            MappingProxyType({name: MappingProxyType(tasks) for name, tasks in self._uncommitted.items()}),
            MappingProxyType({name: tasks for name, tasks in recorded.items() if tasks}),
        )

    def take(self, record: ConfigRecord) -> None:
        self._offset = record.offset + 1
        prefix = next((one for one in _KINDS if record.key.startswith(one)), None)
        try:
            if prefix is None:
                raise _UnusableError("its key is of no known kind")
            if record.key == prefix and prefix != _SESSION_KEY:
                raise _UnusableError("its key names nothing")
            _KINDS[prefix](self, record.key.removeprefix(prefix), _json(record.value))
        except _UnusableError as unusable:
            self.changes.append(RecordSkipped(record.offset, record.key, str(unusable)))

    def connector(self, name: str, value: Mapping[str, object] | None) -> None:
        known = self._connectors.get(name)
        before = known.config if known else None
        if value is None:
            # A former leader may write task records of the connector after its deletion.
            self._connectors.pop(name, None)
            self._uncommitted.pop(name, None)
            self._unfenced.discard(name)
            if known is not None:
                self.changes.append(ConnectorChanged(name, before, None))
            return
        config = _properties(value)
        said = value.get("secrets")
        secrets = frozenset(one for one in said if isinstance(one, str)) if isinstance(said, list) else frozenset()
        known = known or ConfiguredConnector(config)
        # Workers that do not know secrets, such as Java's, omit them.
        self._connectors[name] = replace(known, config=config, secrets=known.secrets | secrets)
        self._targets.setdefault(name, TargetState.STARTED)
        self.changes.append(ConnectorChanged(name, before, config))

    def target_state(self, name: str, value: Mapping[str, object] | None) -> None:
        before = self._targets.get(name)
        if value is None:
            self._targets.pop(name, None)
            if name in self._connectors:
                self._targets[name] = TargetState.STARTED
        else:
            # Workers that do not know STOPPED read PAUSED in the older field.
            text = value.get("state.v2", value.get("state"))
            try:
                self._targets[name] = TargetState(text)
            except ValueError:
                raise _UnusableError(f"it asks for the state {text!r}") from None
        after = self._targets.get(name)
        if after is not None and after is not before:
            self.changes.append(TargetChanged(name, after))

    def task(self, name: str, value: Mapping[str, object] | None) -> None:
        connector, _, number = name.rpartition("-")
        if not connector or not number.isdecimal() or len(number) > 9:
            raise _UnusableError("its key names no task")
        recorded = self._recorded.get(connector)
        if recorded is None:
            recorded = self._recorded[connector] = set(self._before.recorded.get(connector, ()))
        (recorded.discard if value is None else recorded.add)(int(number))
        waiting = self._uncommitted.pop(connector, {})
        try:
            if value is None:
                waiting.pop(int(number), None)
            else:
                waiting[int(number)] = _properties(value)
        finally:
            if waiting:
                self._uncommitted[connector] = waiting

    def commit(self, name: str, value: Mapping[str, object] | None) -> None:
        count = 0 if value is None else _count(value, "tasks")
        waiting = self._uncommitted.pop(name, {})
        known = self._connectors.get(name)
        if known is None or value is None:
            return
        self._unfenced.add(name)
        if any(number not in waiting for number in range(count)):
            self._connectors[name] = replace(known, tasks=(), inconsistent=True)
        else:
            self._connectors[name] = replace(
                known,
                tasks=tuple(waiting[number] for number in range(count)),
                applied=known.config,
                generation=known.generation + (1 if waiting else 0),
                inconsistent=False,
            )
        self.changes.append(TasksCommitted(name))

    def restart(self, name: str, value: Mapping[str, object] | None) -> None:
        asked = value or {}
        self.changes.append(RestartAsked(name, asked.get("include-tasks") is True, asked.get("only-failed") is True))

    def fencing(self, name: str, value: Mapping[str, object] | None) -> None:
        self._unfenced.discard(name)
        if value is None:
            self._fenced.pop(name, None)
        else:
            self._fenced[name] = _count(value, "task-count")

    def key_of_session(self, name: str, value: Mapping[str, object] | None) -> None:
        if value is None:
            return
        key, algorithm, created = value.get("key"), value.get("algorithm"), value.get("creation-timestamp")
        if not isinstance(key, str) or not isinstance(algorithm, str) or not isinstance(created, int):
            raise _UnusableError("a session key has the fields key, algorithm and creation-timestamp")
        try:
            self._session_key = SessionKey(b64decode(key, validate=True), algorithm, created)
        except ValueError as error:
            raise _UnusableError(f"its key is no base64: {error}") from None
        self.changes.append(SessionKeyChanged())

    def logger(self, name: str, value: Mapping[str, object] | None) -> None:
        level = (value or {}).get("level")
        if not isinstance(level, str):
            raise _UnusableError("it has no level")
        self.changes.append(LoggerLevelAsked(name, level))


_SESSION_KEY: Final = "session-key"
#: The kinds of records by the beginning of their keys, in the order in which Java compares them.
_KINDS: Final = {
    "target-state-": _Folding.target_state,
    "connector-": _Folding.connector,
    "task-": _Folding.task,
    "commit-": _Folding.commit,
    "restart-connector-": _Folding.restart,
    "tasks-fencing-": _Folding.fencing,
    _SESSION_KEY: _Folding.key_of_session,
    "logger-cluster-": _Folding.logger,
}


def _json(value: bytes | None) -> Mapping[str, object] | None:
    if value is None:
        return None
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _UnusableError(f"its value is no JSON: {error}") from None
    if parsed is not None and not isinstance(parsed, dict):
        raise _UnusableError("its value is no JSON object")
    return parsed


def _properties(value: Mapping[str, object]) -> Properties:
    properties = value.get("properties")
    if not isinstance(properties, dict):
        raise _UnusableError("it has no object properties")
    for key, text in properties.items():
        if text is not None and not isinstance(text, str):
            raise _UnusableError(f"its property {key} is no text")
    return MappingProxyType(properties) if properties else _NONE


def _count(value: Mapping[str, object], name: str) -> int:
    count = value.get(name)
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise _UnusableError(f"{name} is {count!r}, which is no number of tasks")
    return count


Entry: TypeAlias = tuple[str, "bytes | None"]

#: The state for versions of workers that do not know STOPPED.
_FOR_OLD_WORKERS: Final = {TargetState.STOPPED: TargetState.PAUSED}


def connector_entries(
    name: str, config: Properties, target: TargetState | None = None, secrets: Collection[str] = ()
) -> list[Entry]:
    """The entries for a connector's settings, placeholders unresolved, after its initial state (None keeps the current
    one).

    ``secrets`` are the settings that were secrets before, and are not secrets by their definition or name. Java's
    workers ignore them; without any, the record is the same as Java's, byte for byte.

    >>> connector_entries("c", {"name": "c", "topics": None})
    [('connector-c', b'{"properties":{"name":"c","topics":null}}')]
    >>> connector_entries("c", {"pin": "1"}, secrets={"pin"})
    [('connector-c', b'{"properties":{"pin":"1"},"secrets":["pin"]}')]
    """
    first = [] if target is None else target_entries(name, target)
    names = ",".join(json_string(secret) for secret in sorted(secrets))
    return [*first, _entry(f"connector-{name}", _properties_text(config, f',"secrets":[{names}]' if names else ""))]


def target_entries(name: str, target: TargetState) -> list[Entry]:
    """The entries for the state that a user requests for a connector.

    >>> target_entries("c", TargetState.STOPPED)
    [('target-state-c', b'{"state":"PAUSED","state.v2":"STOPPED"}')]
    """
    old = _FOR_OLD_WORKERS.get(target, target)
    return [_entry(f"target-state-{name}", f'{{"state":"{old.value}","state.v2":"{target.value}"}}')]


def task_entries(name: str, configs: Sequence[Properties]) -> list[Entry]:
    """The entries for a set of task configurations, with their commit; an empty set ends the tasks.

    >>> [key for key, _ in task_entries("c", [{"a": "0"}, {"a": "1"}])]
    ['task-c-0', 'task-c-1', 'commit-c']
    """
    tasks = [_entry(f"task-{name}-{number}", _properties_text(config)) for number, config in enumerate(configs)]
    return [*tasks, _entry(f"commit-{name}", f'{{"tasks":{len(configs)}}}')]


def deletion_entries(name: str, config: ClusterConfig) -> list[Entry]:
    """The entries for the deletion of a connector: tombstones for all its records.

    A Java worker leaves task records in the topic, and logs an error for each tombstone of one that it skips. The
    recorded number of task producers stays for the next fencing round, because a frozen task could write again.
    """
    keys = [
        f"connector-{name}",
        f"target-state-{name}",
        *(f"task-{name}-{number}" for number in sorted(config.recorded.get(name, ()))),
        f"commit-{name}",
    ]
    return [(key, None) for key in keys]


def restart_entries(name: str, *, include_tasks: bool, only_failed: bool) -> list[Entry]:
    """The entries that request a restart of a connector, on all workers that run it or its tasks.

    >>> restart_entries("c", include_tasks=True, only_failed=False)
    [('restart-connector-c', b'{"include-tasks":true,"only-failed":false}')]
    """
    asked = f'{{"include-tasks":{_boolean(include_tasks)},"only-failed":{_boolean(only_failed)}}}'
    return [_entry(f"restart-connector-{name}", asked)]


def fencing_entries(name: str, count: int) -> list[Entry]:
    """The entries for the number of a connector's task producers, after all earlier ones were fenced.

    >>> fencing_entries("c", 2)
    [('tasks-fencing-c', b'{"task-count":2}')]
    """
    return [_entry(f"tasks-fencing-{name}", f'{{"task-count":{count}}}')]


def session_key_entries(key: SessionKey) -> list[Entry]:
    """The entries for the key with which workers sign internal requests afterwards."""
    text = (
        f'{{"key":{json_string(b64encode(key.key).decode())},"algorithm":{json_string(key.algorithm)},'
        f'"creation-timestamp":{key.created_ms}}}'
    )
    return [_entry("session-key", text)]


def logger_entries(logger: str, level: str) -> list[Entry]:
    """The entries for the level of a logger on every worker.

    >>> logger_entries("org.apache.kafka.connect", "DEBUG")
    [('logger-cluster-org.apache.kafka.connect', b'{"level":"DEBUG"}')]
    """
    return [_entry(f"logger-cluster-{logger}", f'{{"level":{json_string(level)}}}')]


def _properties_text(config: Properties, more: str = "") -> str:
    parts = (f"{json_string(key)}:{'null' if text is None else json_string(text)}" for key, text in config.items())
    return f'{{"properties":{{{",".join(parts)}}}{more}}}'


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _entry(key: str, value: str) -> Entry:
    try:
        key.encode()
        return key, value.encode()
    except UnicodeEncodeError as error:
        raise DataException(
            f"The record {key!r} of the config topic cannot be written: a text in it is no valid Unicode ({error})"
        ) from error
