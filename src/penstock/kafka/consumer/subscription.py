"""The topics that a sink task reads: a list of topics, or a pattern over topic names.

Main type: ``Subscription``. Pure; any thread.

Source: org.apache.kafka.clients.consumer.KafkaConsumer.subscribe; ``topics`` and ``topics.regex`` of Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.config.patterns.java_pattern import JavaPattern
from penstock.config.patterns.translation import compile_java
from penstock.errors import ConfigException
from penstock.settings.topics import PATTERN_REFUSED, is_pattern

#: Java's consumers do not subscribe to these by pattern.
_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True)
class Subscription:
    """The topics that a sink reads: a list, or those whose whole name matches a pattern (``topics.regex``).

    >>> Subscription.matching("orders-(?<year>[0-9]+)").covers("orders-2024-old")
    False
    """

    topics: tuple[str, ...] = ()
    pattern: JavaPattern | None = None

    @classmethod
    def of(cls, topics: Iterable[str]) -> Subscription:
        """Reads these topics, and waits for missing ones.

        Raises:
            ConfigException: librdkafka would treat a name as a pattern, which it compiles without any limit.
        """
        named = tuple(topics)
        for topic in named:
            if is_pattern(topic):
                raise ConfigException("topics", topic, PATTERN_REFUSED)
        return cls(named)

    @classmethod
    def matching(cls, java_pattern: str) -> Subscription:
        """Reads every topic that matches, including topics that are created later.

        Raises:
            ConfigException: the pattern is wrong.
        """
        return cls((), compile_java(java_pattern, name="topics.regex"))

    def covers(self, topic: str) -> bool:
        """True if the pattern matches this topic."""
        # No broker of Kafka has a topic with such a name.
        if self.pattern is None or topic in _INTERNAL_TOPICS or is_pattern(topic):
            return False
        return self.pattern.matches(topic)
