"""The time for which each stage of a task was at work: shows which one bounds its throughput.

Main type: ``BusyTimes``. Thread: each stage adds its own time on its own thread; any thread reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


class BusyTimes:
    """Seconds at work by stage. Waiting for the stage before or behind does not count.

    Args:
        stages: their names, in the order records pass them.
        clock: monotonic seconds.

    >>> moments = iter([1.0, 3.5])
    >>> times = BusyTimes(["poll", "spark"], clock=lambda: next(moments))
    >>> with times.at_work("spark"):
    ...     pass
    >>> times.seconds("poll"), times.seconds("spark")
    (0.0, 2.5)
    """

    def __init__(self, stages: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.stages = tuple(stages)
        self._clock = clock
        self._seconds = dict.fromkeys(self.stages, 0.0)

    def add(self, stage: str, seconds: float) -> None:
        """Adds time that was measured elsewhere."""
        self._seconds[stage] += seconds

    @contextmanager
    def at_work(self, stage: str) -> Iterator[None]:
        """Adds the time until the block ends."""
        started = self._clock()
        try:
            yield
        finally:
            self._seconds[stage] += self._clock() - started

    def seconds(self, stage: str) -> float:
        """The sum so far."""
        return self._seconds[stage]
