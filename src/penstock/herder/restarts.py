"""Restarts connectors and tasks on request.

Main type: ``Restarts``; its methods are requests, coroutines of the herder's thread. A restart replaces the instance on
the worker that runs it; of a restart with parameters every worker reads, and restarts what it runs.

Source: KIP-745; org.apache.kafka.connect.runtime.RestartPlan.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.errors import ConfigException, ConnectException, NotFoundException
from penstock.herder.control_plane import ControlPlane, plain
from penstock.herder.wanted import Unit
from penstock.model import ConnectorStatus, ConnectorTaskId, State, TargetState, TaskStatus
from penstock.model.cluster_config import Properties
from penstock.model.config_records import restart_entries
from penstock.model.payloads import ConnectorView
from penstock.stores.interface import StatusStore

log = logging.getLogger(__name__)

#: How long a request waits for another worker to say that it restarts something, and how often it looks.
_SAID_S: Final = 2.0
_LOOK_S: Final = 0.01


@dataclass(frozen=True)
class RestartPlan:
    """The connector and tasks that a restart with parameters restarts.

    Attributes:
        connector: Whether the connector is restarted.
        tasks: The tasks that are.
    """

    connector: bool
    tasks: Sequence[int]

    @classmethod
    def of(
        cls,
        connector: ConnectorStatus | None,
        tasks: Iterable[TaskStatus],
        *,
        include_tasks: bool,
        only_failed: bool,
    ) -> RestartPlan:
        """Selects the instances that match, by the states of the moment."""
        failed = connector is not None and connector.state is State.FAILED
        matching = [task.id.task for task in tasks if not only_failed or task.state is State.FAILED]
        return cls(not only_failed or failed, matching if include_tasks else [])


class Restarts:
    """Requests that replace instances.

    Args:
        plane: What requests work with.
    """

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
        # A secret that cannot be read must not end what runs; nor may a class that is not there.
        await self._resolve(name, known.config)
        await plane.facts.find(name, known.config)
        mark_restarting(parts.statuses, name, plane)
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
        """Restarts what matches, on every worker; answers the status with RESTARTING for that, before it is done."""
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
        plan = RestartPlan.of(view.status, view.tasks, include_tasks=include_tasks, only_failed=only_failed)
        answer = view.restarting(plan.connector, plan.tasks).status_json()
        await plane.write(restart_entries(name, include_tasks=include_tasks, only_failed=only_failed))
        await self._said(view, plan)
        assert answer is not None
        return answer

    async def _resolve(self, name: str, config: Properties) -> None:
        """Sees whether all values of a configuration can be had.

        Raises:
            ConnectException: one cannot; what is stored is not this request's fault.
        """
        worker, given = self._plane.worker, plain(config)
        try:
            await self._plane.loop.off_loop(f"resolve-{name}", lambda: worker.resolve(given))
        except ConfigException as error:
            raise ConnectException(f"Connector {name} is not restarted: a value is missing. {error}") from error

    async def _said(self, before: ConnectorView, plan: RestartPlan) -> None:
        """Waits, for a limited time, until a new status shows for everything that restarts."""
        statuses, loop = self._plane.parts.statuses, asyncio.get_running_loop()
        old = [status for status in before.tasks if status.id.task in plan.tasks]

        def changed() -> bool:
            now = {status.id: status for status in statuses.tasks(before.name)}
            return not (plan.connector and statuses.connector(before.name) is before.status) and all(
                now.get(status.id) is not status for status in old
            )

        end = loop.time() + _SAID_S
        while not changed() and loop.time() < end:
            await asyncio.sleep(_LOOK_S)

    async def asked(self, name: str, include_tasks: bool, only_failed: bool) -> None:
        """Called when a restart with parameters was read: restarts what matches and runs here."""
        plane = self._plane
        statuses = plane.parts.statuses
        view = plane.view(name)
        if view is None:
            return
        plan = RestartPlan.of(view.status, view.tasks, include_tasks=include_tasks, only_failed=only_failed)
        if plan.tasks:
            await self._tasks(name, plan.tasks)
        if plan.connector and plane.running.runs(name):
            mark_restarting(statuses, name, plane)
            plane.begin_anew([name])

    async def some_tasks(self, name: str, numbers: Sequence[int] | None) -> None:
        """A connector asks that these of its tasks are restarted, or all."""
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
            mark_restarting(plane.parts.statuses, task, plane)
        plane.begin_anew(tasks)
        await plane.running.settled(tasks)


def mark_restarting(statuses: StatusStore, unit: Unit, plane: ControlPlane) -> None:
    """Shows RESTARTING, with the trace of the failure where there was one."""
    generation = plane.parts.membership.generation
    if isinstance(unit, str):
        before = statuses.connector(unit)
        if before is not None:
            statuses.put(
                ConnectorStatus(unit, State.RESTARTING, plane.worker_id, before.trace, before.version, generation)
            )
        return
    found = next((status for status in statuses.tasks(unit.connector) if status.id == unit), None)
    if found is not None:
        statuses.put(TaskStatus(unit, State.RESTARTING, plane.worker_id, found.trace, found.version, generation))
