"""The topics in which a distributed worker keeps configurations, offsets and states: creates missing topics, checks
existing ones, and derives the settings of their clients.

Several workers may create a topic at once: the first one does, the others check it. The clients use the worker's
settings without a prefix, including security. Defaults of the logs come before these, and settings on which the logs
rely override them.

Source: DistributedConfig, org.apache.kafka.connect.util.TopicAdmin (createOrFindTopics,
verifyTopicCleanupPolicyOnlyCompact); org.apache.kafka.connect.storage.{KafkaConfigBackingStore,
KafkaOffsetBackingStore, KafkaStatusBackingStore}.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NoReturn, TypeVar

import confluent_kafka as ck
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigResource,
)

from penstock.errors import AlreadyExistsException, ConfigException, KafkaException
from penstock.kafka.admin import TopicAdmin, TopicDescription, error_code
from penstock.kafka.settings.client import (
    ClientSettings,
    admin_settings,
    consumer_settings,
    producer_settings,
    translate,
)
from penstock.kafka.settings.producer import ColumnSettings
from penstock.kafka.settings.table import ClientKind, setting_names
from penstock.kafka.settings.values import RdValue, java_number

logger = logging.getLogger(__name__)

_Error = ck.KafkaError
_MISSING: Final = frozenset({_Error.UNKNOWN_TOPIC_OR_PART, _Error._UNKNOWN_TOPIC})
_DENIED: Final = frozenset({_Error.TOPIC_AUTHORIZATION_FAILED, _Error.CLUSTER_AUTHORIZATION_FAILED})
#: All brokers know a topic that another worker is creating only a little later.
_PROPAGATION_S: Final = 10.0
_PAUSE_S: Final = 0.1
_BROKER_DEFAULT: Final = -1


class Kind(Enum):
    """The kinds of internal topics; the value is the beginning of their settings' names."""

    CONFIG = "config.storage"
    OFFSET = "offset.storage"
    STATUS = "status.storage"
    BULK = "bulk.storage"


#: The default numbers of partitions; the records of the config topic need a total order.
_PARTITIONS: Final = {Kind.CONFIG: 1, Kind.OFFSET: 25, Kind.STATUS: 5, Kind.BULK: 5}
_REPLICAS: Final = 3
#: Any worker may create the topic of bulk work, even a standalone one on a single broker.
_BULK_REPLICAS: Final = -1
#: The default names of the topics.
_NAMES: Final = {Kind.BULK: "penstock-bulk"}
#: Settings of the worker that do not belong to the topic; the last one is a standalone worker's.
_OWN: Final = ("topic", "partitions", "replication.factor", "file.filename")


@dataclass(frozen=True)
class InternalTopic:
    """The requirements on one of the internal topics.

    Attributes:
        partitions: The number of partitions to create; -1 for the broker's default.
        replication_factor: The number of replicas; -1 for the broker's default.
    """

    kind: Kind
    name: str
    named_by: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: Kind, worker: Mapping[str, str]) -> InternalTopic:
        named_by = f"{kind.value}.topic"
        name = worker.get(named_by, _NAMES.get(kind, "")).strip()
        if not name:
            raise ConfigException(named_by, worker.get(named_by), "A distributed worker needs the name of this topic")
        configs = {}
        for setting, text in worker.items():
            inside = setting.removeprefix(f"{kind.value}.")
            if inside == setting or inside in _OWN:
                continue
            if inside == "cleanup.policy":
                logger.warning(
                    "The worker's setting %s = %s is ignored: this topic is always compacted, and nothing else",
                    setting,
                    text,
                )
                continue
            configs[inside] = text
        partitions = 1 if kind is Kind.CONFIG else _number(worker, f"{kind.value}.partitions", _PARTITIONS[kind])
        replicas = _number(
            worker, f"{kind.value}.replication.factor", _BULK_REPLICAS if kind is Kind.BULK else _REPLICAS
        )
        return cls(kind, name, named_by, partitions, replicas, {**configs, "cleanup.policy": "compact"})

    @classmethod
    def of_connector(cls, worker: Mapping[str, str], name: str) -> InternalTopic:
        """The offsets topic that a source connector names for itself; it is created like the worker's own."""
        like = cls.of(Kind.OFFSET, {**worker, "offset.storage.topic": name})
        return replace(like, named_by="offsets.storage.topic")


def ensure(admin: TopicAdmin, topic: InternalTopic) -> None:
    """Creates a missing topic, and rejects an existing one that would lose records.

    Args:
        admin: The admin client. If it may not describe the topic, that is logged, and the topic is accepted unchecked.

    Raises:
        KafkaException: The right to create it is missing, or the cluster did not respond.
    """
    try:
        found = admin.describe_topics([topic.name]).get(topic.name)
        if found is None:
            if _made(admin, topic):
                return
            found = _until_known(
                lambda: admin.describe_topics([topic.name]).get(topic.name),
                f"The topic {topic.name} exists, says the cluster, but",
            )
    except KafkaException as error:
        if error_code(error) not in _DENIED or isinstance(error, _NotMadeException):
            raise
        logger.info("The worker may not look at the topic %s (%s): it is used unchecked", topic.name, error)
        return
    _check_partitions(topic, found)
    _check_policy(admin, topic)


class _NotMadeException(KafkaException):
    """The right to create a topic is missing."""


def _number(worker: Mapping[str, str], setting: str, default: int) -> int:
    text = worker.get(setting)
    if text is None:
        return default
    try:
        number = java_number(text)
    except ValueError as error:
        raise ConfigException(setting, text, str(error)) from None
    if number < 1 and number != _BROKER_DEFAULT:
        raise ConfigException(setting, text, "Must be a positive number, or -1 to use the broker's default")
    return number


def _made(admin: TopicAdmin, topic: InternalTopic) -> bool:
    """Creates the topic; False if another worker was faster."""
    try:
        admin.create_topic(topic)
    except AlreadyExistsException:
        return False
    except KafkaException as error:
        _refuse(admin, topic, error)
    logger.info("Created the topic %s (%s)", topic.name, topic.named_by)
    return True


def _refuse(admin: TopicAdmin, topic: InternalTopic, error: KafkaException) -> NoReturn:
    """Raises an error that names the setting that makes the cluster refuse to create the topic."""
    code = error_code(error)
    prefix = topic.kind.value
    if code in _DENIED:
        raise _NotMadeException(
            f"The topic {topic.name} ({topic.named_by}) does not exist, and the worker has no right to create it: "
            f"{error}. Allow the worker's user the operation Create on this topic, or create it by hand with "
            f"cleanup.policy=compact{' and one partition' if topic.kind is Kind.CONFIG else ''}"
        ) from error.__cause__
    if code == _Error.INVALID_REPLICATION_FACTOR:
        brokers = len(
            admin.ask("counting the brokers", lambda client, left: client.describe_cluster(request_timeout=left)).nodes
        )
        raise ConfigException(
            f"{prefix}.replication.factor",
            topic.replication_factor,
            f"The topic {topic.name} cannot have more replicas than the Kafka cluster has brokers, and there are "
            f"{brokers} now. Set {prefix}.replication.factor={brokers} or start more brokers ({error})",
        ) from error
    if code == _Error.INVALID_PARTITIONS:
        raise ConfigException(f"{prefix}.partitions", topic.partitions, str(error)) from error
    if code in (_Error.INVALID_CONFIG, _Error.POLICY_VIOLATION):
        given = ", ".join(f"{prefix}.{name} = {text}" for name, text in topic.configs.items())
        raise ConfigException(
            f"The topic {topic.name} cannot be created as the worker's settings ask for ({given}): {error}"
        ) from error
    raise error


T = TypeVar("T")


def _until_known(ask: Callable[[], T | None], what: str) -> T:
    """The answer about a topic that another worker may have just created, as soon as the brokers know the topic."""
    pause = threading.Event()
    for _ in range(int(_PROPAGATION_S / _PAUSE_S)):
        if (found := ask()) is not None:
            return found
        pause.wait(_PAUSE_S)
    raise KafkaException(f"{what} cannot be found; was it deleted meanwhile?")


def _check_partitions(topic: InternalTopic, found: TopicDescription) -> None:
    if topic.kind is Kind.CONFIG and found.partitions != 1:
        raise ConfigException(
            topic.named_by,
            topic.name,
            f"This topic must have a single partition, because the order of its records counts, but it has "
            f"{found.partitions}. Name another topic, or delete it to have it created (which forgets what is in it)",
        )


def _check_policy(admin: TopicAdmin, topic: InternalTopic) -> None:
    try:
        policy = _policy(admin, topic.name)
    except KafkaException as error:
        if error_code(error) not in _DENIED:
            raise
        logger.info(
            "The worker may not look at the settings of the topic %s (%s): whether it is compacted is not checked",
            topic.name,
            error,
        )
        return
    if policy != "compact":
        raise ConfigException(
            topic.named_by,
            topic.name,
            f"This topic must have cleanup.policy=compact and nothing else, but it has cleanup.policy={policy}: Kafka "
            "would delete records that are still needed. Change it (kafka-configs --alter --entity-type topics "
            f"--entity-name {topic.name} --add-config cleanup.policy=compact) or name another topic",
        )


def _policy(admin: TopicAdmin, name: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)

    def ask() -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = admin.ask(
            f"describing the settings of the topic {name}",
            lambda client, left: client.describe_configs([resource], request_timeout=left)[resource],
            missing=_MISSING,
        )
        return found

    found = _until_known(ask, f"The settings of the topic {name}")
    return ",".join(sorted(part.strip() for part in found["cleanup.policy"].value.split(",") if part.strip()))


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
        transactional: True if the leader writes in transactions: ``exactly.once.source.support`` is not ``disabled``.
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
    """
    name = f"{_base(worker)}offsets"
    return replace(_log(worker, name, _producer(worker, name, _WRITER), None, transactional), waits=True)


def status_log(worker: Mapping[str, str]) -> LogSettings:
    """The log of the status topic. The status store decides if a failed record is sent again."""
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
        task: The number of the task that uses the log; None for the connector itself.
        read_only: True if this log never writes, because the tasks write in their own transactions.
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
    """The admin client that the worker's logs share."""
    return admin_settings(worker, client_id=f"{_base(worker)}shared-admin").checked()


def _base(worker: Mapping[str, str]) -> str:
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
    names = setting_names(kind)
    return {key: text for key, text in worker.items() if key in names}


def _transactional(key: str) -> bool:
    return key.removeprefix("producer.override.") in _OF_TRANSACTIONS
