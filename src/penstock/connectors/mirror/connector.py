"""``MirrorConnector``: the common base of the mirror connectors, with two clusters and scheduled jobs.

Thread: the connector's; ``partitions`` also on the thread of this name.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from penstock.api import PartitionedSource, assigned_partitions
from penstock.clients import ClusterAdmin, KafkaCluster
from penstock.config import Config, ConfigValue
from penstock.connectors.mirror.keeping import NEVER_S, Timetable
from penstock.connectors.mirror.settings import (
    MirrorConfig,
    client_settings,
    cluster_of,
    is_client_setting,
    is_of_mirrors,
)
from penstock.errors import ConnectException, KafkaException, KafkaRetriableException

log = logging.getLogger(__name__)

#: The share of a task in its configuration, see ``PartitionedSource``.
PARTITIONS_CONFIG: Final = "task.partitions"
#: The same setting in a task configuration of Java's.
JAVA_PARTITIONS: Final = "task.assigned.partitions"
JAVA_GROUPS: Final = "task.assigned.groups"
#: The longest that a request of a connector waits: its own thread and its start wait with it.
_LONGEST_S: Final = 10.0
#: The timeout of requests to the clusters for which a caller waits, in seconds.
LOOK_S: Final = 3.0
#: The source partition of a connector that could not query its cluster yet.
AWAY: Final[Mapping[str, Any]] = {"cluster": "", "partition": -1, "topic": ""}


def share_of(
    props: Mapping[str, str], of_java: Callable[[str], Mapping[str, Any]], name: str
) -> list[Mapping[str, Any]]:
    """The source partitions of a task, also of one that was configured by a worker of Java's.

    Args:
        props: The task's configuration.
        of_java: Makes a source partition of an entry of Java's list.
        name: The setting with that list.

    Raises:
        ConnectException: It has neither.
    """
    if PARTITIONS_CONFIG not in props and name in props:
        return [of_java(one.strip()) for one in props[name].split(",") if one.strip()]
    return list(assigned_partitions(props))


class Job(NamedTuple):
    """Something that a connector does by the clock.

    Attributes:
        run: Does it.
        fault: What cannot be done when it fails, for people.
        every_s: The seconds between two runs; ``NEVER_S``: once.
    """

    run: Callable[[], None]
    fault: str
    every_s: float = NEVER_S


class MirrorConnector(PartitionedSource):
    """Has admin clients of its clusters, and finds its partitions in the first of its jobs.

    Attributes:
        sides: The clusters that it needs.
        found: The result of the first job; None: no result yet.
        partition_members: The members of a source partition, and their types.
        has_places: False if an offset says nothing, and is always 0.

    If a cluster is unavailable when the connector starts, a task with ``AWAY`` as its only partition reports that.
    """

    sides: ClassVar[Sequence[str]] = ("source", "target")
    partition_members: ClassVar[Mapping[str, type]]
    has_places: ClassVar[bool] = True
    settings: MirrorConfig
    found: Sequence[Mapping[str, Any]] | None = None
    _admins: dict[str, ClusterAdmin]
    _jobs: dict[str, Job]
    _table: Timetable
    _complaints: dict[str, str]

    @abstractmethod
    def jobs(self, settings: Any) -> dict[str, Job]:
        """The actions that the clock triggers, by name; the first sets ``found``."""

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """See ``PartitionedSource.task_configs``. The configurations also work for Java's workers of the same group."""
        return [
            {**config, **self.java_share([one for one in assigned_partitions(config) if one != AWAY])}
            for config in super().task_configs(max_tasks)
        ]

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None],
    ) -> bool:
        """Checks new offsets. Removing is always allowed.

        Raises:
            ConnectException: A partition or an offset is none of the connector's.
        """
        kinds = self.partition_members
        for key, offset in offsets.items():
            partition = dict(key)
            if offset is None:
                continue
            if set(partition) != set(kinds) or not all(
                _is_whole(partition[name]) if kind is int else isinstance(partition[name], str)
                for name, kind in kinds.items()
            ):
                form = ", ".join(f'"{name}": {"number" if kind is int else "text"}' for name, kind in kinds.items())
                raise ConnectException(f"{partition} is no source partition of a mirror: it must be {{{form}}}")
            if fault := offset_fault(offset):
                raise ConnectException(fault)
            if not self.has_places and offset != {"offset": 0}:
                raise ConnectException(f'{dict(offset)} is no offset of this connector: it is always {{"offset": 0}}')
        return True

    def java_share(self, share: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """The share of a task as Java's task has it in its configuration."""
        return {}

    def cluster(self, props: Mapping[str, str], side: str) -> KafkaCluster:
        """One of the two clusters; a test puts a double in its place."""
        return cluster_of(props, side)

    def admin(self, side: str) -> ClusterAdmin:
        """The admin client of a cluster."""
        return self._admins[side]

    def start(self, props: Mapping[str, str]) -> None:
        """See ``PartitionedSource.start``."""
        assert self.config_class is not None
        settings: Any = self.config_class.parse(props)
        self.found, self._complaints = None, {}
        timeout_s = min(_LONGEST_S, settings.admin_timeout_ms / 1000)
        self._admins = {
            side: self.cluster(props, side).admin(
                client_settings(props, side, "admin"), timeout_s=timeout_s, read_only=self.context().is_preview
            )
            for side in self.sides
        }
        self._jobs = self.jobs(settings)
        self._table = Timetable({name: job.every_s for name, job in self._jobs.items()}, time.monotonic)
        super().start(props)

    def stop(self) -> None:
        """See ``PartitionedSource.stop``."""
        super().stop()
        for admin in getattr(self, "_admins", {}).values():
            admin.close()

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        """Seconds until there is something to do."""
        return self._table.wait_s

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """See ``PartitionedSource.partitions``: runs the jobs that are due."""
        if not self.settings.enabled:
            return []
        first = next(iter(self._jobs))
        for name in self._table.due():
            try:
                self._jobs[name].run()
            except (KafkaException, ConnectException) as error:
                self._table.failed(name)
                if name == first and (self.found is not None or not isinstance(error, KafkaRetriableException)):
                    raise
                self._complain(name, error)
                if name == first:
                    break
            else:
                self._table.done(name)
                self._complaints.pop(name, None)
        return [AWAY] if self.found is None else self.found

    def _complain(self, name: str, error: Exception) -> None:
        if self._complaints.get(name) != str(error):
            log.warning("%s, trying again: %s", self._jobs[name].fault, error)
        self._complaints[name] = str(error)

    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        """See ``Connector.validate``; also checks the clients' settings, and accepts settings of other mirrors."""
        checked = super().validate(connector_configs)
        own = {one.name for one in checked.config_values}
        values = {
            name: ConfigValue(name, text)
            for name, text in connector_configs.items()
            if is_client_setting(name) or (name not in own and is_of_mirrors(name))
        }
        for side in self.sides:
            for name, text in self._client_faults(connector_configs, side):
                values.setdefault(name, ConfigValue(name)).add_error_message(f"{name}: {text}")
        return Config([*checked.config_values, *values.values()])

    def _client_faults(self, props: Mapping[str, str], side: str) -> Iterable[tuple[str, str]]:
        consumer, admin = client_settings(props, side, "consumer"), client_settings(props, side, "admin")
        for name, text in self.cluster(props, side).faults(consumer=consumer, admin=admin):
            prefixes = (f"{side}.consumer.", f"{side}.admin.", "consumer.", "admin.", f"{side}.cluster.")
            yield next((one + name for one in prefixes if one + name in props), f"{side}.cluster.{name}"), text

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """See ``Connector.obstacles``."""
        assert self.config_class is not None
        settings: Any = self.config_class.parse(props)
        if not settings.enabled:
            return ["enabled is false"]
        admins, found = {}, []
        try:
            for side in self.sides:
                try:
                    admins[side] = self.cluster(props, side).admin(
                        client_settings(props, side, "admin"), timeout_s=LOOK_S
                    )
                    admins[side].topics()
                except (ConnectException, KafkaException) as error:
                    found.append(str(error))
            return found or self.lacks(settings, admins)
        finally:
            for admin in admins.values():
                admin.close()

    def lacks(self, settings: Any, admins: Mapping[str, ClusterAdmin]) -> list[str]:
        """The obstacles of the connector while its clusters answer; see ``Connector.obstacles``.

        Args:
            settings: The configuration.
            admins: Of the clusters.
        """
        return []


def offset_fault(offset: Mapping[str, Any]) -> str | None:
    """The reason why a map is no offset of a mirror; None: it is one."""
    if set(offset) == {"offset"} and _is_whole(offset["offset"]):
        return None
    return f'{dict(offset)} is no offset of a mirror: it must be {{"offset": number}}, that of the last record mirrored'


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
