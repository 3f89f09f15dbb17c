"""The settings of the clients that read and write the internal topics of a distributed worker.

Main type: ``LogSettings``, what a ``TopicLog`` is made with. Main functions: ``config_log``, ``offset_log``,
``status_log`` and ``connector_offset_log``, one for each topic; ``shared_admin`` for the admin client that logs share.

The clients of the worker itself take its settings without a prefix, those of security among them. What the logs rely on
comes after them, and the defaults of the logs before.

Thread: any; pure.
Source: configs.md section 6; org.apache.kafka.connect.storage.{KafkaConfigBackingStore, KafkaOffsetBackingStore,
KafkaStatusBackingStore}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.kafka.settings.client import (
    ClientKind,
    ClientSettings,
    admin_settings,
    consumer_settings,
    producer_settings,
    translate,
)
from penstock.kafka.settings.producer import ColumnSettings
from penstock.kafka.settings.table import setting_names
from penstock.kafka.settings.values import RdValue

#: How long a read waits for more where transactions are written. librdkafka knows that it has come to the end behind a
#: transaction's marker only when the next request was answered, with nothing in it.
_SHORT_WAIT_MS: Final = "50"
#: How long a record waits for its acknowledgement; it is not stored long after its writer was told an error.
_DELIVERY_MS: Final = "30000"
_READER_DEFAULTS: Final = {"fetch.error.backoff.ms": "100"}
_READER: Final = {"auto.offset.reset": "earliest", "allow.auto.create.topics": "false"}
#: As Java: without idempotence one request at a time keeps the order. What is stored twice says the same twice.
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
#: A member of the worker's group is another client; this one reads without joining.
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
#: Only the leader's producer has one, and its own.
_OF_TRANSACTIONS: Final = frozenset({"transactional.id", "transaction.two.phase.commit.enable"})


@dataclass(frozen=True)
class LogSettings:
    """The settings of the clients of one log.

    Attributes:
        name: What the brokers and the worker's log call the clients.
        reader: Of the consumer; librdkafka's names.
        writer: Of the producer.
        leader: Of the producer that writes transactions; None where nobody does.
        committed_only: Whether the reader passes over what was not committed, and stops at what may still be.
        waits: Whether who reads such a log to its end waits for the end of transactions that are open.
        read_only: Whether nothing is written through this log, so that it needs no producer.
        group: ``group.id`` of the workers, whose hanging transactions may be ended.
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
        transactional: Whether the leader writes in transactions: ``exactly.once.source.support`` is not ``disabled``.

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
    """The log of the worker's offsets topic; source tasks write there in transactions where ``transactional``.

    What one task has committed may be behind what another one has not yet: a reader that did not wait for that would
    give the task an older offset, and its records would come twice. Invariant 7.

    Raises:
        ConfigException: A setting of the worker cannot be used.
    """
    name = f"{_base(worker)}offsets"
    return replace(_log(worker, name, _producer(worker, name, _WRITER), None, transactional), waits=True)


def status_log(worker: Mapping[str, str]) -> LogSettings:
    """The log of the status topic. Its store decides by itself whether what failed is sent again.

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
    """The log of an offsets topic of a connector's own, with the settings of that connector's clients.

    Args:
        worker: The worker's settings.
        config: The connector's, placeholders resolved.
        connector: Its name.
        task: The number of the task whose log it is; None for the connector's own.
        transactional: Whether its tasks write in transactions.
        read_only: Whether nothing is written through this log, but in transactions of tasks' own.

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
    """A connector's configuration whose other clients go to the cluster that its producers write to, if another one.

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
    """The worker's settings without a prefix that such a client takes."""
    names = setting_names(kind)
    return {key: text for key, text in worker.items() if key in names}


def _transactional(key: str) -> bool:
    return key.removeprefix("producer.override.") in _OF_TRANSACTIONS
