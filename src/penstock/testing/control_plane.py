"""A standalone herder over a real worker whose tasks are doubles: the control plane without Kafka and Spark.

Main names: ``running`` (a context manager), ``Setup`` (what a test works with), ``await_true``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock.api import OffsetStorageReader
from penstock.config.providers import ConfigTransformer, EnvVarConfigProvider
from penstock.errors import BadRequestException
from penstock.herder import StandaloneHerder
from penstock.herder.validation import Checked
from penstock.model import ConnectorType, State
from penstock.plugins import Plugins
from penstock.testing.probes import BOARD
from penstock.worker.task_slot import StateReport
from penstock.worker.worker import TaskRequest, Worker, WorkerParts

SOURCE = "penstock.testing.probes:ProbeSource"
SINK = "penstock.testing.probes:ProbeSink"


class FakeTask:
    """A task that does at once what it is told, and records it; ``stuck`` ones do not end."""

    def __init__(self, request: TaskRequest, report: StateReport, stuck: bool = False) -> None:
        self.request = request
        self.report = report
        self.stuck = stuck
        self.cancelled = False
        self._ended = threading.Event()
        self._stop_asked = False

    def start(self) -> None:
        if self._stop_asked:
            self.report(State.UNASSIGNED, None)
            self._ended.set()
        else:
            self.report(State.PAUSED if self.request.paused else State.RUNNING, None)

    def pause(self) -> None:
        self.report(State.PAUSED, None)

    def resume(self) -> None:
        self.report(State.RUNNING, None)

    def stop(self) -> None:
        self._stop_asked = True
        if not self.stuck:
            self.report(State.UNASSIGNED, None)
            self._ended.set()

    def cancel(self) -> None:
        self.cancelled = True

    def join(self, timeout_s: float | None = None) -> bool:
        return self._ended.wait(timeout_s)


class EchoOffsets(OffsetStorageReader):
    """Answers with what was asked for."""

    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        return {"read": partition["file"]}

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        return [self.offset(partition) for partition in partitions]


class Setup:
    """What a test gets."""

    def __init__(self) -> None:
        self.tasks: list[FakeTask] = []
        self.task_error: Exception | None = None
        self.stuck = False
        self.herder = StandaloneHerder("127.0.0.1:8083")
        self.env = {"SECRET": "hunter2"}
        parts = WorkerParts(
            worker_id="127.0.0.1:8083",
            plugins=Plugins(stock=()),
            transformer=ConfigTransformer({"env": EnvVarConfigProvider(self.env)}),
            offset_reader=lambda name: EchoOffsets(),
            make_task=self._make_task,
            task_stop_timeout_s=0.3,
            connector_stop_timeout_s=0.3,
        )
        self.worker = Worker(parts, self.herder, self.herder)

    def _make_task(self, request: TaskRequest, report: StateReport) -> FakeTask:
        if self.task_error is not None:
            raise self.task_error
        task = FakeTask(request, report, self.stuck)
        self.tasks.append(task)
        return task

    def validate(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> Checked:
        """Takes every configuration that names a class."""
        if not resolved.get("connector.class"):
            raise BadRequestException("Connector config contains no connector type")
        sink = "Sink" in str(resolved["connector.class"])
        enforce = resolved.get("tasks.max.enforce", "true") == "true"
        kind = ConnectorType.SINK if sink else ConnectorType.SOURCE
        return Checked(kind, "7", int(resolved.get("tasks.max") or 1), enforce)

    def put(self, name: str, cls: str = SOURCE, **config: str) -> None:
        """Creates or changes a connector; ``tasks_max`` stands for ``tasks.max``."""
        settings = {"connector.class": cls, **{key.replace("_", "."): value for key, value in config.items()}}
        self.herder.put_connector(name, settings, replace=True).result(10)

    def state(self, name: str) -> tuple[str | None, list[str]]:
        """State of a connector and its tasks, for readers."""
        view = self.herder.connectors().get(name)
        if view is None:
            return None, []
        return view.status.state.value if view.status else None, [task.state.value for task in view.tasks]

    def await_state(self, name: str, connector: str | None, tasks: list[str]) -> None:
        """Waits for these states."""
        await_true(lambda: self.state(name) == (connector, tasks), lambda: f"{name} is {self.state(name)}")


def await_true(holds: Callable[[], bool], what: Callable[[], str] = lambda: "not seen", timeout_s: float = 10) -> None:
    """Waits for something to become true."""
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < end, what()
        pause.wait(0.005)


@contextmanager
def running() -> Iterator[Setup]:
    """A herder that serves, stopped at the end."""
    BOARD.clear()
    setup = Setup()
    setup.herder.start()
    setup.herder.serve(setup.worker, setup.validate, "cluster")
    try:
        yield setup
    finally:
        for event in BOARD.block.values():
            event.set()
        setup.herder.stop(10)
