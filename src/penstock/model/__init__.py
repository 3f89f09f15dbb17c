"""Small shared values of the control plane: ids, states, status, REST's requests and answers.

Start from:

- ``ConnectorTaskId``, ``Units``, ``State``, ``TargetState``, ``ConnectorStatus``, ``TaskStatus`` (``states``).
- ``ClusterConfig``, ``fold`` (``cluster_config``): the configuration, folded from the records of the config topic, and
  those records.
- ``ConnectorLife`` (``connector_life``) and ``RunnerLife`` (``runner_life``): the lifecycles of a connector and of a
  task's runner, as pure state machines; ``step`` of each module is the transition.
- ``ConnectorView`` (``payloads``): REST's answer about a connector; next to it the values of previews and backfills.

No threads, clocks or I/O, and only the standard library: ``penstock.stores``, ``penstock.worker``, ``penstock.herder``
and ``penstock.rest`` share these values without depending on each other.
"""

from penstock.model.states import ConnectorStatus, ConnectorTaskId, ConnectorType, State, TargetState, TaskStatus

__all__ = [
    "ConnectorStatus",
    "ConnectorTaskId",
    "ConnectorType",
    "State",
    "TargetState",
    "TaskStatus",
]
