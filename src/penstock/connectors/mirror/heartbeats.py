"""Heartbeats of a mirror: ``MirrorHeartbeat`` and its task.

Thread: the connector's and the task's.

Source: org.apache.kafka.connect.mirror.{MirrorHeartbeatConnector, MirrorHeartbeatTask}.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from penstock.api import SourceRecord, SourceTask, assigned_partitions
from penstock.clients import ClusterAdmin, KafkaCluster
from penstock.connectors.mirror.connector import AWAY, PARTITIONS_CONFIG, Job, MirrorConnector
from penstock.connectors.mirror.formats import Heartbeat
from penstock.connectors.mirror.policy import HEARTBEATS
from penstock.connectors.mirror.settings import MirrorHeartbeatConfig, client_settings, cluster_of
from penstock.data import BYTES_SCHEMA

_ANSWER_S = 10.0


class HeartbeatTask(SourceTask):
    """Makes a heartbeat by the clock."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.mirror.MirrorHeartbeatTask"
    config_class = MirrorHeartbeatConfig
    settings: MirrorHeartbeatConfig
    clock: ClassVar[Callable[[], float]] = time.time

    def start(self, props: Mapping[str, str]) -> None:
        """The first heartbeat is due at once."""
        super().start(props)
        self._props = dict(props)
        self._is_away = dict(AWAY) in assigned_partitions({PARTITIONS_CONFIG: "[]", **props})
        self._due = time.monotonic()

    def cluster(self, props: Mapping[str, str], side: str) -> KafkaCluster:
        """The target cluster; a test puts a double in its place."""
        return cluster_of(props, side)

    def poll(self) -> list[SourceRecord] | None:
        """See ``SourceTask.poll``."""
        if self._is_away:
            admin = self.cluster(self._props, "target").admin(
                client_settings(self._props, "target", "admin"), timeout_s=_ANSWER_S
            )
            try:
                admin.topics()
            finally:
                admin.close()
            self.context.stopping.wait(1.0)
            return None
        wait_s = self._due - time.monotonic()
        if wait_s > 0:
            self.context.stopping.wait(min(1.0, wait_s))
            return None
        # At a fixed rate, but missed heartbeats are not sent later.
        self._due = max(self._due, time.monotonic() - 1) + self.settings.emit_heartbeats_interval_seconds
        return [self._heartbeat(int(type(self).clock() * 1000))]

    def _heartbeat(self, stamp: int) -> SourceRecord:
        one = Heartbeat(self.settings.source_cluster_alias, self.settings.target_cluster_alias, stamp)
        return SourceRecord(
            {"sourceClusterAlias": one.source, "targetClusterAlias": one.target},
            {"offset": 0},
            HEARTBEATS,
            partition=0,
            key_schema=BYTES_SCHEMA,
            key=one.key,
            value_schema=BYTES_SCHEMA,
            value=one.value,
            timestamp=stamp,
        )


class MirrorHeartbeat(MirrorConnector):
    """Writes heartbeats, which mirrors carry on: how long they take shows that a mirror works.

    Source: org.apache.kafka.connect.mirror.MirrorHeartbeatConnector.
    """

    config_class, task_class = MirrorHeartbeatConfig, HeartbeatTask
    sides = ("target",)
    partition_members = {"sourceClusterAlias": str, "targetClusterAlias": str}
    has_places = False
    settings: MirrorHeartbeatConfig

    def jobs(self, settings: MirrorHeartbeatConfig) -> dict[str, Job]:
        """See ``MirrorConnector.jobs``."""
        return {"topic": Job(lambda: self._make_topic(settings), "Heartbeats have no topic")}

    def _make_topic(self, settings: MirrorHeartbeatConfig) -> None:
        if settings.emit_heartbeats_enabled:
            self.admin("target").create_topic(
                HEARTBEATS,
                partitions=1,
                replication_factor=settings.heartbeats_topic_replication_factor,
                settings={"cleanup.policy": "compact"},
            )
        names = {
            "sourceClusterAlias": settings.source_cluster_alias,
            "targetClusterAlias": settings.target_cluster_alias,
        }
        self.found = [names] if settings.emit_heartbeats_enabled else []

    def lacks(self, settings: Any, admins: Mapping[str, ClusterAdmin]) -> list[str]:
        """See ``MirrorConnector.lacks``."""
        return [] if settings.emit_heartbeats_enabled else ["emit.heartbeats.enabled is false"]
