"""The connector that mirrors topics: ``MirrorSource``.

Thread: the connector's; jobs also run on the thread ``partitions``.

Source: org.apache.kafka.connect.mirror.MirrorSourceConnector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.api import ExactlyOnceSupport
from penstock.clients import ClusterAdmin
from penstock.connectors.mirror.connector import JAVA_PARTITIONS, Job, MirrorConnector
from penstock.connectors.mirror.keeping import NEVER_S, TopicKeeper
from penstock.connectors.mirror.settings import Defaults, MirrorSourceConfig, client_settings
from penstock.connectors.mirror.task import MirrorTask


class MirrorSource(MirrorConnector):
    """Mirrors topics of another cluster: records as they are, partitions, settings and access rules of topics.

    Source: org.apache.kafka.connect.mirror.MirrorSourceConnector.
    """

    config_class, task_class = MirrorSourceConfig, MirrorTask
    partition_members = {"cluster": str, "partition": int, "topic": str}
    settings: MirrorSourceConfig
    _keeper: TopicKeeper

    def jobs(self, settings: MirrorSourceConfig) -> dict[str, Job]:
        """See ``MirrorConnector.jobs``."""
        self._keeper = keeper = TopicKeeper(
            self.admin("source"),
            self.admin("target"),
            settings.selection(),
            settings.unsynced(),
            replication_factor=settings.replication_factor,
            with_defaults=settings.use_defaults_from is Defaults.SOURCE,
        )
        look_s = float(settings.refresh_topics_interval_seconds) if settings.refresh_topics_enabled else NEVER_S
        jobs = {"topics": Job(self._look, "Cannot look for topics", look_s)}
        if settings.sync_topic_configs_enabled:
            every_s = float(settings.sync_topic_configs_interval_seconds)
            jobs["settings"] = Job(keeper.copy_settings, "Settings of topics cannot be copied", every_s)
        if settings.sync_topic_acls_enabled:
            every_s = float(settings.sync_topic_acls_interval_seconds)
            jobs["rules"] = Job(keeper.copy_rules, "Access rules of topics cannot be copied", every_s)
        if settings.emit_offset_syncs_enabled:
            jobs["syncs"] = Job(lambda: self._make_syncs_topic(settings), "Offset syncs have no topic")
        return jobs

    def java_share(self, share: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """See ``MirrorConnector.java_share``."""
        return {JAVA_PARTITIONS: ",".join(f"{one['topic']}-{one['partition']}" for one in share)}

    def _look(self) -> None:
        self.found = self._keeper.look()

    def _make_syncs_topic(self, settings: MirrorSourceConfig) -> None:
        self.admin(settings.offset_syncs_topic_location.value).create_topic(
            settings.syncs_topic(),
            partitions=1,
            replication_factor=settings.offset_syncs_topic_replication_factor,
            settings={"cleanup.policy": "compact"},
        )

    def lacks(self, settings: MirrorSourceConfig, admins: Mapping[str, ClusterAdmin]) -> list[str]:
        """See ``MirrorConnector.lacks``."""
        here, there = admins["source"].topics(), admins["target"].topics()
        selection = settings.selection()
        wanted = sorted(name for name in here if selection.has(name))
        if not wanted:
            why = f"those that match are internal, or come from {settings.target_cluster_alias} themselves"
            if not any(map(selection.patterns.have, here)):
                why = f"none of its {len(here)} topics matches topics and not topics.exclude"
            return [f"no topic of the source cluster {selection.source} is to be mirrored: {why}"]
        remote = {name: selection.remote(name) for name in wanted}
        return [
            f"the topic {other} has {there.get(other, 0)} of {here[name]} partitions on the target yet, so not all of "
            f"{name} is mirrored"
            for name, other in remote.items()
            if there.get(other, 0) < here[name]
        ]

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """Offsets are those of the source's records; only committed records are read, unless the user configures
        otherwise.
        """
        level = client_settings(props, "source", "consumer").get("isolation.level", "read_committed")
        reads_committed = level.strip().lower() == "read_committed"
        return ExactlyOnceSupport.SUPPORTED if reads_committed else ExactlyOnceSupport.UNSUPPORTED
