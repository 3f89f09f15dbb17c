"""Keeps Python's cycle collector out of loops that create and drop many objects at once.

A fetch makes tens of thousands of message objects, none of them in a cycle, and drops them again; the collector would
walk through all of them many times, which doubles the time of a fetch. Reference counting frees the objects in any
case.

Owning thread: any; pauses of several threads may overlap.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: The surplus of created over dropped objects that starts a collection of the youngest generation, and the intervals of
#: the older ones.
_THRESHOLDS: Final = (300_000, 20, 50)


def collect_rarely() -> None:
    """Configures the collector for a worker process: call it once, after all permanent objects exist.

    A task polls tens of thousands of records, each with several objects and none in a cycle. With Python's defaults the
    collector scans the live ones again and again, which costs more than creating them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


class _Pauses:
    """The number of threads that have paused the garbage collector, and whether it was enabled before the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_enabled = False

    def enter(self) -> None:
        with self._lock:
            if self._count == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._was_enabled:
                gc.enable()


_pauses = _Pauses()


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cycle collection in any thread while the block runs; for short blocks only.

    >>> with collector_paused():
    ...     gc.isenabled()
    False
    """
    _pauses.enter()
    try:
        yield
    finally:
        _pauses.leave()
