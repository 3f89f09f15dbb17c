"""Names of topics on the other cluster: ``ReplicationPolicy`` and ``policy_of``.

Main types: ``ReplicationPolicy``, the default, which prefixes the source's alias; ``IdentityPolicy``, which keeps
names. Pure; any thread.

Source: org.apache.kafka.connect.mirror.{ReplicationPolicy, DefaultReplicationPolicy, IdentityReplicationPolicy}, of
Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from penstock.config import find_class
from penstock.errors import ConfigException

_PACKAGE: Final = "org.apache.kafka.connect.mirror."
HEARTBEATS: Final = "heartbeats"


class ReplicationPolicy:
    """Remote topics are ``alias.topic``.

    Args:
        separator: The text between alias and topic.
        internal_separator: The same for the topics of the mirror itself.
        alias: The alias of the source cluster.

    >>> policy = ReplicationPolicy()
    >>> policy.remote_topic("east", "orders"), policy.source_of("west.east.orders"), policy.source_of("orders")
    ('east.orders', 'west', None)
    >>> policy.upstream_of("west.east.orders"), policy.original_of("west.east.orders")
    ('east.orders', 'orders')

    Source: org.apache.kafka.connect.mirror.DefaultReplicationPolicy.
    """

    def __init__(self, separator: str = ".", internal_separator: str = ".", alias: str = "") -> None:
        self.separator = separator
        self.alias = alias
        self._internal = internal_separator

    def remote_topic(self, alias: str, topic: str) -> str:
        """The name on the target cluster of a topic of the cluster with this alias."""
        return f"{alias}{self.separator}{topic}"

    def source_of(self, topic: str) -> str | None:
        """The alias of the cluster that a topic was mirrored from; None: it is no remote topic."""
        parts = topic.split(self.separator)
        # Like Java's split, which drops empty parts at the end.
        while parts and not parts[-1]:
            parts.pop()
        return parts[0] if len(parts) > 1 else None

    def upstream_of(self, topic: str) -> str | None:
        """The name of a topic on the cluster that it was mirrored from; None: it is no remote topic."""
        source = self.source_of(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_of(self, topic: str) -> str:
        """The name of a topic where it was not a remote one yet."""
        upstream = self.upstream_of(topic)
        return topic if upstream is None or upstream == topic else self.original_of(upstream)

    def offset_syncs_topic(self, alias: str) -> str:
        """The topic of offset syncs, by the alias of the cluster that it is not on."""
        return f"mm2-offset-syncs{self._internal}{alias}{self._internal}internal"

    def checkpoints_topic(self, alias: str) -> str:
        """The topic of the checkpoints of groups of the cluster with this alias."""
        return f"{alias}{self._checkpoints_suffix}"

    def is_heartbeats_topic(self, topic: str) -> bool:
        """True for the topic of heartbeats, here or mirrored."""
        return self.original_of(topic) == HEARTBEATS

    def is_internal_topic(self, topic: str) -> bool:
        """True for topics that are never mirrored: Kafka's own and those of mirrors.

        >>> policy = ReplicationPolicy()
        >>> [policy.is_internal_topic(one) for one in ("__consumer_offsets", "mm2-offset-syncs.b.internal", "a")]
        [True, True, False]
        """
        is_mirrors = topic.startswith("mm2") and topic.endswith(f"{self._internal}internal")
        return topic.startswith(("__", ".")) or is_mirrors or topic.endswith(self._checkpoints_suffix)

    def is_cycle(self, topic: str, target: str) -> bool:
        """True if a topic was mirrored from the target cluster, over whichever clusters in between.

        >>> ReplicationPolicy().is_cycle("east.west.orders", "west")
        True
        """
        source = self.source_of(topic)
        if source is None or source == target:
            return source is not None
        upstream = self.upstream_of(topic)
        return upstream is not None and upstream != topic and self.is_cycle(upstream, target)

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self._internal}checkpoints{self._internal}internal"


class IdentityPolicy(ReplicationPolicy):
    """Remote topics keep their source names; only heartbeat topics get the alias.

    >>> policy = IdentityPolicy(alias="east")
    >>> policy.remote_topic("east", "orders"), policy.remote_topic("east", "heartbeats"), policy.source_of("orders")
    ('orders', 'east.heartbeats', 'east')

    Source: org.apache.kafka.connect.mirror.IdentityReplicationPolicy.
    """

    def remote_topic(self, alias: str, topic: str) -> str:
        """See ``ReplicationPolicy.remote_topic``."""
        return super().remote_topic(alias, topic) if self._is_like_heartbeats(topic) else topic

    def source_of(self, topic: str) -> str | None:
        """See ``ReplicationPolicy.source_of``: any topic may be one of the source's."""
        return super().source_of(topic) if self._is_like_heartbeats(topic) else self.alias

    def upstream_of(self, topic: str) -> str | None:
        """See ``ReplicationPolicy.upstream_of``."""
        return super().upstream_of(topic) if self._is_like_heartbeats(topic) else topic

    def _is_like_heartbeats(self, topic: str) -> bool:
        return topic.endswith(HEARTBEATS)


_KNOWN: Final[dict[str, type[ReplicationPolicy]]] = {
    "DefaultReplicationPolicy": ReplicationPolicy,
    "IdentityReplicationPolicy": IdentityPolicy,
}


def policy_of(name: str, *, separator: str, internal_separator: bool, alias: str) -> ReplicationPolicy:
    """The policy that a configuration names.

    Args:
        name: Java's class name, with or without its package, or the path of a Python class that extends
            ``ReplicationPolicy``.
        separator: ``replication.policy.separator``.
        internal_separator: True if it also applies to the topics of the mirror itself.
        alias: The alias of the source cluster.

    Raises:
        ConfigException: The policy does not exist.
    """
    kind: object = _KNOWN.get(name.removeprefix(_PACKAGE))
    if kind is None:
        if name.startswith(("org.", "com.", "io.")):
            raise ConfigException(
                "replication.policy.class",
                name,
                f"No Java class can be run here. There are {', '.join(_KNOWN)}, and Python classes that extend "
                "penstock.connectors.mirror.ReplicationPolicy",
            )
        kind = find_class("replication.policy.class", name)
    if not (isinstance(kind, type) and issubclass(kind, ReplicationPolicy)):
        raise ConfigException("replication.policy.class", name, "It does not extend ReplicationPolicy")
    return kind(separator, separator if internal_separator else ".", alias)
