"""The records of the config topic, as Kafka Connect writes them, byte for byte.

Main type: ``Entry``, the key and the value of one record; a value of None is a tombstone. Each function gives the
entries that say one thing, in the order in which they have to be written: the last one makes the others count.
``penstock.model.cluster_config`` reads them.

Pure functions; any thread.
Source: org.apache.kafka.connect.storage.KafkaConfigBackingStore.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

from penstock.data.text import json_string
from penstock.errors import DataException
from penstock.model.cluster_config import ClusterConfig, Properties, SessionKey
from penstock.model.states import TargetState

Entry: TypeAlias = tuple[str, "bytes | None"]

#: What workers of versions that do not know STOPPED are told.
_FOR_OLD_WORKERS: Final = {TargetState.STOPPED: TargetState.PAUSED}


def connector_entries(
    name: str, config: Properties, target: TargetState | None = None, secrets: Collection[str] = ()
) -> list[Entry]:
    """A connector's settings, placeholders unresolved; in front of them the state that it is to begin in.

    Args:
        name: Its name.
        config: The settings.
        target: That state; None to leave it.
        secrets: The settings that were secrets before, and are none by their definition or name. Java's workers pass
            this over; where there are none, the record is Java's byte for byte.

    Raises:
        DataException: a text is no valid Unicode.

    >>> connector_entries("c", {"name": "c", "topics": None})
    [('connector-c', b'{"properties":{"name":"c","topics":null}}')]
    >>> connector_entries("c", {"pin": "1"}, secrets={"pin"})
    [('connector-c', b'{"properties":{"pin":"1"},"secrets":["pin"]}')]
    """
    first = [] if target is None else target_entries(name, target)
    names = ",".join(json_string(secret) for secret in sorted(secrets))
    return [*first, _entry(f"connector-{name}", _properties_text(config, f',"secrets":[{names}]' if names else ""))]


def target_entries(name: str, target: TargetState) -> list[Entry]:
    """Returns the entries for the state that a user requests for a connector.

    >>> target_entries("c", TargetState.STOPPED)
    [('target-state-c', b'{"state":"PAUSED","state.v2":"STOPPED"}')]
    """
    old = _FOR_OLD_WORKERS.get(target, target)
    return [_entry(f"target-state-{name}", f'{{"state":"{old.value}","state.v2":"{target.value}"}}')]


def task_entries(name: str, configs: Sequence[Properties]) -> list[Entry]:
    """A connector's task configurations as one set, with the commit that brings them into force; none ends its tasks.

    Raises:
        DataException: a text is no valid Unicode.

    >>> [key for key, _ in task_entries("c", [{"a": "0"}, {"a": "1"}])]
    ['task-c-0', 'task-c-1', 'commit-c']
    """
    tasks = [_entry(f"task-{name}-{number}", _properties_text(config)) for number, config in enumerate(configs)]
    return [*tasks, _entry(f"commit-{name}", f'{{"tasks":{len(configs)}}}')]


def deletion_entries(name: str, config: ClusterConfig, *, fenced: bool = False) -> list[Entry]:
    """A connector's end: tombstones for all that the topic has of it.

    A Java worker leaves its task records, and logs an error for each tombstone of one that it passes over.

    Args:
        name: The connector.
        config: What the topic says now: which task records there are.
        fenced: A fencing round for the recorded number of task producers was done. Without it the record stays: a task
            that is frozen now could write again, and nobody would know how many there were.
    """
    keys = [
        f"connector-{name}",
        f"target-state-{name}",
        *(f"task-{name}-{number}" for number in sorted(config.recorded.get(name, ()))),
        f"commit-{name}",
    ]
    if fenced and name in config.fenced:
        keys.append(f"tasks-fencing-{name}")
    return [(key, None) for key in keys]


def restart_entries(name: str, *, include_tasks: bool, only_failed: bool) -> list[Entry]:
    """A request to restart a connector, on whichever workers it runs.

    >>> restart_entries("c", include_tasks=True, only_failed=False)
    [('restart-connector-c', b'{"include-tasks":true,"only-failed":false}')]
    """
    asked = f'{{"include-tasks":{_boolean(include_tasks)},"only-failed":{_boolean(only_failed)}}}'
    return [_entry(f"restart-connector-{name}", asked)]


def fencing_entries(name: str, count: int) -> list[Entry]:
    """Returns the entries for the number of a connector's task producers, after all earlier ones were fenced.

    >>> fencing_entries("c", 2)
    [('tasks-fencing-c', b'{"task-count":2}')]
    """
    return [_entry(f"tasks-fencing-{name}", f'{{"task-count":{count}}}')]


def session_key_entries(key: SessionKey) -> list[Entry]:
    """Returns the entries for the key with which workers sign internal requests from now on."""
    text = (
        f'{{"key":{json_string(b64encode(key.key).decode())},"algorithm":{json_string(key.algorithm)},'
        f'"creation-timestamp":{key.created_ms}}}'
    )
    return [_entry("session-key", text)]


def logger_entries(logger: str, level: str) -> list[Entry]:
    """A level of a logger on every worker.

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
