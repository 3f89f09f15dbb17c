"""Where a consumer begins to read the partitions that come to it.

Main type: ``StartOffsets``.

Owning thread: whoever calls the consumer's ``fetch``; waiting for the broker ends when the consumer is interrupted.

Source: ``ConsumerCoordinator.refreshCommittedOffsetsIfNeeded`` and ``OffsetFetcher`` of Kafka's consumer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import confluent_kafka as ck

from penstock.api import TopicPartition
from penstock.errors import ConnectException, KafkaRetriableException
from penstock.kafka.consumer_errors import ends_reading, exception_of
from penstock.telemetry.seldom_log import SeldomLog

#: ``auto.offset.reset``: what librdkafka calls the end of a partition.
_AT_END: Final = frozenset({"latest", "largest", "end"})
#: And its beginning.
_AT_BEGINNING: Final = frozenset({"earliest", "smallest", "beginning"})
_RETRY_S: Final = 0.2


class StartOffsets:
    """Asks for the group's committed offsets, and for the edges of partitions that have none.

    Args:
        client: Of the consumer.
        name: Says whose consumer this is in logs and errors.
        reset: ``auto.offset.reset``.
        timeout_s: How long the broker is asked (``default.api.timeout.ms``).
        interrupted: Ends waiting.
        seldom: Told of what goes wrong meanwhile.
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
        """Where each partition begins: at the group's committed offset, else where ``auto.offset.reset`` says.

        Returns:
            The offset of each, and those that begin at their end because the group has none.

        Raises:
            KafkaException, ConnectException: The broker refuses, does not answer in time, or there is nothing to begin
                at.
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
        if self._reset in _AT_BEGINNING:
            edge = ck.OFFSET_BEGINNING
        elif self._reset in _AT_END:
            edge = ck.OFFSET_END
        else:
            raise ConnectException(
                f"{self._name}: undefined offset with no reset policy for partitions: "
                f"[{', '.join(map(str, partitions))}]. Set consumer.override.auto.offset.reset, or commit offsets."
            )
        # In the request for offsets of a time these two special times mean the first and the next offset.
        asked = [ck.TopicPartition(tp.topic, tp.partition, edge) for tp in partitions]
        found = self._retried("look up offsets", lambda left: self._client.offsets_for_times(asked, timeout=left))
        return {TopicPartition(p.topic, p.partition): p.offset for p in found}

    def _retried(self, what: str, ask: Callable[[float], list[ck.TopicPartition]]) -> list[ck.TopicPartition]:
        """Ask the broker until every partition has an answer, or the time is up."""
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
