"""What a sink task reads: a list of topics, or a pattern over topic names.

Main type: ``Subscription``. Pure; any thread.

Source: org.apache.kafka.clients.consumer.KafkaConsumer.subscribe; ``topics`` and ``topics.regex`` of Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.config.java_pattern import JavaPattern
from penstock.config.java_regex import compile_java

#: Java's consumers do not subscribe to these by pattern.
_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True)
class Subscription:
    """What a sink reads: a list of topics, or those whose whole name matches a pattern (``topics.regex``).

    >>> Subscription.matching("orders-(?<year>[0-9]+)").covers("orders-2024-old")
    False
    """

    topics: tuple[str, ...] = ()
    pattern: JavaPattern | None = None

    @classmethod
    def of(cls, topics: Iterable[str]) -> Subscription:
        """Reads these topics; one that does not exist yet is waited for."""
        return cls(tuple(topics))

    @classmethod
    def matching(cls, java_pattern: str) -> Subscription:
        """Reads every topic that matches, also those that are created later.

        Raises:
            ConfigException: the pattern is wrong.
        """
        return cls((), compile_java(java_pattern, name="topics.regex"))

    def covers(self, topic: str) -> bool:
        """Whether the pattern takes this topic."""
        return self.pattern is not None and topic not in _INTERNAL_TOPICS and self.pattern.matches(topic)
