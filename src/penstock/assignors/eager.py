"""Deals out all work anew in each round, as the eager protocol does.

Main function: ``assign_eagerly``. Pure; any thread.
Source: org.apache.kafka.connect.runtime.distributed.EagerAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle

from penstock.assignors.units import Units
from penstock.model import ConnectorTaskId


def assign_eagerly(members: Iterable[str], configured: Units) -> Mapping[str, Units]:
    """Gives each member its share: first connectors, then tasks, one after the other to the members by their ids.

    Connectors and tasks are not dealt together: with one task each, one member of two would get all connectors.

    Args:
        members: The ids of all members; at least one.
        configured: Everything that is to run.

    Returns:
        What each member runs.

    >>> assign_eagerly(["m2", "m1"], Units.of(["a", "b", "c"]))["m1"].connectors
    ('a', 'c')
    """
    ids = sorted(members)
    connectors: dict[str, list[str]] = {member: [] for member in ids}
    tasks: dict[str, list[ConnectorTaskId]] = {member: [] for member in ids}
    turns = cycle(ids)
    work = configured.ordered()
    for connector in work.connectors:
        connectors[next(turns)].append(connector)
    for task in work.tasks:
        tasks[next(turns)].append(task)
    return {member: Units.of(connectors[member], tasks[member]) for member in ids}
