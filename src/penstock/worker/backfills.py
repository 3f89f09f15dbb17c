"""The backfills of a worker: one for each connector, with a separate task.

Main type: ``Backfills``. Main function: ``backfill_task``, the id of such a task.

Only the worker knows the state of a backfill, and forgets it when it ends: a user who needs the rest requests it again.
If a backfill ends early, and every half a minute before, the log reports its positions.

Threads: the methods any; ``backfill-<connector>``, owned here, looks after one of them.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Protocol

from penstock.errors import AlreadyExistsException, NotFoundException, stack_trace
from penstock.model import ConnectorTaskId, State
from penstock.model.payloads import BackfillState, BackfillView
from penstock.telemetry import log_context
from penstock.threads import in_thread
from penstock.worker.task.slot import StateReport, TaskRunner

log = logging.getLogger(__name__)

#: The number of a backfill's task: greater than that of any task of a connector.
_TASK: Final = 1_000_000
_LOOK_S: Final = 0.1
#: The time limit of its last commit, and then of the end of an abandoned task.
_END_S: Final = 300.0
_GIVEN_UP_S: Final = 10.0
#: The interval between two reports of a backfill's positions in the log.
_TELL_S: Final = 30.0
#: Positions that a line of the log names.
_NAMED: Final = 20


class BackfillTask(Protocol):
    """A runner with an end that can be seen."""

    @property
    def all_done(self) -> bool:
        """True if all is read and delivered: the task may commit and end."""

    @property
    def unread(self) -> Sequence[object]:
        """The records that were handed out and are not committed; asked at the end."""

    @property
    def records(self) -> int:
        """The number of records that were read."""

    @property
    def positions(self) -> Sequence[Mapping[str, object]]:
        """For each source or topic partition, in the shape of REST, the position after the delivered records."""

    @property
    def runner(self) -> TaskRunner:
        """The task."""


def backfill_task(connector: str) -> ConnectorTaskId:
    """The id of the task of a connector's backfill."""
    return ConnectorTaskId(connector, _TASK)


@dataclass
class _Run:
    view: BackfillView
    stop: threading.Event = field(default_factory=threading.Event)
    task: BackfillTask | None = None
    failure: str | None = None


class Backfills:
    """Starts, shows and ends backfills."""

    def __init__(self, worker_id: str, gone: Callable[[ConnectorTaskId], None]) -> None:
        self._worker_id = worker_id
        self._gone = gone
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def start(
        self,
        connector: str,
        reads: Sequence[Mapping[str, object]],
        total: int | None,
        make: Callable[[StateReport], BackfillTask],
    ) -> BackfillView:
        """Begins one.

        Args:
            make: Builds the task; called on the thread of the backfill.
        """
        with self._lock:
            before = self._runs.get(connector)
            if before is not None and before.view.state is BackfillState.RUNNING:
                raise AlreadyExistsException(
                    f"Connector {connector} has a backfill that began at {before.view.began}: wait for its end "
                    f"(GET /connectors/{connector}/backfill), or end it with DELETE"
                )
            run = _Run(BackfillView(BackfillState.RUNNING, self._worker_id, _now(), reads, 0, total))
            self._runs[connector] = run
        in_thread(f"backfill-{connector}", lambda: self._work(connector, run, make))
        return run.view

    def view(self, connector: str) -> BackfillView | None:
        """The last one of a connector; None if it had none here."""
        run = self._runs.get(connector)
        if run is None:
            return None
        task = run.task
        return run.view if task is None else _now_at(run.view, task)

    def cancel(self, connector: str) -> None:
        """Ends the backfill; the records that it has written stay."""
        run = self._runs.get(connector)
        if run is None or run.view.state is not BackfillState.RUNNING:
            raise NotFoundException(f"Connector {connector} has no backfill that is running")
        run.stop.set()

    def end(self, connector: str) -> None:
        """The connector's instance ends on this worker: so does its backfill."""
        run = self._runs.get(connector)
        if run is not None and run.view.state is BackfillState.RUNNING:
            run.failure = "The connector was stopped, changed, deleted or moved to another worker in between"
            run.stop.set()

    def end_all(self) -> None:
        for connector in list(self._runs):
            self.end(connector)

    # ------------------------------------------------------------------ the thread of one
    def _work(self, connector: str, run: _Run, make: Callable[[StateReport], BackfillTask]) -> None:
        with log_context(connector, None):
            log.info("A backfill of connector %s begins", connector)
            try:
                state, trace = self._done(connector, run, make)
            except BaseException as error:
                state, trace = BackfillState.FAILED, stack_trace(error)
            finally:
                self._gone(backfill_task(connector))
            task = run.task
            records, positions = (0, ()) if task is None else (task.records, task.positions)
            view = replace(run.view, state=state, ended=_now(), records=records, positions=positions, trace=trace)
            log.info("The backfill of connector %s is %s: %d records", connector, state.value, records)
            if state is not BackfillState.COMPLETED:
                _tell(
                    logging.WARNING, connector, view, "The records after these positions are left: request them again"
                )
            # Last: who sees the end finds its lines in the log.
            run.view, run.task = view, None

    def _done(
        self, connector: str, run: _Run, make: Callable[[StateReport], BackfillTask]
    ) -> tuple[BackfillState, str | None]:
        failed = threading.Event()
        traces: list[str] = []

        def report(state: State, trace: str | None) -> None:
            if state in (State.FAILED, State.RESTARTING):
                traces.append(trace or state.value)
                failed.set()

        task = run.task = make(report)
        task.runner.start()
        told_s = time.monotonic()
        while not task.runner.join(_LOOK_S):
            if run.stop.is_set() or failed.is_set() or task.all_done:
                break
            if time.monotonic() - told_s > _TELL_S:
                told_s = time.monotonic()
                _tell(logging.INFO, connector, _now_at(run.view, task), "A backfill ends with its worker")
        complete = task.all_done and not failed.is_set()
        task.runner.stop()
        if not task.runner.join(_END_S):
            task.runner.cancel()
            task.runner.join(_GIVEN_UP_S)
            return BackfillState.FAILED, "Its task did not end in time and was abandoned"
        if failed.is_set():
            return BackfillState.FAILED, traces[0]
        if not complete:
            return (BackfillState.CANCELLED, None) if run.failure is None else (BackfillState.FAILED, run.failure)
        if left := task.unread:
            return BackfillState.FAILED, f"Not all is committed by the task: {', '.join(map(str, left))}"
        return BackfillState.COMPLETED, None


def _now_at(view: BackfillView, task: BackfillTask) -> BackfillView:
    """A backfill that runs, as it is now."""
    hints = task.runner.hints
    return replace(
        view,
        records=task.records,
        positions=task.positions,
        progress=None if hints.progress is None else hints.progress.to_json(),
        waiting_for=None if hints.retry is None else hints.retry.to_json(),
    )


def _tell(level: int, connector: str, view: BackfillView, advice: str) -> None:
    of = "" if view.total is None else f" of {view.total}"
    shown = json.dumps(list(view.positions[:_NAMED]), default=str)
    more = "" if len(view.positions) <= _NAMED else f" and {len(view.positions) - _NAMED} more"
    log.log(
        level,
        "The backfill of connector %s has read %d%s records, and delivered up to %s%s. %s",
        connector,
        view.records,
        of,
        shown,
        more,
        advice,
    )


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
