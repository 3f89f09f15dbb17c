"""A Kafka cluster in memory, in the place of ``penstock.clients.KafkaCluster``."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.api import OffsetAndMetadata, TopicPartition
from penstock.clients import AccessRule, Fetched, TopicInfo, TopicSetting
from penstock.errors import KafkaException, KafkaRetriableException, OffsetOutOfRangeException

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass
class Record:
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 1
    headers: list[tuple[str, bytes]] | None = None


@dataclass
class Topic:
    partitions: list[list[Record]]
    topic_id: str
    settings: dict[str, TopicSetting] = field(default_factory=dict)
    replication_factor: int = 1
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def low(self, number: int) -> int:
        return self.starts.get(number, 0)

    def high(self, number: int) -> int:
        records = self.partitions[number]
        return max(self.ends.get(number, 0), records[-1].offset + 1 if records else self.low(number))


class MemoryCluster:
    """Topics, groups and rules; ``is_away`` and ``refuses`` make it fail."""

    _ids = itertools.count(1)

    def __init__(self, bootstrap_servers: str = "memory:1") -> None:
        self.bootstrap_servers = bootstrap_servers
        self.name = "the cluster in memory"
        self.there: dict[str, Topic] = {}
        self.rules: list[AccessRule] | None = None
        self.group_states: dict[str, bool] = {}
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        self.is_away = False
        self.refuses: dict[str, str] = {}
        self.calls: list[str] = []
        self.most = 1000

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        found = {name.replace("_", "."): TopicSetting(text, False) for name, text in settings.items()}
        self.there[topic] = Topic([[] for _ in range(partitions)], f"id-{next(self._ids)}", found)

    def send(self, topic: str, partition: int, *values: bytes | None) -> None:
        records = self.there[topic].partitions[partition]
        for value in values:
            records.append(Record(self.there[topic].high(partition), b"k", value, headers=[("h", b"1")]))

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        one = self.there[topic]
        one.starts[partition] = offset
        one.ends[partition] = one.high(partition)
        one.partitions[partition] = [record for record in one.partitions[partition] if record.offset >= offset]

    # ------------------------------------------------------------ KafkaCluster
    def faults(self, **_: Any) -> list[tuple[str, str]]:
        return []

    def reader(self, settings: Mapping[str, str] = {}) -> MemoryReader:
        return MemoryReader(self)

    def admin(
        self, settings: Mapping[str, str] = {}, *, timeout_s: float = 60.0, read_only: bool = False
    ) -> MemoryAdmin:
        return MemoryAdmin(self, read_only)

    def writer(self, settings: Mapping[str, str] = {}) -> MemoryWriter:
        return MemoryWriter(self)

    def check(self, doing: str = "") -> None:
        self.calls.append(doing)
        if self.is_away:
            raise KafkaRetriableException(f"{self.name} does not answer: connection refused")
        if doing in self.refuses:
            raise KafkaException(self.refuses[doing])


class MemoryReader:
    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._positions: dict[TopicPartition, int] = {}
        self._turns: deque[TopicPartition] = deque()
        self.is_closed = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions = {place: self._at(place, offset) for place, offset in positions.items()}
        self._turns = deque(positions)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._positions[place] = self._at(place, offset)

    def _at(self, place: TopicPartition, offset: int) -> int:
        topic = self._cluster.there.get(place.topic)
        if topic is None:
            return 0
        known = {-2: topic.low(place.partition), -1: topic.high(place.partition)}
        return known.get(offset, offset)

    def fetch(self, timeout_s: float) -> list[Fetched]:
        if self._cluster.is_away:
            return []
        for _ in range(len(self._turns)):
            place = self._turns[0]
            self._turns.rotate(-1)
            topic = self._cluster.there.get(place.topic)
            if topic is None:
                continue
            at = self._positions[place]
            if not topic.low(place.partition) <= at <= topic.high(place.partition):
                raise OffsetOutOfRangeException(f"{place} has no offset {at}", *place, at)
            records = [one for one in topic.partitions[place.partition] if one.offset >= at][: self._cluster.most]
            if records:
                self._positions[place] = records[-1].offset + 1
                return [Fetched(place, table_of(records))]
        return []

    @property
    def trouble(self) -> str | None:
        return "connection refused" if self._cluster.is_away else None

    def at_end(self, place: TopicPartition) -> bool:
        topic = self._cluster.there.get(place.topic)
        return topic is not None and self._positions[place] >= topic.high(place.partition)

    def check(self, timeout_s: float) -> None:
        self._cluster.check("check")

    def bounds(self, place: TopicPartition, timeout_s: float = 10.0) -> tuple[int, int]:
        topic = self._cluster.there[place.topic]
        return topic.low(place.partition), topic.high(place.partition)

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.bounds(place)[1] for place in places if place.topic in self._cluster.there}

    def close(self) -> None:
        self.is_closed = True


def table_of(records: Sequence[Record]) -> pa.Table:
    return pa.table(
        {
            "offset": pa.array([one.offset for one in records], pa.int64()),
            "timestamp": pa.array([one.timestamp for one in records], pa.int64()),
            "timestamp_type": pa.array([0] * len(records), pa.int8()),
            "key": pa.array([one.key for one in records], pa.binary()),
            "value": pa.array([one.value for one in records], pa.binary()),
            "headers": pa.array([one.headers for one in records], HEADERS),
        }
    )


class MemoryAdmin:
    def __init__(self, cluster: MemoryCluster, read_only: bool) -> None:
        self._cluster = cluster
        self._read_only = read_only

    def close(self) -> None:
        pass

    def topics(self) -> dict[str, int]:
        self._cluster.check("topics")
        return {name: len(one.partitions) for name, one in self._cluster.there.items()}

    def describe(self, topics: Collection[str]) -> dict[str, TopicInfo]:
        self._cluster.check("describe")
        there = self._cluster.there
        return {
            name: TopicInfo(name, len(there[name].partitions), there[name].topic_id) for name in topics if name in there
        }

    def topic_settings(self, topics: Collection[str]) -> dict[str, dict[str, TopicSetting]]:
        self._cluster.check("topic_settings")
        return {name: dict(self._cluster.there[name].settings) for name in topics if name in self._cluster.there}

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int,
        settings: Mapping[str, str] = {},
    ) -> bool:
        self._cluster.check("create_topic")
        if topic in self._cluster.there or self._read_only:
            return False
        self._cluster.create(topic, partitions)
        self._cluster.there[topic].replication_factor = replication_factor
        self._cluster.there[topic].settings = {name: TopicSetting(text, False) for name, text in settings.items()}
        return True

    def add_partitions(self, topic: str, total: int) -> None:
        if self._read_only:
            return
        self._cluster.check("add_partitions")
        partitions = self._cluster.there[topic].partitions
        partitions += [[] for _ in range(total - len(partitions))]

    def alter_topic_settings(self, topic: str, changed: Mapping[str, str], removed: Iterable[str] = ()) -> None:
        if self._read_only:
            return
        self._cluster.check("alter_topic_settings")
        settings = self._cluster.there[topic].settings
        settings |= {name: TopicSetting(text, False) for name, text in changed.items()}
        settings |= {name: replace(settings[name], is_default=True) for name in removed}

    def access_rules(self) -> list[AccessRule] | None:
        self._cluster.check("access_rules")
        return self._cluster.rules

    def add_access_rules(self, rules: Collection[AccessRule]) -> None:
        if self._read_only:
            return
        self._cluster.check("add_access_rules")
        assert self._cluster.rules is not None
        self._cluster.rules += [one for one in rules if one not in self._cluster.rules]

    def groups(self) -> set[str]:
        self._cluster.check("groups")
        return set(self._cluster.committed)

    def idle_groups(self, groups: Collection[str]) -> set[str]:
        return {group for group in groups if not self._cluster.group_states.get(group, False)}

    def group_offsets(
        self, group: str, topics: Collection[str] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        found = self._cluster.committed.get(group, {})
        return {at: OffsetAndMetadata(offset) for at, offset in found.items() if topics is None or at.topic in topics}

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self._read_only:
            return
        self._cluster.check("alter_group_offsets")
        self._cluster.committed.setdefault(group, {}).update(offsets)

    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self._cluster.there[at.topic].high(at.partition) for at in places}


class MemoryWriter:
    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.trouble = None

    def send(self, topic: str, key: bytes | None, value: bytes | None, *, partition: int = 0) -> None:
        self._cluster.check("send")
        one = self._cluster.there[topic]
        one.partitions[partition].append(Record(one.high(partition), key, value))

    def flush(self, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        pass
