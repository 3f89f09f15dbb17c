"""Limits the memory of the session that batches use together, and that one batch may use.

The JVM holds a batch about ten times: as input, in Spark's tasks, in Spark's rows, whose buffers grow by doubling, and
as output. With many cores, tasks or partitions any number of large batches may run at once. So a job waits, in order of
arrival, until there is room for its rows; a job larger than the whole budget runs by itself. Small jobs neither
wait nor count.

Main type: ``MemoryBudget``. Main function: ``shares``. Thread: any; one condition guards everything.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.telemetry import waiting_for

#: The rows of one job are at most this part of the JVM's heap, and those of all jobs together.
JOB_PART: Final = 1 / 32
ALL_PART: Final = 1 / 12
#: Small means less than this fraction of the budget.
SMALL_PART: Final = 1 / 64
_MB: Final = 1024 * 1024


def shares(heap_bytes: int) -> tuple[int, int]:
    """The bytes of rows that one job may have, and all together.

    >>> [share // 2**20 for share in shares(700 * 2**20)]
    [21, 58]
    """
    return int(heap_bytes * JOB_PART), int(heap_bytes * ALL_PART)


class MemoryBudget:
    """Room for the rows of jobs.

    Args:
        heap_bytes: Of the session's JVM; None where it is not known, as on a Spark Connect server: no bounds then.

    >>> budget = MemoryBudget(3_200)
    >>> budget.job_bytes
    100
    >>> with budget.room_for(1_000):
    ...     budget.used
    1000
    """

    def __init__(self, heap_bytes: int | None = None) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self.used = 0
        self.job_bytes: int | None = None
        self._all_bytes: int | None = None
        self.set_heap(heap_bytes)

    def set_heap(self, heap_bytes: int | None) -> None:
        """Takes the size of the heap of the session that is up now."""
        with self._changed:
            self.job_bytes, self._all_bytes = (None, None) if heap_bytes is None else shares(heap_bytes)
            self._changed.notify_all()

    @contextmanager
    def room_for(self, nbytes: int) -> Iterator[None]:
        """Waits until there is room for the given number of bytes, and reserves it for the duration of the context."""
        if self._all_bytes is not None and nbytes < self._all_bytes * SMALL_PART:
            yield
            return
        mine = object()
        with self._changed:
            self._waiting.append(mine)
            try:
                if not self._may_go(mine, nbytes):
                    told = f"{self.used // _MB} MB of batches are in the session, and {nbytes // _MB} MB do not fit "
                    with waiting_for("spark", f"{told}beside them (spark.driver.memory)"):
                        self._changed.wait_for(lambda: self._may_go(mine, nbytes))
                self.used += nbytes
            finally:
                self._waiting.remove(mine)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self.used -= nbytes
                self._changed.notify_all()

    def _may_go(self, mine: object, nbytes: int) -> bool:
        if self._all_bytes is None:
            return True
        return self._waiting[0] is mine and (not self.used or self.used + nbytes <= self._all_bytes)
