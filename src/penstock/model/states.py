"""The names of connectors and tasks and sets of them, their states and statuses, and the target states.

Values; any thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias


class State(Enum):
    """The state of a connector or task, as in the status endpoint and the status topic.

    Source: org.apache.kafka.connect.runtime.AbstractStatus.State.
    """

    UNASSIGNED = "UNASSIGNED"
    """Known, but no worker runs it: not started yet, or ended by request."""
    RUNNING = "RUNNING"
    """Started and not paused; a task polls or receives records."""
    PAUSED = "PAUSED"
    """Paused: a connector's ``stop`` was called; a task keeps its resources but moves no records."""
    STOPPED = "STOPPED"
    """Connectors only: paused, and without tasks (KIP-875)."""
    FAILED = "FAILED"
    """Ended by an error, which the trace shows; it stays FAILED until a restart is requested."""
    RESTARTING = "RESTARTING"
    """A restart was requested, or a task has lost its Spark session: a new instance replaces the former one."""


class TargetState(Enum):
    """The state that a user requested for a connector; it outlives failures and restarts.

    Source: org.apache.kafka.connect.runtime.TargetState.
    """

    STARTED = "STARTED"
    """The connector and its tasks run; the default."""
    PAUSED = "PAUSED"
    """The connector is paused, and its tasks stay in memory."""
    STOPPED = "STOPPED"
    """The connector is stopped and has no tasks."""

    @classmethod
    def from_initial_state(cls, text: str | None) -> TargetState:
        """Reads ``initial_state`` of a create request, in any case; None means RUNNING.

        Raises:
            ValueError: another text.

        >>> TargetState.from_initial_state("stopped")
        <TargetState.STOPPED: 'STOPPED'>
        """
        known = {"RUNNING": cls.STARTED, "PAUSED": cls.PAUSED, "STOPPED": cls.STOPPED}
        if text is None:
            return cls.STARTED
        try:
            return known[text.strip().upper()]
        except KeyError:
            raise ValueError(f"initial_state must be one of {', '.join(known)}, not {text!r}") from None


class ConnectorType(Enum):
    """The direction of a connector, with the text REST uses."""

    SOURCE = "source"
    SINK = "sink"
    UNKNOWN = "unknown"


class ConnectorTaskId(NamedTuple):
    """Identifies one task of one connector.

    Source: org.apache.kafka.connect.util.ConnectorTaskId.

    >>> str(ConnectorTaskId("local-file-source", 0))
    'local-file-source-0'
    """

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"

    def to_json(self) -> dict[str, object]:
        return {"connector": self.connector, "task": self.task}


Unit: TypeAlias = str | ConnectorTaskId
"""A connector by its name, or a task."""


@dataclass(frozen=True)
class Units:
    """Connectors and tasks, each once, in the order in which they were named.

    The order decides which units a worker gives back first. Two are equal if they hold the same units in the same
    order.

    >>> Units.of(["a", "b", "a"]) - Units.of(["b"])
    Units(connectors=('a',), tasks=())
    """

    connectors: tuple[str, ...] = ()
    tasks: tuple[ConnectorTaskId, ...] = ()

    @classmethod
    def of(cls, connectors: Iterable[str] = (), tasks: Iterable[ConnectorTaskId] = ()) -> Units:
        """Creates units; a unit that is named twice counts once, at its first position."""
        return cls(tuple(dict.fromkeys(connectors)), tuple(dict.fromkeys(tasks)))

    @classmethod
    def union(cls, several: Iterable[Units]) -> Units:
        listed = list(several)
        return cls.of(
            (one for units in listed for one in units.connectors), (one for units in listed for one in units.tasks)
        )

    def __add__(self, other: Units) -> Units:
        return Units.union((self, other))

    def __sub__(self, other: Units) -> Units:
        gone_connectors, gone_tasks = set(other.connectors), set(other.tasks)
        return self._only(lambda one: one not in gone_connectors, lambda one: one not in gone_tasks)

    def __and__(self, other: Units) -> Units:
        connectors, tasks = set(other.connectors), set(other.tasks)
        return self._only(connectors.__contains__, tasks.__contains__)

    def __bool__(self) -> bool:
        return bool(self.connectors or self.tasks)

    def __len__(self) -> int:
        return len(self.connectors) + len(self.tasks)

    def __iter__(self) -> Iterator[str | ConnectorTaskId]:
        yield from self.connectors
        yield from self.tasks

    def of_connectors(self, names: Container[str]) -> Units:
        return self._only(lambda one: one in names, lambda one: one.connector in names)

    def ordered(self) -> Units:
        """The same units, connectors by name and tasks by connector and number."""
        return Units(tuple(sorted(self.connectors)), tuple(sorted(self.tasks)))

    def _only(self, connector: Callable[[str], bool], task: Callable[[ConnectorTaskId], bool]) -> Units:
        return Units(tuple(filter(connector, self.connectors)), tuple(filter(task, self.tasks)))


NOTHING = Units()


def connector_of(unit: Unit) -> str:
    """The connector of a unit: itself, or that of the task."""
    return unit if isinstance(unit, str) else unit.connector


def all_units(task_counts: Mapping[str, int]) -> Units:
    """Every connector and task, by the number of tasks that each connector has."""
    tasks = (ConnectorTaskId(name, number) for name, count in task_counts.items() for number in range(count))
    return Units(tuple(task_counts), tuple(tasks))


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """The state of a connector.

    Attributes:
        worker_id: ``host:port`` of the worker that reports it.
        trace: The stack trace, if it failed.
        version: The version of the connector's class, if known.
        generation: The group's generation at the report; 0 on a standalone worker.
    """

    name: str
    state: State
    worker_id: str
    trace: str | None = None
    version: str | None = None
    generation: int = 0

    def to_json(self) -> dict[str, object]:
        return _to_json(self.state, self.worker_id, self.version, self.trace)


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """State of a task; the attributes are those of ``ConnectorStatus``."""

    id: ConnectorTaskId
    state: State
    worker_id: str
    trace: str | None = None
    version: str | None = None
    generation: int = 0

    def to_json(self, beside: Mapping[str, object] = MappingProxyType({})) -> dict[str, object]:
        """One entry of ``tasks`` in the status endpoint's answer; ``beside`` are further fields."""
        return {"id": self.id.task, **_to_json(self.state, self.worker_id, self.version, self.trace), **beside}


def _to_json(state: State, worker_id: str, version: str | None, trace: str | None) -> dict[str, object]:
    body: dict[str, object] = {"state": state.value, "worker_id": worker_id, "version": version}
    if trace is not None:
        body["trace"] = trace
    return body


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of measurable work.

    Attributes:
        done: The amount that is done.
        total: The whole amount; None if unknown. May grow.
        unit: The unit: ``rows``, ``bytes``, ``files``.
        text: A further description; may be empty.

    Raises:
        ValueError: A number is invalid or negative.
    """

    done: float
    total: float | None = None
    unit: str = "records"
    text: str = ""

    def __post_init__(self) -> None:
        for name, value in (("done", self.done), ("total", self.total)):
            if value is None and name == "total":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise ValueError(f"progress: {name} is a number, 0 or more, not {value!r}")
        if not isinstance(self.unit, str) or not self.unit:
            raise ValueError(f"progress: unit is a word such as 'rows', not {self.unit!r}")

    def to_json(self) -> dict[str, object]:
        told: dict[str, object] = {"done": self.done, "total": self.total, "unit": self.unit}
        return {**told, "text": self.text} if self.text else told
