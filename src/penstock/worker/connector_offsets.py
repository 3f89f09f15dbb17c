"""Reads and changes the committed offsets of connectors: a source's in the store, a sink's in its consumer group.

Main types: ``ConnectorOffsets`` (the operations that the herder needs), ``WorkerOffsets``, ``GroupAdmin`` (the
operations that it needs of Kafka). Every method may block on a broker or a disk, so the herder calls them on separate
threads; changes for one connector run one at a time. Invariant 7.

Source: org.apache.kafka.connect.runtime.Worker.connectorOffsets, alterConnectorOffsets, resetConnectorOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from penstock.api import OffsetAndMetadata, TopicPartition
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
    from penstock.kafka.consumer.offsets import Subscription
    from penstock.worker.source.delivery_guarantee import SourceOffsets

#: The time limit of each step of a change in a transaction.
_TRANSACTION_S: Final = 30.0

SourcePartition = Mapping[str, object] | None
SourceOffset = Mapping[str, object] | None


class GroupAdmin(Protocol):
    """The part of ``penstock.kafka.admin.GroupClient`` that is needed here."""

    def group_offsets(self, group: str, topics: Iterable[str] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group."""

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without members."""

    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets of these partitions."""

    def require_idle(self, group: str) -> None:
        """Raise the error that `group_busy` recognizes if the group has members."""

    def delete_group(self, group: str) -> None:
        """Delete a group with all its offsets."""

    def group_busy(self, error: Exception) -> bool:
        """True if a change failed because the group still has members."""

    def existing_partitions(self, topics: Iterable[str] | None) -> set[TopicPartition]:
        """The partitions of the named topics that exist; of all topics if None."""

    def topic_exists(self, topic: str) -> bool:
        """True if the topic exists; raises an error if that cannot be determined."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that each partition still has."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""

    def offsets_at(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """The first offset of each partition whose record is not older; its end when all are."""

    def close(self) -> None:
        """Let the client go."""


class OffsetProducer(Protocol):
    """The part of ``penstock.kafka.producer.transactional.TransactionalProducer`` that is needed here."""

    def init_transactions(self, timeout_s: float) -> None:
        """Take the transactional id."""

    def send_offsets_entries(self, topic: str, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Send encoded records in a transaction."""

    def commit(self, timeout_s: float) -> None:
        """Wait until all records are stored, then commit."""

    def abort_transaction(self, timeout_s: float) -> None:
        """Abort the transaction; reports whether another producer has the transactional id."""

    def close(self, timeout_s: float) -> bool:
        """Abandon the requests in flight and release the client."""


@dataclass(frozen=True)
class SinkGroup:
    """The consumer group of a sink connector.

    Attributes:
        id: Its name.
        client: The settings of an admin client for it.
        name: The connector, for messages.
    """

    id: str
    client: ClientSettings
    name: str


@dataclass(frozen=True)
class SinkPlan:
    """The result of a change of a sink's offsets.

    Attributes:
        before: The committed offsets of the changed partitions.
        after: Their offsets after the change; None: removed.
        beginnings: The first offset that each partition still has.
        ends: The offset after the last record of each partition.
    """

    before: Mapping[TopicPartition, int]
    after: Mapping[TopicPartition, int | None]
    beginnings: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class ConnectorOffsets(Protocol):
    """The operations that the herder needs to serve requests about offsets. May block; any thread."""

    def within(self, timeout_s: float) -> ConnectorOffsets:
        """Returns the same operations with a time limit for each request to Kafka."""

    def read_source(
        self, connector: str, config: Mapping[str, str]
    ) -> list[tuple[SourcePartition, Mapping[str, object]]]:
        """All source partitions that have an offset, with it."""

    def write_source(
        self,
        connector: str,
        config: Mapping[str, str],
        offsets: Sequence[tuple[SourcePartition, SourceOffset]],
        transactional_id: str | None = None,
    ) -> None:
        """Writes offsets; None removes one. After the return every reader sees them.

        Args:
            connector: The connector's name.
            config: Its settings, placeholders resolved.
            offsets: What to write.
            transactional_id: The id for this write, if tasks write in transactions; no other producer may use it.
        """

    def forget_runs(
        self, connector: str, config: Mapping[str, str], partitions: Collection[SourcePartition] | None
    ) -> None:
        """Removes the markers of bulk runs, so that their rows are written again.

        Args:
            connector: The connector's name.
            config: Its settings, placeholders resolved.
            partitions: The source partitions whose runs are forgotten; None: all.
        """

    def read_sink(self, connector: str, config: Mapping[str, str]) -> dict[TopicPartition, int]:
        """The committed offsets of the connector's group."""

    def check_sink(self, connector: str, config: Mapping[str, str], partitions: Iterable[TopicPartition]) -> None:
        """Refuses partitions that do not exist."""

    def alter_sink(
        self, connector: str, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> None:
        """Commits offsets for the connector's group, None removes one."""

    def reset_sink(self, connector: str, config: Mapping[str, str]) -> None:
        """Deletes the connector's group."""

    def at_timestamp(
        self, connector: str, config: Mapping[str, str], partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition whose record is not older than the timestamp."""

    def plan_sink(
        self, connector: str, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> SinkPlan:
        """Computes the result of a change without making it."""

    def partitions_of(self, connector: str, config: Mapping[str, str], requested: Subscription) -> list[TopicPartition]:
        """The partitions of the topics that a sink reads."""

    def topic_faults(self, connector: str, config: Mapping[str, str], requested: Subscription) -> list[str]:
        """Returns the reasons why topics that a sink reads cannot be read."""


class WorkerOffsets:
    """The offsets of a worker's connectors.

    Args:
        sources: The stores of source offsets.
        group_of: The consumer group of a sink connector, by its name and resolved configuration.
        new_admin: Makes a client with a time limit for each call, in seconds (None: its own limit); closed here after
            each use.
        new_producer: Makes a producer with the clients' settings of a connector and a transactional id; closed here.
        forget_runs: See ``ConnectorOffsets``.
        timeout_s: The limit of clients of groups.
    """

    def __init__(
        self,
        sources: SourceOffsets,
        group_of: Callable[[str, Mapping[str, str]], SinkGroup],
        new_admin: Callable[[SinkGroup, float | None], GroupAdmin],
        new_producer: Callable[[str, Mapping[str, str], str], OffsetProducer],
        forget_runs: Callable[[str, Mapping[str, str], Collection[SourcePartition] | None], None],
        timeout_s: float | None = None,
    ) -> None:
        self._sources = sources
        self._group_of = group_of
        self._new_admin = new_admin
        self._new_producer = new_producer
        self.forget_runs = forget_runs
        self._timeout_s = timeout_s

    def within(self, timeout_s: float) -> WorkerOffsets:
        return WorkerOffsets(
            self._sources, self._group_of, self._new_admin, self._new_producer, self.forget_runs, timeout_s
        )

    def read_source(
        self, connector: str, config: Mapping[str, str]
    ) -> list[tuple[SourcePartition, Mapping[str, object]]]:
        with self._sources.opened(connector, config) as store:
            return [(partition, offset) for partition, offset in connector_offsets(store, connector)]

    def write_source(
        self,
        connector: str,
        config: Mapping[str, str],
        offsets: Sequence[tuple[SourcePartition, SourceOffset]],
        transactional_id: str | None = None,
    ) -> None:
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
    def _commit(producer: OffsetProducer) -> None:
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
        asked = list(partitions)
        with self._admin(connector, config) as (admin, group):
            if not asked:
                asked = sorted(admin.group_offsets(group.id))
            _require_existing(admin, asked)
            return admin.offsets_at(asked, timestamp_ms)

    def plan_sink(
        self, connector: str, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> SinkPlan:
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
        with self._admin(connector, config) as (admin, _):
            there = {at.topic for at in admin.existing_partitions(None)}
            if requested.pattern is not None:
                regex = config.get("topics.regex")
                matching = any(requested.covers(topic) for topic in there)
                return [] if matching else [f"no topic that this worker may see matches topics.regex={regex}"]
            return [fault for topic in requested.topics if topic not in there if (fault := _topic_fault(admin, topic))]

    @contextmanager
    def _admin(self, connector: str, config: Mapping[str, str]) -> Iterator[tuple[GroupAdmin, SinkGroup]]:
        group = self._group_of(connector, config)
        admin = self._new_admin(group, self._timeout_s)
        try:
            yield admin, group
        finally:
            admin.close()


def _require_existing(admin: GroupAdmin, partitions: Iterable[TopicPartition]) -> None:
    asked = list(partitions)
    missing = set(asked) - admin.existing_partitions({at.topic for at in asked})
    if missing:
        names = ", ".join(f"{at.topic}-{at.partition}" for at in sorted(missing))
        raise BadRequestException(f"The cluster has no topic partition {names}: its offset cannot be changed")


def _topic_fault(admin: GroupAdmin, topic: str) -> str | None:
    """Returns the reason why a topic that is not listed cannot be read."""
    try:
        return None if admin.topic_exists(topic) else f"the topic {topic} does not exist"
    except KafkaException as error:
        return f"the topic {topic} cannot be looked at: {error}"


@contextmanager
def _group_idle(admin: GroupAdmin, connector: str, verb: str) -> Iterator[None]:
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
