"""Reads and changes the committed offsets of connectors: a source's in the store, a sink's in its consumer group.

Every method may block on a broker or a disk, so the herder calls them on separate threads; changes for one connector
run one at a time. Invariant 7.

Source: org.apache.kafka.connect.runtime.Worker.connectorOffsets, alterConnectorOffsets, resetConnectorOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.api import TopicPartition
from penstock.errors import (
    BadRequestException,
    ConflictException,
    KafkaException,
    OffsetStoreException,
    ProducerFencedException,
    TransactionAbortableException,
)
from penstock.kafka.settings.client import ClientSettings
from penstock.stores.offsets import OffsetWriter, connector_offsets, key_bytes, value_bytes

if TYPE_CHECKING:
    from penstock.kafka.admin import GroupClient
    from penstock.kafka.consumer.offsets import Subscription
    from penstock.kafka.producer.transactional import TransactionalProducer
    from penstock.worker.source.delivery_guarantee import SourceOffsets

#: The time limit of each step of a change in a transaction.
_TRANSACTION_S: Final = 30.0

SourcePartition = Mapping[str, object] | None
SourceOffset = Mapping[str, object] | None


@dataclass(frozen=True)
class SinkGroup:
    """The consumer group of a sink connector.

    Attributes:
        id: Its name.
        name: The connector, for messages.
    """

    id: str
    client: ClientSettings
    name: str


@dataclass(frozen=True)
class SinkPlan:
    """The result of a change of a sink's offsets.

    Attributes:
        after: Their offsets after the change; None: removed.
        ends: The offset after the last record of each partition.
    """

    before: Mapping[TopicPartition, int]
    after: Mapping[TopicPartition, int | None]
    beginnings: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class ConnectorOffsets:
    """The offsets of a worker's connectors.

    Args:
        new_admin: Makes a client with a time limit for each call, in seconds (None: its own limit); closed here after
            each use.
        new_producer: Makes a producer with the clients' settings of a connector and a transactional id; closed here.
        timeout_s: The limit of clients of groups.
    """

    def __init__(
        self,
        sources: SourceOffsets,
        group_of: Callable[[str, Mapping[str, str]], SinkGroup],
        new_admin: Callable[[SinkGroup, float | None], GroupClient],
        new_producer: Callable[[str, Mapping[str, str], str], TransactionalProducer],
        forget_runs: Callable[[str, Mapping[str, str], Collection[SourcePartition] | None], None],
        timeout_s: float | None = None,
    ) -> None:
        self._sources = sources
        self._group_of = group_of
        self._new_admin = new_admin
        self._new_producer = new_producer
        self.forget_runs = forget_runs
        self._timeout_s = timeout_s

    def within(self, timeout_s: float) -> ConnectorOffsets:
        """The same operations with a time limit for each request to Kafka."""
        return ConnectorOffsets(
            self._sources, self._group_of, self._new_admin, self._new_producer, self.forget_runs, timeout_s
        )

    def read_source(
        self, connector: str, config: Mapping[str, str]
    ) -> list[tuple[SourcePartition, Mapping[str, object]]]:
        """All source partitions that have an offset, with it."""
        with self._sources.opened(connector, config) as store:
            return [(partition, offset) for partition, offset in connector_offsets(store, connector)]

    def write_source(
        self,
        connector: str,
        config: Mapping[str, str],
        offsets: Sequence[tuple[SourcePartition, SourceOffset]],
        transactional_id: str | None = None,
    ) -> None:
        """Writes offsets; None removes one. After the return every reader sees them.

        Args:
            transactional_id: The id for this write, if tasks write in transactions; no other producer may use it.
        """
        if transactional_id is not None:
            self._write_transaction(connector, config, offsets, transactional_id)
            return
        with self._sources.opened(connector, config) as store:
            writer = OffsetWriter(store, connector)
            for partition, offset in offsets:
                writer.put(partition, offset)
            writer.flush()

    def _write_transaction(
        self,
        connector: str,
        config: Mapping[str, str],
        offsets: Sequence[tuple[SourcePartition, SourceOffset]],
        transactional_id: str,
    ) -> None:
        entries = {key_bytes(connector, partition): value_bytes(offset) for partition, offset in offsets}
        producer = self._new_producer(connector, config, transactional_id)
        try:
            producer.init_transactions(_TRANSACTION_S)
            with self._sources.opened_for_change(connector, config) as store:
                # The store knows the spellings of keys only after it has read everything.
                store.get(entries)
                producer.send_offsets_entries(store.topic, store.records(entries))
                self._commit(producer)
                store.written(entries)
                store.get(entries)
        except ProducerFencedException as error:
            raise ConflictException(
                f"The offsets of connector {connector} were not changed: another worker of the group changes them, or "
                f"has begun to start the tasks of the connector. Try again ({error})"
            ) from error
        except KafkaException as error:
            raise OffsetStoreException(
                f"The offsets of connector {connector} could not be changed in a transaction: {error}"
            ) from error
        finally:
            producer.close(0)

    @staticmethod
    def _commit(producer: TransactionalProducer) -> None:
        try:
            producer.commit(_TRANSACTION_S)
        except TransactionAbortableException:
            # A partition that knows of a later epoch does not name its producer: the coordinator does.
            producer.abort_transaction(_TRANSACTION_S)
            raise

    def read_sink(self, connector: str, config: Mapping[str, str]) -> dict[TopicPartition, int]:
        with self._admin(connector, config) as (admin, group):
            return {at: committed.offset for at, committed in sorted(admin.group_offsets(group.id).items())}

    def check_sink(self, connector: str, config: Mapping[str, str], partitions: Iterable[TopicPartition]) -> None:
        """Refuses partitions that do not exist."""
        asked = list(partitions)
        with self._admin(connector, config) as (admin, _):
            _require_existing(admin, asked)

    def alter_sink(
        self, connector: str, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> None:
        with self._admin(connector, config) as (admin, group), _group_idle(admin, connector, "alter"):
            # The broker removes offsets of topics that no member reads, and ignores removals of offsets that do not
            # exist.
            admin.require_idle(group.id)
            admin.delete_group_offsets(group.id, [at for at, offset in offsets.items() if offset is None])
            admin.alter_group_offsets(group.id, {at: offset for at, offset in offsets.items() if offset is not None})

    def reset_sink(self, connector: str, config: Mapping[str, str]) -> None:
        with self._admin(connector, config) as (admin, group), _group_idle(admin, connector, "reset"):
            admin.delete_group(group.id)

    def at_timestamp(
        self, connector: str, config: Mapping[str, str], partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition whose record is not older than the timestamp; of all if none is named."""
        asked = list(partitions)
        with self._admin(connector, config) as (admin, group):
            if not asked:
                asked = sorted(admin.group_offsets(group.id))
            _require_existing(admin, asked)
            return admin.offsets_at(asked, timestamp_ms)

    def plan_sink(
        self, connector: str, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> SinkPlan:
        """Computes the result of a change without making it."""
        with self._admin(connector, config) as (admin, group):
            _require_existing(admin, offsets)
            committed = admin.group_offsets(group.id)
            before = {at: committed[at].offset for at in offsets if at in committed}
            return SinkPlan(before, dict(offsets), admin.beginning_offsets(offsets), admin.end_offsets(offsets))

    def partitions_of(self, connector: str, config: Mapping[str, str], requested: Subscription) -> list[TopicPartition]:
        with self._admin(connector, config) as (admin, _):
            if requested.pattern is None:
                return sorted(admin.existing_partitions(requested.topics))
            return sorted(one for one in admin.existing_partitions(None) if requested.covers(one.topic))

    def topic_faults(self, connector: str, config: Mapping[str, str], requested: Subscription) -> list[str]:
        """The reasons why topics that a sink reads cannot be read."""
        with self._admin(connector, config) as (admin, _):
            there = {at.topic for at in admin.existing_partitions(None)}
            if requested.pattern is not None:
                regex = config.get("topics.regex")
                matching = any(requested.covers(topic) for topic in there)
                return [] if matching else [f"no topic that this worker may see matches topics.regex={regex}"]
            return [fault for topic in requested.topics if topic not in there if (fault := _topic_fault(admin, topic))]

    @contextmanager
    def _admin(self, connector: str, config: Mapping[str, str]) -> Iterator[tuple[GroupClient, SinkGroup]]:
        group = self._group_of(connector, config)
        admin = self._new_admin(group, self._timeout_s)
        try:
            yield admin, group
        finally:
            admin.close()


def _require_existing(admin: GroupClient, partitions: Iterable[TopicPartition]) -> None:
    asked = list(partitions)
    missing = set(asked) - admin.existing_partitions({at.topic for at in asked})
    if missing:
        names = ", ".join(f"{at.topic}-{at.partition}" for at in sorted(missing))
        raise BadRequestException(f"The cluster has no topic partition {names}: its offset cannot be changed")


def _topic_fault(admin: GroupClient, topic: str) -> str | None:
    try:
        return None if admin.topic_exists(topic) else f"the topic {topic} does not exist"
    except KafkaException as error:
        return f"the topic {topic} cannot be looked at: {error}"


@contextmanager
def _group_idle(admin: GroupClient, connector: str, verb: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not admin.group_busy(error):
            raise
        raise ConflictException(
            f"Failed to {verb} consumer group offsets for connector {connector} either because its tasks haven't "
            "stopped completely yet or the connector was resumed before the request could be completed. If the "
            "connector is in a stopped state, this operation can be safely retried. If it doesn't eventually succeed, "
            "the worker may need to be restarted to get rid of the zombie sink tasks."
        ) from error
