"""The connectors and tasks that this worker is to run, and ``Running``, which starts and stops instances to match.

An instance keeps running as long as its spec (``spec_of``) stays equal; another spec replaces it. An instance ends
before the next one of the same name begins, and waits for the instances of no other unit. ``Membership`` is the
herder's interface to a group of workers; ``SoleMember`` is the group of one of a standalone worker.

Thread: the herder's. It never waits for a user's code without a deadline: the worker abandons instances that miss
theirs.
Source: org.apache.kafka.connect.runtime.distributed.DistributedHerder (processConnectorConfigUpdates, startAndStop).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from penstock.errors import ConflictException, ConnectException, NotFoundException
from penstock.herder.connector_facts import ConnectorFacts
from penstock.herder.loop import HerderLoop
from penstock.model import ConnectorTaskId, State, TargetState
from penstock.model.cluster_config import ClusterConfig, Properties
from penstock.model.states import Unit, Units, all_units, connector_of
from penstock.worker.connector_runner import PreemptedException
from penstock.worker.task.slot import TaskRequest
from penstock.worker.worker import Worker

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


class NotHereException(ConnectException):
    """Another worker has to serve this request.

    Attributes:
        url: The REST address of that worker; None if it is unknown now.
        config: The configuration to send, if the received one is incomplete: it had a secret in its hidden form.
    """

    def __init__(self, message: str, url: str | None, config: Mapping[str, str | None] | None = None) -> None:
        super().__init__(message)
        self.url = url
        self.config = config


class RebalanceExpectedException(ConflictException):
    """An error: the configuration has changed, and the group has not assigned the work again yet."""

    def __init__(self) -> None:
        super().__init__(
            "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config "
            "change)"
        )


class Membership(Protocol):
    """The membership of a worker in its group: the leader, and the units assigned to this worker."""

    @property
    def sole(self) -> bool:
        """True if there can be no other worker."""

    @property
    def generation(self) -> int:
        """The generation of the group at its last assignment. Thread: any."""

    @property
    def obstacle(self) -> str | None:
        """The reason why this worker has no place in its group, in a sentence; None if it has one. Thread: any."""

    def begin(self) -> None:
        """Starts the membership: the worker serves."""

    def assigned(self, config: ClusterConfig) -> Units:
        """Returns the units that are assigned to this worker."""

    def require_leader(self, config: Mapping[str, str | None] | None = None) -> None:
        """Raises an error unless this worker is the leader.

        Args:
            config: The configuration to send to the leader.

        Raises:
            NotHereException: another worker is the leader.
        """

    def require_owner(self, unit: Unit) -> None:
        """Raises an error unless this worker runs the unit.

        Raises:
            NotHereException: another worker runs it, or knows its worker.
        """

    def require_stable(self) -> None:
        """Raises an error while the assignment is unknown.

        Raises:
            RebalanceExpectedException: the assignment is about to change.
        """

    async def steady(self, *, dealt: bool) -> None:
        """Waits while the group assigns the work, at most for its time limit; the caller must check the result.

        Args:
            dealt: True to wait for an assignment of the present configuration; False to wait only for the leader.
        """

    def configured(self, before: ClusterConfig, after: ClusterConfig) -> None:
        """Called with each new snapshot: added connectors or tasks need an assignment."""

    async def close(self) -> None:
        """Leaves the group."""


class SoleMember:
    """A group of one: it leads, and runs everything."""

    sole = True
    generation = 0
    obstacle = None

    def begin(self) -> None:
        """See ``Membership``."""

    def assigned(self, config: ClusterConfig) -> Units:
        """See ``Membership``."""
        return all_units(config.task_counts)

    def require_leader(self, config: Mapping[str, str | None] | None = None) -> None:
        """See ``Membership``."""

    def require_owner(self, unit: Unit) -> None:
        """See ``Membership``."""

    def require_stable(self) -> None:
        """See ``Membership``."""

    async def steady(self, *, dealt: bool) -> None:
        """See ``Membership``."""

    def configured(self, before: ClusterConfig, after: ClusterConfig) -> None:
        """See ``Membership``."""

    async def close(self) -> None:
        """See ``Membership``."""


class TaskOwnership(Protocol):
    """The owners of tasks, if several workers can run them."""

    def fences(self, connector: str) -> bool | None:
        """True if each commit of a connector's tasks ends all tasks before it (exactly-once sources).

        Returns:
            None while that is unknown: its class has not answered yet.
        """

    async def prepare(self, task: ConnectorTaskId, counts: Callable[[], bool]) -> bool:
        """Called before a task is built, for which former ones may have to be ended.

        Args:
            task: The task.
            counts: True while the task shall run here.

        Returns:
            True if it may begin; False only if it shall no longer run here.

        Raises:
            ConnectException: the error that fails the task.
        """

    def confirm(self, task: ConnectorTaskId, spec: AssignedTask, counts: Callable[[], bool]) -> None:
        """Raises unless a task shall still run here, with the same settings. Blocks; thread: any except the herder's.

        Raises:
            ConnectException: it shall not.
        """

    def confirm_owner(self, task: ConnectorTaskId, since_s: float) -> bool:
        """True if the group has confirmed after this monotonic time that a task is this worker's. Blocks, as above."""


@dataclass(frozen=True)
class RunningParts:
    """The objects that ``Running`` works with.

    Attributes:
        loop: The herder's thread.
        worker: Runs the instances.
        facts: The facts of connector classes.
        beginning: Called with each unit before an instance of it is made.
        note: Notes the state of a unit, with the error if it has failed.
        stage: Notes the present step for a connector.
        started: Called when an instance of a connector has reached STARTED, with True if it is still the present one.
        ended: Called with each unit that does not run here any more.
        cluster: Knows the worker of each task; None on a standalone worker.
        resolved: Called with the settings of a connector or task, with placeholders and resolved.
    """

    loop: HerderLoop
    worker: Worker
    facts: ConnectorFacts
    beginning: Callable[[Unit], None]
    note: Callable[[Unit, State, BaseException | None], None]
    stage: Callable[[str, str], AbstractContextManager[None]]
    started: Callable[[str, Callable[[], bool]], Awaitable[None]]
    ended: Callable[[Unit], None]
    cluster: TaskOwnership | None = None
    resolved: Callable[[str, Mapping[str, str], Mapping[str, str]], None] = lambda name, given, resolved: None


class Running:
    """All units of this worker, by name.

    Args:
        parts: Its parts.
    """

    def __init__(self, parts: RunningParts) -> None:
        self._parts = parts
        self._instances: dict[Unit, _Instance[AssignedConnector] | _Instance[AssignedTask]] = {}
        self._begins = asyncio.Semaphore(_AT_ONCE)

    @property
    def units(self) -> Units:
        """Returns the units that run, are about to, or have not ended yet."""
        connectors = [unit for unit in self._instances if isinstance(unit, str)]
        return Units.of(connectors, [unit for unit in self._instances if not isinstance(unit, str)])

    def want(self, unit: Unit, spec: Spec | None, target: TargetState) -> None:
        """Sets the spec of a unit, or ends the unit; returns at once.

        Args:
            unit: The connector or task.
            spec: The new spec; None to end it.
            target: The target state of its connector.
        """
        instance = self._instances.get(unit)
        if instance is None:
            if spec is None:
                return
            instance = self._instances[unit] = self._made(unit)
        # A unit that is to end keeps its target state until then.
        if spec is not None:
            instance.retarget(target)
        instance.want(spec)  # type: ignore[arg-type]

    def runs(self, unit: Unit) -> bool:
        """True if a unit runs here, or is about to."""
        instance = self._instances.get(unit)
        return instance is not None and instance.wanted is not None

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

    def _made(self, unit: Unit) -> _Instance[AssignedConnector] | _Instance[AssignedTask]:
        if isinstance(unit, str):
            return _ConnectorInstance(unit, self._parts, self._begins, self._gone)
        return _TaskInstance(unit, self._parts, self._begins, self._gone)

    def _gone(self, unit: Unit) -> None:
        """Called when a unit has ended and has no new spec."""
        del self._instances[unit]
        self._parts.ended(unit)


class _Instance(ABC, Generic[S]):
    """One unit: its running instance, its spec and its target state."""

    def __init__(
        self, unit: Unit, parts: RunningParts, begins: asyncio.Semaphore, gone: Callable[[Unit], None]
    ) -> None:
        self.unit = unit
        self.parts = parts
        self.begins = begins
        self.gone = gone
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
            self.follower = self.parts.loop.begin(f"Following what is wanted of {self.unit}", self._follow())

    async def _follow(self) -> None:
        try:
            while self.present != self.wanted:
                if self.present is not None:
                    await self.end()
                    self.present = None
                elif self.wanted is not None:
                    self.present = self.wanted
                    self.parts.beginning(self.unit)
                    if not await self.begin(self.present):
                        self.present = None
        finally:
            self.follower = None
            if self.present is None:
                self.gone(self.unit)

    def superseded(self, spec: S) -> bool:
        """True if a newer spec replaces the one that is about to begin."""
        return self.wanted != spec

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
    """A connector."""

    def __init__(
        self, unit: Unit, parts: RunningParts, begins: asyncio.Semaphore, gone: Callable[[Unit], None]
    ) -> None:
        super().__init__(unit, parts, begins, gone)
        self.name = connector_of(unit)
        self.outcome: asyncio.Future[None] = self._future()
        self.resolved: Mapping[str, str] = {}
        # True if the worker has an instance; False after a failure to load the class.
        self._made = False

    def _future(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # No caller may be waiting for it.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    def replaced(self, spec: AssignedConnector | None) -> None:
        if spec is None:
            return
        _succeed(self.outcome)
        self.outcome = self._future()

    async def begin(self, spec: AssignedConnector) -> bool:
        worker, outcome = self.parts.worker, self.outcome
        try:
            async with self.begins:
                config = _without_nulls(spec.config)
                resolved = await self.parts.loop.off_loop(f"resolve-{self.name}", lambda: worker.resolve(config))
                self.parts.resolved(self.name, config, resolved)
                await self.parts.facts.find(self.name, spec.config)
        except Exception as error:
            worker.startups.connector().reached(State.FAILED)
            self._failed(outcome, error)
            return True
        if self.superseded(spec):
            return False
        target = self.target
        try:
            started = worker.start_connector(self.name, resolved, target, partial(self._put_off, outcome))
        except Exception as error:
            self._failed(outcome, error)
            return True
        self.resolved, self._made = resolved, True
        self.parts.loop.begin(
            f"Starting {self.name}", self._started(spec, asyncio.wrap_future(started), target, outcome)
        )
        return True

    def _put_off(self, outcome: asyncio.Future[None]) -> None:
        """Notes that a call of the connector is repeated later, and that no request waits for it. Thread: the
        connector's.
        """
        self.parts.loop.post(partial(_succeed, outcome))

    def _failed(self, outcome: asyncio.Future[None], error: Exception) -> None:
        log.error("Connector %s cannot be started", self.name, exc_info=error)
        self.parts.note(self.unit, State.FAILED, error)
        _fail(outcome, error)

    async def _started(
        self,
        spec: AssignedConnector,
        started: asyncio.Future[TargetState],
        target: TargetState,
        outcome: asyncio.Future[None],
    ) -> None:
        try:
            with self.parts.stage(self.name, "calling start()"):
                await started
            if self.target is TargetState.STARTED:
                await self.parts.started(self.name, lambda: self.wanted is spec)
        except Exception as error:
            # A change of its settings or state that came while it started decides on its own.
            if (self.wanted is None or self.wanted is spec) and self.target is target:
                _fail(outcome, error)
            else:
                _succeed(outcome)
        else:
            _succeed(outcome)

    def retarget(self, target: TargetState) -> None:
        if target is self.target:
            return
        self.target = target
        if self._made:
            reached = self.parts.worker.transition_connector(self.name, target)
            self.parts.loop.begin(
                f"Changing the state of {self.name} to {target.value}",
                self._reached(self.present, asyncio.wrap_future(reached), target),
            )
        elif self.present is not None and self.follower is None:
            # It could not be made. A paused connector needs no instance; to run it, the worker tries again.
            if target is TargetState.STARTED:
                self.present, wanted, self.wanted = None, self.wanted, None
                self.want(wanted)
            else:
                self.parts.note(self.unit, State(target.value), None)

    async def _reached(
        self, spec: AssignedConnector | None, reached: asyncio.Future[TargetState], target: TargetState
    ) -> None:
        try:
            await reached
        except PreemptedException as error:
            log.info("%s", error)
            return
        if target is TargetState.STARTED:
            await self.parts.started(self.name, lambda: self.wanted is spec)

    async def end(self) -> None:
        worker = self.parts.worker
        if self._made:
            self._made = False
            ended = asyncio.wrap_future(worker.stop_connector(self.name))
            await asyncio.wait({ended}, timeout=worker.connector_stop_timeout_s)
            worker.forget_connector(self.name)
        if self.wanted is None:
            _fail(self.outcome, NotFoundException(f"Connector {self.name} was deleted or moved away in between"))


class _TaskInstance(_Instance[AssignedTask]):
    """A task."""

    def __init__(
        self, unit: Unit, parts: RunningParts, begins: asyncio.Semaphore, gone: Callable[[Unit], None]
    ) -> None:
        super().__init__(unit, parts, begins, gone)
        assert isinstance(unit, ConnectorTaskId)
        self.task = unit

    async def begin(self, spec: AssignedTask) -> bool:
        worker, config = self.parts.worker, dict(_without_nulls(spec.config))

        def counts() -> bool:
            return not self.superseded(spec)

        def resolved() -> tuple[dict[str, str], dict[str, str]]:
            # The connector wrote the task's settings: a text that looks like a placeholder may not be one.
            return worker.resolve(_without_nulls(spec.connector)), worker.resolvable(config).data

        try:
            async with self.begins:
                connector_config, task_config = await self.parts.loop.off_loop(f"resolve-{self.task}", resolved)
                self.parts.resolved(self.task.connector, _without_nulls(spec.connector), connector_config)
                self.parts.resolved(self.task.connector, config, task_config)
                facts = await self.parts.facts.find(self.task.connector, spec.connector)
            cluster = self.parts.cluster
            if cluster is not None and not await cluster.prepare(self.task, counts):
                return False
        except Exception as error:
            log.error("Task %s cannot be started", self.task, exc_info=error)
            worker.startups.task().reached(State.FAILED)
            self.parts.note(self.unit, State.FAILED, error)
            return True
        if self.superseded(spec):
            return False
        request = TaskRequest(
            self.task,
            facts.type,
            connector_config,
            task_config,
            lambda: worker.resolvable(config).data,
            self.target is TargetState.PAUSED,
            spec.count,
        )
        if cluster is not None and cluster.fences(self.task.connector):
            request = replace(
                request,
                confirm=lambda: cluster.confirm(self.task, spec, counts),
                confirm_owner=lambda since_s: cluster.confirm_owner(self.task, since_s),
            )
        worker.start_task(request, facts.max_tasks if facts.enforce_max_tasks else None)
        return True

    def retarget(self, target: TargetState) -> None:
        if target is self.target:
            return
        self.target = target
        # The tasks of a stopped connector have no spec, and end.
        if target is TargetState.STARTED:
            self.parts.worker.resume_task(self.task)
        elif target is TargetState.PAUSED:
            self.parts.worker.pause_task(self.task)

    async def end(self) -> None:
        await asyncio.wait({asyncio.wrap_future(self.parts.worker.stop_task(self.task))})
        self.parts.worker.forget_task(self.task)


def _without_nulls(config: Properties) -> dict[str, str]:
    return {key: value for key, value in config.items() if value is not None}


def _succeed(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
