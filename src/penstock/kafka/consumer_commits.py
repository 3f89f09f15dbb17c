"""The commits of a consumer, and which answer is to which.

Main type: ``ConsumerCommits``.

Owning thread: whoever calls the consumer's ``fetch``, in which answers come.

Source: org.apache.kafka.clients.consumer.KafkaConsumer (``commitAsync``, ``commitSync``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import confluent_kafka as ck

from penstock.api import OffsetAndMetadata, TopicPartition
from penstock.kafka.consumer_errors import exception_of

#: Commits are refused with these while a rebalance is under way.
_OLD_GENERATION: Final = frozenset({ck.KafkaError.ILLEGAL_GENERATION, ck.KafkaError.REBALANCE_IN_PROGRESS})
#: How long such commits are made again.
_GENERATION_S: Final = 2.0
_RETRY_S: Final = 0.2

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass
class _Commit:
    positions: dict[tuple[str, int], int]
    answer: Callable[[Exception | None], None] = field(repr=False)


class ConsumerCommits:
    """Commits of one consumer.

    Args:
        client: Of the consumer; it calls ``answered`` (``on_commit``).
        name: Says whose consumer this is in errors.
        interrupted: Ends waiting.
    """

    def __init__(self, client: ck.Consumer, name: str, interrupted: threading.Event) -> None:
        self._client = client
        self._name = name
        self._interrupted = interrupted
        self._commits: list[_Commit] = []

    def commit_async(self, offsets: Offsets, answer: Callable[[Exception | None], None]) -> None:
        """Commit without waiting; ``answer`` is called inside a later ``fetch``."""
        self._commits.append(_Commit({(tp.topic, tp.partition): at.offset for tp, at in offsets.items()}, answer))
        try:
            self._client.commit(offsets=_positions(offsets), asynchronous=True)
        except ck.KafkaException as failure:
            self._commits.pop()
            answer(exception_of(self._name, failure.args[0]))

    def answered(self, error: ck.KafkaError | None, partitions: list[ck.TopicPartition]) -> None:
        """Takes the answer to a commit: to the oldest one of these offsets, as the client does not say to which."""
        answered = {(p.topic, p.partition): p.offset for p in partitions}
        waiting = next((commit for commit in self._commits if commit.positions == answered), None)
        if waiting is None:
            return
        self._commits.remove(waiting)
        error = error or next((p.error for p in partitions if p.error is not None), None)
        waiting.answer(None if error is None else exception_of(self._name, error))

    def commit_sync(self, offsets: Offsets) -> None:
        """Commit and wait for the answer.

        While the group is about to agree on a new generation, a member with cooperative assignment still owns what it
        is not asked to give back, but commits of the old generation are refused: those are made again for a moment.

        Raises:
            KafkaException: It failed.
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
