"""The status of one connector or task: state, who runs it, and why it failed.

Main types: ``ConnectorStatus``, ``TaskStatus``. Values; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.model.ids import ConnectorTaskId
from penstock.model.states import State


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """State of a connector.

    Attributes:
        name: The connector.
        state: What it is doing.
        worker_id: ``host:port`` of the worker that says so.
        trace: The stack trace, when it failed.
        version: Version of the connector's class, when known.
        generation: Of the group when it was said; 0 on a standalone worker.
    """

    name: str
    state: State
    worker_id: str
    trace: str | None = None
    version: str | None = None
    generation: int = 0

    def to_json(self) -> dict[str, object]:
        """The ``connector`` part of the status endpoint's answer."""
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
        """One entry of ``tasks`` in the status endpoint's answer.

        Args:
            beside: More fields: ``waiting_for``, why it stands still, and ``progress``, how far it is.
        """
        return {"id": self.id.task, **_to_json(self.state, self.worker_id, self.version, self.trace), **beside}


def _to_json(state: State, worker_id: str, version: str | None, trace: str | None) -> dict[str, object]:
    body: dict[str, object] = {"state": state.value, "worker_id": worker_id, "version": version}
    if trace is not None:
        body["trace"] = trace
    return body
