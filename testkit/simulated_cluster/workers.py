"""A worker that notes what runs on it, instead of running it.

Main type: ``NotedWorker``; ``NotedConnector`` says how a connector behaves. It is a ``Worker`` as far as a herder needs
one.

Thread: that of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from penstock.config.providers import TransformedConfig
from penstock.errors import ConnectException, KafkaRetriableException
from penstock.herder.cluster.leader import task_id
from penstock.model import ConnectorTaskId, State, TargetState
from penstock.telemetry import Metrics
from penstock.worker.backfills import Backfills
from penstock.worker.connector_runner import TaskPlan
from penstock.worker.task.slot import (
    TaskRequest,
)
from penstock.worker.worker import StartupCounts, StatusListener
from testkit.simulated_cluster.clock import NodeLoop, VirtualLoop
from testkit.simulated_cluster.producers import Holder, Producers


class NotedTask:
    """Names the class of simulated tasks."""


@dataclass(frozen=True)
class Change:
    """Something began or ended to run.

    Attributes:
        at_s: When.
        node: Where.
        unit: What.
        began: Whether it began.
    """

    at_s: float
    node: str
    unit: str | ConnectorTaskId
    began: bool


class NotedWorker:
    """The units that run on one node.

    Args:
        node: Its name.
        loop: The clock.
        story: Gets every change of every node.
        stop_s: How long a task takes to stop.
        node_loop: The node's threads, which freeze and die with its process.
        producers: Those of exactly-once source tasks; None where tasks have none.
        orders: What a unit does in a call (``start``, ``stop``, ``tasks``): ``fail``, ``block``, or a number of tasks.

    Attributes:
        running: The units that run here, with the settings of tasks.
        writing: The tasks that have begun to write, where they have producers.
        connector_stop_timeout_s: As a ``Worker`` has it.
    """

    connector_stop_timeout_s = 5.0
    task_stop_timeout_s = 5.0

    def __init__(
        self,
        node: str,
        loop: VirtualLoop,
        story: Callable[[Change], None],
        stop_s: Callable[[], float],
        node_loop: NodeLoop,
        producers: Producers | None = None,
        orders: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        self._orders = {} if orders is None else orders
        self._node = node
        self._loop = loop
        self._story = story
        self._stop_s = stop_s
        self._node_loop = node_loop
        self._producers = producers
        self.writing: dict[ConnectorTaskId, Holder] = {}
        self._requests: dict[ConnectorTaskId, TaskRequest] = {}
        self.running: dict[str | ConnectorTaskId, Mapping[str, str]] = {}
        self.listener: StatusListener | None = None
        self.startups = StartupCounts(Metrics())
        # No simulated connector is asked for a backfill.
        self.backfills = Backfills(node, lambda _: None)
        self._targets: dict[str, TargetState] = {}

    # ------------------------------------------------------------------ configurations
    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """See ``Worker``."""
        return dict(config)

    def resolvable(self, config: Mapping[str, str]) -> TransformedConfig:
        """See ``Worker``."""
        return TransformedConfig(dict(config), {})

    # ------------------------------------------------------------------ connectors
    def start_connector(
        self,
        name: str,
        resolved: Mapping[str, str],
        target: TargetState,
        on_put_off: Callable[[], None] = lambda: None,
    ) -> Future[TargetState]:
        """See ``Worker``; no start is put off."""
        del on_put_off
        assert name not in self.running, f"{name} runs on {self._node} already"
        self._begin(name, resolved)
        return self.transition_connector(name, target)

    def connector_running(self, name: str) -> bool:
        """See ``Worker``."""
        return name in self.running and self._targets.get(name) is TargetState.STARTED

    def transition_connector(self, name: str, target: TargetState) -> Future[TargetState]:
        """See ``Worker``."""
        self._targets[name] = target
        if target is TargetState.STARTED and (order := self._orders.get((name, "start"))):
            return self._disturbed(name, order)
        state = State.RUNNING if target is TargetState.STARTED else State(target.value)
        return self._later(lambda: self._say(name, state), target)

    def task_plan(self, name: str, max_tasks: int) -> Future[TaskPlan]:
        """See ``Worker``: as many tasks as allowed; their settings follow from the connector's ``seed``."""
        config = self.running.get(name, {})
        max_tasks = int(self._orders.get((name, "tasks"), max_tasks))
        configs = [{"part": str(number), "seed": config.get("seed", "")} for number in range(max_tasks)]
        return self._later(lambda: None, TaskPlan(NotedTask, configs))

    def fail_connector(self, name: str, error: BaseException) -> None:
        """See ``Worker``."""
        self._say(name, State.FAILED)

    def stop_connector(self, name: str) -> Future[None]:
        """See ``Worker``."""
        return self._later(lambda: self._end(name), None)

    def forget_connector(self, name: str) -> None:
        """See ``Worker``."""
        self._end(name)

    # ------------------------------------------------------------------ tasks
    def start_task(self, request: TaskRequest, max_tasks: int | None) -> None:
        """See ``Worker``."""
        assert request.id not in self.running, f"{request.id} runs on {self._node} already"
        self._begin(request.id, request.task_config)
        if order := self._orders.get((str(request.id), "start")):
            self._disturbed(request.id, order)
            return
        if self._producers is not None:
            self._requests[request.id] = request
            self._after(self._stop_s(), lambda: self._claim(request))
        self._say(request.id, State.PAUSED if request.paused else State.RUNNING)

    def pause_task(self, task: ConnectorTaskId) -> None:
        """See ``Worker``."""
        if task in self.running:
            self._say(task, State.PAUSED)

    def resume_task(self, task: ConnectorTaskId) -> None:
        """See ``Worker``."""
        if task in self.running:
            self._say(task, State.RUNNING)

    def stop_task(self, task: ConnectorTaskId) -> Future[None]:
        """See ``Worker``."""
        if task not in self.running:
            return self._later(lambda: None, None)
        blocked = self._orders.get((str(task), "stop")) == "block"
        return self._later(lambda: self._end(task), None, self.task_stop_timeout_s if blocked else 0.0)

    def forget_task(self, task: ConnectorTaskId) -> None:
        """See ``Worker``."""
        self._end(task)

    # ------------------------------------------------------------------ exactly-once
    def writes(self, task: ConnectorTaskId) -> bool:
        """True if what a task writes counts."""
        assert self._producers is not None
        holder = self.writing.get(task)
        return holder is not None and self._producers.counts(holder)

    def _here(self, request: TaskRequest) -> bool:
        return self._requests.get(request.id) is request and request.id in self.running

    def _claim(self, request: TaskRequest) -> None:
        """The task takes its transactional id, which fences whoever had it."""
        if self._here(request):
            assert self._producers is not None
            name, number = request.id
            id_ = task_id("simulated", name, number)
            settings = (str(request.task_count), *sorted(request.task_config.get("seed", "")))
            holder = Holder(self._node, name, id_, self._producers.claim(id_), settings)
            self._after(self._stop_s(), lambda: self._confirm(request, holder))

    def _confirm(self, request: TaskRequest, holder: Holder) -> None:
        if not self._here(request):
            return
        try:
            request.confirm()
        except KafkaRetriableException:
            self._after(1.0, lambda: self._confirm(request, holder))
            return
        except ConnectException:
            # What is wanted now is on its way.
            self._say(request.id, State.FAILED)
            return
        assert self._producers is not None
        if self._producers.counts(holder):
            self._producers.begin(holder)
        self.writing[request.id] = holder
        self._after(1.0, lambda: self._write(request, holder))

    def _write(self, request: TaskRequest, holder: Holder) -> None:
        """Sends a transaction now and then; finds out so that somebody has fenced it."""
        if not self._here(request):
            return
        assert self._producers is not None
        if self._producers.counts(holder):
            self._after(1.0, lambda: self._write(request, holder))
        else:
            self._regain(request, self._loop.time())

    def _regain(self, request: TaskRequest, since_s: float) -> None:
        """A task that was fenced begins anew, if it still belongs here."""
        if not self._here(request):
            return
        if request.confirm_owner(since_s):
            self._claim(request)
        else:
            self._after(0.2, lambda: self._regain(request, since_s))

    # ------------------------------------------------------------------ inside
    def _after(self, delay_s: float, act: Callable[[], None]) -> None:
        self._loop.call_later(delay_s, self._node_loop.post, act)

    def _begin(self, unit: str | ConnectorTaskId, config: Mapping[str, str]) -> None:
        self.running[unit] = dict(config)
        self._story(Change(self._loop.time(), self._node, unit, True))

    def _end(self, unit: str | ConnectorTaskId) -> None:
        if not isinstance(unit, str) and (holder := self.writing.pop(unit, None)) is not None:
            assert self._producers is not None
            self._producers.end(holder)
        if self.running.pop(unit, None) is not None:
            self._story(Change(self._loop.time(), self._node, unit, False))
            self._say(unit, State.UNASSIGNED)

    def _say(self, unit: str | ConnectorTaskId, state: State) -> None:
        if self.listener is None:
            return
        if isinstance(unit, str):
            self.listener.on_connector_state(unit, state, None)
        else:
            self.listener.on_task_state(unit, state, None)

    def _disturbed(self, unit: str | ConnectorTaskId, order: str) -> Future[TargetState]:
        """Fails the start of a unit, or never answers."""
        done: Future[TargetState] = Future()
        if order == "fail":
            self._say(unit, State.FAILED)
            done.set_exception(ConnectException(f"{unit} was told to fail"))
        return done

    def _later(self, act: Callable[[], object], answer: object, delay_s: float = 0.0) -> Future:  # type: ignore[type-arg]
        done: Future[object] = Future()

        def finish() -> None:
            act()
            done.set_result(answer)

        self._loop.call_later(delay_s + self._stop_s(), finish)
        return done
