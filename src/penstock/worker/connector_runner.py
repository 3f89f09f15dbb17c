"""Runs one connector instance on a thread of its own.

The decisions are the pure machine of ``penstock.model.connector_life``; this module feeds it and performs its effects.

Thread: ``connector-<name>``, owned here, makes every call into the user's connector. The herder calls the public
methods, and any thread ``raise_error`` and the contexts; they return at once and answer with futures.

Source: org.apache.kafka.connect.runtime.WorkerConnector.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock.api import (
    Connector,
    ConnectorContext,
    OffsetStorageReader,
    PluginMetrics,
    SinkConnectorContext,
    SourceConnectorContext,
)
from penstock.errors import ConnectException, IllegalWorkerStateException, as_exception, stack_trace
from penstock.model.connector_life import (
    Asked,
    CallFailed,
    ConnectorEffect,
    ConnectorEvent,
    ConnectorLife,
    ConnectorOrder,
    ConnectorPhase,
    ConnectorRaised,
    ConnectorSignal,
    TargetReached,
    TargetRefused,
    WriteStatus,
    step,
)
from penstock.model.states import State, TargetState
from penstock.telemetry import log_context
from penstock.threads import NoThreadException, OwnedThread
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.waiting import Retries, WaitReason, asks_again


class ConnectorRequests(Protocol):
    """The requests that a connector may make to the herder. Each call queues the work and returns at once."""

    def request_task_reconfiguration(self, connector: str) -> None:
        """Ask the connector for its task configurations again."""

    def restart_tasks(self, connector: str, task_ids: Sequence[int] | None) -> None:
        """Restart these tasks, or all."""


class _Calls:
    """The calls that both contexts have, for a class to inherit before the context's own; open until ``close``.

    Args:
        metrics: The metrics of this instance; closed with the context.
    """

    def __init__(
        self,
        connector: str,
        requests: ConnectorRequests,
        raise_error: Callable[[BaseException], None],
        metrics: InstanceMetrics,
    ) -> None:
        self._connector = connector
        self._requests = requests
        self._raise_error = raise_error
        self._metrics = metrics
        self._plugin_metrics = metrics.plugin()
        self._closed = threading.Event()

    def request_task_reconfiguration(self) -> None:
        self._check_open()
        self._requests.request_task_reconfiguration(self._connector)

    def raise_error(self, error: BaseException) -> None:
        self._check_open()
        self._raise_error(error)

    def restart_tasks(self, task_ids: Iterable[int] | None = None) -> None:
        self._check_open()
        self._requests.restart_tasks(self._connector, None if task_ids is None else sorted(set(task_ids)))

    def plugin_metrics(self) -> PluginMetrics:
        self._check_open()
        return self._plugin_metrics

    def close(self) -> None:
        """Makes every later call fail and removes the connector's own metrics."""
        self._closed.set()
        self._metrics.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise IllegalWorkerStateException(f"the context of connector {self._connector} is closed: it was shut down")


class RunnerSinkContext(_Calls, SinkConnectorContext):
    """The context of a sink connector. Arguments as for `_Calls`."""


class RunnerSourceContext(_Calls, SourceConnectorContext):
    """The context of a source connector: the above and a reader of its committed offsets."""

    def __init__(
        self,
        connector: str,
        requests: ConnectorRequests,
        raise_error: Callable[[BaseException], None],
        offsets: OffsetStorageReader,
        metrics: InstanceMetrics,
    ) -> None:
        super().__init__(connector, requests, raise_error, metrics)
        self._offsets = _ClosableReader(connector, offsets)

    def offset_storage_reader(self) -> OffsetStorageReader:
        self._check_open()
        return self._offsets

    def close(self) -> None:
        """Makes every later call fail, including calls of the offset reader, and removes the connector's own
        metrics.
        """
        super().close()
        self._offsets.close()


class _ClosableReader(OffsetStorageReader):
    def __init__(self, connector: str, reader: OffsetStorageReader) -> None:
        self._connector = connector
        self._reader = reader
        self._closed = threading.Event()

    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        self._check_open()
        return self._reader.offset(partition)

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        self._check_open()
        return self._reader.offsets(partitions)

    def close(self) -> None:
        self._closed.set()
        close = getattr(self._reader, "close", None)
        if close is not None:
            close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ConnectException(f"the offset reader of connector {self._connector} is closed: it was shut down")


T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskPlan:
    """A connector's task class, and the settings of each of its tasks."""

    task_class: type
    configs: list[dict[str, str]]


@dataclass(frozen=True)
class ConnectorSpec:
    """One connector instance to run.

    Attributes:
        config: Its settings, placeholders resolved.
        make: Makes the instance; called on the connector's thread.
        make_context: Makes the context, given the function that ``raise_error`` calls.
        retries: Its calls of ``start`` and ``task_configs`` that asked to be made again.
    """

    name: str
    config: Mapping[str, str]
    make: Callable[[], Connector]
    make_context: Callable[[Callable[[BaseException], None]], ConnectorContext]
    target: TargetState
    retries: Retries


class PreemptedException(ConnectException):
    """A newer request for a connector's state came first; this one was not carried out."""


class ConnectorRunner:
    """The lifecycle of one connector instance, from ``initialize`` to the closing of its context.

    A call of ``start`` or ``task_configs`` that raises an error that asks for it is made again, after a wait that a
    change of state or the end of the instance cuts short. Requests that wait for the call go on waiting.

    Args:
        on_state: Called with every state until ``cancel``; must not block; any thread.
        on_put_off: Called with each such wait; must not block; the connector's thread.
    """

    def __init__(
        self,
        spec: ConnectorSpec,
        on_state: Callable[[State, str | None], None],
        on_put_off: Callable[[], None] = lambda: None,
    ) -> None:
        self._spec = spec
        self._on_state = on_state
        self._on_put_off = on_put_off
        self._retries = spec.retries
        #: When the call is made again that was put off; monotonic seconds.
        self._again_at = float("-inf")
        self._changed = threading.Condition()
        self._life = ConnectorLife()
        self._asked: tuple[TargetState, Future[TargetState]] | None = None
        self._serving: Future[TargetState] | None = None
        self._plans: deque[tuple[int, Future[TaskPlan]]] = deque()
        self._written: WriteStatus | None = None
        self._closing = False
        self._cancelled = False
        self._connector: Connector | None = None
        self._initialized = False
        self._first_error: BaseException | None = None
        self._context = spec.make_context(self.raise_error)
        self._thread = OwnedThread(f"connector-{spec.name}", self._run)
        self.ended: Future[None] = Future()

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def running(self) -> bool:
        return self._life.phase is ConnectorPhase.RUNNING

    @property
    def waiting(self) -> WaitReason | None:
        """The call that waits to be made again; None if none does. Thread: any."""
        return self._retries.waiting

    def start(self) -> Future[TargetState]:
        """Starts the thread.

        Returns:
            Done when the first target state is reached; fails with the cause when it cannot be.
        """
        future = self.transition(self._spec.target)
        try:
            self._thread.start()
        except NoThreadException as error:
            log.error("Connector %s cannot be started", self.name, exc_info=error)
            _fail(future, error)
            self._on_state(State.FAILED, stack_trace(error))
            self._cancelled = True
            self.shut_down()
            _close(self._context)
            _succeed(self.ended, None)
        return future

    def transition(self, target: TargetState) -> Future[TargetState]:
        """Asks for a target state. A request that has not begun yet is pre-empted by the newer one."""
        future: Future[TargetState] = Future()
        with self._changed:
            if self._closing:
                future.set_exception(self._gone(f"it cannot become {target.value}"))
                return future
            older, self._asked = self._asked, (target, future)
            self._changed.notify_all()
        if older is not None:
            self._pre_empt(*older, target)
        return future

    def task_plan(self, max_tasks: int) -> Future[TaskPlan]:
        """Asks the connector for its task class and task configurations; on its thread, when it is started."""
        future: Future[TaskPlan] = Future()
        with self._changed:
            if self._closing:
                future.set_exception(self._gone("its tasks cannot be configured"))
                return future
            self._plans.append((max_tasks, future))
            self._changed.notify_all()
        return future

    def raise_error(self, error: BaseException) -> None:
        """Makes the connector FAILED; the first error wins. Thread: any."""
        with log_context(self.name):
            log.error("Connector raised an error", exc_info=error)
        if self._first_error is None:
            self._first_error = error
        self._feed(ConnectorRaised(stack_trace(error)))

    def shut_down(self) -> Future[None]:
        """Asks the instance to end: ``stop`` if it is started, then its context is closed."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._fail_waiting()
        return self.ended

    def cancel(self) -> None:
        """Abandons an instance that missed its deadline: its thread keeps running, and its reports are ignored."""
        with self._changed:
            self._closing = True
            if not self._cancelled and not self.ended.done():
                self._on_state(State.UNASSIGNED, None)
            self._cancelled = True
            self._changed.notify_all()
        _close(self._context)
        self._retries.ended()
        self._fail_waiting()
        if self._serving is not None:
            _fail(self._serving, self._gone("it missed its deadline and was abandoned"))
        _succeed(self.ended, None)

    # ------------------------------------------------------------------ the connector's thread
    def _run(self) -> None:
        with log_context(self.name):
            try:
                self._initialize()
                while self._serve_one():
                    pass
                self._perform(self._feed(ConnectorSignal.SHUTDOWN_ASKED))
            finally:
                self._retries.ended()
                _close(self._context)
                self._fail_waiting()
                _fail(self._serving, self._gone("its start asked to be called again, and was not"))
                _succeed(self.ended, None)

    def _initialize(self) -> None:
        try:
            if self._connector is None:
                self._connector = self._spec.make()
            self._connector.initialize(self._context)
            self._initialized = True
        except BaseException as error:
            log.exception("Connector %s failed to initialize", self.name)
            self._note(error)
            self._feed(CallFailed(stack_trace(error)))
        else:
            self._feed(ConnectorSignal.INITIALIZE_DONE)

    def _serve_one(self) -> bool:
        """Waits for one request, or for the time of a call that was put off, and serves it.

        Returns:
            False when the instance is to end.
        """
        with self._changed:
            while not self._closing and self._asked is None and (rest_s := self._rest_s()) != 0:
                if rest_s is None:
                    self._retries.ended()
                self._changed.wait(rest_s)
            if self._closing:
                return False
            # A change of state first: task configurations are of a started connector.
            asked, self._asked = self._asked, None
            plan = None
            if asked is not None:
                older, self._serving = self._serving, asked[1]
                self._retries.ended()
                self._again_at = float("-inf")
            elif self._life.phase is not ConnectorPhase.WAITING:
                plan = self._plans.popleft()
        if plan is not None:
            self._serve_plan(*plan)
        elif asked is None:
            self._perform(self._feed(Asked(TargetState.STARTED)))
        else:
            self._pre_empt(TargetState.STARTED, older, asked[0])
            self._perform(self._feed(Asked(asked[0])))
        return True

    def _rest_s(self) -> float | None:
        """The seconds until there is something to do, 0 for now, None for whenever it is requested."""
        waits = self._life.phase is ConnectorPhase.WAITING
        if not waits and not self._plans:
            return None
        # One that has failed meanwhile answers at once.
        return max(0.0, self._again_at - time.monotonic()) if waits or self.running else 0.0

    def _put_off(self, call: str, error: BaseException) -> None:
        """A call is made again later."""
        if self._closing:
            return
        self._again_at = time.monotonic() + self._retries.failed(call, error)
        self._on_put_off()

    def _pre_empt(self, older: TargetState, future: Future[TargetState] | None, newer: TargetState) -> None:
        _fail(
            future,
            PreemptedException(
                f"Could not begin changing the state of connector {self.name} to {older.value} "
                f"before another request to change it to {newer.value} came"
            ),
        )

    def _serve_plan(self, max_tasks: int, future: Future[TaskPlan]) -> None:
        connector = self._connector
        if connector is None or not self.running:
            _fail(future, ConnectException(f"connector {self.name} is not running; its tasks are not configured"))
            return
        try:
            task_class = connector.task_class()
            configs = [
                {str(key): value for key, value in config.items()} for config in connector.task_configs(max_tasks)
            ]
        except BaseException as error:
            if not asks_again(error):
                self._retries.ended()
                _fail(future, error)
                return
            with self._changed:
                if self._closing:
                    _fail(future, error)
                    return
                self._plans.appendleft((max_tasks, future))
            self._put_off("task_configs", error)
        else:
            self._retries.succeeded()
            _succeed(future, TaskPlan(task_class, configs))

    def _perform(self, effects: list[ConnectorEffect]) -> None:
        for effect in effects:
            if effect is ConnectorOrder.CALL_START:
                self._perform(self._call(self._start_instance, ConnectorSignal.START_DONE, again="start"))
            elif effect is ConnectorOrder.CALL_STOP:
                assert self._connector is not None
                self._perform(self._call(self._connector.stop, ConnectorSignal.STOP_DONE))
            elif effect is ConnectorOrder.CLOSE_CONTEXT:
                _close(self._context)

    def _start_instance(self) -> None:
        if not self._initialized:
            # It failed before, was stopped and is now resumed.
            if self._connector is None:
                self._connector = self._spec.make()
            self._connector.initialize(self._context)
            self._initialized = True
        assert self._connector is not None
        self._connector.start(dict(self._spec.config))

    def _call(self, call: Callable[[], None], done: ConnectorEvent, again: str = "") -> list[ConnectorEffect]:
        """Makes a call into the connector.

        Args:
            again: Its name, if it may ask to be made again.
        """
        try:
            call()
        except BaseException as error:
            if again and asks_again(error):
                effects = self._feed(ConnectorSignal.START_PUT_OFF)
                if self._life.phase is ConnectorPhase.WAITING:
                    self._put_off(again, error)
                return effects
            log.exception("Connector %s failed", self.name)
            self._retries.ended()
            self._note(error)
            return self._feed(CallFailed(stack_trace(error)))
        if again:
            self._retries.succeeded()
        return self._feed(done)

    # ------------------------------------------------------------------ any thread
    def _feed(self, event: ConnectorEvent) -> list[ConnectorEffect]:
        """Applies the event, publishes the status, answers the requests; returns the effects, for the connector's
        thread.
        """
        answers: list[Callable[[], None]] = []
        with self._changed:
            self._life, effects = step(self._life, event)
            self._changed.notify_all()
            for effect in effects:
                if isinstance(effect, WriteStatus) and not self._cancelled and effect != self._written:
                    self._written = effect
                    self._on_state(effect.state, effect.trace)
                elif isinstance(effect, (TargetReached, TargetRefused)):
                    answers.append(self._answer(effect))
        for answer in answers:
            answer()
        return effects

    def _answer(self, effect: TargetReached | TargetRefused) -> Callable[[], None]:
        future, self._serving = self._serving, None
        if isinstance(effect, TargetReached):
            self._first_error = None
            return lambda: _succeed(future, effect.target)
        cause = self._first_error
        text = f"connector {self.name}: {effect.reason}" + (f": {cause}" if cause is not None else "")
        error = ConnectException(text)
        error.__cause__ = cause
        return lambda: _fail(future, error)

    def _note(self, error: BaseException) -> None:
        if self._first_error is None or self._life.phase is not ConnectorPhase.FAILED:
            self._first_error = error

    def _gone(self, what: str) -> ConnectException:
        return ConnectException(f"connector {self.name} is shutting down: {what}")

    def _fail_waiting(self) -> None:
        with self._changed:
            asked, self._asked = self._asked, None
            plans, self._plans = list(self._plans), deque()
        if asked is not None:
            _fail(asked[1], self._gone(f"it cannot become {asked[0].value}"))
        for _, plan in plans:
            _fail(plan, self._gone("its tasks cannot be configured"))


def _close(context: object) -> None:
    close = getattr(context, "close", None)
    if callable(close):
        close()


def _succeed(future: Future[T] | None, value: T) -> None:
    # A cancel may have answered in between.
    with contextlib.suppress(InvalidStateError):
        if future is not None:
            future.set_result(value)


def _fail(future: Future[TaskPlan] | Future[TargetState] | None, error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):
        if future is not None:
            future.set_exception(as_exception(error))
