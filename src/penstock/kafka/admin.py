"""The worker's administrative requests to a cluster: topics, offsets of groups, ends of partitions.

Threads: ``TopicCreator`` belongs to the task's delivery thread. A ``TopicAdmin`` may be shared between threads; every
call waits for its answer.

Source: org.apache.kafka.connect.util.TopicAdmin; AbstractWorkerSourceTask.maybeCreateTopic; KIP-158; KIP-496.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn, Protocol, cast

import confluent_kafka as ck
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    OffsetSpec,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    NewTopic as ClientTopic,
)

from penstock.api import OffsetAndMetadata, TopicPartition
from penstock.errors import AlreadyExistsException, ConnectException, KafkaException, KafkaRetriableException
from penstock.kafka.network.connections import Conversation
from penstock.kafka.protocol import (
    FIND_COORDINATOR,
    OFFSET_DELETE,
    Place,
    by_place,
    by_topic,
    find_coordinator_response,
    find_group_coordinator_request,
    request,
    topic_name_fault,
)
from penstock.kafka.settings.client import CLIENT_LOG, ClientSettings
from penstock.kafka.settings.producer import own_connections
from penstock.settings.topics import TopicCreation
from penstock.telemetry import waiting_for
from penstock.telemetry.logs import SeldomLog

logger = logging.getLogger(__name__)

_Error = ck.KafkaError
_MISSING_TOPIC = frozenset({_Error.UNKNOWN_TOPIC_OR_PART, _Error._UNKNOWN_TOPIC})
MISSING_GROUP = frozenset({_Error.GROUP_ID_NOT_FOUND, _Error._UNKNOWN_GROUP})
# The coordinator or leader moves or is being loaded; the client returns these errors instead of retrying.
_PASSING = frozenset(
    {
        _Error.COORDINATOR_LOAD_IN_PROGRESS,
        _Error.COORDINATOR_NOT_AVAILABLE,
        _Error.NOT_COORDINATOR,
        _Error.NOT_LEADER_FOR_PARTITION,
        _Error.LEADER_NOT_AVAILABLE,
        _Error.NOT_CONTROLLER,
        _Error.OFFSET_NOT_AVAILABLE,
        _Error.FENCED_LEADER_EPOCH,
        _Error.UNKNOWN_LEADER_EPOCH,
        # No partition has a leader while brokers restart.
        _Error._NOENT,
    }
)
# The group still has members, which own its offsets.
_BUSY_GROUP = frozenset(
    {
        _Error.NON_EMPTY_GROUP,
        _Error.UNKNOWN_MEMBER_ID,
        _Error.REBALANCE_IN_PROGRESS,
        _Error.GROUP_SUBSCRIBED_TO_TOPIC,
        _Error.FENCED_INSTANCE_ID,
    }
)
#: States in which the members of a group are not listed yet.
_REBALANCING = frozenset({"PREPARING_REBALANCING", "COMPLETING_REBALANCING"})
_RETRY_S = 0.1
_GRACE_S = 5
_TIMEOUTS = frozenset(
    {_Error._TIMED_OUT, _Error.REQUEST_TIMED_OUT, _Error._TRANSPORT, _Error._ALL_BROKERS_DOWN, _Error._NOENT}
)

_EXISTS = object()
_LATEST: Any = cast(Any, OffsetSpec).latest()
_EARLIEST: Any = cast(Any, OffsetSpec).earliest()


class TopicSpecification(Protocol):
    """The specification of a topic to be created; -1 leaves a number to the broker's default."""

    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    @property
    def replication_factor(self) -> int: ...
    @property
    def configs(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class TopicDescription:
    """The description of a topic; its id distinguishes it from a deleted topic with the same name."""

    name: str
    partitions: int
    replication_factor: int
    topic_id: str = field(default="", compare=False)


def error_code(error: BaseException | None) -> int | None:
    """The code of the client's error that caused an error of this package; None if there is none."""
    cause = error if isinstance(error, ck.KafkaException) else getattr(error, "__cause__", None)
    known = isinstance(cause, ck.KafkaException) and cause.args and isinstance(cause.args[0], ck.KafkaError)
    return int(cause.args[0].code()) if known and cause is not None else None


class TopicAdmin:
    """An admin client with blocking calls and Kafka Connect's errors."""

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        name: str,
        timeout_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._clock = clock
        self._closed = threading.Event()
        self._timeout_s = timeout_s
        self._settings: dict[str, Any] = dict(settings)
        self._servers = str(settings.get("bootstrap.servers", ""))
        try:
            self._client: AdminClient | None = AdminClient(self._settings, logger=CLIENT_LOG)
        except (ck.KafkaException, ValueError, TypeError) as error:
            raise KafkaException(f"The admin client of {name} cannot be made: {error}") from error

    def close(self) -> None:
        """Closes the client; further calls raise. Safe to call twice."""
        self._closed.set()
        self._client = None

    def cluster_id(self) -> str:
        found = self.ask(
            "asking for the cluster id", lambda client, left: client.describe_cluster(request_timeout=left)
        )
        return str(found.cluster_id)

    def topic_exists(self, topic: str) -> bool:
        """True if the topic exists. The query does not create it."""
        return topic in self.describe_topics([topic])

    def describe_topics(self, topics: Iterable[str], *, timeout_s: float | None = None) -> dict[str, TopicDescription]:
        found = {}
        for name in dict.fromkeys(topics):
            description = self.ask(
                f"describing the topic {name}",
                lambda client, left, name=name: client.describe_topics(  # type: ignore[misc]
                    ck.TopicCollection([name]), request_timeout=left
                )[name],
                missing=_MISSING_TOPIC,
                timeout_s=timeout_s,
            )
            if description is not None:
                partitions = description.partitions
                replicas = min((len(partition.replicas) for partition in partitions), default=0)
                found[name] = TopicDescription(name, len(partitions), replicas, str(description.topic_id))
        return found

    def create_topic(self, topic: TopicSpecification) -> None:
        """Creates a topic and waits until brokers list it. Raises ``AlreadyExistsException`` if it exists; perhaps
        another client was faster.
        """
        new = ClientTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            config=dict(topic.configs),
        )
        made = self.ask(
            f"creating the topic {topic.name}",
            lambda client, left: client.create_topics([new], request_timeout=left, operation_timeout=left)[topic.name],
            missing=frozenset({_Error.TOPIC_ALREADY_EXISTS}),
            otherwise=_EXISTS,
        )
        if made is _EXISTS:
            raise AlreadyExistsException(f"The topic {topic.name} exists already")
        self._await_topic(topic.name)

    def create_topics(self, topics: Iterable[TopicSpecification]) -> set[str]:
        """Creates the topics that do not exist; if another client creates one first, that is not an error. Returns the
        names of the topics that this call created.
        """
        made = set()
        for topic in topics:
            try:
                self.create_topic(topic)
                made.add(topic.name)
            except AlreadyExistsException:
                logger.debug("Topic %s exists already", topic.name)
        return made

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, committed_only: bool = False, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition.

        Args:
            committed_only: True for the last stable offset instead, the end for a read_committed consumer.
        """
        level = ck.IsolationLevel.READ_COMMITTED if committed_only else ck.IsolationLevel.READ_UNCOMMITTED
        return self._offsets("reading end offsets", partitions, _LATEST, level, timeout_s)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        level = ck.IsolationLevel.READ_UNCOMMITTED
        return self._offsets("reading beginning offsets", partitions, _EARLIEST, level, timeout_s)

    def offsets_at(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """The first offset of each partition whose record is not older than this; its end if all are older."""
        wanted = list(partitions)
        spec = cast(Any, OffsetSpec).for_timestamp(timestamp_ms)
        found = self._offsets("reading offsets by timestamp", wanted, spec, ck.IsolationLevel.READ_UNCOMMITTED)
        older = [at for at, offset in found.items() if offset < 0]
        return {**found, **self.end_offsets(older)}

    def existing_partitions(self, topics: Iterable[str] | None) -> set[TopicPartition]:
        """All partitions of the existing topics among these; of all topics if None. The query does not create
        topics.
        """
        wanted = None if topics is None else set(topics)
        if wanted is not None and not wanted:
            return set()
        named = "all topics" if wanted is None else f"the topics {', '.join(sorted(wanted))}"
        found = self._partitions(f"looking for {named}", wanted)
        return {TopicPartition(at.topic, at.partition) for at in found}

    def group_busy(self, error: Exception) -> bool:
        """True if a change failed because the group still has members."""
        return error_code(error) in _BUSY_GROUP

    def group_offsets(self, group: str, topics: Iterable[str] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a consumer group; none when the group does not exist.

        A consumer that never joins requests them. (librdkafka's own admin call ends the process when the group's
        coordinator has moved, which is also the answer to a cluster's first request about groups.)

        Args:
            topics: The topics to look in; all topics of the cluster when None.
        """
        doing = f"reading the offsets of group {group}"
        partitions = self._partitions(doing, None if topics is None else set(topics))
        if not partitions:
            return {}
        deadline = self._clock() + self._timeout_s
        consumer = ck.Consumer(
            {**self._settings, "group.id": group, "enable.auto.commit": False, "allow.auto.create.topics": False},
            logger=CLIENT_LOG,
        )
        try:
            answers = consumer.committed(partitions, max(0.1, deadline - self._clock()))
        except ck.KafkaException as error:
            raise self._failure(doing, error) from error
        finally:
            consumer.close()
        self._check_partitions(doing, answers)
        return {
            TopicPartition(found.topic, found.partition): OffsetAndMetadata(found.offset, found.metadata or "")
            for found in answers
            if found.offset >= 0
        }

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets for a group without members, and creates the group if necessary."""
        if not offsets:
            return
        doing = f"changing the offsets of group {group}"
        request = ck.ConsumerGroupTopicPartitions(
            group, [ck.TopicPartition(at.topic, at.partition, offset) for at, offset in offsets.items()]
        )

        def alter(client: Any, left: float) -> Any:
            future = client.alter_consumer_group_offsets([request], request_timeout=left)[group]
            partitions = future.result(left + _GRACE_S).topic_partitions
            for one in partitions:
                # The cluster moves the partition.
                if one.error is not None and one.error.code() in _PASSING:
                    raise ck.KafkaException(one.error)
            return partitions

        self._check_partitions(doing, self.ask(doing, alter))

    def require_idle(self, group: str) -> None:
        """Raises if a group has members, or is about to get some; a group that does not exist has none."""
        doing = f"looking for members of group {group}"
        found = self.ask(
            doing,
            lambda client, left: client.describe_consumer_groups([group], request_timeout=left)[group],
            missing=MISSING_GROUP,
        )
        if found is not None and (found.members or found.state.name in _REBALANCING):
            error = ck.KafkaError(_Error.NON_EMPTY_GROUP, f"The group has {len(found.members)} members")
            raise self._failure(doing, busy := ck.KafkaException(error)) from busy

    def delete_group(self, group: str) -> None:
        """Deletes a group with all its offsets; a group that does not exist is no error."""
        self.ask(
            f"deleting the group {group}",
            lambda client, left: client.delete_consumer_groups([group], request_timeout=left)[group],
            missing=MISSING_GROUP,
        )

    def _await_topic(self, topic: str) -> None:
        """Waits until the brokers know a new topic; the cluster answers before that."""
        deadline = self._clock() + self._timeout_s
        while not self.topic_exists(topic) and self._clock() < deadline:
            self._closed.wait(_RETRY_S)

    def _partitions(self, doing: str, topics: set[str] | None) -> list[ck.TopicPartition]:
        """All partitions of the topics that exist."""
        client = self._open_client(doing)
        try:
            metadata = client.list_topics(timeout=self._timeout_s)
        except ck.KafkaException as error:
            raise self._failure(doing, error) from error
        return [
            ck.TopicPartition(name, number)
            for name, topic in metadata.topics.items()
            if topics is None or name in topics
            for number in topic.partitions
        ]

    def _open_client(self, doing: str) -> Any:
        if self._client is None:
            raise KafkaException(f"The admin client of {self._name} is closed: {doing} is not possible")
        return self._client

    def _offsets(
        self, doing: str, partitions: Iterable[TopicPartition], spec: Any, level: Any, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if not wanted:
            return {}
        asked = {ck.TopicPartition(at.topic, at.partition): spec for at in wanted}
        answers = self.ask(
            f"{doing} of {', '.join(f'{at.topic}-{at.partition}' for at in wanted)}",
            lambda client, left: {
                at: future.result(left + _GRACE_S)
                for at, future in client.list_offsets(asked, isolation_level=level, request_timeout=left).items()
            },
            timeout_s=timeout_s,
        )
        return {TopicPartition(at.topic, at.partition): int(answer.offset) for at, answer in answers.items()}

    def ask(
        self,
        doing: str,
        request: Callable[[Any, float], Any],
        *,
        missing: frozenset[int] = frozenset(),
        otherwise: object = None,
        timeout_s: float | None = None,
    ) -> Any:
        """The answer to one request, which is repeated while the cluster only moves a leader or coordinator.

        Args:
            request: Makes the request, with the client and the remaining seconds; returns the answer, or its future.
        """
        deadline = self._clock() + (self._timeout_s if timeout_s is None else timeout_s)
        while True:
            client = self._open_client(doing)
            left = max(0.1, deadline - self._clock())
            try:
                # The client stops by itself at the deadline; the extra time lets its own error come first.
                answer = request(client, left)
                return answer.result(left + _GRACE_S) if hasattr(answer, "result") else answer
            except ck.KafkaException as error:
                code = error.args[0].code()
                if code in missing:
                    return otherwise
                if code not in _PASSING or self._clock() >= deadline:
                    raise self._failure(doing, error) from error
            except (TimeoutError, ValueError, TypeError) as error:
                raise self._failure(doing, error) from error
            finally:
                # The client queues its log events; the queue would grow without limit while a broker is down.
                while client.poll(0):
                    pass
            self._closed.wait(_RETRY_S)

    def _check_partitions(self, doing: str, answers: Iterable[Any]) -> None:
        for answer in answers:
            if answer.error is not None:
                self._refuse_partition(doing, TopicPartition(answer.topic, answer.partition), answer.error)

    def _refuse_partition(self, doing: str, at: TopicPartition, error: ck.KafkaError) -> NoReturn:
        cause = ck.KafkaException(error)
        raise self._failure(f"{doing} at {at.topic}-{at.partition}", cause) from cause

    def _failure(self, doing: str, error: Exception) -> KafkaException:
        cause = error.args[0] if error.args and isinstance(error.args[0], ck.KafkaError) else None
        text = f"{self._name}: {doing} failed: {cause.str() if cause is not None else error}"
        if isinstance(error, TimeoutError) or (cause is not None and (cause.retriable() or cause.code() in _TIMEOUTS)):
            return KafkaRetriableException(
                f"{text} (brokers {self._servers}; check bootstrap.servers, and that they are reachable)"
            )
        return KafkaException(text)


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

    def topic_exists(self, topic: str) -> bool: ...

    def create_topic(self, topic: NewTopic) -> None: ...


def plan_of(rules: TopicCreation) -> Callable[[str], NewTopic]:
    """Returns the function that gives the topic to create for a name, by a connector's rules; it can be pickled."""
    return partial(_planned, rules)


def _planned(rules: TopicCreation, topic: str) -> NewTopic:
    group = rules.group_for(topic)
    return NewTopic(topic, group.partitions, group.replication_factor, group.configs, group.name)


class TopicCreator:
    """Ensures that topics exist.

    Args:
        plan: Returns the specification of a topic by its name; None if topic creation is not active for the connector,
            and the broker's own auto-creation decides.
    """

    def __init__(self, owner: str, plan: Callable[[str], NewTopic] | None, admin: TopicMaker | None) -> None:
        if plan is not None and admin is None:
            raise ValueError("topic creation needs an admin client")
        self._owner = owner
        self._plan = plan
        self._admin = admin
        self._known: set[str] = set()

    def ensure(self, topics: Iterable[str]) -> None:
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
            logger.info("Another client has created topic %s meanwhile", topic)
        except Exception as error:
            raise ConnectException(
                f"Task {self._owner} cannot write to topic {topic}, which could not be looked up or created: "
                f"{str(error).rstrip('.')}. "
                "Check the topic.creation.* settings and the rights of the worker's or connector's admin client."
            ) from error


_NEEDS: Final = (FIND_COORDINATOR, OFFSET_DELETE)


class GroupClient(TopicAdmin):
    """A ``TopicAdmin`` that also deletes single offsets of a group (KIP-496), over connections of the worker's own."""

    def __init__(self, client: ClientSettings, *, name: str, timeout_s: float) -> None:
        super().__init__(dict(client.checked().librdkafka), name=name, timeout_s=timeout_s)
        self._connections = own_connections(client)

    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes the offsets of these partitions; other offsets stay, with their metadata.

        A partition without a committed offset is no error.

        Raises:
            KafkaException: A member of the group reads one of their topics, or the cluster refused or did not answer.
        """
        named = list(partitions)
        if not named:
            return
        doing = f"deleting offsets of group {group}"

        def delete(_: object, left: float) -> Mapping[Place, int]:
            talk = Conversation(self._connections, f"{self._name} (offsets)", _NEEDS, left, SeldomLog(logger))
            try:
                what = f"Asking for the coordinator of group {group}"
                found = talk.ask(None, find_group_coordinator_request(group), what, find_coordinator_response)
                code, topics = found.error_code, ()
                if not code:
                    asked = request(OFFSET_DELETE, group, by_topic(named))
                    code, _, topics = talk.ask(found.address, asked, f"Deleting offsets of group {group}")
            except KafkaRetriableException as error:
                raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT, str(error))) from error
            finally:
                talk.close()
            if code:
                raise ck.KafkaException(ck.KafkaError(code))
            return by_place(topics)

        answers: Mapping[Place, int] = self.ask(doing, delete, missing=MISSING_GROUP, otherwise={})
        for at, code in answers.items():
            if code:
                self._refuse_partition(doing, TopicPartition(*at), ck.KafkaError(code))
