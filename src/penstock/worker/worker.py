"""Runs connectors and tasks: one thread for each connector, a slot for each task.

Thread: the herder's thread calls every method and owns the tables here. Each method returns at once, except
``resolve``, which may read files and runs on its caller's thread. Counts: any thread; the calls to one ``Startup`` come
one at a time.

Source: org.apache.kafka.connect.runtime.Worker and its WorkerMetricsGroup (there the counters of tasks stay at 0,
KAFKA-18489).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from penstock.api import Connector, ConnectorContext, OffsetStorageReader, SinkConnector
from penstock.config import ConfigDef
from penstock.config.providers import ConfigTransformer, TransformedConfig
from penstock.errors import ConnectException
from penstock.model import ConnectorTaskId, State, TargetState
from penstock.model.payloads import BackfillPlan, BackfillQuestion, BackfillView, PreviewRequest
from penstock.plugins import Plugins
from penstock.settings.connector_definitions import CONNECTOR, SINK_RETRY_DELAY, SOURCE_RETRY, SOURCE_RETRY_DELAY
from penstock.settings.plugin_classes import changed_code
from penstock.telemetry import Counter, Metrics
from penstock.telemetry.metrics import SPARK_RECORDS_TOTAL
from penstock.worker.backfills import Backfills, BackfillTask
from penstock.worker.connector_offsets import ConnectorOffsets
from penstock.worker.connector_runner import (
    ConnectorRequests,
    ConnectorRunner,
    ConnectorSpec,
    RunnerSinkContext,
    RunnerSourceContext,
    TaskPlan,
)
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.slot import StateReport, TaskRequest, TaskRunner, TaskSlot, check_count
from penstock.worker.task.waiting import Hints, Retries, RetryBackoff, WaitReason

#: Followed by ``connector`` or ``task``, and the name of the count.
PREFIX: Final = "kafka_connect_worker_"


class Startup:
    """One start of a connector or task, which succeeds or fails at most once.

    Args:
        resting: True if it is created PAUSED or STOPPED: its start is counted when it is resumed.
    """

    def __init__(self, attempts: Counter, successes: Counter, failures: Counter, *, resting: bool) -> None:
        self._attempts = attempts
        self._outcomes = {State.RUNNING: successes, State.FAILED: failures}
        self._begun = False
        self._ended = False
        if not resting:
            self._begin()

    def reached(self, state: State) -> None:
        outcome = self._outcomes.get(state)
        if outcome is None or self._ended:
            return
        self._begin()
        self._ended = True
        outcome.add()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._attempts.add()


class StartupCounts:
    """The counters of a worker.

    >>> metrics = Metrics()
    >>> starting = StartupCounts(metrics).task()
    >>> starting.reached(State.RUNNING); starting.reached(State.FAILED)
    >>> [metrics.total(f"{PREFIX}task_startup_{what}_total") for what in ("attempts", "success", "failure")]
    [1.0, 1.0, 0.0]
    """

    def __init__(self, metrics: Metrics) -> None:
        self._counters = {
            kind: tuple(metrics.counter(f"{PREFIX}{kind}_startup_{what}_total") for what in _COUNTED)
            for kind in ("connector", "task")
        }

    def connector(self, *, resting: bool = False) -> Startup:
        """Counts the start of a connector; with ``resting``, once it is resumed."""
        return Startup(*self._counters["connector"], resting=resting)

    def task(self, *, resting: bool = False) -> Startup:
        """Counts the start of a task; with ``resting``, once it is resumed."""
        return Startup(*self._counters["task"], resting=resting)


_COUNTED: Final = ("attempts", "success", "failure")


log = logging.getLogger(__name__)

CONNECTOR_CLASS = "connector.class"


class StatusListener(Protocol):
    """A listener to the states of connectors and tasks. Called from any thread; must not block."""

    def on_connector_state(self, connector: str, state: State, trace: str | None) -> None:
        """A connector changed its state."""

    def on_task_state(self, task: ConnectorTaskId, state: State, trace: str | None) -> None:
        """A task changed its state."""


PlanBackfill = Callable[[BackfillQuestion], BackfillPlan]
MakeBackfill = Callable[[TaskRequest, StateReport], BackfillTask]
TaskFactory = Callable[[TaskRequest, StateReport], TaskRunner]


@dataclass(frozen=True)
class WorkerParts:
    """The parts of a worker.

    Attributes:
        worker_id: ``host:port`` of its REST address.
        offset_reader: Makes the reader of a source connector's committed offsets, by its name and resolved settings.
        settings: The worker's file, to explain the origin of values.
        task_stop_timeout_s: ``task.shutdown.graceful.timeout.ms``; each task has its own deadline.
    """

    worker_id: str
    plugins: Plugins
    transformer: ConfigTransformer
    offset_reader: Callable[[str, Mapping[str, str]], OffsetStorageReader]
    make_task: TaskFactory
    plan_backfill: PlanBackfill
    make_backfill: MakeBackfill
    offsets: ConnectorOffsets
    preview: Callable[[PreviewRequest], dict[str, object]]
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark_up: Callable[[], bool] = lambda: True
    spark_trouble: Callable[[], str | None] = lambda: None
    task_stop_timeout_s: float = 5.0
    connector_stop_timeout_s: float = 5.0
    task_gone: Callable[[ConnectorTaskId], None] = lambda task: None
    metrics: Metrics = field(default_factory=Metrics)
    connector_metrics: Callable[[str], InstanceMetrics] = lambda connector: InstanceMetrics.unread()
    exactly_once: bool = False


def _retries_of(name: str, resolved: Mapping[str, str], *, is_sink: bool) -> Retries:
    """The retries of a connector's own calls, by the settings that its tasks' calls go by."""
    definition, setting = (CONNECTOR, SINK_RETRY_DELAY) if is_sink else (SOURCE_RETRY, SOURCE_RETRY_DELAY)
    most_ms = ConfigDef().define_key(definition.keys[setting]).parse(resolved)[setting]
    assert isinstance(most_ms, int)
    backoff = RetryBackoff(most_ms / 1000, setting)
    return Retries(name, "sink_retry" if is_sink else "source_retry", backoff, of_connector=True)


class Worker:
    """The connectors and tasks that run in this process."""

    def __init__(self, parts: WorkerParts, listener: StatusListener, requests: ConnectorRequests) -> None:
        self._parts = parts
        self._listener = listener
        self._requests = requests
        self._connectors: dict[str, ConnectorRunner] = {}
        self._tasks: dict[ConnectorTaskId, TaskSlot] = {}
        self.startups = StartupCounts(parts.metrics)
        self.backfills = Backfills(parts.worker_id, parts.task_gone)

    @property
    def worker_id(self) -> str:
        return self._parts.worker_id

    @property
    def plugins(self) -> Plugins:
        return self._parts.plugins

    @property
    def offsets(self) -> ConnectorOffsets:
        """Reads and changes the committed offsets of connectors. Its methods block: any thread but the herder's."""
        return self._parts.offsets

    @property
    def settings(self) -> Mapping[str, str]:
        return self._parts.settings

    @property
    def exactly_once(self) -> bool:
        return self._parts.exactly_once

    @property
    def spark_up(self) -> bool:
        return self._parts.spark_up()

    @property
    def spark_trouble(self) -> str | None:
        return self._parts.spark_trouble()

    def preview(self, request: PreviewRequest) -> dict[str, object]:
        """Runs some records through the chain of a configuration and returns the results. Blocks: any thread but the
        herder's.
        """
        return self._parts.preview(request)

    def plan_backfill(self, asked: BackfillQuestion) -> BackfillPlan:
        """Plans a backfill: what it reads and writes. Blocks: any thread but the herder's."""
        return self._parts.plan_backfill(asked)

    def start_backfill(self, request: TaskRequest, plan: BackfillPlan) -> BackfillView:
        make = self._parts.make_backfill
        return self.backfills.start(request.id.connector, plan.reads, plan.total, lambda report: make(request, report))

    @property
    def connector_stop_timeout_s(self) -> float:
        return self._parts.connector_stop_timeout_s

    @property
    def task_stop_timeout_s(self) -> float:
        return self._parts.task_stop_timeout_s

    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """Returns a configuration that is about to start, with its placeholders resolved. May read files.

        Raises:
            ConfigException: a provider cannot read what a placeholder names, or has no value for it.
        """
        return self._parts.transformer.resolve(config).complete()

    def resolvable(self, config: Mapping[str, str]) -> TransformedConfig:
        """Resolves the placeholders of a configuration for display: one without a value is listed, and stays as it is.

        Raises:
            ConfigException: a provider cannot read what a placeholder names.
        """
        return self._parts.transformer.resolve(config)

    # ------------------------------------------------------------------ connectors
    def start_connector(
        self, name: str, resolved: Mapping[str, str], target: TargetState, on_put_off: Callable[[], None] = lambda: None
    ) -> Future[TargetState]:
        """Starts a new instance of a connector.

        Args:
            name: The connector; no instance of it may be running.
            on_put_off: Called on its thread, each time that ``start`` or ``task_configs`` asks to be called again.

        Returns:
            Done when the target is reached; fails with the cause.
        """
        if name in self._connectors:
            raise ConnectException(f"connector {name} is running already")
        startup = self.startups.connector(resting=target is not TargetState.STARTED)
        try:
            cls = self.plugins.resolve_connector(resolved[CONNECTOR_CLASS])
            retries = _retries_of(name, resolved, is_sink=issubclass(cls, SinkConnector))
        except ConnectException:
            startup.reached(State.FAILED)
            raise

        def make() -> Connector:
            instance = cls()
            assert isinstance(instance, Connector)
            return instance

        def make_context(raise_error: Callable[[BaseException], None]) -> ConnectorContext:
            metrics = self._parts.connector_metrics(name)
            if issubclass(cls, SinkConnector):
                return RunnerSinkContext(name, self._requests, raise_error, metrics)
            offsets = self._parts.offset_reader(name, resolved)
            return RunnerSourceContext(name, self._requests, raise_error, offsets, metrics)

        def on_state(state: State, trace: str | None) -> None:
            startup.reached(state)
            self._listener.on_connector_state(name, state, trace)

        spec = ConnectorSpec(name, dict(resolved), make, make_context, target, retries)
        runner = ConnectorRunner(spec, on_state, on_put_off)
        self._connectors[name] = runner
        log.info("Starting connector %s (%s)", name, resolved[CONNECTOR_CLASS])
        if (changed := changed_code(self.plugins, resolved)) is not None:
            log.warning("Connector %s: %s", name, changed)
        return runner.start()

    def connector_running(self, name: str) -> bool:
        """True if an instance is started and has not failed."""
        runner = self._connectors.get(name)
        return runner is not None and runner.running

    def connector_waiting(self, name: str) -> WaitReason | None:
        """The call of a connector that asked to be made again; None if none did. Thread: any."""
        runner = self._connectors.get(name)
        return None if runner is None else runner.waiting

    def transition_connector(self, name: str, target: TargetState) -> Future[TargetState]:
        """Asks the running instance for a target state; the newest request wins. A backfill ends with STOPPED."""
        if target is TargetState.STOPPED:
            self.backfills.end(name)
        return self._runner(name).transition(target)

    def task_plan(self, name: str, max_tasks: int) -> Future[TaskPlan]:
        return self._runner(name).task_plan(max_tasks)

    def fail_connector(self, name: str, error: BaseException) -> None:
        self._runner(name).raise_error(error)

    def stop_connector(self, name: str) -> Future[None]:
        """Asks the instance and its backfill to end. Done when they have ended; at once if there is no instance."""
        self.backfills.end(name)
        runner = self._connectors.get(name)
        if runner is None:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return runner.shut_down()

    def forget_connector(self, name: str) -> None:
        """Drops the instance; one that has not ended is abandoned."""
        runner = self._connectors.pop(name, None)
        if runner is not None and not runner.ended.done():
            log.error(
                "Connector %s did not end within %.1f s and is abandoned; its thread may keep running",
                name,
                self._parts.connector_stop_timeout_s,
            )
            runner.cancel()

    def _runner(self, name: str) -> ConnectorRunner:
        try:
            return self._connectors[name]
        except KeyError:
            raise ConnectException(f"connector {name} is not running on this worker") from None

    # ------------------------------------------------------------------ tasks
    def start_task(self, request: TaskRequest, max_tasks: int | None) -> None:
        """Starts a task. An error makes it FAILED.

        Args:
            max_tasks: ``tasks.max`` when it is enforced: a stored configuration may
                have more tasks than are allowed now.
        """
        if request.id in self._tasks:
            raise ConnectException(f"task {request.id} is running already")

        made = 0

        def make(report: StateReport, paused: bool) -> TaskRunner:
            nonlocal made
            if max_tasks is not None:
                check_count(request.id.connector, request.task_count, max_tasks)
            made += 1
            return self._parts.make_task(replace(request, paused=paused, again=made > 1), report)

        startup = self.startups.task(resting=request.paused)

        def on_state(state: State, trace: str | None) -> None:
            startup.reached(state)
            self._listener.on_task_state(request.id, state, trace)

        slot = TaskSlot(
            request.id, make, paused=request.paused, on_state=on_state, stop_timeout_s=self._parts.task_stop_timeout_s
        )
        self._tasks[request.id] = slot
        slot.start()

    def pause_task(self, task: ConnectorTaskId) -> None:
        if task in self._tasks:
            self._tasks[task].pause()

    def resume_task(self, task: ConnectorTaskId) -> None:
        if task in self._tasks:
            self._tasks[task].resume()

    def fail_tasks(self, error: Exception) -> None:
        """Fails all tasks, because a service that they need is unavailable. Thread: any."""
        for slot in list(self._tasks.values()):
            slot.fail(error)

    def stop_task(self, task: ConnectorTaskId) -> Future[None]:
        """Asks a task to end. Done when it has ended, or was abandoned after its deadline; at once if there is no such
        task.
        """
        slot = self._tasks.get(task)
        if slot is None:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return slot.stop()

    def hints(self, task: ConnectorTaskId) -> Hints:
        """Returns the reasons that a task itself knows for making no progress."""
        slot = self._tasks.get(task)
        return Hints() if slot is None else slot.hints

    def roads(self, connector: str) -> list[tuple[Mapping[str, str], float]]:
        """Counts the records of a connector by the path that they took through the worker: labels and count of each
        path.
        """
        read = self._parts.metrics.read()
        return [(tags, n) for name, tags, n in read if name == SPARK_RECORDS_TOTAL and tags["connector"] == connector]

    def forget_task(self, task: ConnectorTaskId) -> None:
        if self._tasks.pop(task, None) is not None:
            self._parts.task_gone(task)
