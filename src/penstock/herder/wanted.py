"""The units that a worker is to run, derived from the configuration and its assignment.

Main types: ``ConnectorSpec`` and ``TaskSpec``, what one instance is made of; ``Unit``, the name of either. Main
function: ``spec_of``. An instance goes on as long as its spec stays equal; another spec means another instance.

Values and pure functions; any thread.
Source: DistributedHerder (startConnector, startTask) of Kafka Connect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.model import ConnectorTaskId, TargetState
from penstock.model.cluster_config import ClusterConfig, Properties

Unit: TypeAlias = str | ConnectorTaskId
"""A connector by its name, or a task."""


@dataclass(frozen=True)
class ConnectorSpec:
    """The specification of an instance of a connector.

    Attributes:
        config: Its settings, placeholders unresolved.
        turn: Another number asks for another instance with the same settings.
    """

    config: Properties = field(repr=False)
    turn: int = 0


@dataclass(frozen=True)
class TaskSpec:
    """The specification of a task.

    Attributes:
        config: Its own settings, placeholders unresolved.
        connector: The connector's settings when these came into force: its converters, transforms and clients.
        count: How many tasks the connector has.
        generation: The commit that brought the settings, where every commit ends all tasks before it; else 0.
        turn: Another number asks for another instance with the same settings.
    """

    config: Properties = field(repr=False)
    connector: Properties = field(repr=False)
    count: int = field(default=1, compare=False)
    generation: int = 0
    turn: int = 0


Spec: TypeAlias = ConnectorSpec | TaskSpec


def connector_of(unit: Unit) -> str:
    """The connector that a unit is, or belongs to."""
    return unit if isinstance(unit, str) else unit.connector


def spec_of(config: ClusterConfig, unit: Unit, turn: int, *, fenced: bool = False) -> Spec | None:
    """Returns the current specification of a unit.

    Args:
        config: What is configured.
        unit: The connector or task.
        turn: How often it was asked to begin anew.
        fenced: Whether each commit of the connector's tasks ends all tasks before it (exactly-once sources).

    Returns:
        None when it is not to run at all: it is not configured, or a task of a connector that is to be stopped.
    """
    known = config.connectors.get(connector_of(unit))
    if known is None:
        return None
    if isinstance(unit, str):
        return ConnectorSpec(known.config, turn)
    stopped = config.target(unit.connector) is TargetState.STOPPED
    if stopped or unit.task >= len(known.tasks):
        return None
    # Of task configurations there are any only after a commit, and then it is known what was in force.
    applied = known.config if known.applied is None else known.applied
    return TaskSpec(known.tasks[unit.task], applied, len(known.tasks), known.generation if fenced else 0, turn)
