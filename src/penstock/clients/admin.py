"""``ClusterAdmin``: a connector's administrative requests to a cluster.

Thread: any; every call waits for its response.

Source: org.apache.kafka.clients.admin.Admin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, cast

import confluent_kafka as ck
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    NewTopic as ClientTopic,
)

from penstock.api import OffsetAndMetadata, TopicPartition
from penstock.clients.trouble import Trouble
from penstock.errors import ConfigException, KafkaException, KafkaRetriableException
from penstock.kafka.admin import TopicAdmin, error_code

_Error = ck.KafkaError
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
#: The client returns the number of a source, or the member of its enumeration.
_DEFAULT: Final = (ConfigSource.DEFAULT_CONFIG, ConfigSource.DEFAULT_CONFIG.value)
_NOT_THERE: Final = frozenset({_Error.UNKNOWN_TOPIC_OR_PART, _Error._UNKNOWN_TOPIC})
#: States of groups without members, whose offsets may be set.
_IDLE: Final = frozenset({"EMPTY", "DEAD"})


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as a cluster describes it.

    Attributes:
        name: Its name.
        partitions: The number of its partitions.
        topic_id: Distinguishes it from a deleted topic of the same name; empty if the broker has no topic ids.

    Source: org.apache.kafka.clients.admin.TopicDescription.
    """

    name: str
    partitions: int
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """A setting of a topic, with its origin.

    Attributes:
        value: Its value; None if it is hidden.
        is_default: True if neither the topic nor the broker sets it.
        is_fixed: True if it cannot be set for a topic, or must not be shown.

    Source: org.apache.kafka.clients.admin.ConfigEntry.
    """

    value: str | None
    is_default: bool
    is_fixed: bool = False


@dataclass(frozen=True, slots=True)
class AccessRule:
    """An access rule for a topic with exactly this name.

    Attributes:
        principal: The user, as ``User:name``.
        host: The client's host; ``*`` for any host.
        operation: The operation, by Kafka's name: ``READ``, ``ALL`` ..
        allows: True if it allows the operation, False if it denies it.

    Source: org.apache.kafka.common.acl.AclBinding.
    """

    topic: str
    principal: str
    host: str
    operation: str
    allows: bool = True


@dataclass(frozen=True)
class _Wanted:
    """The description from which `TopicAdmin` creates a topic."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


class ClusterAdmin:
    """Topics, their settings and access rules, and consumer groups of one cluster.

    Args:
        settings: librdkafka's settings.
        name: The name of the cluster, for messages.
        timeout_s: The time limit of each call, in seconds.
        read_only: True if calls must not change the cluster: they do nothing, except that ``create_topic`` has the
            cluster check the request for the topic.

    Every call raises a ``KafkaException`` if the cluster refuses: a ``KafkaRetriableException`` if it does not answer,
    an ``AuthenticationException`` if it rejects the login.

    Source: org.apache.kafka.clients.admin.Admin.
    """

    def __init__(
        self, settings: Mapping[str, Any], *, name: str, timeout_s: float = 60.0, read_only: bool = False
    ) -> None:
        self._name = name
        self._read_only = read_only
        self._servers = str(settings.get("bootstrap.servers", ""))
        self._trouble = Trouble()
        try:
            self._admin = TopicAdmin({**settings, "error_cb": self._trouble.told}, name=name, timeout_s=timeout_s)
        except KafkaException as error:
            raise ConfigException(str(error)) from error

    def close(self) -> None:
        """Releases the client; further calls raise."""
        self._admin.close()

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        found: dict[str, int] = {}
        for place in self._call(lambda: self._admin.existing_partitions(None)):
            found[place.topic] = found.get(place.topic, 0) + 1
        return found

    def describe(self, topics: Collection[str]) -> dict[str, TopicInfo]:
        """The existing topics among these."""
        if not topics:
            return {}
        answers = self._each(
            f"describing {len(topics)} topics",
            lambda client, left: client.describe_topics(ck.TopicCollection(sorted(topics)), request_timeout=left),
            missing=_NOT_THERE,
        )
        return {name: TopicInfo(name, len(one.partitions), str(one.topic_id)) for name, one in answers.items()}

    def topic_settings(self, topics: Collection[str]) -> dict[str, dict[str, TopicSetting]]:
        """The settings of the existing topics among these, by topic and name."""
        if not topics:
            return {}
        answers = self._each(
            f"reading the settings of {len(topics)} topics",
            lambda client, left: client.describe_configs(
                [ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(topics)], request_timeout=left
            ),
            missing=_NOT_THERE,
        )
        return {
            resource.name: {
                one.name: TopicSetting(one.value, one.source in _DEFAULT, bool(one.is_read_only or one.is_sensitive))
                for one in entries.values()
            }
            for resource, entries in answers.items()
        }

    def create_topic(
        self, topic: str, *, partitions: int, replication_factor: int, settings: Mapping[str, str] = _NONE
    ) -> bool:
        """Creates a topic; returns False if it existed, or if this client is read-only.

        Args:
            topic: Its name.
            partitions: The number of its partitions.
            replication_factor: The replicas of each partition; -1 for the broker's default.
            settings: Its settings, by Kafka's names.
        """
        if self._read_only:
            new = ClientTopic(topic, partitions, replication_factor, config=dict(settings))
            self._ask(
                f"checking the topic {topic}",
                lambda client, left: client.create_topics([new], request_timeout=left, validate_only=True)[topic],
                missing=frozenset({_Error.TOPIC_ALREADY_EXISTS}),
            )
            return False
        wanted = _Wanted(topic, partitions, replication_factor, dict(settings))
        return bool(self._call(lambda: self._admin.create_topics([wanted])))

    def add_partitions(self, topic: str, total: int) -> None:
        """Adds partitions to a topic, up to ``total``."""
        if self._read_only:
            return
        self._ask(
            f"adding partitions to {topic}",
            lambda client, left: client.create_partitions([NewPartitions(topic, total)], request_timeout=left)[topic],
        )

    def alter_topic_settings(self, topic: str, changed: Mapping[str, str], removed: Iterable[str] = ()) -> None:
        """Changes some settings of a topic and keeps all others.

        Args:
            topic: Its name.
            changed: New values, by name.
            removed: The settings to reset to the broker's default.
        """
        entries = [_entry(name, text, AlterConfigOpType.SET) for name, text in changed.items()]
        entries += [_entry(name, None, AlterConfigOpType.DELETE) for name in removed]
        if not entries or self._read_only:
            return
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        self._ask(
            f"changing the settings of {topic}",
            lambda client, left: client.incremental_alter_configs([resource], request_timeout=left)[resource],
        )

    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        wanted = list(places)
        return cast("dict[TopicPartition, int]", self._call(lambda: self._admin.end_offsets(wanted)))

    def groups(self) -> set[str]:
        """The ids of all consumer groups."""
        found = self._ask("listing groups", lambda client, left: client.list_consumer_groups(request_timeout=left))
        return {one.group_id for one in found.valid}

    def idle_groups(self, groups: Collection[str]) -> set[str]:
        """The groups that have no members, or do not exist."""
        if not groups:
            return set()
        states = self._each(
            f"describing {len(groups)} groups",
            lambda client, left: client.describe_consumer_groups(sorted(groups), request_timeout=left),
            missing=frozenset({_Error.GROUP_ID_NOT_FOUND}),
        )
        return {group for group in groups if group not in states or states[group].state.name in _IDLE}

    def group_offsets(
        self, group: str, topics: Collection[str] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group, of all topics or of some."""
        return cast(
            "dict[TopicPartition, OffsetAndMetadata]", self._call(lambda: self._admin.group_offsets(group, topics))
        )

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets for a group without members, and creates the group if needed."""
        if not self._read_only:
            self._call(lambda: self._admin.alter_group_offsets(group, offsets))

    def access_rules(self) -> list[AccessRule] | None:
        """The access rules for single topics by name; None if the cluster has no authorizer."""
        nothing: Any = None
        anything = AclBindingFilter(
            ResourceType.TOPIC,
            nothing,
            ResourcePatternType.LITERAL,
            nothing,
            nothing,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found = self._ask(
            "reading access rules",
            lambda client, left: client.describe_acls(anything, request_timeout=left),
            missing=frozenset({_Error.SECURITY_DISABLED}),
        )
        if found is None:
            return None
        return [
            AccessRule(
                one.name, one.principal, one.host, one.operation.name, one.permission_type is AclPermissionType.ALLOW
            )
            for one in found
        ]

    def add_access_rules(self, rules: Collection[AccessRule]) -> None:
        """Adds rules; existing rules stay."""
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                one.topic,
                ResourcePatternType.LITERAL,
                one.principal,
                one.host,
                AclOperation[one.operation],
                AclPermissionType.ALLOW if one.allows else AclPermissionType.DENY,
            )
            for one in rules
        ]
        if bindings and not self._read_only:
            self._each("adding access rules", lambda client, left: client.create_acls(bindings, request_timeout=left))

    def _each(
        self, doing: str, request: Callable[[Any, float], Mapping[Any, Any]], missing: frozenset[int] = frozenset()
    ) -> dict[Any, Any]:
        """The results of a request for several items, without items that do not exist."""
        found: dict[Any, Any] = self._ask(doing, lambda client, left: _All(request(client, left), missing))
        return found

    def _ask(self, doing: str, request: Callable[[Any, float], Any], missing: frozenset[int] = frozenset()) -> Any:
        return self._call(lambda: self._admin.ask(doing, request, missing=missing))

    def _call(self, call: Callable[[], Any]) -> Any:
        self._trouble.clear()
        try:
            return call()
        except KafkaRetriableException as error:
            if self._trouble.is_login:
                raise self._trouble.named(f"{self._name} cannot be asked", self._servers) from error
            if told := self._trouble.text:
                raise KafkaRetriableException(f"{error}: {told}") from error
            raise


class _All:
    """The futures of one request as one: the results for existing items, or the first error."""

    def __init__(self, futures: Mapping[Any, Any], missing: frozenset[int]) -> None:
        self._futures = futures
        self._missing = missing

    def result(self, timeout: float) -> dict[Any, Any]:
        found = {}
        for asked, future in self._futures.items():
            try:
                found[asked] = future.result(timeout)
            except ck.KafkaException as error:
                if error_code(error) not in self._missing:
                    raise
        return found


def _entry(name: str, value: str | None, operation: Any) -> Any:
    return ConfigEntry(name, value, incremental_operation=operation)
