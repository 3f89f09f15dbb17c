"""A producer's view of the cluster: brokers, topics, leaders, and the metadata to request.

Main type: `ClusterView`.

Thread: the producer's own changes it, under the producer's lock; `partitions` and `fault` are read under that lock by
the thread that sends. No I/O.

Source: Metadata of the producer (`metadata.max.age.ms`), KIP-361 and the protocol guide, "Metadata API".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError

from penstock.kafka.protocol.errors import ErrorKind, error_of
from penstock.kafka.protocol.messages import BrokerEndpoint, ClusterMetadata

#: A topic that a broker does not know may just have been created: it is requested again for this long.
PROPAGATION_S: Final = 30.0


@dataclass(frozen=True)
class TopicFault:
    """The reason why nothing can be sent to a topic.

    Attributes:
        kind: The error.
        unknown: It does not exist, and the broker does not create it.
    """

    kind: ErrorKind
    unknown: bool


class ClusterView:
    """The latest known brokers and topics, and the requested topics.

    Args:
        max_age_s: how often all metadata is refreshed.
        backoff_s: the time between two requests without news.
        propagation_s: how long a topic may be unknown.
    """

    def __init__(self, max_age_s: float, backoff_s: float, propagation_s: float = PROPAGATION_S) -> None:
        self._max_age_s = max_age_s
        self._backoff_s = backoff_s
        self._propagation_s = propagation_s
        self._brokers: Mapping[int, BrokerEndpoint] = {}
        self._leaders: dict[str, Mapping[int, int]] = {}
        self._faults: dict[str, TopicFault] = {}
        #: Topics that have lost partitions, with the time a broker first said so.
        self._shrunk: dict[str, float] = {}
        #: Requested topics that are unknown, with the time of a broker's first such response.
        self._asked: dict[str, float | None] = {}
        self._next_question = float("inf")
        self._last_question = float("-inf")

    @property
    def brokers(self) -> Mapping[int, BrokerEndpoint]:
        """All brokers by their ids."""
        return self._brokers

    def want(self, topic: str, now: float) -> None:
        """Asks for a topic that something is to be sent to; forgets an earlier fault of it."""
        self._faults.pop(topic, None)
        if topic not in self._leaders and topic not in self._asked:
            self._asked[topic] = None
            self._next_question = now

    @property
    def awaited(self) -> list[str]:
        """Topics that a broker does not know, and that are requested again."""
        return sorted(topic for topic, since in self._asked.items() if since is not None)

    def partitions(self, topic: str) -> int | None:
        """Returns the number of partitions of a topic, or None if it is not known."""
        leaders = self._leaders.get(topic)
        return None if leaders is None else len(leaders)

    def fault(self, topic: str) -> TopicFault | None:
        """Returns the reason why nothing can be sent to a topic, or None if something can."""
        return self._faults.get(topic)

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker that leads a partition; None when that is not known or there is none."""
        leader = self._leaders.get(topic, {}).get(partition, -1)
        return leader if leader in self._brokers else None

    def is_gone(self, topic: str, partition: int, now: float) -> bool:
        """True if a partition is gone for good: its topic was made again with fewer.

        For as long as a topic may be unknown that can be the word of a broker which does not know all of it yet.
        """
        missing = topic in self._leaders and partition not in self._leaders[topic]
        return missing and now - self._shrunk.get(topic, now) >= self._propagation_s

    def doubt(self, now: float) -> None:
        """Asks again soon, because an answer did not fit; not more often than the backoff allows."""
        self._next_question = min(self._next_question, max(now, self._last_question + self._backoff_s))

    def question_at(self) -> float:
        """Returns the time of the next question (monotonic seconds)."""
        return self._next_question

    def question(self, now: float) -> list[str]:
        """The topics to ask for now."""
        self._last_question = now
        self._next_question = now + self._max_age_s
        return sorted({*self._leaders, *self._asked})

    def failed(self, now: float) -> None:
        """A question got no answer."""
        self._next_question = now + self._backoff_s

    def learn(self, told: ClusterMetadata, now: float) -> None:
        """Take in an answer."""
        if told.brokers:
            self._brokers = told.brokers
        again = False
        for topic, known in told.topics.items():
            if known.leaders and known.error_code == 0:
                before = len(self._leaders.get(topic, ()))
                if len(known.leaders) < before:
                    self._shrunk.setdefault(topic, now)
                elif len(known.leaders) > before:
                    self._shrunk.pop(topic, None)
                self._leaders[topic] = known.leaders
                self._asked.pop(topic, None)
                self._faults.pop(topic, None)
                again |= -1 in known.leaders.values()
                continue
            since = self._asked.get(topic)
            self._asked[topic] = since = now if since is None else since
            # One that has no partitions yet is about to be made.
            code = known.error_code or KafkaError.UNKNOWN_TOPIC_OR_PART
            kind = error_of(code)
            if kind.retriable and now - since < self._propagation_s:
                again = True
                continue
            self._leaders.pop(topic, None)
            del self._asked[topic]
            self._faults[topic] = TopicFault(kind, code == KafkaError.UNKNOWN_TOPIC_OR_PART)
        if again:
            self._next_question = now + self._backoff_s
