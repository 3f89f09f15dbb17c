"""Asks connectors for the configurations of their tasks, and has them stored where they differ.

Main type: ``Reconfiguration``. Only the worker that runs a connector asks it; the leader stores what it said.

Thread: the herder's.
Source: org.apache.kafka.connect.runtime.distributed.DistributedHerder.reconfigureConnector.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from penstock.errors import ConnectException
from penstock.herder.control_plane import ControlPlane, plain
from penstock.model import ConnectorType, TargetState
from penstock.model.config_records import task_entries
from penstock.worker.task_configs import TooManyTasksException, changed, check_count, complete

log = logging.getLogger(__name__)

#: How long after the end of its tasks the target state of a connector that is being stopped may come.
_STOP_S: Final = 0.5


class Reconfiguration:
    """Keeps task configurations as their connectors say.

    Args:
        plane: What requests work with.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._queued: set[str] = set()
        # What each connector that runs here has last said.
        self._said: dict[str, list[dict[str, str]]] = {}

    async def on_request(self, name: str) -> None:
        """The connector itself asks for it. Requests that come in one go are served once."""
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

        Somebody else has sent them: a worker that had the connector before, and did not know yet that it has not. A
        stop stores them too, just before it stores the state.
        """
        await asyncio.sleep(_STOP_S)
        known, said = self._plane.snapshot.connectors.get(name), self._said.get(name)
        if known is None or not self._plane.running.runs(name):
            self._said.pop(name, None)
        elif said is not None and [plain(config) for config in known.tasks] != said:
            await self.on_request(name)

    async def run(self, name: str, counts: Callable[[], bool]) -> None:
        """Asks a connector for its tasks.

        Args:
            name: The connector.
            counts: Whether the instance that is asked is still the present one.

        Raises:
            ConnectException: it does not say, or says what is not allowed; it has failed then.
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
            await self._publish(name, configs, current)

    async def _publish(self, name: str, configs: Sequence[dict[str, str]], counts: Callable[[], bool]) -> None:
        plane = self._plane
        if plane.parts.cluster is not None:
            await plane.parts.cluster.publish(name, configs, counts)
            return
        async with plane.storing:
            if counts():
                await plane.write(task_entries(name, configs))
