"""Requests that change connectors or start work: create, delete, target states, tasks, restarts, backfills.

The requests are coroutines of the herder's thread. The leader decides on changes and stores them; each worker applies
them when it reads them. Only the worker that runs a connector asks it for task configurations, and the leader stores
them if they differ. A restart replaces the instance on the worker that runs it; every worker reads a restart with
parameters, and restarts its own instances. A backfill runs on the worker that runs the connector.

Source: org.apache.kafka.connect.runtime.AbstractHerder, StandaloneHerder, DistributedHerder, RestartPlan; KIP-745.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from penstock.errors import (
    AlreadyExistsException,
    BadRequestException,
    ConfigException,
    ConflictException,
    ConnectException,
    NotFoundException,
)
from penstock.herder.connector_facts import still_secret
from penstock.herder.control_plane import ControlPlane, Created
from penstock.model import ConnectorStatus, ConnectorTaskId, ConnectorType, State, TargetState, TaskStatus
from penstock.model.cluster_config import (
    ConfiguredConnector,
    Properties,
    connector_entries,
    deletion_entries,
    plain,
    restart_entries,
    target_entries,
    task_entries,
)
from penstock.model.payloads import BackfillPlan, BackfillQuestion, BackfillRequest, ConnectorView
from penstock.model.states import Unit, connector_of
from penstock.stores.interface import StatusStore
from penstock.validation.config_infos import check_known
from penstock.validation.settings import placeholder_warnings
from penstock.validation.validator import Checked
from penstock.worker.backfills import backfill_task
from penstock.worker.task.slot import TaskRequest, TooManyTasksException, changed, check_count, complete

log = logging.getLogger(__name__)
#: The time after the end of its tasks within which the target state of a stopping connector may come.
_STOP_S: Final = 0.5
#: The longest wait of a request for another worker to report its restart, and the interval of the checks.
_SAID_S: Final = 2.0
_LOOK_S: Final = 0.01


class ConfigurationChanges:
    """Requests that change the configuration."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def put(
        self,
        name: str,
        config: Mapping[str, str | None],
        target: TargetState | None,
        replace: bool,
        based_on: Properties | None = None,
    ) -> Created:
        """Creates a connector, or with ``replace`` changes an existing one; checks it first.

        A standalone worker has also started it, and configured its tasks, when this is done.

        Raises:
            BadRequestException: the configuration is wrong.
            AlreadyExistsException: it exists and shall not be replaced.
            _OvertakenError: another change has replaced the configuration on which this one is based.
        """
        plane = self._plane
        parts = await plane.steady()
        given, checked = await self._checked(name, {**config, "name": name})
        async with plane.deciding(name):
            parts.membership.require_leader(given)
            known = plane.snapshot.connectors.get(name)
            if known is not None and not replace:
                raise AlreadyExistsException(f"Connector {name} already exists")
            if based_on is not None and (known is None or known.config != based_on):
                raise _OvertakenError
            created = known is None
            plane.facts.learn(name, given, checked)
            secrets = (
                frozenset[str]()
                if known is None
                else still_secret(known, plane.facts.known(name, known.config), checked)
            )
            await plane.write(connector_entries(name, given, target, secrets))
        if parts.membership.sole:
            await plane.running.outcome(name)
        view = plane.view(name)
        if view is None:
            plane.connector(name, f"Connector {name} was deleted in between")
        assert view is not None
        return Created(created, view)

    async def _checked(self, name: str, config: dict[str, str | None]) -> tuple[dict[str, str], Checked]:
        """The configuration with its secrets, and the result of its check."""
        plane = self._plane
        worker, validator = plane.worker, plane.parts.validator
        known = plane.snapshot.connectors.get(name)
        if known is not None:
            await self._look_at(name, known)
        config = plane.unmasked(name, config)

        def check() -> tuple[dict[str, str], Checked]:
            given = {key: value for key, value in config.items() if value is not None}
            found = worker.resolvable(given)
            checked = validator(config, {**config, **found.complete()})
            for warning in (*checked.warnings, *placeholder_warnings(found.unresolved)):
                log.warning("Connector %s: %s", name, warning)
            return given, checked

        with plane.stage(name, "validating the configuration"):
            given, checked = await plane.loop.off_loop(f"validate-{name}", check)
        check_known(given, checked.secrets)
        return given, checked

    async def _look_at(self, name: str, known: ConfiguredConnector) -> None:
        """Asks the class of the present configuration for its secrets; if that fails, all settings are secrets."""
        with contextlib.suppress(Exception):
            await self._plane.facts.find(name, known.config)

    async def patch(self, name: str, patch: dict[str, str | None]) -> Created:
        """Changes some settings of a connector; None removes one."""
        plane = self._plane
        parts = await plane.steady()
        while True:
            await plane.read_all()
            known = plane.connector(name, f"Connector {name} not found")
            _check_name(name, patch)
            await self._look_at(name, known)
            before = plain(known.config)
            change = plane.unmasked(name, patch)
            parts.membership.require_leader(change)
            merged = {key: value for key, value in {**before, **change}.items() if value is not None}
            # Another change may come while this one is checked; then it is merged with that.
            with contextlib.suppress(_OvertakenError):
                return await self.put(name, merged, None, True, known.config)

    async def delete(self, name: str) -> None:
        """Deletes a connector; its offsets stay. Done when its instances here have ended."""
        plane = self._plane
        parts = await plane.steady()
        async with plane.deciding(name):
            parts.membership.require_leader()
            plane.connector(name, f"Connector {name} not found")
            units, before = self._units(name), plane.snapshot
            await plane.write(deletion_entries(name, before))
            if parts.cluster is not None:
                parts.cluster.on_deleted(name, before.connectors[name], before.fenced.get(name))
        with plane.stage(name, "ending the tasks"):
            await plane.running.settled(units)
        log.info("Deleted connector %s", name)

    async def set_target(self, name: str, target: TargetState) -> None:
        """Makes another state the target; done when that is stored, STOPPED when the tasks that ran here have ended."""
        plane = self._plane
        stops = target is TargetState.STOPPED
        parts = await plane.steady() if stops else await plane.ready()
        async with plane.deciding(name):
            if stops:
                parts.membership.require_leader()
            plane.connector(name, f"Unknown connector {name}")
            units = [unit for unit in self._units(name) if not isinstance(unit, str)]
            entries = [*(task_entries(name, ()) if stops else ()), *target_entries(name, target)]
            await plane.write(entries, leading=stops)
        if stops:
            with plane.stage(name, "ending the tasks"):
                await plane.running.settled(units)

    def _units(self, name: str) -> list[Unit]:
        """Returns the units of a connector that run on this worker."""
        return [unit for unit in self._plane.running.units if connector_of(unit) == name]


def other_name(name: str, inside: str) -> BadRequestException:
    """The refusal of a configuration that names another connector."""
    return BadRequestException(
        f"Connector name configuration ({inside}) doesn't match connector name in the URL ({name})"
    )


def _check_name(name: str, patch: Mapping[str, str | None]) -> None:
    inside = patch.get("name", name)
    if inside is None:
        raise BadRequestException("The name of a connector cannot be removed from its configuration")
    if inside != name:
        raise other_name(name, inside)


class _OvertakenError(Exception):
    """Another change of the same configuration came first."""


class Reconfiguration:
    """Keeps the stored task configurations equal to those of their connectors."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._queued: set[str] = set()
        # The last task configurations of each connector that runs here.
        self._said: dict[str, list[dict[str, str]]] = {}

    async def on_request(self, name: str) -> None:
        """Called when the connector itself asks for it. Consecutive requests are served once."""
        plane = self._plane
        await plane.ready()
        # While it starts, the start itself asks for the tasks afterwards.
        if name in self._queued or not plane.worker.connector_running(name):
            return
        self._queued.add(name)
        await asyncio.sleep(0)
        self._queued.discard(name)
        known = plane.snapshot.connectors.get(name)
        if known is not None:
            config = known.config

            def counts() -> bool:
                present = plane.snapshot.connectors.get(name)
                return present is not None and present.config == config and plane.running.runs(name)

            await self.run(name, counts)

    async def on_commit(self, name: str) -> None:
        """Called when task configurations were stored: asks the connector again if they differ from its own.

        The sender is a worker that had the connector before, and did not know yet that it has lost it; or a stop, which
        stores them just before it stores the state.
        """
        await asyncio.sleep(_STOP_S)
        known, said = self._plane.snapshot.connectors.get(name), self._said.get(name)
        if known is None or not self._plane.running.runs(name):
            self._said.pop(name, None)
        elif said is not None and [plain(config) for config in known.tasks] != said:
            await self.on_request(name)

    async def run(self, name: str, counts: Callable[[], bool]) -> None:
        """Asks a connector for its tasks; ``counts`` is true while the asked instance is the present one.

        Raises:
            ConnectException: the connector raised an error, or returned invalid configurations; it has failed then.
        """
        plane, worker = self._plane, self._plane.worker
        known = plane.snapshot.connectors.get(name)
        if known is None or plane.snapshot.target(name) is not TargetState.STARTED:
            return

        def current() -> bool:
            return counts() and plane.snapshot.target(name) is TargetState.STARTED

        raw = plain(known.config)
        checked = await plane.facts.find(name, known.config)
        try:
            with plane.stage(name, "calling task_configs()"):
                plan = await asyncio.wrap_future(worker.task_plan(name, checked.max_tasks))
            if checked.enforce_max_tasks:
                check_count(name, len(plan.configs), checked.max_tasks)
        except Exception as error:
            if not current():
                return
            if worker.connector_running(name):
                worker.fail_connector(name, error)
            if isinstance(error, TooManyTasksException):
                raise
            raise ConnectException(f"Connector {name} failed to configure its tasks: {error}") from error
        if len(plan.configs) > checked.max_tasks:
            log.warning("Connector %s has %d tasks, more than tasks.max", name, len(plan.configs))
        configs = complete(
            plan.configs,
            task_class=plan.task_class,
            sink=checked.type is ConnectorType.SINK,
            raw=raw,
            resolved=plane.running.resolved(name),
        )
        present = plane.snapshot.connectors.get(name)
        if not current() or present is None:
            return
        self._said[name] = configs
        before = [plain(config) for config in present.tasks]
        then = None if present.applied is None else plain(present.applied)
        if present.inconsistent or changed(configs, before, connector_now=raw, connector_then=then):
            if plane.parts.cluster is not None:
                await plane.parts.cluster.publish(name, configs, current)
                return
            async with plane.storing:
                if current():
                    await plane.write(task_entries(name, configs))


class Restarts:
    """Requests that replace instances."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def connector(self, name: str) -> None:
        """Replaces the connector's instance; done when the new one has started and its tasks are configured."""
        plane = self._plane
        parts = await plane.steady(dealt=True)
        async with plane.offsets_lock(name):
            parts.membership.require_stable()
            known = plane.connector(name, f"Unknown connector: {name}")
            parts.membership.require_owner(name)
        # A secret that cannot be read, or a missing class, must not end a running instance.
        await self._resolve(name, known.config)
        await plane.facts.find(name, known.config)
        _mark_restarting(plane, name)
        plane.begin_anew([name])
        await plane.running.outcome(name)

    async def task(self, name: str, number: int) -> None:
        """Replaces one task; done when the new one was begun."""
        plane = self._plane
        parts = await plane.steady(dealt=True)
        parts.membership.require_stable()
        known = plane.connector(name, f"Unknown connector: {name}")
        task = ConnectorTaskId(name, number)
        if not 0 <= number < len(known.tasks) or plane.snapshot.target(name) is TargetState.STOPPED:
            raise NotFoundException(f"Task {task} not found" if parts.membership.sole else f"Unknown task: {task}")
        parts.membership.require_owner(task)
        await self._resolve(name, known.config)
        await self._tasks(name, [number])

    async def plan(self, name: str, include_tasks: bool, only_failed: bool) -> dict[str, object]:
        """Restarts the matching instances on every worker; answers with their status RESTARTING, before the restart is
        done.
        """
        plane = self._plane
        parts = await plane.steady(dealt=True)
        async with plane.offsets_lock(name):
            parts.membership.require_stable()
            known = plane.connector(name, f"Unknown connector: {name}")
            parts.membership.require_leader()
        view = plane.view(name)
        if view is None or view.status is None:
            raise NotFoundException(f"Status for connector {name} not found")
        if plane.running.runs(name):
            await self._resolve(name, known.config)
        itself, tasks = _restarted(view, include_tasks=include_tasks, only_failed=only_failed)
        answer = view.restarting(itself, tasks).status_json()
        await plane.write(restart_entries(name, include_tasks=include_tasks, only_failed=only_failed))
        await self._said(view, itself, tasks)
        assert answer is not None
        return answer

    async def _resolve(self, name: str, config: Properties) -> None:
        """Raises ConnectException if a placeholder cannot be resolved: not a fault of this request, because the
        configuration is stored.
        """
        worker, given = self._plane.worker, plain(config)
        try:
            await self._plane.loop.off_loop(f"resolve-{name}", lambda: worker.resolve(given))
        except ConfigException as error:
            raise ConnectException(f"Connector {name} is not restarted: a value is missing. {error}") from error

    async def _said(self, before: ConnectorView, itself: bool, tasks: Sequence[int]) -> None:
        """Waits, for a limited time, until a new status shows for everything that restarts."""
        statuses, loop = self._plane.parts.statuses, asyncio.get_running_loop()
        old = [status for status in before.tasks if status.id.task in tasks]

        def changed() -> bool:
            now = {status.id: status for status in statuses.tasks(before.name)}
            return not (itself and statuses.connector(before.name) is before.status) and all(
                now.get(status.id) is not status for status in old
            )

        end = loop.time() + _SAID_S
        while not changed() and loop.time() < end:
            await asyncio.sleep(_LOOK_S)

    async def asked(self, name: str, include_tasks: bool, only_failed: bool) -> None:
        """Called when a restart with parameters was read: restarts the matching instances that run here."""
        plane = self._plane
        view = plane.view(name)
        if view is None:
            return
        itself, tasks = _restarted(view, include_tasks=include_tasks, only_failed=only_failed)
        if tasks:
            await self._tasks(name, tasks)
        if itself and plane.running.runs(name):
            _mark_restarting(plane, name)
            plane.begin_anew([name])

    async def some_tasks(self, name: str, numbers: Sequence[int] | None) -> None:
        """Called when a connector asks to restart these of its tasks, or all."""
        await self._plane.ready()
        known = self._plane.snapshot.connectors.get(name)
        if known is not None:
            every = range(len(known.tasks))
            wanted = every if numbers is None else [one for one in numbers if one in every]
            await self._tasks(name, wanted)
            if (cluster := self._plane.parts.cluster) is not None:
                tasks = [ConnectorTaskId(name, number) for number in wanted]
                for task in tasks:
                    if not self._plane.running.runs(task):
                        await cluster.restart_elsewhere(task)

    async def _tasks(self, name: str, numbers: Iterable[int]) -> None:
        plane = self._plane
        tasks = [task for number in numbers if plane.running.runs(task := ConnectorTaskId(name, number))]
        for task in tasks:
            _mark_restarting(plane, task)
        plane.begin_anew(tasks)
        await plane.running.settled(tasks)


def _restarted(view: ConnectorView, *, include_tasks: bool, only_failed: bool) -> tuple[bool, Sequence[int]]:
    """True if a restart with parameters restarts the connector itself, and its restarted tasks."""
    failed = view.status is not None and view.status.state is State.FAILED
    matching = [task.id.task for task in view.tasks if not only_failed or task.state is State.FAILED]
    return not only_failed or failed, matching if include_tasks else []


def stored_status(statuses: StatusStore, unit: Unit) -> ConnectorStatus | TaskStatus | None:
    """The status of a connector or task."""
    if isinstance(unit, str):
        return statuses.connector(unit)
    return next((status for status in statuses.tasks(unit.connector) if status.id == unit), None)


def status_of(
    unit: Unit, state: State, plane: ControlPlane, trace: str | None, version: str | None
) -> ConnectorStatus | TaskStatus:
    """A status that this worker reports."""
    rest = (state, plane.worker_id, trace, version, plane.parts.membership.generation)
    return ConnectorStatus(unit, *rest) if isinstance(unit, str) else TaskStatus(unit, *rest)


def _mark_restarting(plane: ControlPlane, unit: Unit) -> None:
    """Sets the status RESTARTING, with the trace of the failure, if there was one."""
    before = stored_status(plane.parts.statuses, unit)
    if before is not None:
        plane.parts.statuses.put(status_of(unit, State.RESTARTING, plane, before.trace, before.version))


class BackfillRequests:
    """Serves requests for backfills."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def start(self, name: str, request: BackfillRequest) -> dict[str, object]:
        """Begins a backfill, or plans it only.

        Raises:
            NotFoundException: There is no such connector, or nothing to read.
            ConflictException: It has no tasks; AlreadyExistsException: it has a backfill.
            BadRequestException: The request is not possible.
            NotHereException: Another worker runs the connector.
        """
        await self._here(name)
        plane, worker = self._plane, self._plane.worker
        known = plane.connector(name, f"Connector {name} not found")
        if plane.snapshot.target(name) is TargetState.STOPPED or not known.tasks:
            raise ConflictException(
                f"Connector {name} has no tasks whose settings a backfill could use: it is stopped, or has not started "
                f"yet. Resume it with PUT /connectors/{name}/resume"
            )
        given, tasks = plain(known.config), [plain(one) for one in known.tasks]
        facts = await plane.facts.find(name, known.config)

        def resolved(task: Mapping[str, str]) -> Mapping[str, str]:
            found = worker.resolvable(task).data
            plane.facts.note(name, task, found)
            return found

        def planned() -> tuple[BackfillPlan, TaskRequest]:
            config = worker.resolve(given)
            plane.facts.note(name, given, config)
            readers = [partial(resolved, task) for task in tasks]
            plan = worker.plan_backfill(BackfillQuestion(name, facts.type, config, readers, request))
            first = readers[0]
            wanted = TaskRequest(backfill_task(name), facts.type, config, first(), first, False, 1, backfill=plan)
            return plan, wanted

        with plane.stage(name, "planning a backfill"):
            plan, wanted = await plane.loop.off_loop(f"backfill-plan-{name}", planned)
        if request.dry_run:
            return plan.to_json(name)
        if not plan.reads:
            what = "messages" if facts.type is ConnectorType.SINK else "rows"
            what += "" if request.of is None else f" of {request.of!r}"
            raise NotFoundException(f"Connector {name} has no {what} in that range: there is nothing to read again")
        # Another worker may have it by now.
        await self._here(name)
        return worker.start_backfill(wanted, plan).to_json()

    async def view(self, name: str) -> dict[str, object]:
        await self._here(name)
        self._plane.connector(name, f"Connector {name} not found")
        found = self._plane.worker.backfills.view(name)
        if found is None:
            raise NotFoundException(f"Connector {name} has had no backfill on this worker")
        shown = self._plane.redaction(name).body(found.to_json())
        assert isinstance(shown, dict)
        return shown

    async def cancel(self, name: str) -> None:
        """Ends the backfill of a connector; the records that it has written stay."""
        await self._here(name)
        self._plane.connector(name, f"Connector {name} not found")
        self._plane.worker.backfills.cancel(name)

    async def _here(self, name: str) -> None:
        parts = await self._plane.steady(dealt=True)
        parts.membership.require_stable()
        self._plane.connector(name, f"Connector {name} not found")
        parts.membership.require_owner(name)
