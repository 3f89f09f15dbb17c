"""The topics of a consumer, its start positions, its commits, and the meaning of its errors.

Thread: the caller of the consumer's ``fetch``.

Source: ConsumerCoordinator.refreshCommittedOffsetsIfNeeded and OffsetFetcher of Kafka's consumer; KafkaConsumer
(commitAsync, commitSync, subscribe).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import confluent_kafka as ck

from penstock.api import OffsetAndMetadata, TopicPartition
from penstock.config.java_pattern import JavaPattern, compile_java
from penstock.errors import (
    ConfigException,
    ConnectException,
    FencedInstanceIdException,
    KafkaException,
    KafkaRetriableException,
)
from penstock.kafka.network.sasl import refuses_login
from penstock.kafka.settings.values import BY_DURATION
from penstock.settings.topics import PATTERN_REFUSED, is_pattern
from penstock.telemetry.logs import SeldomLog

_Error = ck.KafkaError
#: Errors that fail the task; after any other error that is not fatal for the client itself the consumer waits.
_ENDING: Final = frozenset(
    {
        _Error.TOPIC_AUTHORIZATION_FAILED,
        _Error.GROUP_AUTHORIZATION_FAILED,
        _Error.CLUSTER_AUTHORIZATION_FAILED,
        _Error.TOPIC_EXCEPTION,
        _Error.INVALID_GROUP_ID,
        _Error.INCONSISTENT_GROUP_PROTOCOL,
        _Error.UNSUPPORTED_VERSION,
        _Error.FENCED_INSTANCE_ID,
        _Error._AUTO_OFFSET_RESET,
        _Error._NO_OFFSET,
        _Error._FATAL,
    }
)
#: Part of the error's text, because an unreadable batch has the same code.
_LIMIT: Final = "receive.message.max.bytes"
_QUIET: Final = frozenset({_Error._PARTITION_EOF})
_FENCED: Final = ck.KafkaError(_Error.FENCED_INSTANCE_ID).str()


def ends_reading(error: ck.KafkaError) -> bool:
    """True if the task fails; after other errors the consumer waits and continues."""
    return bool(error.code() in _ENDING or error.fatal() or refuses_login(error) or _is_too_large(error))


def _is_too_large(error: ck.KafkaError) -> bool:
    """True if a broker's answer is larger than the client's limit: the client would repeat the request forever."""
    return error.code() == _Error._BAD_MSG and _LIMIT in error.str()


def is_usual(error: ck.KafkaError) -> bool:
    """True if the error is normal for a group member and need not be reported."""
    return error.code() in _QUIET


def exception_of(name: str, error: ck.KafkaError) -> KafkaException:
    """The exception for an error of the client."""
    text = f"{name}: {error.str()} ({error.name()})"
    if _is_too_large(error):
        text += f". The setting is consumer.override.{_LIMIT}; without it there is no limit"
    # A fatal error has the code _FATAL; only its text has the cause.
    if _FENCED in error.str():
        text += (
            ". Another consumer is in the group with the same group.instance.id: a second worker with a copy of this "
            "one's directory (remove the copied .id file beside its offsets file), or with the same "
            "consumer.override.group.instance.id. penstock.kafka.static.members=false does without such ids"
        )
        return FencedInstanceIdException(text)
    return KafkaRetriableException(text) if error.retriable() else KafkaException(text)


#: Values of ``auto.offset.reset`` that mean the end of a partition for librdkafka.
_AT_END: Final = frozenset({"latest", "largest", "end"})
#: Values of ``auto.offset.reset`` that mean the beginning of a partition for librdkafka.
_AT_BEGINNING: Final = frozenset({"earliest", "smallest", "beginning"})
_RETRY_S: Final = 0.2


def for_client(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of a consumer for librdkafka, which does not support a reset by duration.

    ``StartOffsets`` determines the start of a partition in advance. If the partition no longer has an offset, reading
    continues at its beginning.
    """
    by_duration = str(settings.get("auto.offset.reset", "")).startswith(BY_DURATION)
    return {**settings, "auto.offset.reset": "earliest"} if by_duration else dict(settings)


class StartOffsets:
    """Fetches the group's committed offsets, and the first or last offsets of partitions without one.

    Args:
        timeout_s: The timeout of requests (``default.api.timeout.ms``).
    """

    def __init__(
        self,
        client: ck.Consumer,
        name: str,
        *,
        reset: str,
        timeout_s: float,
        interrupted: threading.Event,
        seldom: SeldomLog,
    ) -> None:
        self._client = client
        self._name = name
        self._reset = reset
        self._timeout_s = timeout_s
        self._interrupted = interrupted
        self._seldom = seldom

    def of(self, partitions: Sequence[TopicPartition]) -> tuple[dict[TopicPartition, int], frozenset[TopicPartition]]:
        """Returns the start offset of each partition, the committed one or by ``auto.offset.reset``, and the
        partitions that begin at their end because the group has no offset.
        """
        if not partitions:
            return {}, frozenset()
        asked = [ck.TopicPartition(tp.topic, tp.partition) for tp in partitions]
        committed = self._retried("read committed offsets", lambda left: self._client.committed(asked, timeout=left))
        starts = {TopicPartition(p.topic, p.partition): p.offset for p in committed if p.offset >= 0}
        missing = [tp for tp in partitions if tp not in starts]
        if missing:
            starts.update(self._reset_offsets(missing))
        at_end = frozenset(missing) if self._reset in _AT_END else frozenset()
        return {tp: starts[tp] for tp in partitions}, at_end

    def _reset_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self._reset.startswith(BY_DURATION):
            found = self._at(partitions, max(0, int(time.time() * 1000) - int(self._reset.removeprefix(BY_DURATION))))
            # As in Java: after the last message if all messages are older.
            older = [tp for tp, offset in found.items() if offset < 0]
            return {**found, **(self._at(older, ck.OFFSET_END) if older else {})}
        if self._reset in _AT_BEGINNING:
            return self._at(partitions, ck.OFFSET_BEGINNING)
        if self._reset in _AT_END:
            return self._at(partitions, ck.OFFSET_END)
        raise ConnectException(
            f"{self._name}: undefined offset with no reset policy for partitions: "
            f"[{', '.join(map(str, partitions))}]. Set consumer.override.auto.offset.reset, or commit offsets."
        )

    def _at(self, partitions: Sequence[TopicPartition], moment: int) -> dict[TopicPartition, int]:
        """The first offset at or after a time; the special times mean the first and the next offset."""
        asked = [ck.TopicPartition(tp.topic, tp.partition, moment) for tp in partitions]
        found = self._retried("look up offsets", lambda left: self._client.offsets_for_times(asked, timeout=left))
        return {TopicPartition(p.topic, p.partition): p.offset for p in found}

    def _retried(self, what: str, ask: Callable[[float], list[ck.TopicPartition]]) -> list[ck.TopicPartition]:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                answer = ask(min(5.0, max(0.1, deadline - time.monotonic())))
                error = next((p.error for p in answer if p.error is not None), None)
                if error is None:
                    return answer
            except ck.KafkaException as failure:
                error = failure.args[0]
            if ends_reading(error):
                raise exception_of(self._name, error)
            self._seldom.warning(what, "%s cannot %s, trying again: %s", self._name, what, error)
            if time.monotonic() >= deadline or self._interrupted.wait(_RETRY_S):
                raise KafkaRetriableException(f"{self._name} could not {what} in time: {error}")


#: Commits fail with these errors during a rebalance.
_OLD_GENERATION: Final = frozenset({ck.KafkaError.ILLEGAL_GENERATION, ck.KafkaError.REBALANCE_IN_PROGRESS})
#: The time for which these commits are retried.
_GENERATION_S: Final = 2.0

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass
class _Commit:
    positions: dict[tuple[str, int], int]
    answer: Callable[[Exception | None], None] = field(repr=False)


class ConsumerCommits:
    """Commits of one consumer."""

    def __init__(self, client: ck.Consumer, name: str, interrupted: threading.Event) -> None:
        self._client = client
        self._name = name
        self._interrupted = interrupted
        self._commits: list[_Commit] = []

    def commit_async(self, offsets: Offsets, answer: Callable[[Exception | None], None]) -> None:
        self._commits.append(_Commit({(tp.topic, tp.partition): at.offset for tp, at in offsets.items()}, answer))
        try:
            self._client.commit(offsets=_positions(offsets), asynchronous=True)
        except ck.KafkaException as failure:
            self._commits.pop()
            answer(exception_of(self._name, failure.args[0]))

    def answered(self, error: ck.KafkaError | None, partitions: list[ck.TopicPartition]) -> None:
        """Handles the answer to a commit. It belongs to the oldest commit of these offsets; the client does not
        identify it.
        """
        answered = {(p.topic, p.partition): p.offset for p in partitions}
        waiting = next((commit for commit in self._commits if commit.positions == answered), None)
        if waiting is None:
            return
        self._commits.remove(waiting)
        error = error or next((p.error for p in partitions if p.error is not None), None)
        waiting.answer(None if error is None else exception_of(self._name, error))

    def commit_sync(self, offsets: Offsets) -> None:
        """Commits and waits for the response.

        During a rebalance a member with cooperative assignment still owns partitions that are not revoked, but the
        broker rejects commits of the old generation: these are retried for a moment.
        """
        deadline = time.monotonic() + _GENERATION_S
        while (error := self._commit_once(offsets)) is not None:
            passing = error.code() in _OLD_GENERATION and time.monotonic() < deadline
            if not passing or self._interrupted.wait(_RETRY_S):
                raise exception_of(self._name, error)

    def _commit_once(self, offsets: Offsets) -> ck.KafkaError | None:
        try:
            answer = self._client.commit(offsets=_positions(offsets), asynchronous=False)
        except ck.KafkaException as failure:
            error: ck.KafkaError = failure.args[0]
            return error
        return next((p.error for p in answer or () if p.error is not None), None)


def _positions(offsets: Offsets) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(tp.topic, tp.partition, at.offset, at.metadata) for tp, at in offsets.items()]


#: Java's consumers do not subscribe to these by pattern.
_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True)
class Subscription:
    """The topics that a sink reads: a list, or all topics whose whole name matches a pattern (``topics.regex``).

    >>> Subscription.matching("orders-(?<year>[0-9]+)").covers("orders-2024-old")
    False
    """

    topics: tuple[str, ...] = ()
    pattern: JavaPattern | None = None

    @classmethod
    def of(cls, topics: Iterable[str]) -> Subscription:
        """Reads these topics, and waits for missing ones. Raises ``ConfigException`` if librdkafka would treat a name
        as a pattern, which it compiles without any limit.
        """
        named = tuple(topics)
        for topic in named:
            if is_pattern(topic):
                raise ConfigException("topics", topic, PATTERN_REFUSED)
        return cls(named)

    @classmethod
    def matching(cls, java_pattern: str) -> Subscription:
        """Reads every topic that matches, including topics that are created later."""
        return cls((), compile_java(java_pattern, name="topics.regex"))

    def covers(self, topic: str) -> bool:
        # No Kafka broker has a topic with such a name.
        if self.pattern is None or topic in _INTERNAL_TOPICS or is_pattern(topic):
            return False
        return self.pattern.matches(topic)
