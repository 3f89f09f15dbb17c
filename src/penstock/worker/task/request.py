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
        paused: True if it starts paused.
        task_count: The number of tasks of the connector.
        confirm: For an exactly-once source: returns if the task still belongs here; blocks; raises ConnectException.
        confirm_owner: For the same: True if the group has confirmed after this monotonic time that it runs here;
            blocks.
        again: True if it replaces an instance that ended by itself.
        backfill: For a backfill: the ranges to read, instead of the next records of its group or source.
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
