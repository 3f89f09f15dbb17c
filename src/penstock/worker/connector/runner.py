"""Runs one connector instance on a thread of its own.

Main types: ``ConnectorRunner``, ``ConnectorSpec`` (what it runs). The decisions are the pure machine of
``penstock.model.connector_life``; this module feeds it and performs its effects.

Thread: ``connector-<name>``, owned here, makes every call into the user's connector. The public methods are called by
the herder (and ``raise_error`` from any thread); they return at once and answer with futures.
Source: org.apache.kafka.connect.runtime.WorkerConnector.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import TypeVar

from penstock.api import Connector, ConnectorContext
from penstock.errors import ConnectException, as_exception, stack_trace
from penstock.model.connector_life import (
    Asked,
    CallConnectorStart,
    CallConnectorStop,
    CallFailed,
    CloseContext,
    ConnectorEffect,
    ConnectorEvent,
    ConnectorLife,
    ConnectorPhase,
    ConnectorRaised,
    InitializeDone,
    ShutdownAsked,
    StartDone,
    StopDone,
    TargetReached,
    TargetRefused,
    WriteStatus,
    step,
)
from penstock.model.states import State, TargetState
from penstock.telemetry import log_context
from penstock.threads import NoThreadException, OwnedThread

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
        name: The connector.
        config: Its settings, placeholders resolved.
        make: Makes the instance; called on the connector's thread.
        make_context: Makes the context, given the function that ``raise_error`` calls.
        target: The state to reach after ``initialize``.
    """

    name: str
    config: Mapping[str, str]
    make: Callable[[], Connector]
    make_context: Callable[[Callable[[BaseException], None]], ConnectorContext]
    target: TargetState = TargetState.STARTED


class PreemptedException(ConnectException):
    """A newer request for a connector's state came first; this one was not carried out."""


class ConnectorRunner:
    """The lifecycle of one connector instance, from ``initialize`` to the closing of its context.

    Args:
        spec: The instance to run.
        on_state: Called with every state until ``cancel``; must not block; any thread.
    """

    def __init__(self, spec: ConnectorSpec, on_state: Callable[[State, str | None], None]) -> None:
        self._spec = spec
        self._on_state = on_state
        self._changed = threading.Condition()
        self._life = ConnectorLife()
        self._asked: tuple[TargetState, Future[TargetState]] | None = None
        self._serving: Future[TargetState] | None = None
        self._plans: deque[tuple[int, Future[TaskPlan]]] = deque()
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
        """The connector."""
        return self._spec.name

    @property
    def running(self) -> bool:
        """True if it is started and has not failed."""
        return self._life.phase is ConnectorPhase.RUNNING

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
            _fail(
                older[1],
                PreemptedException(
                    f"Could not begin changing the state of connector {self.name} to {older[0].value} "
                    f"before another request to change it to {target.value} came"
                ),
            )
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
        """Asks the instance to end: ``stop`` if it is started, then its context is closed.

        Returns:
            Done when the thread has ended.
        """
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
                self._perform(self._feed(ShutdownAsked()))
            finally:
                _close(self._context)
                self._fail_waiting()
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
            self._feed(InitializeDone())

    def _serve_one(self) -> bool:
        """Waits for one request and serves it; False when the instance is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._asked is not None or bool(self._plans))
            if self._closing:
                return False
            # A change of state first: task configurations are of a started connector.
            if self._asked is not None:
                (target, self._serving), self._asked = self._asked, None
                plan = None
            else:
                plan = self._plans.popleft()
        if plan is not None:
            self._serve_plan(*plan)
        else:
            self._perform(self._feed(Asked(target)))
        return True

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
            _fail(future, error)
        else:
            _succeed(future, TaskPlan(task_class, configs))

    def _perform(self, effects: list[ConnectorEffect]) -> None:
        """Makes the calls that a transition requires, and the calls that follow from their outcome."""
        for effect in effects:
            if isinstance(effect, CallConnectorStart):
                self._perform(self._call(self._start_instance, StartDone()))
            elif isinstance(effect, CallConnectorStop):
                assert self._connector is not None
                self._perform(self._call(self._connector.stop, StopDone()))
            elif isinstance(effect, CloseContext):
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

    def _call(self, call: Callable[[], None], done: ConnectorEvent) -> list[ConnectorEffect]:
        try:
            call()
        except BaseException as error:
            log.exception("Connector %s failed", self.name)
            self._note(error)
            return self._feed(CallFailed(stack_trace(error)))
        return self._feed(done)

    # ------------------------------------------------------------------ any thread
    def _feed(self, event: ConnectorEvent) -> list[ConnectorEffect]:
        """Applies the event, publishes the status, answers the requests; returns the effects, for the connector's
        thread.
        """
        answers: list[Callable[[], None]] = []
        with self._changed:
            self._life, effects = step(self._life, event)
            for effect in effects:
                if isinstance(effect, WriteStatus) and not self._cancelled:
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
