"""How far a log has been read, partition by partition, and waiting for it.

Main type: ``LogPositions``. A position is the offset behind what was handed over; offsets that hold no record (markers
of transactions, records that were compacted away or aborted) are passed when the reader hears of the end behind them.
Reading may begin anew, where a topic lost records or was made again: then all positions are forgotten, and what the
reader still says of the time before does not count.

Thread: any.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.errors import KafkaException


class LogPositions:
    """The positions of one log.

    >>> positions = LogPositions()
    >>> positions.advance(positions.generation, {0: 5, 1: 2})
    >>> positions.behind({0: 5, 1: 3, 2: 0})
    {1: 3}
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reached: dict[int, int] = {}
        self._generation = 0
        self._closed: str | None = None

    @property
    def generation(self) -> int:
        """Counts how often reading began."""
        return self._generation

    def reached(self, partition: int) -> int:
        """The offset behind what was handed over of a partition; 0 before that."""
        return self._reached.get(partition, 0)

    def advance(self, generation: int, reached: Mapping[int, int]) -> None:
        """Says how far the reader is, after what it read was handed over."""
        with self._changed:
            if generation == self._generation:
                self._reached.update(reached)
                self._changed.notify_all()

    def begin_anew(self) -> int:
        """Forgets all positions.

        Returns:
            The generation of what is read from now on.
        """
        with self._changed:
            self._reached.clear()
            self._generation += 1
            return self._generation

    def behind(self, targets: Mapping[int, int]) -> dict[int, int]:
        """The targets that were not reached yet."""
        return {partition: offset for partition, offset in targets.items() if self.reached(partition) < offset}

    def wait(self, targets: Mapping[int, int], timeout_s: float) -> bool:
        """Waits until all targets were reached.

        Returns:
            False when the time was over before.

        Raises:
            KafkaException: The log was closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed is not None or not self.behind(targets), timeout_s)
            if not self.behind(targets):
                return True
            if self._closed is not None:
                raise KafkaException(self._closed)
            return False

    def close(self, reason: str) -> None:
        """Ends all waits, and every later one, with this reason."""
        with self._changed:
            self._closed = reason
            self._changed.notify_all()
