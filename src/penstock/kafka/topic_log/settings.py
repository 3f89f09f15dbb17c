"""The settings of the clients that read and write the internal topics of a distributed worker.

Main type: ``LogSettings``, the argument of ``TopicLog``. Main functions: ``config_log``, ``offset_log``, ``status_log``
and ``connector_offset_log``, one for each topic; ``shared_admin`` for the admin client that logs share.

The clients use the worker's settings without a prefix, including security. Defaults of the logs come before these, and
settings on which the logs rely override them.

Thread: any; pure.
Source: org.apache.kafka.connect.storage.{KafkaConfigBackingStore, KafkaOffsetBackingStore,
KafkaStatusBackingStore}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.kafka.settings.client import (
    ClientSettings,
    admin_settings,
    consumer_settings,
    producer_settings,
    translate,
)
from penstock.kafka.settings.producer import ColumnSettings
from penstock.kafka.settings.table import ClientKind, setting_names
from penstock.kafka.settings.values import RdValue

#: The longest wait of a fetch if transactions are written. librdkafka recognizes the end after a transaction marker
#: only when the next fetch has returned without data.
_SHORT_WAIT_MS: Final = "50"
#: The delivery timeout of a record; once its writer has received an error, it is not stored much later.
_DELIVERY_MS: Final = "30000"
_READER_DEFAULTS: Final = {"fetch.error.backoff.ms": "100"}
_READER: Final = {"auto.offset.reset": "earliest", "allow.auto.create.topics": "false"}
#: As in Java: without idempotence only one request in flight keeps the order. Records that are stored twice do no harm.
_WRITER: Final = {
    "acks": "all",
    "delivery.timeout.ms": _DELIVERY_MS,
    "enable.idempotence": "false",
    "max.in.flight.requests.per.connection": "1",
    "partitioner.class": "",
    "partitioner.ignore.keys": "false",
}
_LEADER: Final = {
    "acks": "all",
    "enable.idempotence": "true",
    "max.in.flight.requests.per.connection": "5",
    "partitioner.class": "",
    "partitioner.ignore.keys": "false",
}
#: Settings of a group member: the log's consumer reads without joining a group.
_OF_MEMBERS: Final = frozenset(
    {
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
#: Only the leader's producer has a transactional id, which is its own.
_OF_TRANSACTIONS: Final = frozenset({"transactional.id", "transaction.two.phase.commit.enable"})


@dataclass(frozen=True)
class LogSettings:
    """The settings of the clients of one log.

    Attributes:
        name: The name of the clients in the logs of brokers and worker.
        reader: The settings of the consumer, by librdkafka's names.
        writer: The settings of the producer.
        leader: The settings of the transactional producer; None without transactions.
        committed_only: True if the reader skips aborted records, and stops at open transactions.
        waits: True if reading to the end waits for open transactions to end.
        read_only: True if this log never writes, so that it needs no producer.
        group: ``group.id`` of the workers, whose hanging transactions may be aborted.
    """

    name: str
    reader: Mapping[str, RdValue] = field(repr=False)
    writer: ColumnSettings = field(repr=False)
    leader: ColumnSettings | None = field(default=None, repr=False)
    committed_only: bool = False
    waits: bool = False
    read_only: bool = False
    group: str = "connect"


def config_log(worker: Mapping[str, str], *, transactional: bool) -> LogSettings:
    """The log of the config topic.

    Args:
        worker: The worker's settings.
        transactional: True if the leader writes in transactions: ``exactly.once.source.support`` is not ``disabled``.

    Raises:
        ConfigException: A setting of the worker cannot be used.
    """
    name = f"{_base(worker)}configs"
    leader = None
    if transactional:
        own = {**_LEADER, "transactional.id": f"connect-cluster-{worker.get('group.id', 'connect')}"}
        leader = _producer(worker, f"{name}-leader", own)
    return _log(worker, name, _producer(worker, name, _WRITER), leader, transactional)


def offset_log(worker: Mapping[str, str], *, transactional: bool) -> LogSettings:
    """The log of the worker's offsets topic; source tasks write to it in transactions if ``transactional``.

    The committed offsets of one task may come after another task's open transaction: a reader that did not wait for its
    end would return an older offset, and the first task would duplicate records. Invariant 7.

    Raises:
        ConfigException: A setting of the worker cannot be used.
    """
    name = f"{_base(worker)}offsets"
    return replace(_log(worker, name, _producer(worker, name, _WRITER), None, transactional), waits=True)


def status_log(worker: Mapping[str, str]) -> LogSettings:
    """The log of the status topic. The status store decides if a failed record is sent again.

    Raises:
        ConfigException: A setting of the worker cannot be used.
    """
    name = f"{_base(worker)}statuses"
    return _log(worker, name, _producer(worker, name, {**_WRITER, "retries": "0"}), None, False)


def connector_offset_log(
    worker: Mapping[str, str],
    config: Mapping[str, str],
    connector: str,
    task: int | None = None,
    *,
    transactional: bool,
    read_only: bool = False,
) -> LogSettings:
    """The log of a connector's own offsets topic, with the settings of that connector's clients.

    Args:
        worker: The worker's settings.
        config: The connector's configuration, placeholders resolved.
        connector: Its name.
        task: The number of the task that uses the log; None for the connector itself.
        transactional: True if its tasks write in transactions.
        read_only: True if this log never writes, because the tasks write in their own transactions.

    Raises:
        ConfigException: A setting of the worker or the connector cannot be used.
    """
    config = on_producers_cluster(config)
    name = connector if task is None else f"{connector}-{task}"
    level = {"isolation.level": "read_committed"} if transactional else {}
    defaults = {f"consumer.{key}": text for key, text in {**_reader_defaults(transactional), **level}.items()}
    reader = consumer_settings(
        {**defaults, **worker},
        config,
        client_id=f"connector-consumer-{name}",
        group_id=f"connect-{connector}",
        forced={**_READER, **level},
    ).checked()
    writer = producer_settings(
        worker,
        {key: text for key, text in config.items() if not _transactional(key)},
        client_id=f"connector-offset-producer-{name}",
        forced=_WRITER,
    )
    name = f"connector-offsets-{name}"
    committed_only = reader.librdkafka.get("isolation.level") == "read_committed"
    sending = ColumnSettings.of(writer)
    return LogSettings(
        name,
        reader.librdkafka,
        sending,
        None,
        committed_only,
        waits=True,
        read_only=read_only,
        group=worker.get("group.id", "connect"),
    )


def on_producers_cluster(config: Mapping[str, str]) -> dict[str, str]:
    """A connector's configuration whose other clients use the cluster of its producers by default.

    Offsets that are written to one cluster and read from another would never be found again.

    >>> on_producers_cluster({"producer.override.bootstrap.servers": "other:9092"})["admin.override.bootstrap.servers"]
    'other:9092'
    """
    servers = config.get("producer.override.bootstrap.servers")
    own = {} if servers is None else {f"{kind}.override.bootstrap.servers": servers for kind in ("consumer", "admin")}
    return {**own, **config}


def shared_admin(worker: Mapping[str, str]) -> ClientSettings:
    """The admin client that the worker's logs share.

    Raises:
        ConfigException: A setting of the worker cannot be used.
    """
    return admin_settings(worker, client_id=f"{_base(worker)}shared-admin").checked()


def _base(worker: Mapping[str, str]) -> str:
    """Returns the beginning of the names of the worker's clients."""
    group, own = worker.get("group.id", "").strip(), worker.get("client.id", "").strip()
    return f"{group or 'connect'}-{own}-" if own else f"{group or 'connect'}-"


def _log(
    worker: Mapping[str, str],
    name: str,
    writer: ColumnSettings,
    leader: ColumnSettings | None,
    transactional: bool,
) -> LogSettings:
    level = "read_committed" if transactional else "read_uncommitted"
    own = {**_READER, "isolation.level": level, "client.id": name}
    given = {key: text for key, text in _plain(worker, ClientKind.CONSUMER).items() if key not in _OF_MEMBERS}
    # Java's consumers cannot do without a group, and this one has the worker's rights already.
    group = {"group.id": worker.get("group.id", "connect")}
    reader = translate(ClientKind.CONSUMER, {**_reader_defaults(transactional), **group, **given, **own}).checked()
    return LogSettings(name, reader.librdkafka, writer, leader, transactional, group=worker.get("group.id", "connect"))


def _reader_defaults(transactional: bool) -> Mapping[str, str]:
    return {**_READER_DEFAULTS, "fetch.max.wait.ms": _SHORT_WAIT_MS} if transactional else _READER_DEFAULTS


def _producer(worker: Mapping[str, str], name: str, own: Mapping[str, str]) -> ColumnSettings:
    given = {key: text for key, text in _plain(worker, ClientKind.PRODUCER).items() if key not in _OF_TRANSACTIONS}
    return ColumnSettings.of(translate(ClientKind.PRODUCER, {**given, **own, "client.id": name}))


def _plain(worker: Mapping[str, str], kind: ClientKind) -> dict[str, str]:
    """The worker's settings without a prefix that such a client supports."""
    names = setting_names(kind)
    return {key: text for key, text in worker.items() if key in names}


def _transactional(key: str) -> bool:
    return key.removeprefix("producer.override.") in _OF_TRANSACTIONS
