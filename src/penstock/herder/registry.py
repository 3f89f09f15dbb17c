"""What a herder knows about each connector, and the snapshot that readers get.

Main types: ``ConnectorEntry`` (owned and changed by the herder's thread alone), ``Registry`` (publishes immutable
views). Reading ``Registry.views`` is allowed from any thread: it is one reference to a mapping that never changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.errors import BadRequestException, NotFoundException
from penstock.herder.secrets import masked
from penstock.herder.validation import Checked
from penstock.model import ConnectorStatus, ConnectorTaskId, State, TargetState, TaskStatus
from penstock.model.payloads import ConnectorView


def other_name(name: str, inside: str) -> BadRequestException:
    """The refusal of a configuration that names another connector."""
    return BadRequestException(
        f"Connector name configuration ({inside}) doesn't match connector name in the URL ({name})"
    )


@dataclass
class ConnectorEntry:
    """One connector.

    Attributes:
        name: Its name.
        config: Its settings as given.
        resolved: The same with placeholders resolved, as its present instance has them.
        checked: What validation found out.
        target: What a user asked for.
        kept: It outlives the worker in the store; one whose home is a file of the command line does not.
        instance: Counts the instances; an operation that waited compares it, to see whether it is still about this one.
        gone: It is being deleted.
        status: What it last said.
        task_configs: Task configurations in force, placeholders unresolved.
        applied_config: The connector's settings when these came into force.
        tasks: What the tasks last said.
        reconfigure_queued: A request of the connector to be asked for its tasks has not been served yet.
        offsets: Held while its offsets are changed, from the question to the connector to the write; for a moment by
            what may end that it is stopped. Taken before any other lock.
        bounded: Held while instances or tasks are replaced; never while waiting for a user's code without a deadline.
    """

    name: str
    config: dict[str, str]
    resolved: dict[str, str]
    checked: Checked
    target: TargetState
    kept: bool = True
    instance: int = 0
    gone: bool = False
    status: ConnectorStatus | None = None
    task_configs: list[dict[str, str]] = field(default_factory=list)
    applied_config: dict[str, str] | None = None
    tasks: list[TaskStatus] = field(default_factory=list)
    reconfigure_queued: bool = False
    offsets: asyncio.Lock = field(default_factory=asyncio.Lock)
    bounded: asyncio.Lock = field(default_factory=asyncio.Lock)

    def view(self) -> ConnectorView:
        """What readers may see, as it is now: without secrets."""
        secrets = self.checked.secrets
        return ConnectorView(
            self.name,
            MappingProxyType(masked(self.config, secrets)),
            self.checked.type,
            self.target,
            self.status,
            tuple(masked(config, secrets) for config in self.task_configs),
            tuple(self.tasks),
        )

    def task_ids(self) -> list[ConnectorTaskId]:
        """The ids of its tasks."""
        return [ConnectorTaskId(self.name, number) for number in range(len(self.task_configs))]

    def mark_restarting(self, connector: bool, tasks: list[int]) -> None:
        """Shows RESTARTING, with the trace of the failure where there was one."""
        if connector and self.status is not None:
            status = self.status
            self.status = ConnectorStatus(self.name, State.RESTARTING, status.worker_id, status.trace, status.version)
        for number in tasks:
            task = self.tasks[number]
            self.tasks[number] = TaskStatus(task.id, State.RESTARTING, task.worker_id, task.trace, task.version)


class Registry:
    """All connectors of a herder."""

    def __init__(self) -> None:
        self.entries: dict[str, ConnectorEntry] = {}
        self.views: Mapping[str, ConnectorView] = MappingProxyType({})

    def entry(self, name: str, message: str) -> ConnectorEntry:
        """One connector.

        Raises:
            NotFoundException: there is none of that name, or it is being deleted; with this message.
        """
        found = self.entries.get(name)
        if found is None or found.gone:
            raise NotFoundException(message)
        return found

    def publish(self, name: str) -> None:
        """Makes the present state of one connector visible to readers."""
        views = dict(self.views)
        entry = self.entries.get(name)
        if entry is None:
            views.pop(name, None)
        else:
            views[name] = entry.view()
        self.views = MappingProxyType(views)
