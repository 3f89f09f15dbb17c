"""Small shared values of the control plane: ids, states, status, the shapes of REST payloads.

Main types: ``ConnectorTaskId``, ``State``, ``TargetState``, ``ConnectorStatus``, ``TaskStatus``, and the two pure
machines ``connector_life`` and ``task_life``. Values without threads, clocks or I/O; the standard library only, so that
stores, worker, herder and REST can all speak of the same things without knowing each other.
"""

from penstock.model.ids import ConnectorTaskId
from penstock.model.states import ConnectorType, State, TargetState
from penstock.model.status import ConnectorStatus, TaskStatus

__all__ = [
    "ConnectorStatus",
    "ConnectorTaskId",
    "ConnectorType",
    "State",
    "TargetState",
    "TaskStatus",
]
