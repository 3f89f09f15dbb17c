"""The connector that mirrors topics: ``MirrorSource``.

Thread: the connector's; ``partitions`` also on the thread of this name.

Source: org.apache.kafka.connect.mirror.MirrorSourceConnector.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.api import ExactlyOnceSupport, PartitionedSource
from penstock.clients import KafkaCluster
from penstock.config import Config, ConfigValue
from penstock.connectors.mirror.keeping import Timetable, TopicKeeper
from penstock.connectors.mirror.settings import MirrorSourceConfig, client_settings, cluster_of, is_client_setting
from penstock.connectors.mirror.task import AWAY, MirrorTask, offset_fault, partition_fault
from penstock.errors import ConnectException, KafkaException, KafkaRetriableException

log = logging.getLogger(__name__)

#: How long a look at the clusters may take that somebody waits for, in seconds.
_LOOK_S = 3.0


class MirrorSource(PartitionedSource):
    """Mirrors topics of another cluster: records as they are, partitions, settings and access rules of topics.

    Source: org.apache.kafka.connect.mirror.MirrorSourceConnector.
    """

    config_class, task_class = MirrorSourceConfig, MirrorTask
    settings: MirrorSourceConfig
    _keeper: TopicKeeper
    _table: Timetable
    _found: Sequence[Mapping[str, Any]] | None = None

    def start(self, props: Mapping[str, str]) -> None:
        """See ``PartitionedSource.start``."""
        settings = MirrorSourceConfig.parse(props)
        self._found = None
        self._source, self._target = (self._admin(props, settings, side) for side in ("source", "target"))
        self._keeper = TopicKeeper(
            self._source,
            self._target,
            settings.selection(),
            settings.unsynced(),
            replication_factor=settings.replication_factor,
            with_defaults=settings.use_defaults_from.value == "source",
        )
        self._table = Timetable(_intervals(settings), time.monotonic)
        super().start(props)

    def stop(self) -> None:
        """See ``PartitionedSource.stop``."""
        super().stop()
        for one in ("_source", "_target"):
            if hasattr(self, one):
                getattr(self, one).close()

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        """Seconds until there is something to look at."""
        return self._table.wait_s

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """See ``PartitionedSource.partitions``: does what is due."""
        jobs: dict[str, Callable[[], None]] = {
            "look": self._look,
            "settings": self._keeper.copy_settings,
            "rules": self._keeper.copy_rules,
        }
        if not self.settings.enabled:
            return []
        for name in self._table.due():
            try:
                jobs[name]()
            except Exception as error:
                self._table.failed(name)
                if name == "look":
                    self._could_not_look(error)
                    continue
                log.warning("The %s of topics could not be copied, trying again: %s", name, error)
            else:
                self._table.done(name)
        return [AWAY] if self._found is None else self._found

    def _look(self) -> None:
        self._found = self._keeper.look()

    def _could_not_look(self, error: Exception) -> None:
        # Of a cluster that is away when the connector starts its task tells, again and again.
        if self._found is not None or not isinstance(error, KafkaRetriableException):
            raise error
        log.warning("Cannot look for topics yet, trying again: %s", error)

    def _admin(self, props: Mapping[str, str], settings: MirrorSourceConfig, side: str) -> Any:
        return self.cluster(props, side).admin(
            client_settings(props, side, "admin"), timeout_s=settings.admin_timeout_ms / 1000
        )

    def cluster(self, props: Mapping[str, str], side: str) -> KafkaCluster:
        """One of the two clusters; a test puts a double in its place."""
        return cluster_of(props, side)

    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        """See ``Connector.validate``; settings of Kafka's clients are checked, too."""
        checked = super().validate(connector_configs)
        values = {name: ConfigValue(name, text) for name, text in connector_configs.items() if is_client_setting(name)}
        for side in ("source", "target"):
            for name, text in self._client_faults(connector_configs, side):
                values.setdefault(name, ConfigValue(name)).add_error_message(f"{name}: {text}")
        return Config([*checked.config_values, *values.values()])

    def _client_faults(self, props: Mapping[str, str], side: str) -> Iterable[tuple[str, str]]:
        consumer = client_settings(props, side, "consumer") if side == "source" else {}
        admin = client_settings(props, side, "admin")
        for name, text in self.cluster(props, side).faults(consumer=consumer, admin=admin):
            prefixes = (f"{side}.consumer.", f"{side}.admin.", "consumer.", "admin.", f"{side}.cluster.")
            yield next((one + name for one in prefixes if one + name in props), f"{side}.cluster.{name}"), text

    def faults(self, settings: MirrorSourceConfig) -> Iterable[tuple[str, str]]:
        """See ``Connector.faults``."""
        return settings.faults()

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """See ``Connector.obstacles``."""
        settings = MirrorSourceConfig.parse(props)
        if not settings.enabled:
            return ["enabled is false"]
        found, topics = [], {}
        for side in ("source", "target"):
            try:
                admin = self.cluster(props, side).admin(client_settings(props, side, "admin"), timeout_s=_LOOK_S)
                topics[side] = admin.topics()
                admin.close()
            except (ConnectException, KafkaException) as error:
                found.append(f"{error}")
        if found:
            return found
        selection = settings.selection()
        wanted = [name for name in topics["source"] if selection.has(name)]
        if not wanted:
            return [
                f"no topic of the source cluster {selection.source} is to be mirrored: {_why_none(settings, topics)}"
            ]
        for name in sorted(wanted):
            remote = selection.remote(name)
            have, count = topics["target"].get(remote, 0), topics["source"][name]
            if have < count:
                found.append(
                    f"the topic {remote} has {have} of {count} partitions on the target yet, so not all of {name} is "
                    "mirrored"
                )
        return found

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """Offsets are those of the source's records; only committed ones are read, unless the user says otherwise."""
        level = client_settings(props, "source", "consumer").get("isolation.level", "read_committed")
        reads_committed = level.strip().lower() == "read_committed"
        return ExactlyOnceSupport.SUPPORTED if reads_committed else ExactlyOnceSupport.UNSUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None],
    ) -> bool:
        """Checks new offsets.

        Raises:
            ConnectException: A partition or an offset is none of a mirror's.
        """
        for key, offset in offsets.items():
            partition = dict(key)
            fault = partition_fault(partition) or (None if offset is None else offset_fault(offset))
            if offset is not None and fault is not None:
                raise ConnectException(fault)
        return True


def _intervals(settings: MirrorSourceConfig) -> dict[str, float]:
    """How often each job is done, in seconds; the first look is always done."""
    found = {"look": float(settings.refresh_topics_interval_seconds) if settings.refresh_topics_enabled else 1e9}
    if settings.sync_topic_configs_enabled:
        found["settings"] = float(settings.sync_topic_configs_interval_seconds)
    if settings.sync_topic_acls_enabled:
        found["rules"] = float(settings.sync_topic_acls_interval_seconds)
    return found


def _why_none(settings: MirrorSourceConfig, topics: Mapping[str, Mapping[str, int]]) -> str:
    selection = settings.selection()
    wanted = [name for name in topics["source"] if selection.patterns.have(name)]
    if not wanted:
        return f"none of its {len(topics['source'])} topics matches topics and not topics.exclude"
    return f"those that match are internal, or come from {settings.target_cluster_alias} themselves"
