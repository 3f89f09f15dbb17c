"""The connectors and tasks that this worker is to run, and ``Running``, which starts and stops instances to match.

An instance keeps running as long as its spec (``spec_of``) stays equal; another spec replaces it. An instance ends
before the next one of the same name begins, and waits for the instances of no other unit. A newer target replaces one
that has not been reached yet.

Thread: the herder's. It never waits for a user's code without a deadline: the worker abandons instances that miss
theirs.
Source: org.apache.kafka.connect.runtime.distributed.DistributedHerder (processConnectorConfigUpdates, startAndStop).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from penstock.errors import NotFoundException
from penstock.model import ConnectorTaskId, State, TargetState
from penstock.model.cluster_config import ClusterConfig, Properties, plain
from penstock.model.states import Unit, Units, connector_of
from penstock.worker.connector_runner import PreemptedException
from penstock.worker.task.slot import TaskRequest

if TYPE_CHECKING:
    from penstock.herder.control_plane import ControlPlane

log = logging.getLogger(__name__)
#: The number of instances that are prepared at the same time: a thread resolves the placeholders of each.
_AT_ONCE: Final = 16


@dataclass(frozen=True)
class AssignedConnector:
    """The specification of an instance of a connector.

    Attributes:
        config: Its settings, placeholders unresolved.
        turn: A changed number requests another instance with the same settings.
    """

    config: Properties = field(repr=False)
    turn: int = 0


@dataclass(frozen=True)
class AssignedTask:
    """The specification of a task.

    Attributes:
        config: The task's own settings, placeholders unresolved.
        connector: The connector's settings when these came into force: its converters, transforms and clients.
        count: The number of tasks of the connector.
        generation: The commit of the settings, if every commit ends all earlier tasks; else 0.
        turn: A changed number requests another instance with the same settings.
    """

    config: Properties = field(repr=False)
    connector: Properties = field(repr=False)
    count: int = field(default=1, compare=False)
    generation: int = 0
    turn: int = 0


Spec: TypeAlias = AssignedConnector | AssignedTask
S = TypeVar("S", bound=Spec)


def spec_of(config: ClusterConfig, unit: Unit, turn: int, *, fenced: bool = False) -> Spec | None:
    """Returns the current specification of a unit.

    Args:
        config: The configuration.
        unit: The connector or task.
        turn: The number of its restarts.
        fenced: True if each commit of the connector's tasks ends all earlier tasks (exactly-once sources).

    Returns:
        None if it shall not run: it is not configured, or a task of a stopped connector.
    """
    known = config.connectors.get(connector_of(unit))
    if known is None:
        return None
    if isinstance(unit, str):
        return AssignedConnector(known.config, turn)
    stopped = config.target(unit.connector) is TargetState.STOPPED
    if stopped or unit.task >= len(known.tasks):
        return None
    # Task configurations exist only after a commit, which records the settings in force.
    applied = known.config if known.applied is None else known.applied
    return AssignedTask(known.tasks[unit.task], applied, len(known.tasks), known.generation if fenced else 0, turn)


class Running:
    """All units of this worker, by name.

    Args:
        plane: The shared state of requests.
        beginning: Called with each unit before an instance of it is made.
        note: Notes the state of a unit, with the error if it has failed.
        started: Called when an instance of a connector has reached STARTED, with True if it is still the present one.
        ended: Called with each unit that does not run here any more.
    """

    def __init__(
        self,
        plane: ControlPlane,
        *,
        beginning: Callable[[Unit], None],
        note: Callable[[Unit, State, BaseException | None], None],
        started: Callable[[str, Callable[[], bool]], Awaitable[None]],
        ended: Callable[[Unit], None],
    ) -> None:
        self.plane = plane
        self.beginning = beginning
        self.note = note
        self.started = started
        self._ended = ended
        self._instances: dict[Unit, _ConnectorInstance | _TaskInstance] = {}
        self.begins = asyncio.Semaphore(_AT_ONCE)

    @property
    def units(self) -> Units:
        """The units that run, are about to, or have not ended yet."""
        connectors = [unit for unit in self._instances if isinstance(unit, str)]
        return Units.of(connectors, [unit for unit in self._instances if not isinstance(unit, str)])

    def want(self, unit: Unit, spec: Spec | None, target: TargetState) -> None:
        """Sets the spec of a unit and the target state of its connector, or ends the unit; returns at once."""
        instance = self._instances.get(unit)
        if instance is None:
            if spec is None:
                return
            made = _ConnectorInstance(unit, self) if isinstance(unit, str) else _TaskInstance(unit, self)
            instance = self._instances[unit] = made
        # A unit that is to end keeps its target state until then.
        if spec is not None:
            instance.retarget(target)
        instance.want(spec)  # type: ignore[arg-type]

    def runs(self, unit: Unit) -> bool:
        """True if a unit runs here, or is about to."""
        return self.target(unit) is not None

    def target(self, unit: Unit) -> TargetState | None:
        """The last target state of a unit; None if it does not run here."""
        instance = self._instances.get(unit)
        return None if instance is None or instance.wanted is None else instance.target

    def resolved(self, connector: str) -> Mapping[str, str]:
        """The settings of a connector's present instance, placeholders resolved; empty if it does not run here."""
        instance = self._instances.get(connector)
        return instance.resolved if isinstance(instance, _ConnectorInstance) else {}

    async def settled(self, units: Iterable[Unit]) -> None:
        """Waits until each of these units runs with its spec, or has ended if it has none."""
        for unit in list(units):
            while (instance := self._instances.get(unit)) is not None and instance.follower is not None:
                await asyncio.wait({instance.follower})

    async def outcome(self, connector: str) -> None:
        """Waits until the newest instance of a connector has started and its tasks are configured, or one of the two
        has asked to be retried.

        Returns at once if it does not run here. An instance that a newer one has replaced counts as started.

        Raises:
            Exception: the error that failed it.
        """
        instance = self._instances.get(connector)
        if isinstance(instance, _ConnectorInstance):
            await asyncio.shield(instance.outcome)

    async def end_all(self) -> None:
        """Ends everything; each instance has its own deadline."""
        units = list(self._instances)
        for unit in units:
            self._instances[unit].want(None)
        await self.settled(units)

    def gone(self, unit: Unit) -> None:
        """Called when a unit has ended and has no new spec."""
        del self._instances[unit]
        self._ended(unit)


class _Instance(ABC, Generic[S]):
    """One unit: its running instance, its spec and its target state."""

    def __init__(self, running: Running, unit: Unit) -> None:
        self.running = running
        self.plane = running.plane
        self.unit = unit
        self.wanted: S | None = None
        self.present: S | None = None
        self.target = TargetState.STARTED
        self.follower: asyncio.Task[None] | None = None

    def want(self, spec: S | None) -> None:
        if spec == self.wanted:
            return
        self.replaced(spec)
        self.wanted = spec
        if self.follower is None and self.present != spec:
            self.follower = self.plane.loop.begin(f"Starting or ending {self.unit}", self._follow())

    async def _follow(self) -> None:
        try:
            while self.present != self.wanted:
                if self.present is not None:
                    await self.end()
                    self.present = None
                elif self.wanted is not None:
                    self.present = self.wanted
                    self.running.beginning(self.unit)
                    if not await self.begin(self.present):
                        self.present = None
        finally:
            self.follower = None
            if self.present is None:
                self.running.gone(self.unit)

    def replaced(self, spec: S | None) -> None:
        """Called with each new spec before it takes effect."""

    @abstractmethod
    def retarget(self, target: TargetState) -> None:
        """Brings the instance to another target state."""

    @abstractmethod
    async def begin(self, spec: S) -> bool:
        """Starts an instance; an error is noted, not raised.

        Returns:
            False if a newer spec came in between, and no instance was started.
        """

    @abstractmethod
    async def end(self) -> None:
        """Ends the instance, within its deadline."""


class _ConnectorInstance(_Instance[AssignedConnector]):
    def __init__(self, name: str, running: Running) -> None:
        super().__init__(running, name)
        self.name = name
        self.outcome: asyncio.Future[None] = _future()
        self.resolved: Mapping[str, str] = {}
        # True if the worker has an instance; False after a failure to load the class.
        self._made = False

    def replaced(self, spec: AssignedConnector | None) -> None:
        if spec is not None:
            _settle(self.outcome)
            self.outcome = _future()

    async def begin(self, spec: AssignedConnector) -> bool:
        plane, worker, outcome = self.plane, self.plane.worker, self.outcome
        try:
            async with self.running.begins:
                config = plain(spec.config)
                resolved = await plane.loop.off_loop(f"resolve-{self.name}", lambda: worker.resolve(config))
                plane.facts.note(self.name, config, resolved)
                await plane.facts.find(self.name, spec.config)
        except Exception as error:
            worker.startups.connector().reached(State.FAILED)
            self._failed(outcome, error)
            return True
        if self.wanted != spec:
            return False
        target = self.target
        # Called on the connector's thread when a call of the connector is to be repeated: no request waits for that.
        put_off = partial(plane.loop.post, partial(_settle, outcome))
        try:
            started = worker.start_connector(self.name, resolved, target, put_off)
        except Exception as error:
            self._failed(outcome, error)
            return True
        self.resolved, self._made = resolved, True
        plane.loop.begin(f"Starting {self.name}", self._started(spec, asyncio.wrap_future(started), target, outcome))
        return True

    def _failed(self, outcome: asyncio.Future[None], error: Exception) -> None:
        log.error("Connector %s cannot be started", self.name, exc_info=error)
        self.running.note(self.unit, State.FAILED, error)
        _settle(outcome, error)

    async def _started(
        self,
        spec: AssignedConnector,
        started: asyncio.Future[TargetState],
        target: TargetState,
        outcome: asyncio.Future[None],
    ) -> None:
        failure = None
        try:
            with self.plane.stage(self.name, "calling start()"):
                await started
            if self.target is TargetState.STARTED:
                await self.running.started(self.name, lambda: self.wanted is spec)
        except Exception as error:
            # A change of its settings or state that came while it started decides on its own.
            if (self.wanted is None or self.wanted is spec) and self.target is target:
                failure = error
        _settle(outcome, failure)

    def retarget(self, target: TargetState) -> None:
        if target is self.target:
            return
        self.target = target
        if self._made:
            reached = self.plane.worker.transition_connector(self.name, target)
            self.plane.loop.begin(
                f"Changing the state of {self.name} to {target.value}",
                self._reached(self.present, asyncio.wrap_future(reached), target),
            )
        elif self.present is not None and self.follower is None:
            # It could not be made. A paused connector needs no instance; to run it, the worker tries again.
            if target is TargetState.STARTED:
                self.present, wanted, self.wanted = None, self.wanted, None
                self.want(wanted)
            else:
                self.running.note(self.unit, State(target.value), None)

    async def _reached(
        self, spec: AssignedConnector | None, reached: asyncio.Future[TargetState], target: TargetState
    ) -> None:
        try:
            await reached
        except PreemptedException as error:
            log.info("%s", error)
            return
        if target is TargetState.STARTED:
            await self.running.started(self.name, lambda: self.wanted is spec)

    async def end(self) -> None:
        worker = self.plane.worker
        if self._made:
            self._made = False
            ended = asyncio.wrap_future(worker.stop_connector(self.name))
            await asyncio.wait({ended}, timeout=worker.connector_stop_timeout_s)
            worker.forget_connector(self.name)
        if self.wanted is None:
            _settle(self.outcome, NotFoundException(f"Connector {self.name} was deleted or moved away in between"))


class _TaskInstance(_Instance[AssignedTask]):
    def __init__(self, task: ConnectorTaskId, running: Running) -> None:
        super().__init__(running, task)
        self.task = task

    async def begin(self, spec: AssignedTask) -> bool:
        plane, worker, cluster = self.plane, self.plane.worker, self.plane.parts.cluster
        name, config, of_connector = self.task.connector, plain(spec.config), plain(spec.connector)

        def counts() -> bool:
            return self.wanted == spec

        def read_config() -> dict[str, str]:
            # The connector wrote the task's settings: a text that looks like a placeholder may not be one.
            return worker.resolvable(config).data

        try:
            async with self.running.begins:
                connector_config, task_config = await plane.loop.off_loop(
                    f"resolve-{self.task}", lambda: (worker.resolve(of_connector), read_config())
                )
                plane.facts.note(name, of_connector, connector_config)
                plane.facts.note(name, config, task_config)
                facts = await plane.facts.find(name, spec.connector)
            if cluster is not None and not await cluster.prepare(self.task, counts):
                return False
        except Exception as error:
            log.error("Task %s cannot be started", self.task, exc_info=error)
            worker.startups.task().reached(State.FAILED)
            self.running.note(self.unit, State.FAILED, error)
            return True
        if not counts():
            return False
        paused = self.target is TargetState.PAUSED
        request = TaskRequest(self.task, facts.type, connector_config, task_config, read_config, paused, spec.count)
        if cluster is not None and cluster.fences(name):
            request = replace(
                request,
                confirm=partial(cluster.confirm, self.task, spec, counts),
                confirm_owner=partial(cluster.confirm_owner, self.task),
            )
        worker.start_task(request, facts.max_tasks if facts.enforce_max_tasks else None)
        return True

    def retarget(self, target: TargetState) -> None:
        if target is self.target:
            return
        self.target = target
        # The tasks of a stopped connector have no spec, and end.
        if target is TargetState.STARTED:
            self.plane.worker.resume_task(self.task)
        elif target is TargetState.PAUSED:
            self.plane.worker.pause_task(self.task)

    async def end(self) -> None:
        await asyncio.wait({asyncio.wrap_future(self.plane.worker.stop_task(self.task))})
        self.plane.worker.forget_task(self.task)


def _future() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # No caller may be waiting for it.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


def _settle(future: asyncio.Future[None], error: Exception | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
