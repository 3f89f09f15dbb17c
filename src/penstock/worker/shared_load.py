"""Limits what all tasks of a worker have under way together: work ahead helps one task, and only takes memory for many.

Main type: `SharedLoad`, one for all tasks. Thread: any.
"""

from __future__ import annotations

import threading
from typing import Final

#: Polled or fetched records that wait for Spark, of all tasks, beside one poll or fetch of each.
WAITING_BYTES: Final = 16 * 1024 * 1024


class SharedLoad:
    """Counts what is under way.

    Args:
        jobs: how many keep Spark's cores busy.
        waiting_bytes: how much may wait for Spark.

    >>> load = SharedLoad(jobs=2, waiting_bytes=10)
    >>> load.begin()
    >>> load.has_idle_cores
    True
    >>> load.begin()
    >>> load.has_idle_cores, load.has_waiting_jobs
    (False, False)
    >>> load.begin()
    >>> load.has_waiting_jobs
    True
    >>> load.let_wait(8), load.let_wait(8), load.let_wait(8, anyway=True)
    (True, False, True)
    >>> load.bytes_left
    0
    """

    def __init__(self, jobs: int = 2, waiting_bytes: int = WAITING_BYTES) -> None:
        self._lock = threading.Lock()
        self._jobs = jobs
        self._waiting_bytes = waiting_bytes
        self._begun = 0
        self._waiting = 0

    @property
    def has_idle_cores(self) -> bool:
        """Whether a task that has a batch in Spark may begin another."""
        return self._begun < self._jobs

    @property
    def has_waiting_jobs(self) -> bool:
        """Whether jobs wait for each other: a task that works ahead of Kafka only takes memory now."""
        return self._begun > self._jobs

    def begin(self) -> None:
        """A job of a task that is crowded begins; `end` must follow."""
        with self._lock:
            self._begun += 1

    def end(self) -> None:
        """A job that was begun is done."""
        with self._lock:
            self._begun -= 1

    def let_wait(self, nbytes: int, *, anyway: bool = False) -> bool:
        """Whether this many bytes may wait; after True, `release` must be called.

        Args:
            nbytes: what a task has polled or fetched.
            anyway: it waits in any case; each task has one poll that waits, or it would never go on.
        """
        with self._lock:
            if not anyway and self._waiting + nbytes > self._waiting_bytes:
                return False
            self._waiting += nbytes
            return True

    @property
    def bytes_left(self) -> int:
        """How many more bytes may wait."""
        return max(0, self._waiting_bytes - self._waiting)

    def release(self, nbytes: int) -> None:
        """Notes that this many bytes wait no more."""
        with self._lock:
            self._waiting -= nbytes
