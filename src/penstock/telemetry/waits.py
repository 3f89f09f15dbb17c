"""The present waits of threads, and the busy times of the stages of tasks.

Main names: ``waiting_for``, around a wait, announces it; ``Wait`` is the announcement, ``waits`` returns the present
ones of all threads. ``BusyTimes`` counts the time at work of each stage, which shows the stage that bounds the
throughput. ``no_probe`` stands for the probes of kill tests.

A wait costs its thread two writes to a dict and no lock. Waits may be nested: the inner one counts until it ends.

Thread: any; each announces its own waits and adds its own times; any thread reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from typing import NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
#: A stack, outermost first: file, line and function of each frame.
Stack = Sequence[tuple[str, int, str]]


class Wait(NamedTuple):
    """A thread's wait.

    Attributes:
        reason: The reason in one word.
        since_s: The begin of the wait, by ``time.monotonic``.
        detail: Further details.
        elsewhere: Returns the stack of the other process that it waits for; empty if that gives none.
    """

    reason: str
    since_s: float
    detail: str | None = None
    elsewhere: Callable[[], Stack] | None = None


_now: dict[int, Wait] = {}


def no_probe(point: str) -> None:
    """The probe of the data path outside of kill tests, which have theirs called at named points."""


class waiting_for:  # noqa: N801 - read as a statement, as a context manager and a decorator are
    """Announces the wait of this thread, while a block or a function runs.

    Args:
        reason: The reason in one word.
        detail: Further details.
        elsewhere: See ``Wait``; readers of the waits call it.

    >>> with waiting_for("a friend"):
    ...     waits()[get_ident()].reason
    'a friend'
    >>> get_ident() in waits()
    False
    """

    __slots__ = ("_before", "_detail", "_elsewhere", "_reason")

    def __init__(self, reason: str, detail: str | None = None, elsewhere: Callable[[], Stack] | None = None) -> None:
        self._reason = reason
        self._detail = detail
        self._elsewhere = elsewhere
        self._before: Wait | None = None

    def __enter__(self) -> None:
        ident = get_ident()
        self._before = _now.get(ident)
        _now[ident] = Wait(self._reason, time.monotonic(), self._detail, self._elsewhere)

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            _now.pop(get_ident(), None)
        else:
            _now[get_ident()] = self._before

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """A function that waits for this while it runs."""
        reason, detail = self._reason, self._detail

        @wraps(function)
        def waiting(*args: P.args, **kwargs: P.kwargs) -> T:
            with waiting_for(reason, detail):
                return function(*args, **kwargs)

        return waiting


def waits() -> dict[int, Wait]:
    """Returns the current waits of threads, by their ids; threads that do not wait are left out."""
    return dict(_now)


class BusyTimes:
    """Seconds at work by stage. Waiting for the previous or the next stage does not count.

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
