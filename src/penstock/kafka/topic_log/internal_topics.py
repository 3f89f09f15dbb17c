"""The topics in which a distributed worker keeps configurations, offsets and states: creates missing topics and checks
existing ones.

Main types: ``InternalTopic`` (the requirements on one topic, from the worker's settings with ``of`` and
``of_connector``), ``MadeLog`` (the log of a connector's own offsets topic, which creates the topic with its own admin
client when it is opened). Main function: ``ensure``. Several workers may do this at once: the first one creates the
topic, the other workers check it.

Thread: the caller's; waits for the cluster's answers. ``MadeLog``: as for ``TopicLog``.
Source: DistributedConfig, and org.apache.kafka.connect.util.TopicAdmin (createOrFindTopics,
verifyTopicCleanupPolicyOnlyCompact); KafkaOffsetBackingStore (offlineStore, readWriteStore).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NoReturn

import confluent_kafka as ck
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigResource,
)

from penstock.errors import AlreadyExistsException, ConfigException, KafkaException
from penstock.kafka.admin.topics import TopicAdmin, TopicDescription, error_code
from penstock.kafka.settings.values import java_number
from penstock.kafka.topic_log.log import TopicLog
from penstock.kafka.topic_log.reader import LogRecord
from penstock.kafka.topic_log.settings import LogSettings
from penstock.kafka.topic_log.writer import Entry

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
        kind: Its content.
        name: Its name.
        named_by: The setting that names it, for messages.
        partitions: The number of partitions to create; -1 for the broker's default.
        replication_factor: The number of replicas; -1 for the broker's default.
        configs: The topic configuration for creating it.
    """

    kind: Kind
    name: str
    named_by: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: Kind, worker: Mapping[str, str]) -> InternalTopic:
        """The topic of this kind that a worker's settings describe.

        Raises:
            ConfigException: No topic is named, or a number is invalid.
        """
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
        """The offsets topic that a source connector names for itself; it is created like the worker's own.

        Args:
            worker: The worker's settings.
            name: The value of the connector's ``offsets.storage.topic``.
        """
        like = cls.of(Kind.OFFSET, {**worker, "offset.storage.topic": name})
        return replace(like, named_by="offsets.storage.topic")


def ensure(admin: TopicAdmin, topic: InternalTopic) -> None:
    """Creates a missing topic, and rejects an existing one that would lose records.

    Args:
        admin: The admin client. If it may not describe the topic, that is logged, and the topic is accepted unchecked.
        topic: The requirements.

    Raises:
        ConfigException: Its cleanup policy is not only compaction, it has too many partitions, or it cannot be created
            as required; the text names the setting and what to do.
        KafkaException: The right to create it is missing, or the cluster did not respond.
    """
    try:
        found = admin.describe_topics([topic.name]).get(topic.name)
        if found is None:
            if _made(admin, topic):
                return
            found = _await(admin, topic.name)
    except KafkaException as error:
        if error_code(error) not in _DENIED or isinstance(error, _NotMadeException):
            raise
        logger.info("The worker may not look at the topic %s (%s): it is taken as it is", topic.name, error)
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
        brokers = len(admin.ask("counting the brokers", _describe_cluster).nodes)
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


def _await(admin: TopicAdmin, name: str) -> TopicDescription:
    """The topic that another worker has just created."""
    pause = threading.Event()
    for _ in range(int(_PROPAGATION_S / _PAUSE_S)):
        if (found := admin.describe_topics([name]).get(name)) is not None:
            return found
        pause.wait(_PAUSE_S)
    raise KafkaException(f"The topic {name} exists, says the cluster, but cannot be found; was it deleted meanwhile?")


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
    pause = threading.Event()
    for _ in range(int(_PROPAGATION_S / _PAUSE_S)):
        found: Mapping[str, Any] | None = admin.ask(
            f"describing the settings of the topic {name}",
            lambda client, left: client.describe_configs([resource], request_timeout=left)[resource],
            missing=_MISSING,
        )
        if found is not None:
            return ",".join(sorted(part.strip() for part in found["cleanup.policy"].value.split(",") if part.strip()))
        pause.wait(_PAUSE_S)
    raise KafkaException(f"The settings of the topic {name} cannot be found; was it deleted meanwhile?")


def _describe_cluster(client: Any, left: float) -> Any:
    return client.describe_cluster(request_timeout=left)


class MadeLog:
    """A ``RecordLog``.

    Args:
        topic: The requirements.
        settings: The settings of the log's clients.
        admin: The settings of the admin client, by librdkafka's names.
    """

    def __init__(self, topic: InternalTopic, settings: LogSettings, admin: Mapping[str, object]) -> None:
        self._topic = topic
        self._settings = settings
        self._admin_settings = admin
        self._admin: TopicAdmin | None = None
        self._log: TopicLog | None = None

    def start(self, handle: Callable[[Sequence[LogRecord]], None], timeout_s: float = 60.0) -> None:
        """See ``TopicLog``; creates a missing topic first.

        Raises:
            ConfigException: the topic cannot be used.
        """
        self.stop()
        self._admin = TopicAdmin(dict(self._admin_settings), name=f"the topic {self._topic.name}")
        try:
            ensure(self._admin, self._topic)
            self._log = TopicLog(self._topic.name, self._settings, self._admin)
            self._log.start(handle, timeout_s)
        except BaseException:
            self.stop()
            raise

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic.name

    def stop(self) -> None:
        """See ``TopicLog``."""
        log, self._log = self._log, None
        admin, self._admin = self._admin, None
        if log is not None:
            log.stop()
        if admin is not None:
            admin.close()

    def read_to_end(self, timeout_s: float) -> None:
        """See ``TopicLog``."""
        self._started().read_to_end(timeout_s)

    def write(self, entries: Sequence[Entry], timeout_s: float = 30.0, *, transactional: bool = False) -> None:
        """See ``TopicLog``."""
        self._started().write(entries, timeout_s, transactional=transactional)

    def write_async(
        self,
        key: bytes,
        value: bytes | None,
        done: Callable[[Exception | None], None],
        *,
        wanted: Callable[[], bool] = lambda: False,
    ) -> None:
        """See ``TopicLog``."""
        self._started().write_async(key, value, done, wanted=wanted)

    def claim(self, timeout_s: float = 30.0) -> None:
        """See ``TopicLog``."""
        self._started().claim(timeout_s)

    def _started(self) -> TopicLog:
        if self._log is None:
            raise KafkaException(f"The log of the topic {self._topic.name} is closed, or was not started")
        return self._log
