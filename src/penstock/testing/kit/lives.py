"""The parts that runs of sources and of sinks share: a connector from start to stop, the steps of a run, and kills.

Main types: ``Run``, the base of ``SourceRun`` and ``SinkRun``; ``Steps``, which counts the steps of a run and kills it
at one of them. Main functions: ``checked_configs`` and ``until_it_works``.

Owning thread: the test's.
"""

from __future__ import annotations

import gc
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from penstock.api import Connector
from penstock.errors import KafkaRetriableException, RetriableException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Errors after which a worker makes the same call again.
ASKS_AGAIN: Final = (RetriableException, KafkaRetriableException)
#: The pause between two tries, in seconds, however long the task wants to wait.
TRY_AGAIN_S: Final = 0.005


class KilledException(BaseException):
    """The run has reached the step at which it is to be killed."""


class Steps:
    """The steps of a run.

    Args:
        kill_at: The number of the step, from 0, after which the run is killed, once; None for no kill.

    Attributes:
        names: The steps that were made, in order.
        killed: The step it was killed at.
    """

    def __init__(self, kill_at: int | None) -> None:
        self._kill_at = kill_at
        self.names: list[str] = []
        self.killed: str | None = None

    def made(self, name: str) -> None:
        """Notes a step.

        Raises:
            KilledException: This is the one.
        """
        self.names.append(name)
        if self.killed is None and self._kill_at == len(self.names) - 1:
            self.killed = name
            raise KilledException(name)


class Life(Protocol):
    """One task, from its start to its end."""

    task: Any


L = TypeVar("L", bound=Life)
C = TypeVar("C", bound=Connector)


class Run(ABC, Generic[C, L]):
    """A connector that a test runs; used in a ``with`` block.

    Attributes:
        retries: The texts of ``RetriableException`` that the connector and its tasks have raised.
        killed: Called after each kill, for what the end of a process would do and the garbage collector does not.
    """

    def __init__(
        self,
        connector: type[C],
        settings: Mapping[str, str],
        tasks_max: int,
        kill_at: int | None,
        timeout_s: float,
        spark: Callable[[], SparkSession] | None,
    ) -> None:
        self.retries: list[str] = []
        self.killed: Callable[[], object] = lambda: None
        freeze()
        self._class = connector
        self._settings = settings
        self._tasks_max = tasks_max
        self._steps = Steps(kill_at)
        self._timeout_s = timeout_s
        self._spark = spark
        self._connector: C | None = None
        self._lives: list[L] | None = None

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Stops the connector, or kills it where the test has failed."""
        if kind is None:
            self.stop()
        else:
            self.kill()

    @property
    def steps(self) -> list[str]:
        """The steps that were made."""
        return self._steps.names

    @property
    def tasks(self) -> list[Any]:
        """The tasks that run now."""
        return [one.task for one in self._lives or ()]

    @abstractmethod
    def stop(self) -> None:
        """Stops as a worker does."""

    def restart(self) -> None:
        """Stops, and starts with new instances."""
        self.stop()
        self._begin()

    def kill(self) -> None:
        """Ends like a killed process: no method of a task is called, and what was not committed is lost.

        The connector, which moves no data, is stopped, for the sake of its threads.
        """
        lives, self._lives = self._lives, None
        self._abandon(lives or ())
        self._stop_connector()
        del lives
        collect()
        self.killed()

    @abstractmethod
    def _begin(self) -> None:
        """Starts what does not run."""

    @abstractmethod
    def _abandon(self, lives: Sequence[L]) -> None:
        """Ends the contexts of tasks that are killed, and forgets what the tasks had in hand."""

    def _start_connector(self, connector: C, props: Mapping[str, str]) -> None:
        until_it_works(lambda: connector.start(props), "start of the connector", self.retries, self._timeout_s)

    def _task_configs(self) -> list[dict[str, str]]:
        """The configurations of the tasks."""
        connector = self._connector
        made: list[list[dict[str, str]]] = []
        until_it_works(
            lambda: made.append(checked_configs(connector, self._tasks_max)),
            "task_configs",
            self.retries,
            self._timeout_s,
        )
        return made[0]

    def _stop_connector(self) -> None:
        connector, self._connector = self._connector, None
        if connector is not None:
            connector.stop()


def props_of(connector: type[Connector], settings: Mapping[str, str], tasks_max: int) -> dict[str, str]:
    """A whole configuration: the settings, and the common settings of connectors."""
    return {
        "name": "kit",
        "connector.class": f"{connector.__module__}.{connector.__qualname__}",
        "tasks.max": str(tasks_max),
        **settings,
    }


def checked_configs(connector: Any, tasks_max: int) -> list[dict[str, str]]:
    """The configurations of the tasks."""
    configs = connector.task_configs(tasks_max)
    if len(configs) > tasks_max:
        raise AssertionError(f"task_configs({tasks_max}) gave {len(configs)} configurations: the connector would fail")
    return [dict(one) for one in configs]


def until_it_works(call: Callable[[], object], what: str, errors: list[str], timeout_s: float) -> None:
    """Makes a call again and again while it asks for that.

    Args:
        call: Of the connector or a task.
        what: Its name.
        errors: Where the texts of errors go.
        timeout_s: How long, in seconds.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            call()
            return
        except ASKS_AGAIN as error:
            errors.append(str(error))
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} was tried for {timeout_s} s: {error}") from error
        time.sleep(TRY_AGAIN_S)


@cache
def freeze() -> None:
    """Keeps the collector away from all that is there before the first run: it need not go through that at each
    kill."""
    gc.freeze()


def collect() -> None:
    """Frees what a killed task has left, as the end of its process would: open files, connections, transactions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
