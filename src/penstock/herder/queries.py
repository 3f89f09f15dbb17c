"""Serves requests that start and stop no task: offsets, validation, previews, and explanations of a connector.

``Questions`` has the requests, coroutines of the herder's thread. Blocking calls (to a broker, a disk, a connector) run
on separate threads, and with them the functions for the parts of an explanation. Only a change of offsets holds a lock,
so that the connector is not resumed during the change.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from penstock.errors import ConnectException, KafkaException
from penstock.herder.control_plane import ControlPlane
from penstock.herder.offset_changes import OffsetChanges, OffsetEntry, PreparedChange, done_message, not_stopped
from penstock.kafka.settings.table import is_client_secret
from penstock.model import ConnectorType, TargetState
from penstock.model.cluster_config import plain
from penstock.model.payloads import ConnectorView, GivenRecord, PreviewLimits, PreviewRequest
from penstock.settings import WORKER
from penstock.traces import root_cause
from penstock.validation.config_infos import ConfigInfos, Redaction, is_secret_name, masked, redaction_of
from penstock.validation.settings import clients_of, placeholder_warnings
from penstock.worker.task.waiting import Hints, WaitReason, because, connector_waiting, places, task_waiting
from penstock.worker.worker import Worker

log = logging.getLogger(__name__)
#: The time limit of Kafka for a sink's offsets: users ask for explanations when Kafka is unavailable, too.
_KAFKA_TIMEOUT_S: Final = 5.0
#: Settings that a connector takes from the worker when it has none of its own.
_FROM_WORKER: Final = ("key.converter", "value.converter", "header.converter")
#: The time limit of a REST request, in seconds.
OFFSETS_TIMEOUT_S: Final = 90.0
#: The time that tasks on other workers may take to end after their deadline, and the interval of the checks of their
#: statuses.
_STOP_SLACK_S: Final = 5.0
_LOOK_S: Final = 0.02
#: A setting with more digits is no number of milliseconds.
_DIGITS: Final = 19


def effective_settings(
    infos: ConfigInfos,
    config: Mapping[str, str],
    worker: Mapping[str, str],
    secrets: frozenset[str],
    kind: ConnectorType,
) -> list[dict[str, object]]:
    """Every setting in force, with its value and its origin.

    Args:
        infos: The result of validation.
        config: The connector's settings, as given.
        worker: The settings of the worker's file.
        secrets: The names of settings whose values must not be shown.
        kind: Source or sink.
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
    """The settings of the worker's file that apply to a connector: converters and Kafka clients.

    A connector without a converter of its own gets the worker's unchanged: its own settings for it do not count.
    """
    converters = tuple(name for name in _FROM_WORKER if not config.get(name) and worker.get(name))
    clients = {client.value for client in clients_of(kind, config)}
    taken = {}
    for name, value in worker.items():
        whose, _, setting = name.partition(".")
        override = f"{whose}.override.{setting}"
        client = whose in clients and override not in config
        if client or name in converters or name.startswith(tuple(f"{one}." for one in converters)):
            secret = is_client_secret(setting) if client else is_secret_name(name)
            taken.update(masked({name: value}, {name} if secret else ()))
    return taken


def explain_offsets(changes: OffsetChanges) -> list[dict[str, object]]:
    """The committed offsets; for a sink with the lag. Raises KafkaException within a few seconds if Kafka does not
    answer.
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


def explain_commit(
    kind: ConnectorType, worker: Mapping[str, str], config: Mapping[str, str], *, exactly_once: bool = False
) -> dict[str, object]:
    """Describes the trigger of the next commit of offsets, by the worker's file and the connector's settings."""
    others = ["pause", "stop", "restart", "the end of the worker"]
    setting = "offset.flush.interval.ms"
    text = worker.get(setting, "60000")
    if exactly_once and kind is ConnectorType.SOURCE:
        boundary, own = config.get("transaction.boundary", "poll").lower(), "transaction.boundary.interval.ms"
        if boundary != "interval":
            ends = ["its tasks, through their transaction context"]
            if boundary != "connector":
                ends = ["the end of each poll", *others]
            return {"every_ms": None, "setting": "transaction.boundary", "or": ends}
        if own in config:
            setting, text = own, config[own]
    elif kind is ConnectorType.SINK:
        others = ["context.request_commit() of a task", "a rebalance of the group", *others]
    every_ms = int(text) if text.isdecimal() and len(text) < _DIGITS else None
    return {"every_ms": every_ms, "setting": setting, "or": others}


def explain_roads(counts: Iterable[tuple[Mapping[str, str], float]]) -> list[dict[str, object]]:
    """Counts the records that went through Spark as columns and the records that went one by one, by reason; most
    first.

    ``counts`` are the values of the metric ``penstock_spark_records_total``: labels and number.
    """
    found: Counter[tuple[str, str]] = Counter()
    for labels, count in counts:
        found[labels["road"], labels["why"]] += int(count)
    return [{"road": road, "why": why or None, "records": count} for (road, why), count in found.most_common()]


@dataclass(frozen=True)
class Surroundings:
    """The findings around a connector that has nothing to do: why Kafka does not answer, missing topics and input."""

    kafka: str | None = None
    topics: Sequence[str] = ()
    input: Sequence[str] = ()

    def behind(self, waiting: WaitReason) -> WaitReason:
        """The wait, or its cause: a missing topic or input explains only a task without work."""
        if waiting.reason == "broker":
            return waiting if waiting.cause else waiting.because(self.kafka)
        if waiting.reason not in ("no_data", "group_join", "no_partitions"):
            return waiting
        for reason, found in (("topic_missing", self.topics), ("input_missing", self.input)):
            if found:
                return because(reason).because("; ".join(found))
        return waiting


def look_around(changes: OffsetChanges, target: TargetState, kafka: str | None) -> Surroundings:
    """Looks for missing topics and input of a connector. May block.

    A paused or stopped connector lacks nothing. ``kafka`` is the reason why Kafka did not return the offsets; if set,
    Kafka is not called again.
    """
    if target is not TargetState.STARTED:
        return Surroundings(kafka)
    return Surroundings(kafka, () if kafka else _topic_faults(changes), _obstacles(changes))


def _topic_faults(changes: OffsetChanges) -> Sequence[str]:
    if changes.type is not ConnectorType.SINK:
        return ()
    try:
        wanted = changes.subscription()
        return changes.offsets.within(_KAFKA_TIMEOUT_S).topic_faults(changes.connector, changes.config, wanted)
    except KafkaException as error:
        return [str(error)]


def _obstacles(changes: OffsetChanges) -> Sequence[str]:
    """The connector's own obstacles; an error of a user's code does not hide the rest of the answer."""
    try:
        return [str(text) for text in changes.new_connector().obstacles(changes.config)]
    except BaseException as error:
        log.warning(
            "Connector %s cannot report its missing input: %s: %s", changes.connector, type(error).__name__, error
        )
        return ()


def _failed(waiting: WaitReason, trace: str | None, then: str) -> WaitReason:
    """The wait; if the instance has failed, with its error and advice."""
    if waiting.reason != "failed" or not trace:
        return waiting
    return waiting.because(root_cause(trace), f"Fix the cause, then restart it: {then}")


def progress_of(hints: Hints) -> dict[str, object]:
    """The field ``progress`` of a task; empty if it reports none."""
    return {} if hints.progress is None else {"progress": hints.progress.to_json()}


def explain_waiting(
    view: ConnectorView, busy_with: str | None, worker: Worker, around: Surroundings
) -> tuple[dict[str, object], Sequence[dict[str, object]]]:
    """Describes the waits of the connector and each of its tasks; ``busy_with`` is the present step of a request."""
    restart = f"penstock connectors restart {shlex.quote(view.name)}"
    threads = places()
    state, trace = (None, None) if view.status is None else (view.status.state, view.status.trace)
    retry = worker.connector_waiting(view.name)
    waits = connector_waiting(view.name, state, threads, retry)
    if not view.tasks and retry is None:
        waits = around.behind(waits)
    connector = _failed(waits, trace, restart).to_json()
    if busy_with is not None:
        connector["busy_with"] = busy_with
    tasks: list[dict[str, object]] = []
    for task in view.tasks:
        hints = worker.hints(task.id)
        waits = task_waiting(
            str(task.id),
            task.state,
            threads,
            spark_up=worker.spark_up,
            spark_trouble=worker.spark_trouble,
            kafka_up=not around.kafka,
            hints=hints,
        )
        waits = _failed(around.behind(waits), task.trace, f"{restart} --task {task.id.task}")
        body = {"id": task.id.task, "state": task.state.value, "waiting_for": waits.to_json()}
        tasks.append({**body, **progress_of(hints)})
    return connector, tasks


class Questions:
    """Answers about the connectors of a herder; ``hook_timeout_s`` limits a connector's ``alter_offsets``."""

    def __init__(self, plane: ControlPlane, hook_timeout_s: float = OFFSETS_TIMEOUT_S) -> None:
        self._hook_timeout_s = hook_timeout_s
        self._plane = plane

    async def read_offsets(self, name: str) -> Sequence[OffsetEntry]:
        changes = await self._offset_changes(name)
        return await self._plane.loop.off_loop(f"offsets-{name}", changes.read)

    async def plan_offsets(self, name: str, plan: Callable[[OffsetChanges], dict[str, object]]) -> dict[str, object]:
        changes = await self._offset_changes(name)
        return await self._plane.loop.off_loop(f"offsets-{name}", lambda: plan(changes))

    async def change_offsets(
        self, name: str, verb: str, prepare: Callable[[OffsetChanges], PreparedChange]
    ) -> dict[str, object]:
        """Asks the connector, then writes. Other changes of the connector wait until then, so that it stays stopped."""
        plane = self._plane
        parts = await plane.steady(dealt=True)
        parts.membership.require_stable()
        self._require_stopped(name)
        parts.membership.require_leader()
        async with plane.offsets_lock(name):
            await plane.read_all()
            self._require_stopped(name)
            await self._tasks_gone(name)
            changing = None
            if parts.cluster is not None:
                changing = await parts.cluster.fence_for_change(name)
                self._require_stopped(name)
            changes = replace(await self._offset_changes(name), transactional_id=changing)
            with plane.stage(name, "changing the offsets"):
                prepared = await self._prepared(name, lambda: prepare(changes))
                await plane.loop.off_loop(f"offsets-{name}", prepared.write)
        log.info("The offsets of connector %s were %s", name, verb)
        return done_message(verb, prepared.stated)

    async def _prepared(self, name: str, prepare: Callable[[], PreparedChange]) -> PreparedChange:
        """Asks the connector about a change. The time limit keeps a connector that does not answer from blocking
        others.
        """
        try:
            async with asyncio.timeout(self._hook_timeout_s):
                return await self._plane.loop.off_loop(f"offsets-{name}", prepare)
        except TimeoutError:
            raise ConnectException(
                f"Connector {name} did not answer within {self._hook_timeout_s:g} s whether its offsets may be changed "
                "(alter_offsets), or Kafka did not: nothing was changed"
            ) from None

    async def _tasks_gone(self, name: str) -> None:
        """Waits for tasks that end on other workers: their last commit must not come after the change."""
        plane, loop = self._plane, asyncio.get_running_loop()
        end = loop.time() + plane.worker.task_stop_timeout_s + _STOP_SLACK_S
        with plane.stage(name, "ending the tasks"):
            while plane.parts.statuses.tasks(name) and loop.time() < end:
                await asyncio.sleep(_LOOK_S)

    def _require_stopped(self, name: str) -> None:
        known = self._plane.connector(name, f"Connector {name} not found")
        if self._plane.snapshot.target(name) is not TargetState.STOPPED or known.tasks:
            raise not_stopped(name)

    async def _offset_changes(self, name: str) -> OffsetChanges:
        plane = self._plane
        parts = await plane.ready()
        known = plane.connector(name, f"Connector {name} not found")
        given = plain(known.config)
        config = await plane.loop.off_loop(f"resolve-{name}", lambda: parts.worker.resolvable(given).data)
        # If its class is missing, the error names it.
        checked = await plane.facts.find(name, known.config)
        new_connector = partial(parts.validator.new_connector, config)
        return OffsetChanges(name, checked.type, config, parts.worker.offsets, new_connector)

    async def explain(self, name: str) -> dict[str, object]:
        plane = self._plane
        parts = await plane.ready()
        worker, validator = parts.worker, parts.validator
        changes = await self._offset_changes(name)
        known = plane.connector(name, f"Connector {name} not found")
        view, busy = plane.view(name), plane.stages.get(name)
        assert view is not None
        given, secrets = plain(known.config), plane.facts.secrets(name, known)
        # If no instance has run here, the values of the placeholders are not noted yet.
        plane.facts.note(name, given, changes.config)
        redaction = plane.redaction(name)

        def explain() -> dict[str, object]:
            infos = validator.infos(given, changes.config)
            offsets: list[dict[str, object]] = []
            problem: dict[str, str] = {}
            try:
                offsets = explain_offsets(changes)
            except KafkaException as error:
                problem = {"offsets_error": redaction.text(str(error))}
            last = worker.backfills.view(name)
            beside = {} if last is None else {"backfill": redaction.body(last.to_json())}
            around = look_around(changes, view.target, problem.get("offsets_error"))
            connector, tasks = explain_waiting(view, busy, worker, around)
            return {
                "name": name,
                "type": view.type.value,
                "state": None if view.status is None else view.status.state.value,
                "target": view.target.value,
                "waiting_for": redaction.body(connector),
                "tasks": redaction.body(tasks),
                "roads": explain_roads(worker.roads(name)),
                "offsets": offsets,
                **problem,
                **beside,
                "next_commit": explain_commit(
                    view.type, worker.settings, changes.config, exactly_once=worker.exactly_once
                ),
                "settings": effective_settings(infos, given, worker.settings, secrets, view.type),
            }

        return await self._plane.loop.off_loop(f"explain-{name}", explain, ends=True)

    async def preview(
        self, config: dict[str, str | None], records: Sequence[GivenRecord] | None, limits: PreviewLimits
    ) -> dict[str, object]:
        parts = await self._plane.ready()
        worker, validator = parts.worker, parts.validator
        config.setdefault("name", "preview")
        config = self._plane.unmasked(config["name"] or "", config)

        name, stages, said, ended = config["name"] or "", self._plane.stages, "", False

        def note(step: str) -> None:
            nonlocal said
            # The step of a request about the connector itself stays: that request waits for it.
            if not ended and stages.get(name, said) == said:
                said = stages[name] = f"busy with a preview of connector {name}, which {step}"

        def check() -> tuple[PreviewRequest, Redaction]:
            resolved = worker.resolve({key: value for key, value in config.items() if value is not None})
            checked = validator(config, {**config, **resolved})
            redaction = redaction_of(config, resolved, checked.secrets)
            return PreviewRequest(checked.type, resolved, records, limits, note), redaction

        # The check may be ended; the preview has a limit of its own.
        wanted, redaction = await self._plane.loop.off_loop("preview-check", check, ends=True)

        def show() -> dict[str, object]:
            try:
                shown = redaction.body(worker.preview(wanted))
            except Exception as error:
                raise redaction.error(error) from None
            assert isinstance(shown, dict)
            return shown

        try:
            return await self._plane.loop.off_loop("preview", show)
        finally:
            ended = True
            if stages.get(name) == said:
                del stages[name]

    async def validate(self, config: dict[str, str | None]) -> ConfigInfos:
        parts = await self._plane.ready()
        worker, validator = parts.worker, parts.validator
        config = self._plane.unmasked(config.get("name") or "", config)

        def check() -> ConfigInfos:
            resolved = worker.resolvable({key: value for key, value in config.items() if value is not None})
            infos = validator.infos(config, {**config, **resolved.data})
            return replace(infos, warnings=[*infos.warnings, *placeholder_warnings(resolved.unresolved)])

        name = config.get("name") or ""
        with self._plane.stage(name, "validating the configuration"):
            return await self._plane.loop.off_loop(f"validate-{name}", check, ends=True)
