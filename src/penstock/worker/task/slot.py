"""One task of a worker, from its configuration and the herder's request for it to its end, with its deadline.

``step`` is the lifecycle as the worker sees it, a pure function: it keeps late reports of a cancelled or stopped task
out of the status. A runner that ended with its Spark session or its transaction is replaced in the same slot. This
module needs neither Spark nor Arrow, which the herder starts without.

Threads: the herder calls the public methods of ``TaskSlot``, which return at once; ``start-<task>`` builds the runner,
``stop-<task>`` waits for its end.

Source: org.apache.kafka.connect.runtime.WorkerTask, ConnectUtils, AbstractHerder.taskConfigsChanged.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.errors import ConnectException, stack_trace
from penstock.model import ConnectorTaskId, ConnectorType, State
from penstock.model.payloads import BackfillPlan
from penstock.plugins.stock import TASK_CLASSES
from penstock.telemetry import log_context
from penstock.threads import Deadline, NoThreadException, in_thread
from penstock.validation.config_infos import provided_values
from penstock.worker.task.waiting import Hints

log = logging.getLogger(__name__)

TASK_CLASS = "task.class"
_TOPICS = ("topics", "topics.regex")
#: A value this long is no other setting's by chance.
_TELLING = 8


class TooManyTasksException(ConnectException):
    """A connector gave more task configurations than ``tasks.max`` allows."""


def check_count(connector: str, count: int, maximum: int) -> None:
    """Refuses more tasks than allowed; for ``tasks.max.enforce=true``."""
    if count > maximum:
        raise TooManyTasksException(
            f"The connector {connector} has generated {count} task configs, which is greater than {maximum}, "
            "the maximum number of tasks it is configured to create (tasks.max). This is likely a bug in the "
            "connector; raise tasks.max, or set tasks.max.enforce=false to run them all"
        )


def complete(
    generated: Sequence[Mapping[str, str]],
    *,
    task_class: type,
    sink: bool,
    raw: Mapping[str, str],
    resolved: Mapping[str, str],
) -> list[dict[str, str]]:
    """Adds the worker's settings to task configurations, and restores placeholders so that secrets are not stored.

    Args:
        sink: True for a sink, whose tasks get its topics.
        raw: The connector's settings with placeholders.
        resolved: The same with the placeholders resolved.
    """
    completed = []
    for config in generated:
        task = dict(config)
        task[TASK_CLASS] = class_name(task_class)
        if sink:
            task.update({key: resolved[key] for key in _TOPICS if key in resolved})
        completed.append(_with_placeholders(task, raw, resolved))
    return completed


def _with_placeholders(task: Mapping[str, str], raw: Mapping[str, str], resolved: Mapping[str, str]) -> dict[str, str]:
    given = provided_values(raw, resolved)
    restored = dict(task)
    for key, value in task.items():
        # Only where the task has the very value that the placeholder stands for: a connector may have given its
        # task another value under the same key.
        if key in raw and value == resolved.get(key) != raw[key]:
            restored[key] = raw[key]
            continue
        # Under another key, or in a longer text; a short value may be there by chance.
        for provided, text in given.items() if value else ():
            if len(provided) >= _TELLING and provided in restored[key]:
                restored[key] = restored[key].replace(provided, text)
    return restored


def changed(
    new: Sequence[Mapping[str, str]],
    old: Sequence[Mapping[str, str]],
    *,
    connector_now: Mapping[str, str],
    connector_then: Mapping[str, str] | None,
) -> bool:
    """True if the tasks must be restarted.

    Args:
        connector_then: Its settings when ``old`` came into force: converters, transforms and client overrides are read
            from there by the tasks, so a change of them needs new tasks too. None when there were none.
    """
    if [dict(config) for config in new] != [dict(config) for config in old]:
        return True
    return bool(new) and (connector_then is None or dict(connector_now) != dict(connector_then))


def class_name(cls: type) -> str:
    """Returns the name of a class in a task configuration: its Java name, if ``load_class`` finds it by that name.

    Else ``module.Class``, or ``module:Outer.Inner`` for a nested one.
    """
    java_name = vars(cls).get("java_name")
    if java_name in TASK_CLASSES:
        return str(java_name)
    separator = ":" if "." in cls.__qualname__ else "."
    return f"{cls.__module__}{separator}{cls.__qualname__}"


def load_class(name: str) -> type:
    """The class with this name; Java's names are known, too."""
    path = TASK_CLASSES.get(name, name)
    module, _, inside = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        found: object = importlib.import_module(module)
        for part in inside.split("."):
            found = getattr(found, part)
    except BaseException as error:
        raise ConnectException(f"the task class {name} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(found, type):
        raise ConnectException(f"the task class {name} is not a class")
    return found


class TaskPhase(Enum):
    """The phases of a task's lifecycle; each value describes the phase."""

    BUILDING = "BUILDING"
    """Its converters, transforms and clients are being made."""
    STARTING = "STARTING"
    """Its thread runs; it has not said RUNNING or PAUSED yet."""
    RUNNING = "RUNNING"
    """It moves records, or would if there were any."""
    PAUSED = "PAUSED"
    """It rests by request and keeps its resources."""
    FAILED = "FAILED"
    """It ended by an error."""
    STOPPING = "STOPPING"
    """It was asked to end and has not ended yet."""
    ENDED = "ENDED"
    """It ended as asked."""
    CANCELLED = "CANCELLED"
    """It missed its deadline and was abandoned; nothing it says counts any more."""


class TaskSignal(Enum):
    """The events without data."""

    BUILT = "Built"
    """The runner exists and its thread starts."""
    STOP = "TaskStopAsked"
    """The worker asks the task to end."""
    CANCEL = "TaskCancelAsked"
    """The worker abandons the task."""


@dataclass(frozen=True)
class Reports:
    """The runner reports a state."""

    state: State
    trace: str | None = None


TaskEvent = TaskSignal | Reports


@dataclass(frozen=True)
class BuildAgain:
    """Replace the runner, which has ended, by another one."""


@dataclass(frozen=True)
class PublishStatus:
    """Report to the herder."""

    state: State
    trace: str | None = None


TaskEffect = PublishStatus | BuildAgain

_PHASE_OF = {State.RUNNING: TaskPhase.RUNNING, State.PAUSED: TaskPhase.PAUSED, State.FAILED: TaskPhase.FAILED}
_ALIVE = {TaskPhase.BUILDING, TaskPhase.STARTING, TaskPhase.RUNNING, TaskPhase.PAUSED}


def step(phase: TaskPhase, event: TaskEvent) -> tuple[TaskPhase, list[TaskEffect]]:
    """One transition."""
    match event:
        case TaskSignal.CANCEL:
            return TaskPhase.CANCELLED, []
        # Invariant 4: the reports of a cancelled task do not count.
        case _ if phase is TaskPhase.CANCELLED:
            return phase, []
        case TaskSignal.BUILT:
            if phase is TaskPhase.BUILDING:
                return TaskPhase.STARTING, []
            if phase is TaskPhase.STOPPING:
                return phase, []
        case TaskSignal.STOP:
            if phase in _ALIVE:
                return TaskPhase.STOPPING, []
            return phase, []
        case Reports(state=state, trace=trace):
            return _reported(phase, state, trace)
    raise ValueError(f"no transition from {phase.name} on {event!r}")


def _reported(phase: TaskPhase, state: State, trace: str | None) -> tuple[TaskPhase, list[TaskEffect]]:
    if phase in (TaskPhase.FAILED, TaskPhase.ENDED):
        return phase, []  # the end of the thread after its failure was reported
    if state is State.UNASSIGNED:
        return TaskPhase.ENDED, [PublishStatus(State.UNASSIGNED)]
    if phase is TaskPhase.STOPPING:
        # An error after stop was asked is logged by the runner; the status is that of a task that ended.
        ended = state in (State.FAILED, State.RESTARTING)
        return (TaskPhase.ENDED, [PublishStatus(State.UNASSIGNED)]) if ended else (phase, [])
    if state is State.RESTARTING:
        return TaskPhase.BUILDING, [PublishStatus(state, trace), BuildAgain()]
    if state in _PHASE_OF:
        return _PHASE_OF[state], [PublishStatus(state, trace)]
    raise ValueError(f"a task in {phase.name} cannot report {state.name}")


@dataclass(frozen=True)
class TaskRequest:
    """Everything needed to build one task.

    Attributes:
        connector_config: The connector's settings, placeholders resolved (converters, transforms, errors.*, overrides).
        task_config: The task's own settings, placeholders resolved.
        read_task_config: Reads the task's settings again with placeholders resolved anew.
        confirm: For an exactly-once source: returns if the task still belongs here; blocks; raises ConnectException.
        confirm_owner: For the same: True if the group has confirmed after this monotonic time that it runs here;
            blocks.
        again: True if it replaces an instance that ended by itself.
        backfill: For a backfill: the ranges to read, instead of the next records of its group or source.
    """

    id: ConnectorTaskId
    connector_type: ConnectorType
    connector_config: Mapping[str, str]
    task_config: Mapping[str, str]
    read_task_config: Callable[[], Mapping[str, str]]
    paused: bool
    task_count: int
    confirm: Callable[[], None] = lambda: None
    confirm_owner: Callable[[float], bool] = lambda since_s: True
    again: bool = False
    backfill: BackfillPlan | None = None


StateReport = Callable[[State, "str | None"], None]

#: The time that an abandoned task gets after its deadline to notice it, before its slot is released.
CANCEL_GRACE_S = 1.0
#: The number of runners in a row that may end with their Spark session or their transaction before they have delivered
#: anything; the task itself may be the cause.
MAX_VAIN = 3


class TaskRunner(Protocol):
    """A source or sink task with its loop. It reports its states to the callback it was made with."""

    @property
    def has_delivered(self) -> bool:
        """True if it has delivered something, or could not for a reason outside of the task."""

    @property
    def hints(self) -> Hints:
        """The reasons that the runner itself knows for standing still."""

    def start(self) -> None:
        """Starts its thread; returns at once."""

    def pause(self) -> None:
        """Pauses it; it reports PAUSED when it rests."""

    def resume(self) -> None:
        """Resumes it; it reports RUNNING when it continues."""

    def stop(self) -> None:
        """Asks it to finish what is in flight and end; returns at once. Before ``start``: it ends when started."""

    def cancel(self) -> None:
        """Abandons it: it must commit nothing more. Returns at once."""

    def fail(self, error: Exception) -> None:
        """Ends it with an error that is not its own, as FAILED. Returns at once."""

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits for the end of its thread; False when it still runs."""


class TaskSlot:
    """One task, from the request to start it until it has ended or was abandoned.

    Args:
        make: Builds the runner; may take long, may raise.
        on_state: Called with every state that counts; must not block; any thread.
    """

    def __init__(
        self,
        task: ConnectorTaskId,
        make: Callable[[StateReport, bool], TaskRunner],
        *,
        paused: bool,
        on_state: StateReport,
        stop_timeout_s: float,
    ) -> None:
        self.id = task
        self._make = make
        self._paused = paused
        self._on_state = on_state
        self._stop_timeout_s = stop_timeout_s
        self._changed = threading.Condition()
        self._phase = TaskPhase.BUILDING
        self._runner: TaskRunner | None = None
        # The number of runners begun, the last one that was built, and the number of runners that delivered nothing
        # since one did.
        self._begun = 1
        self._built = 0
        self._vain = 0
        self._ended: Future[None] | None = None
        self._broken: Exception | None = None

    @property
    def phase(self) -> TaskPhase:
        return self._phase

    @property
    def hints(self) -> Hints:
        """See ``TaskRunner``; empty while there is no runner."""
        runner = self._runner
        return Hints() if runner is None else runner.hints

    def start(self) -> None:
        self._begin_build()

    def pause(self) -> None:
        self._set_paused(True)

    def resume(self) -> None:
        self._set_paused(False)

    def fail(self, error: Exception) -> None:
        """Ends the task as FAILED: something that it needs is not there. One that is being built fails when it is."""
        with self._changed:
            self._broken = error
            runner = self._runner
        if runner is not None:
            runner.fail(error)

    def stop(self) -> Future[None]:
        """Asks the task to end; after its deadline it is abandoned.

        Returns:
            Done when it has ended or was abandoned.
        """
        unattended: TaskRunner | None = None
        with self._changed:
            if self._ended is None:
                self._feed(TaskSignal.STOP)
                try:
                    self._ended = in_thread(f"stop-{self.id}", self._await_end)
                except NoThreadException:
                    log.exception("The end of task %s cannot be awaited; it is abandoned", self.id)
                    self._ended = Future()
                    self._ended.set_result(None)
                    self._feed(TaskSignal.CANCEL)
                    unattended = self._runner
            ended = self._ended
        if unattended is not None:
            unattended.cancel()
        return ended

    # ------------------------------------------------------------------ threads of the slot
    def _begin_build(self) -> None:
        number = self._begun
        try:
            in_thread(f"start-{self.id}", lambda: self._build(number))
        except NoThreadException as error:
            self._not_built(number, error)

    def _not_built(self, number: int, error: BaseException) -> None:
        log.error("Task %s cannot be built", self.id, exc_info=error)
        with self._changed:
            self._feed(Reports(State.FAILED, stack_trace(error)))
            self._built = number
            self._changed.notify_all()

    def _build(self, number: int) -> None:
        with log_context(self.id.connector, self.id.task):
            paused = self._paused
            try:
                runner = self._make(self._reported, paused)
            except BaseException as error:
                self._not_built(number, error)
                return
            with self._changed:
                self._runner = runner
                self._feed(TaskSignal.BUILT)
                phase, changed, broken = self._phase, self._paused != paused, self._broken
            # Outside of the lock: the runner reports states from its own thread and may hold a lock of its own.
            if phase is TaskPhase.CANCELLED:
                runner.cancel()
            elif phase is TaskPhase.STOPPING:
                runner.stop()
            elif changed:
                (runner.resume if paused else runner.pause)()
            # A task that is to end is started, too: its thread closes the built parts.
            try:
                runner.start()
            except NoThreadException as error:
                runner.cancel()
                self._not_built(number, error)
                return
            if broken is not None:
                runner.fail(broken)
            with self._changed:
                self._built = max(self._built, number)
                self._changed.notify_all()

    def _await_end(self) -> None:
        with log_context(self.id.connector, self.id.task):
            deadline = Deadline(self._stop_timeout_s)
            runner = self._runner
            if runner is not None:
                runner.stop()
            with self._changed:
                built = self._changed.wait_for(lambda: self._built == self._begun, deadline.remaining())
                runner = self._runner
            if built and (runner is None or runner.join(deadline.remaining())):
                return
            log.error(
                "Task %s did not end within %.1f s (task.shutdown.graceful.timeout.ms) and is abandoned: "
                "it commits no more offsets; what it delivered since its last commit is delivered again",
                self.id,
                self._stop_timeout_s,
            )
            with self._changed:
                self._feed(TaskSignal.CANCEL)
            if runner is not None:
                runner.cancel()
                runner.join(CANCEL_GRACE_S)

    def _set_paused(self, paused: bool) -> None:
        with self._changed:
            self._paused = paused
            runner = self._runner
        if runner is not None:
            (runner.pause if paused else runner.resume)()

    def _reported(self, state: State, trace: str | None) -> None:
        with self._changed:
            if state is State.RESTARTING and self._is_vain():
                log.error(
                    "Task %s was started %d times and ended each time before it delivered anything, for the reasons "
                    "above; it is FAILED now",
                    self.id,
                    MAX_VAIN,
                )
                state = State.FAILED
            self._feed(Reports(state, trace))

    def _is_vain(self) -> bool:
        """True if the task is not to be started again, after too many runs without delivery. Caller holds the lock."""
        delivered = self._runner is not None and self._runner.has_delivered
        self._vain = 0 if delivered else self._vain + 1
        return self._vain >= MAX_VAIN

    def _feed(self, event: TaskEvent) -> None:
        self._phase, effects = step(self._phase, event)
        for effect in effects:
            if isinstance(effect, BuildAgain):
                self._runner = None
                self._begun += 1
                self._begin_build()
                continue
            with contextlib.suppress(InvalidStateError):
                self._on_state(effect.state, effect.trace)
