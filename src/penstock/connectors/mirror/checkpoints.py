"""Positions of consumer groups for the other cluster: ``MirrorCheckpoint`` and its task.

Main types: ``MirrorCheckpoint``, ``CheckpointTask``; ``Checkpoints`` decides, without I/O, which ones are written.

Thread: the connector's and the task's.

Source: org.apache.kafka.connect.mirror.{MirrorCheckpointConnector, MirrorCheckpointTask, CheckpointStore}.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from penstock.api import OffsetAndMetadata, SourceRecord, SourceTask, TopicPartition
from penstock.clients import ClusterAdmin, KafkaCluster, RecordReader
from penstock.connectors.mirror.connector import AWAY, JAVA_GROUPS, Job, MirrorConnector, share_of
from penstock.connectors.mirror.formats import Checkpoint, OffsetSync
from penstock.connectors.mirror.keeping import NEVER_S, Timetable
from penstock.connectors.mirror.offset_syncs import SyncHistory
from penstock.connectors.mirror.policy import ReplicationPolicy
from penstock.connectors.mirror.settings import MirrorCheckpointConfig, client_settings, cluster_of
from penstock.data import BYTES_SCHEMA
from penstock.errors import ConnectException, KafkaException, KafkaRetriableException, SerializationException

log = logging.getLogger(__name__)

#: A field of source partitions.
GROUP: Final = "group"
_ANSWER_S: Final = 10.0
_READ_S: Final = 30.0
#: The offset at which reading a small topic begins.
_BEGINNING: Final = -2
_SLICE_S: Final = 0.2


class Checkpoints:
    """The newest checkpoint of each partition of each group, to recognize new ones.

    >>> known = Checkpoints()
    >>> ones = [Checkpoint("g", TopicPartition("t", 0), *at) for at in ((5, 5), (6, 5), (9, 8), (7, 6))]
    >>> [known.is_news(one) for one in ones]
    [True, False, True, True]
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[TopicPartition, Checkpoint]] = {}

    def add(self, one: Checkpoint) -> None:
        """Notes one that is written."""
        self._known.setdefault(one.group, {})[one.place] = one

    def is_news(self, one: Checkpoint) -> bool:
        """True if a checkpoint says more than the last one, or its group went back; it is noted then."""
        last = self._known.get(one.group, {}).get(one.place)
        news = last is None or one.downstream > last.downstream or one.upstream < last.upstream
        if news:
            self.add(one)
        return news

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """The offset at which a group would go on on the target."""
        return {place: one.downstream for place, one in self._known.get(group, {}).items()}


def checkpoints_of(
    group: str,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    histories: Mapping[TopicPartition, SyncHistory],
    renamed: Callable[[str], str],
) -> list[Checkpoint]:
    """The checkpoints of a group: of partitions whose offset can be translated.

    Args:
        group: The group.
        committed: Its offsets on the source.
        histories: The offset syncs of each partition.
        renamed: The name on the target of a topic.
    """
    found = []
    for place, offset in sorted(committed.items()):
        downstream = histories[place].translate(offset.offset) if place in histories else None
        if downstream is not None:
            there = TopicPartition(renamed(place.topic), place.partition)
            found.append(Checkpoint(group, there, offset.offset, downstream, offset.metadata))
    return found


def offsets_to_set(
    wanted: Mapping[TopicPartition, int], there: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets to set on the target for a group without members: if it has none, or an earlier one.

    >>> a, b, c = (TopicPartition("t", number) for number in range(3))
    >>> offsets_to_set({a: 5, b: 5, c: 5}, {b: 4, c: 6})
    {TopicPartition(topic='t', partition=0): 5, TopicPartition(topic='t', partition=1): 5}
    """
    return {place: offset for place, offset in wanted.items() if place not in there or there[place] < offset}


def renaming(policy: ReplicationPolicy, source: str, target: str) -> Callable[[str], str]:
    """The name on the target of a topic of the source; one that came from there has its own name again.

    >>> renamed = renaming(ReplicationPolicy(), "east", "west")
    >>> renamed("orders"), renamed("west.orders")
    ('east.orders', 'orders')
    """

    def renamed(topic: str) -> str:
        if policy.source_of(topic) == target:
            return policy.original_of(topic)
        return policy.remote_topic(source, topic)

    return renamed


class MirrorCheckpoint(MirrorConnector):
    """Writes the positions of consumer groups of the source, as they are on the target, and sets them there.

    Source: org.apache.kafka.connect.mirror.MirrorCheckpointConnector.
    """

    config_class = MirrorCheckpointConfig
    partition_members = {GROUP: str, "topic": str, "partition": int}
    has_places = False
    settings: MirrorCheckpointConfig

    def task_class(self) -> type[SourceTask]:
        """See ``Connector.task_class``."""
        return CheckpointTask

    def jobs(self, settings: MirrorCheckpointConfig) -> dict[str, Job]:
        """See ``MirrorConnector.jobs``."""
        every_s = float(settings.refresh_groups_interval_seconds) if settings.refresh_groups_enabled else NEVER_S
        return {
            "groups": Job(lambda: self._look(settings), "Cannot look for groups", every_s),
            "topic": Job(lambda: self._make_topic(settings), "Checkpoints have no topic"),
        }

    def java_share(self, share: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """See ``MirrorConnector.java_share``."""
        return {JAVA_GROUPS: ",".join(str(one[GROUP]) for one in share)}

    def _look(self, settings: MirrorCheckpointConfig) -> None:
        groups = settings.groups_to_have()
        self.found = (
            [{GROUP: name} for name in sorted(self.admin("source").groups()) if groups.have(name)]
            if settings.emit_checkpoints_enabled
            else []
        )

    def _make_topic(self, settings: MirrorCheckpointConfig) -> None:
        self.admin("target").create_topic(
            settings.checkpoints_topic(),
            partitions=1,
            replication_factor=settings.checkpoints_topic_replication_factor,
            settings={"cleanup.policy": "compact"},
        )

    def lacks(self, settings: MirrorCheckpointConfig, admins: Mapping[str, ClusterAdmin]) -> list[str]:
        """See ``MirrorConnector.lacks``."""
        if not settings.emit_checkpoints_enabled:
            return ["emit.checkpoints.enabled is false"]
        groups = settings.groups_to_have()
        if not any(map(groups.have, admins["source"].groups())):
            return ["no group of the source cluster matches groups and not groups.exclude"]
        topic, side = settings.syncs_topic(), settings.offset_syncs_topic_location.value
        if topic not in admins[side].topics():
            return [f"the {side} cluster has no topic {topic}: MirrorSource makes and fills it"]
        return []


class CheckpointTask(SourceTask):
    """Translates the offsets of its share of the groups by the clock.

    Source: org.apache.kafka.connect.mirror.MirrorCheckpointTask.
    """

    java_name: ClassVar[str] = "org.apache.kafka.connect.mirror.MirrorCheckpointTask"
    config_class = MirrorCheckpointConfig
    settings: MirrorCheckpointConfig

    def start(self, props: Mapping[str, str]) -> None:
        """Creates the clients; ``poll`` reads with them."""
        super().start(props)
        config, self._props = self.settings, dict(props)
        shares = share_of(props, lambda name: {GROUP: name}, JAVA_GROUPS)
        self._is_away = dict(AWAY) in shares
        self._groups = [str(one[GROUP]) for one in shares if GROUP in one]
        self._topics = config.topics_to_have()
        self._renamed = renaming(config.policy(), config.source_cluster_alias, config.target_cluster_alias)
        self._source, self._target = (
            self.cluster(props, side).admin(
                client_settings(props, side, "admin"), timeout_s=_ANSWER_S, read_only=self.context.is_preview
            )
            for side in ("source", "target")
        )
        self._known = Checkpoints()
        self._histories: dict[TopicPartition, SyncHistory] = {}
        self._syncs: SmallTopic | None = None
        jobs = {"checkpoints": float(config.emit_checkpoints_interval_seconds)}
        if config.sync_group_offsets_enabled and not self.context.is_preview:
            jobs["offsets"] = float(config.sync_group_offsets_interval_seconds)
        self._table = Timetable(jobs, time.monotonic)

    def cluster(self, props: Mapping[str, str], side: str) -> KafkaCluster:
        """One of the two clusters; a test puts a double in its place."""
        return cluster_of(props, side)

    def poll(self) -> list[SourceRecord] | None:
        """See ``SourceTask.poll``."""
        if self._is_away:
            self._source.topics()
            self._target.topics()
            self.context.stopping.wait(1.0)
            return None
        due = self._table.due()
        if not due:
            self.context.stopping.wait(min(1.0, self._table.wait_s))
            return None
        found = self._checkpoints() if "checkpoints" in due else []
        if "offsets" in due:
            self._set_offsets()
        for job in due:
            self._table.done(job)
        return found or None

    def stop(self) -> None:
        """Releases the clients."""
        super().stop()
        for name in ("_source", "_target", "_syncs"):
            if getattr(self, name, None) is not None:
                getattr(self, name).close()

    def _checkpoints(self) -> list[SourceRecord]:
        self._read_syncs()
        topics = {place.topic for place in self._histories if self._topics.have(place.topic)}
        # All groups are queried first, because checkpoints that are recorded as written must be returned.
        committed = {group: self._source.group_offsets(group, topics) for group in self._groups}
        stamp = int(time.time() * 1000)
        return [
            self._record(one, stamp)
            for group, offsets in committed.items()
            for one in checkpoints_of(group, offsets, self._histories, self._renamed)
            if self._known.is_news(one)
        ]

    def _record(self, one: Checkpoint, stamp: int) -> SourceRecord:
        partition = {GROUP: one.group, "topic": one.place.topic, "partition": one.place.partition}
        return SourceRecord(
            partition,
            {"offset": 0},
            self.settings.checkpoints_topic(),
            partition=0,
            key_schema=BYTES_SCHEMA,
            key=one.key,
            value_schema=BYTES_SCHEMA,
            value=one.value,
            timestamp=stamp,
        )

    def _read_syncs(self) -> None:
        if self._syncs is None:
            side = self.settings.offset_syncs_topic_location.value
            syncs = self._topic(side, self.settings.syncs_topic())
            written = self._topic("target", self.settings.checkpoints_topic())
            try:
                # Those of this task's groups that were written before, so that none goes back.
                for key, value in written.news():
                    _understood(lambda key=key, value=value: self._known.add(Checkpoint.of(key, value)))  # type: ignore[misc]
            finally:
                written.close()
            self._syncs = syncs
        for key, value in self._syncs.news():
            _understood(lambda key=key, value=value: self._add(OffsetSync.of(key, value)))  # type: ignore[misc]

    def _add(self, sync: OffsetSync) -> None:
        self._histories.setdefault(sync.place, SyncHistory()).add(sync.upstream, sync.downstream)

    def _topic(self, side: str, topic: str) -> SmallTopic:
        reader = self.cluster(self._props, side).reader(client_settings(self._props, side, "consumer"))
        return SmallTopic(reader, topic)

    def _set_offsets(self) -> None:
        """Sets offsets of groups that have no members on the target."""
        for group in sorted(self._target.idle_groups(self._groups)):
            wanted = self._known.offsets(group)
            if not wanted:
                continue
            try:
                there = self._target.group_offsets(group, {place.topic for place in wanted})
                offsets = offsets_to_set(wanted, {place: one.offset for place, one in there.items()})
                if offsets:
                    self._target.alter_group_offsets(group, offsets)
                    log.info(
                        "The offsets of the group %s on the target are set to those on the source, in %d partitions",
                        group,
                        len(offsets),
                    )
            except KafkaRetriableException:
                raise
            except (KafkaException, ConnectException) as error:
                log.warning("The offsets of group %s cannot be set on the target, trying again: %s", group, error)


class SmallTopic:
    """The records of a topic with one partition, from its beginning.

    Args:
        reader: Reads it, and nothing else.
        topic: The topic.
    """

    def __init__(self, reader: RecordReader, topic: str) -> None:
        self._reader = reader
        self._place = TopicPartition(topic, 0)
        self._reader.assign({self._place: _BEGINNING})

    def news(self) -> Iterable[tuple[bytes | None, bytes | None]]:
        """Keys and values of the records that have come since the last call, tombstones left out.

        Raises:
            KafkaRetriableException: The topic is not there, or cannot be read in time.
        """
        found: list[tuple[bytes | None, bytes | None]] = []
        deadline = time.monotonic() + _READ_S
        while True:
            fetched = self._reader.fetch(0.0 if self._reader.at_end(self._place) else _SLICE_S)
            for one in fetched:
                found += _pairs(one.table.column("key").to_pylist(), one.table.column("value").to_pylist())
            if not fetched and self._reader.at_end(self._place):
                return found
            if time.monotonic() > deadline:
                trouble = self._reader.trouble or "its end was not reached"
                raise KafkaRetriableException(f"The topic {self._place.topic} cannot be read yet: {trouble}")

    def close(self) -> None:
        """Releases the reader."""
        self._reader.close()


def _pairs(keys: Sequence[Any], values: Sequence[Any]) -> list[tuple[bytes | None, bytes | None]]:
    return [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]


def _understood(call: Callable[[], None]) -> None:
    try:
        call()
    except SerializationException as error:
        log.warning("A record of a mirror's topic is passed over: %s", error)
