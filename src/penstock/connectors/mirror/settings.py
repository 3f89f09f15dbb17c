"""Settings: ``MirrorConfig``, common to all three connectors, and ``MirrorSourceConfig``. Values; any thread.

``ClientPrefixes`` assigns the client settings of a configuration to clients.

Source: org.apache.kafka.connect.mirror.{MirrorConnectorConfig, MirrorSourceConfig}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from penstock.clients import KafkaCluster
from penstock.config import AbstractConfig, ConfigType, Importance, NonEmptyString, Range, setting
from penstock.connectors.mirror.policy import ReplicationPolicy, policy_of
from penstock.connectors.mirror.selection import NamePatterns, TopicSelection
from penstock.errors import ConfigException

_MM2: Final = "org.apache.kafka.connect.mirror."
_PROPERTY_FILTER: Final = "DefaultConfigPropertyFilter"
_LOW: Final = Importance.LOW
_SECONDS: Final = Range.at_least(1)
TOPICS_EXCLUDE: Final = (r"mm2.*\.internal", r".*\.replica", "__.*")
GROUPS_EXCLUDE: Final = ("console-consumer-.*", "connect-.*", "__.*")
CONFIG_EXCLUDE: Final = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "message.timestamp.type",
    "unclean.leader.election.enable",
    "min.insync.replicas",
)
#: The prefixes of client settings.
CLIENT_PREFIXES: Final = tuple(
    f"{side}.{client}." for side in ("source", "target") for client in ("cluster", "consumer", "producer", "admin")
)
#: The prefixes for clients of both clusters. The worker's overrides for its own clients have these prefixes, too.
_BOTH: Final = ("consumer.", "producer.", "admin.")
_NOT_OF_CLIENTS: Final = ("override.", "timeout.ms", "poll.timeout.ms")
_OWN: Final = frozenset({"source.cluster.alias", "target.cluster.alias"})


class SyncsLocation(Enum):
    """The cluster on which the topic of offset syncs is: the values of ``offset-syncs.topic.location``."""

    SOURCE = "source"
    TARGET = "target"


class Defaults(Enum):
    """The cluster whose defaults apply to unset topic settings: the values of ``use.defaults.from``."""

    SOURCE = "source"
    TARGET = "target"


class MirrorConfig(AbstractConfig):
    """The settings of all three connectors."""

    source_cluster_alias: str = setting(
        importance=Importance.HIGH, validator=NonEmptyString(), doc="The name of the source cluster."
    )
    target_cluster_alias: str = setting(
        default="target", importance=Importance.HIGH, validator=NonEmptyString(), doc="The name of the target cluster."
    )
    enabled: bool = setting(default=True, importance=_LOW, doc="false: the connector has no tasks and does nothing.")
    admin_timeout_ms: int = setting(
        type=ConfigType.LONG,
        default=60_000,
        importance=_LOW,
        validator=Range.at_least(1),
        doc="How long one request about topics or groups may take.",
    )
    replication_policy_class: str = setting(
        default=f"{_MM2}DefaultReplicationPolicy",
        importance=_LOW,
        doc="Names of topics on the target: DefaultReplicationPolicy puts the source's alias in front, "
        "IdentityReplicationPolicy keeps names; or the path of a Python class that extends ReplicationPolicy.",
    )
    replication_policy_separator: str = setting(
        default=".", importance=_LOW, validator=NonEmptyString(), doc="What stands between alias and topic."
    )
    replication_policy_internal_topic_separator_enabled: bool = setting(
        default=True, importance=_LOW, doc="Whether the separator is used in the mirror's own topics, too; else a dot."
    )
    forwarding_admin_class: str = setting(
        default="org.apache.kafka.clients.admin.ForwardingAdmin", importance=_LOW, doc="Only this class."
    )

    def policy(self) -> ReplicationPolicy:
        """The replication policy.

        Raises:
            ConfigException: There is none of this name.
        """
        return policy_of(
            self.replication_policy_class,
            separator=self.replication_policy_separator,
            internal_separator=self.replication_policy_internal_topic_separator_enabled,
            alias=self.source_cluster_alias,
        )

    def faults(self, properties: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """See ``AbstractConfig``."""
        yield from _faults_of(self.policy)
        if not self.forwarding_admin_class.endswith(".ForwardingAdmin"):
            yield "forwarding.admin.class", "No Java class can be run here; only Kafka's own ForwardingAdmin is known"
        if self.source_cluster_alias == self.target_cluster_alias:
            yield "target.cluster.alias", "It must differ from source.cluster.alias, or no topic could be told apart"


class OffsetSyncsConfig(MirrorConfig):
    """The settings of connectors that know offset syncs."""

    offset_syncs_topic_location: SyncsLocation = setting(
        "offset-syncs.topic.location",
        default=SyncsLocation.SOURCE,
        importance=_LOW,
        doc="The cluster with the topic of offset syncs.",
    )

    def syncs_topic(self) -> str:
        """The topic of offset syncs, on the cluster that ``offset_syncs_topic_location`` names."""
        on_source = self.offset_syncs_topic_location is SyncsLocation.SOURCE
        return self.policy().offset_syncs_topic(self.target_cluster_alias if on_source else self.source_cluster_alias)


class MirrorHeartbeatConfig(MirrorConfig):
    """The settings of ``MirrorHeartbeat``."""

    emit_heartbeats_enabled: bool = setting(default=True, importance=_LOW, doc="Whether heartbeats are written.")
    emit_heartbeats_interval_seconds: int = setting(
        type=ConfigType.LONG, default=1, importance=_LOW, validator=_SECONDS, doc="How often."
    )
    heartbeats_topic_replication_factor: int = setting(
        type=ConfigType.SHORT,
        default=3,
        importance=_LOW,
        doc="Of the topic of heartbeats when it is made; -1: the default of the brokers.",
    )


class MirrorCheckpointConfig(OffsetSyncsConfig):
    """The settings of ``MirrorCheckpoint``."""

    groups: tuple[str, ...] = setting(
        default=(".*",), importance=Importance.HIGH, doc="Consumer groups: names and Java's regular expressions."
    )
    groups_exclude: tuple[str, ...] = setting(
        default=GROUPS_EXCLUDE, importance=Importance.HIGH, doc="Groups to leave out; they win."
    )
    group_filter_class: str = setting(
        default=f"{_MM2}DefaultGroupFilter", importance=_LOW, doc="Only this class: groups and groups.exclude."
    )
    topics: tuple[str, ...] = setting(
        default=(".*",), importance=Importance.HIGH, doc="Topics whose offsets count: as for MirrorSource."
    )
    topics_exclude: tuple[str, ...] = setting(
        default=TOPICS_EXCLUDE, importance=Importance.HIGH, doc="Topics to leave out; they win."
    )
    topic_filter_class: str = setting(
        default=f"{_MM2}DefaultTopicFilter", importance=_LOW, doc="Only this class: topics and topics.exclude."
    )
    consumer_poll_timeout_ms: int = setting(
        type=ConfigType.LONG, default=1000, importance=_LOW, doc="It changes nothing: what is waited for is the clock."
    )
    refresh_groups_enabled: bool = setting(
        default=True, importance=_LOW, doc="Whether to look for new groups while it runs."
    )
    refresh_groups_interval_seconds: int = setting(
        type=ConfigType.LONG, default=600, importance=_LOW, validator=_SECONDS, doc="How often to look."
    )
    emit_checkpoints_enabled: bool = setting(default=True, importance=_LOW, doc="Whether checkpoints are written.")
    emit_checkpoints_interval_seconds: int = setting(
        type=ConfigType.LONG, default=60, importance=_LOW, validator=_SECONDS, doc="How often."
    )
    sync_group_offsets_enabled: bool = setting(
        default=False,
        importance=_LOW,
        doc="Whether offsets of groups are set on the target, where a group has no members there.",
    )
    sync_group_offsets_interval_seconds: int = setting(
        type=ConfigType.LONG, default=60, importance=_LOW, validator=_SECONDS, doc="How often they are set."
    )
    checkpoints_topic_replication_factor: int = setting(
        type=ConfigType.SHORT,
        default=3,
        importance=_LOW,
        doc="Of the topic of checkpoints when it is made; -1: the default of the brokers.",
    )

    def groups_to_have(self) -> NamePatterns:
        """The groups that are looked at.

        Raises:
            ConfigException: A pattern is wrong.
        """
        return NamePatterns(self.groups, self.groups_exclude, "groups")

    def topics_to_have(self) -> NamePatterns:
        """The topics whose offsets count.

        Raises:
            ConfigException: A pattern is wrong.
        """
        return NamePatterns(self.topics, self.topics_exclude, "topics")

    def checkpoints_topic(self) -> str:
        """The topic of checkpoints, on the target."""
        return self.policy().checkpoints_topic(self.source_cluster_alias)

    def faults(self, properties: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """See ``AbstractConfig``."""
        yield from super().faults(properties)
        for part in (self.groups_to_have, self.topics_to_have):
            yield from _faults_of(part)
        yield from only("group.filter.class", self.group_filter_class, "DefaultGroupFilter")
        yield from only("topic.filter.class", self.topic_filter_class, "DefaultTopicFilter")


class MirrorSourceConfig(OffsetSyncsConfig):
    """The settings of ``MirrorSource``."""

    topics: tuple[str, ...] = setting(
        default=(".*",), importance=Importance.HIGH, doc="Topics to mirror: names and Java's regular expressions."
    )
    topics_exclude: tuple[str, ...] = setting(
        default=TOPICS_EXCLUDE, importance=Importance.HIGH, doc="Topics to leave out; they win."
    )
    topic_filter_class: str = setting(
        default=f"{_MM2}DefaultTopicFilter", importance=_LOW, doc="Only this class: topics and topics.exclude."
    )
    config_properties_exclude: tuple[str, ...] = setting(
        default=CONFIG_EXCLUDE,
        importance=Importance.HIGH,
        doc="Settings of topics that are not copied.",
    )
    config_property_filter_class: str = setting(
        default=f"{_MM2}{_PROPERTY_FILTER}",
        importance=_LOW,
        doc="Only this class: config.properties.exclude and use.defaults.from.",
    )
    use_defaults_from: Defaults = setting(
        default=Defaults.TARGET,
        importance=_LOW,
        doc="Whose defaults count where a topic of the source does not say otherwise.",
    )
    consumer_poll_timeout_ms: int = setting(
        type=ConfigType.LONG,
        default=1000,
        importance=_LOW,
        validator=Range.at_least(0),
        doc="How long one poll waits for records; a second at most.",
    )
    replication_factor: int = setting(
        default=2, importance=_LOW, doc="Of topics that are made on the target; -1: the default of its brokers."
    )
    refresh_topics_enabled: bool = setting(
        default=True, importance=_LOW, doc="Whether to look for new topics and partitions while it runs."
    )
    refresh_topics_interval_seconds: int = setting(
        type=ConfigType.LONG, default=600, importance=_LOW, validator=_SECONDS, doc="How often to look."
    )
    sync_topic_configs_enabled: bool = setting(
        default=True, importance=_LOW, doc="Whether settings of topics are copied while it runs."
    )
    sync_topic_configs_interval_seconds: int = setting(
        type=ConfigType.LONG, default=600, importance=_LOW, validator=_SECONDS, doc="How often they are compared."
    )
    sync_topic_acls_enabled: bool = setting(
        default=True,
        importance=_LOW,
        doc="Whether access rules of topics are copied while it runs: reading, but not writing.",
    )
    sync_topic_acls_interval_seconds: int = setting(
        type=ConfigType.LONG, default=600, importance=_LOW, validator=_SECONDS, doc="How often they are copied."
    )
    heartbeats_replication_enabled: bool = setting(
        default=True, importance=_LOW, doc="Whether heartbeats of the source are mirrored, whatever topics says."
    )

    emit_offset_syncs_enabled: bool = setting(
        "emit.offset-syncs.enabled",
        default=True,
        importance=_LOW,
        doc="Whether offset syncs are written; checkpoints need them.",
    )
    offset_syncs_topic_replication_factor: int = setting(
        "offset-syncs.topic.replication.factor",
        type=ConfigType.SHORT,
        default=3,
        importance=_LOW,
        doc="Of the topic of offset syncs when it is made; -1: the default of the brokers.",
    )
    offset_lag_max: int = setting(
        type=ConfigType.LONG,
        default=100,
        importance=_LOW,
        validator=Range.at_least(0),
        doc="How many records may come over without an offset sync. With each commit of offsets there is one anyway.",
    )

    def selection(self) -> TopicSelection:
        """The topics that are mirrored.

        Raises:
            ConfigException: A pattern or the policy is wrong.
        """
        return TopicSelection(
            NamePatterns(self.topics, self.topics_exclude, "topics"),
            self.policy(),
            self.source_cluster_alias,
            self.target_cluster_alias,
            self.heartbeats_replication_enabled,
        )

    def unsynced(self) -> NamePatterns:
        """The settings of topics that are not copied.

        Raises:
            ConfigException: A pattern is wrong.
        """
        return NamePatterns((), self.config_properties_exclude, "config.properties")

    def faults(self, properties: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """See ``AbstractConfig``."""
        yield from super().faults(properties)
        for part in (lambda: NamePatterns(self.topics, self.topics_exclude, "topics"), self.unsynced):
            yield from _faults_of(part)
        yield from only("topic.filter.class", self.topic_filter_class, "DefaultTopicFilter")
        yield from only("config.property.filter.class", self.config_property_filter_class, _PROPERTY_FILTER)
        if self.replication_factor < 1 and self.replication_factor != -1:
            yield "replication.factor", "It must be 1 or more, or -1 for the default of the target's brokers"


def only(name: str, given: str, known: str) -> Iterator[tuple[str, str]]:
    """The fault of a setting that names another class than the only one that there is."""
    if given.removeprefix(_MM2) != known:
        yield name, f"No Java class can be run here; only {known} is known"


def _faults_of(part: object) -> Iterator[tuple[str, str]]:
    try:
        part()  # type: ignore[operator]
    except ConfigException as error:
        name = error.name or "replication.policy.class"
        yield name, str(error)


def client_settings(props: Mapping[str, str], side: str, client: str) -> dict[str, str]:
    """The settings of one client, by Kafka's names; more specific prefixes take precedence.

    Args:
        props: The configuration of the connector.
        side: ``source`` or ``target``.
        client: ``consumer``, ``producer`` or ``admin``.

    >>> given = {"source.cluster.bootstrap.servers": "a:1", "consumer.fetch.min.bytes": "1", "consumer.override.x": "2"}
    >>> client_settings({**given, "source.consumer.fetch.min.bytes": "7"}, "source", "consumer")
    {'fetch.min.bytes': '7'}
    """
    found: dict[str, str] = {}
    for prefix in (f"{client}.", f"{side}.{client}."):
        for name, text in props.items():
            below = name.removeprefix(prefix)
            if name.startswith(prefix) and not below.startswith(_NOT_OF_CLIENTS):
                found[below] = text
    return found


def cluster_of(props: Mapping[str, str], side: str) -> KafkaCluster:
    """One of the two clusters.

    Args:
        props: The configuration of the connector.
        side: ``source`` or ``target``.
    """
    prefix = f"{side}.cluster."
    alias = props.get(f"{prefix}alias", side)
    found = {
        name.removeprefix(prefix): text for name, text in props.items() if name.startswith(prefix) and name not in _OWN
    }
    return KafkaCluster(found, name=f"the {side} cluster {alias}")


def is_client_setting(name: str) -> bool:
    """True if a name is that of a setting for the clients of this connector.

    >>> names = ("source.cluster.sasl.mechanism", "consumer.override.x", "source.cluster.alias", "source.admin.what")
    >>> [is_client_setting(name) for name in names]
    [True, False, False, False]
    """
    below = next((name.removeprefix(one) for one in (*CLIENT_PREFIXES, *_BOTH) if name.startswith(one)), None)
    return below is not None and name not in _OWN and KafkaCluster.knows(below)


def is_of_mirrors(name: str) -> bool:
    """True if one of the three connectors has a setting: users give all three the same file.

    >>> [is_of_mirrors(name) for name in ("emit.heartbeats.enabled", "groups", "emit.heartbeat.enabled")]
    [True, True, False]
    """
    kinds = (MirrorSourceConfig, MirrorCheckpointConfig, MirrorHeartbeatConfig)
    return any(name in kind.definition().keys for kind in kinds)
