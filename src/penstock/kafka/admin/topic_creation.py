"""Creates the topics that a source task writes to, before its first record for each of them.

Main types: `TopicCreator` (caches existing topics, so that each topic is looked up once), `NewTopic` (the specification
of a topic), `TopicMaker` (the interface of its admin client); `plan_of` turns a connector's rules into specifications.

Thread: the task's delivery thread.

Source: TopicCreation and AbstractWorkerSourceTask.maybeCreateTopic of Kafka Connect; KIP-158.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import AlreadyExistsException, ConnectException
from penstock.kafka.protocol.errors import topic_name_fault
from penstock.settings.topics import TopicCreation
from penstock.telemetry import waiting_for

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewTopic:
    """The specification of a topic to be created. -1 partitions or replicas: the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)
    group: str = "default"


class TopicMaker(Protocol):
    """The part of an admin client that topic creation uses."""

    def topic_exists(self, topic: str) -> bool:
        """True if the topic exists. Raises if the cluster does not answer."""

    def create_topic(self, topic: NewTopic) -> None:
        """Creates a topic. Raises AlreadyExistsException, among others, if another client created it first."""


def plan_of(rules: TopicCreation) -> Callable[[str], NewTopic]:
    """Returns the function that gives the topic to create for a name, by the rules of a connector."""
    return _Plan(rules)


@dataclass(frozen=True)
class _Plan:
    """The rules of a connector as a function that can be pickled."""

    rules: TopicCreation

    def __call__(self, topic: str) -> NewTopic:
        group = self.rules.group_for(topic)
        return NewTopic(topic, group.partitions, group.replication_factor, group.configs, group.name)


class TopicCreator:
    """Makes sure that topics exist.

    Args:
        owner: the task, for messages.
        plan: Returns the specification of a topic by its name; None if topic creation is not active for the connector,
            and the broker's own auto-creation decides.
        admin: Creates the topics; unused without a plan.
    """

    def __init__(self, owner: str, plan: Callable[[str], NewTopic] | None, admin: TopicMaker | None) -> None:
        if plan is not None and admin is None:
            raise ValueError("topic creation needs an admin client")
        self._owner = owner
        self._plan = plan
        self._admin = admin
        self._known: set[str] = set()

    def ensure(self, topics: Iterable[str]) -> None:
        """Creates the topics that do not exist.

        Raises:
            ConnectException: a topic could not be looked up or created.
        """
        if self._plan is None or self._admin is None:
            return
        for topic in topics:
            if topic not in self._known:
                self._ensure(topic, self._plan, self._admin)
                self._known.add(topic)

    @waiting_for("broker")
    def _ensure(self, topic: str, plan: Callable[[str], NewTopic], admin: TopicMaker) -> None:
        fault = topic_name_fault(topic)
        if fault is not None:
            raise ConnectException(
                f"Task {self._owner} cannot write to topic {topic!r}: {fault}. Correct what names it: a setting of the "
                "connector, or a transform"
            )
        try:
            if admin.topic_exists(topic):
                return
            new = plan(topic)
            logger.info(
                "Creating topic %s by group %s: %d partitions, replication factor %d, settings %s",
                topic,
                new.group,
                new.partitions,
                new.replication_factor,
                dict(new.configs),
            )
            admin.create_topic(new)
        except AlreadyExistsException:
            logger.info("Topic %s was created by somebody else meanwhile", topic)
        except Exception as error:
            raise ConnectException(
                f"Task {self._owner} cannot write to topic {topic}, which could not be looked up or created: "
                f"{str(error).rstrip('.')}. "
                "Check the topic.creation.* settings and the rights of the worker's or connector's admin client."
            ) from error
