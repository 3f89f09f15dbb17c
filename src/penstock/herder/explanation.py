"""Explains one connector: its settings and where they come from, its offsets and lag, and what it waits for.

Main functions: ``effective_settings``, ``explain_offsets``, ``explain_waiting``. The last two block (on a broker or a
disk) or look at threads, so they are called on a thread of the caller's choice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.herder.config_infos import ConfigInfos
from penstock.herder.offset_changes import OffsetChanges
from penstock.herder.override_checks import clients_of, is_client_secret
from penstock.herder.secrets import masked
from penstock.model import ConnectorTaskId, ConnectorType
from penstock.model.payloads import ConnectorView
from penstock.settings import WORKER
from penstock.worker.waiting import connector_waiting, stacks, task_waiting

#: How long Kafka may take to tell a sink's offsets: what a sink waits for is asked for when Kafka is away, too.
_KAFKA_TIMEOUT_S: Final = 5.0
#: Settings that a connector takes from the worker when it has none of its own.
_FROM_WORKER: Final = ("key.converter", "value.converter", "header.converter")
#: Names of what a converter of the worker may have for secrets: nobody has validated its settings here.
_SECRET: Final = re.compile(r"password|secret|token|user\.info|jaas", re.IGNORECASE)


def effective_settings(
    infos: ConfigInfos,
    config: Mapping[str, str],
    worker: Mapping[str, str],
    secrets: frozenset[str],
    kind: ConnectorType,
) -> list[dict[str, object]]:
    """Every setting that counts, with its value and its origin.

    Args:
        infos: What validation knows of the settings.
        config: Those of the connector, as given.
        worker: Those of the worker's file.
        secrets: The names of settings whose values must not be shown.
        kind: What it is.
    """
    shown = masked(config, secrets)
    taken = _taken_from_worker(config, worker, kind)
    found: dict[str, dict[str, object]] = {}
    for finding in infos.findings:
        body = finding.to_json()["value"]
        assert isinstance(body, dict)
        name = finding.name
        if name in taken:
            found[name] = {"name": name, "value": taken[name], "origin": "worker"}
        elif name in shown:
            found[name] = {"name": name, "value": shown[name], "origin": "connector"}
        else:
            value = WORKER.keys["header.converter"].default_text() if name == "header.converter" else body["value"]
            found[name] = {"name": name, "value": value, "origin": "default"}
    for origin, values in (("worker", taken), ("connector", shown)):
        for name, text in values.items():
            found.setdefault(name, {"name": name, "value": text, "origin": origin})
    return list(found.values())


def _taken_from_worker(config: Mapping[str, str], worker: Mapping[str, str], kind: ConnectorType) -> dict[str, str]:
    """What of the worker's file holds for a connector: converters with all of their settings, and Kafka clients'.

    A connector without a converter of its own gets the worker's as it is: settings of its own for it do not count.
    """
    converters = tuple(name for name in _FROM_WORKER if not config.get(name) and worker.get(name))
    clients = {client.value for client in clients_of(kind, config)}
    taken = {}
    for name, value in worker.items():
        whose, _, setting = name.partition(".")
        override = f"{whose}.override.{setting}"
        client = whose in clients and override not in config
        if client or name in converters or name.startswith(tuple(f"{one}." for one in converters)):
            secret = is_client_secret(override) or _SECRET.search(name) is not None
            taken.update(masked({name: value}, {name} if secret else ()))
    return taken


def explain_offsets(changes: OffsetChanges) -> list[dict[str, object]]:
    """The committed offsets; for a sink with what is left to read.

    Raises:
        KafkaException: Kafka does not answer; it is not asked for long.
    """
    if changes.type is not ConnectorType.SINK:
        return [entry.to_json() for entry in changes.read()]
    kafka = changes.offsets.within(_KAFKA_TIMEOUT_S)
    committed = kafka.read_sink(changes.connector, changes.config)
    plan = kafka.plan_sink(changes.connector, changes.config, committed) if committed else None
    listed = []
    for at, offset in committed.items():
        assert plan is not None
        place = {"kafka_topic": at.topic, "kafka_partition": at.partition}
        lag = max(0, plan.ends[at] - max(offset, plan.beginnings[at]))
        listed.append({"partition": place, "offset": {"kafka_offset": offset}, "lag": lag})
    return listed


def explain_commit(kind: ConnectorType, worker: Mapping[str, str]) -> dict[str, object]:
    """What triggers the next commit of offsets."""
    others = ["pause", "stop", "restart", "the end of the worker"]
    if kind is ConnectorType.SINK:
        others = ["context.request_commit() of a task", "a rebalance of the group", *others]
    interval = worker.get("offset.flush.interval.ms", "60000")
    return {
        "every_ms": int(interval) if interval.isdecimal() else None,
        "setting": "offset.flush.interval.ms",
        "or": others,
    }


def _time_of_day(moment: float | None) -> datetime | None:
    """The time of a moment of the monotonic clock."""
    return None if moment is None else datetime.now(UTC) - timedelta(seconds=time.monotonic() - moment)


def explain_waiting(
    view: ConnectorView,
    busy_with: str | None,
    *,
    spark_up: bool,
    kafka_up: bool,
    retry_at_ms: Callable[[ConnectorTaskId], int | None],
    round_began: Callable[[ConnectorTaskId], float | None],
) -> tuple[dict[str, object], Sequence[dict[str, object]]]:
    """What the connector and each of its tasks wait for.

    Args:
        view: The connector.
        busy_with: What is being done to it.
        spark_up: Whether there is a Spark session.
        kafka_up: Whether Kafka has told the connector's offsets.
        retry_at_ms: When a task puts records again.
        round_began: When a task's loop last went on.
    """
    threads = stacks()
    state = None if view.status is None else view.status.state
    connector = connector_waiting(view.name, state, threads).to_json()
    if busy_with is not None:
        connector["busy_with"] = busy_with
    tasks: list[dict[str, object]] = [
        {
            "id": task.id.task,
            "state": task.state.value,
            "waiting_for": task_waiting(
                str(task.id),
                task.state,
                threads,
                spark_up=spark_up,
                kafka_up=kafka_up,
                retry_at_ms=retry_at_ms(task.id),
                since=_time_of_day(round_began(task.id)),
            ).to_json(),
        }
        for task in view.tasks
    ]
    return connector, tasks
