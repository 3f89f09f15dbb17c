"""The request to build one task, which the herder fills in.

Main type: ``TaskRequest``. A value; any thread. It is apart from ``spec`` because that needs Spark and Arrow, which the
herder starts without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.model import ConnectorTaskId, ConnectorType
from penstock.model.backfill import BackfillPlan


@dataclass(frozen=True)
class TaskRequest:
    """Everything needed to build one task.

    Attributes:
        id: The task.
        connector_type: Source or sink.
        connector_config: The connector's settings, placeholders resolved (converters, transforms, errors.*, overrides).
        task_config: The task's own settings, placeholders resolved.
        read_task_config: Reads the task's settings again with placeholders resolved anew.
        paused: Whether it is to rest from the beginning.
        task_count: How many tasks the connector has.
        confirm: Of an exactly-once source: lets the task pass that is still to run here; blocks; raises
            ConnectException.
        confirm_owner: Of the same: whether the group has said after this monotonic time that it runs here; blocks.
        again: Whether it takes the place of an instance that has ended by itself.
        backfill: Of a backfill: what it reads, in place of what its group or its source has next.
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
