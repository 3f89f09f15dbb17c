"""Which partitions of a sink task the consumer does not fetch for now.

Main type: ``SinkPauses``. These are all while the connector is paused, or while a batch waits for its next try; else
those that the task itself has paused.

Owning thread: the task's thread.

Source: ``WorkerSinkTask`` (``pauseAll``, ``resumeAll``), ``WorkerSinkTaskContext`` (``pausedPartitions``).
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.api import TopicPartition
from penstock.worker.sink_parts import SinkParts
from penstock.worker.sink_stages import SinkConsumer


class SinkPauses:
    """Makes the consumer pause what should be paused.

    Args:
        parts: What the loop works with.

    Attributes:
        resting: Whether the connector is paused.
        holds_back: Whether a batch waits for its next try.
    """

    def __init__(self, parts: SinkParts) -> None:
        self._name = parts.name
        self._context = parts.context
        self._partitions = parts.partitions
        self._stages = parts.stages
        self._fetcher = parts.fetcher
        self.resting = False
        self.holds_back = False
        self._applied: frozenset[TopicPartition] = frozenset()
        # Those that the task has paused, as far as the consumer was sent back to what is not delivered.
        self._held: frozenset[TopicPartition] = frozenset()

    def rest(self, resting: bool) -> None:
        """The connector is paused, or goes on."""
        self.resting = resting
        self.apply()

    def hold_back(self, waits: bool) -> None:
        """A batch waits for its next try, or none does any more."""
        self.holds_back = waits
        self.apply()

    def apply(self) -> None:
        """Make the consumer pause what should be paused now."""
        held = self._context.paused & self._partitions.assigned
        if new := held - self._held:
            self._hold(new)
        self._held = held
        wanted = self._wanted()
        if wanted != self._applied:
            self._fetcher.set_paused(
                wanted - self._applied, self._applied - wanted, everything=self.resting or self.holds_back
            )
            self._applied = wanted

    def assigned(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Partitions have come, of which nothing was fetched; gives all that do not deliver for now."""
        self._held |= self._context.paused & frozenset(partitions)
        self._applied = self._wanted()
        return self._applied

    def forget(self, gone: frozenset[TopicPartition]) -> None:
        """Partitions have gone."""
        self._applied -= gone
        self._held -= gone

    def _wanted(self) -> frozenset[TopicPartition]:
        assigned = self._partitions.assigned
        return assigned if self.resting or self.holds_back else self._context.paused & assigned

    def _hold(self, partitions: frozenset[TopicPartition]) -> None:
        """Records on their way must not arrive after the task paused them: they are fetched again after ``resume``."""
        positions = {partition: self._partitions.next_to_deliver(partition) for partition in partitions}

        def seek_and_pause(consumer: SinkConsumer) -> int:
            epoch = consumer.seek(positions)
            consumer.pause(partitions)
            return epoch

        epoch = self._stages.answer_of(self._stages.submit(seek_and_pause), self._name)
        for partition in partitions:
            self._partitions.discard_fetched(partition, epoch)
        self._applied |= partitions
