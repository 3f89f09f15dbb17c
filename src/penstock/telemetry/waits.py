"""The present waits of threads, long waits, the stacks of threads, and the busy times of the stages of tasks.

``stands_still`` reports a long wait to ``/health`` and the status of tasks; in contrast to a ``Wait``, a ``Standstill``
lasts until ``goes_on`` withdraws it, whatever the thread does between two tries.

A ``waiting_for`` costs its thread two writes to a dict and no lock. Waits may be nested: the inner one counts until it
ends. Thread: any; each announces its own waits and adds its own times; any thread reads.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from itertools import chain, repeat, starmap, tee
from operator import itemgetter
from threading import get_ident
from types import FrameType
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
#: A stack, outermost first: file, line and function of each frame.
Stack = Sequence[tuple[str, int, str]]


class Wait(NamedTuple):
    """A thread's wait.

    Attributes:
        reason: The reason in one word.
        since_s: The start of the wait, by ``time.monotonic``.
        detail: Further details.
        elsewhere: Returns the stack of the other process that it waits for; empty if there is none.
    """

    reason: str
    since_s: float
    detail: str | None = None
    elsewhere: Callable[[], Stack] | None = None


_now: dict[int, Wait] = {}


def no_probe(point: str) -> None:
    """A probe of the data path that does nothing; kill tests pass their own, which is called at named points."""


class waiting_for:  # noqa: N801 - read as a statement, as a context manager and a decorator are
    """Announces the wait of this thread, while a block or a function runs; the arguments are as in ``Wait``.

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
        """Wraps a function; the wait lasts while it runs."""
        reason, detail = self._reason, self._detail

        @wraps(function)
        def waiting(*args: P.args, **kwargs: P.kwargs) -> T:
            with waiting_for(reason, detail):
                return function(*args, **kwargs)

        return waiting


def waits() -> dict[int, Wait]:
    """The current waits of threads, by their ids."""
    return dict(_now)


class BusyTimes:
    """Seconds at work by stage. Waiting for the previous or the next stage does not count.

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
        return self._seconds[stage]


@dataclass(frozen=True)
class Standstill:
    """One long wait.

    Attributes:
        owner: The name of the waiting part, such as ``task orders-0``.
        reason: The reason in one word.
        text: The reason as a sentence.
        since: The time at which it began.
        details: The fields that the status of a task shows.
        connector: The connector whose secrets may be in the texts; None for none.
    """

    owner: str
    reason: str
    text: str
    since: datetime
    details: Mapping[str, object] = field(default_factory=dict)
    connector: str | None = None

    def __str__(self) -> str:
        return f"{self.owner} ({self.reason} since {self.since.isoformat(timespec='seconds')}): {self.text}"


_standstills_lock = threading.Lock()
_standstills: dict[str, Standstill] = {}


def stands_still(
    owner: str,
    reason: str,
    text: str,
    *,
    since: datetime | None = None,
    details: Mapping[str, object] | None = None,
    connector: str | None = None,
) -> Standstill:
    """Reports a long wait of an owner, which has one at a time; a repeated report keeps the first time, unless
    ``since`` is given.

    >>> stands_still("task a-0", "source_retry", "busy").reason
    'source_retry'
    >>> [one.owner for one in standstills()]
    ['task a-0']
    >>> goes_on("task a-0")
    >>> standstills()
    []
    """
    with _standstills_lock:
        before = _standstills.get(owner)
        if since is None:
            since = before.since if before is not None and before.reason == reason else datetime.now(UTC)
        _standstills[owner] = found = Standstill(owner, reason, text, since, details or {}, connector)
        return found


def task_owner(task: object) -> str:
    """The name of a task, by its id, among the owners of standstills."""
    return f"task {task}"


def connector_owner(name: str) -> str:
    """The name of a connector among the owners of standstills."""
    return f"connector {name}"


def goes_on(owner: str, only: Standstill | None = None) -> None:
    """Ends the report of a wait: the owner continues, or is gone. With ``only``, the caller's last report, a later
    report of another caller stays.
    """
    with _standstills_lock:
        if only is None or _standstills.get(owner) is only:
            _standstills.pop(owner, None)


def standstill_of(owner: str) -> Standstill | None:
    """The standstill of an owner; None if there is none."""
    return _standstills.get(owner)


def standstills() -> list[Standstill]:
    """All present standstills, longest first."""
    with _standstills_lock:
        return sorted(_standstills.values(), key=lambda one: one.since)


#: The limit of frames for each stack.
MOST_FRAMES: Final = 160


def stacks() -> dict[int, Stack]:
    """The stack of each thread, outermost place first, by the thread's ident; of a deeper stack, only the innermost
    ``MOST_FRAMES`` places.

    Python 3.11 keeps a pointer from a generator's frame to the frame below it after the generator was left; following
    it then reads memory with other contents, which can crash the process. So no thread may run between two steps down a
    stack. A thread releases the interpreter only between instructions of Python, never inside of a built-in iterator:
    the whole walk is one call of such iterators.
    """
    found: dict[int, Stack] = {}
    for ident, *frames in _walked(MOST_FRAMES):
        there: list[FrameType] = frames[: frames.index(None)] if None in frames else frames
        found[ident] = [(one.f_code.co_filename, one.f_lineno, one.f_code.co_name) for one in reversed(there)]
    return found


def _walked(depth: int) -> list[tuple[Any, ...]]:
    """A row for each thread: its ident, its innermost frame, the frame below that, and so on; None where it ends."""
    by_ident: Any = chain.from_iterable(map(dict.items, starmap(sys._current_frames, [()])))
    for_idents, for_frames = tee(by_ident)
    levels: list[Any] = [map(itemgetter(1), for_frames)]
    for _ in range(depth - 1):
        levels[-1], above = tee(levels[-1])
        levels.append(map(getattr, above, repeat("f_back"), repeat(None)))
    rows = zip(map(itemgetter(0), for_idents), *levels, strict=True)
    # The collector may call finalizers, which run Python instructions.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return list(rows)
    finally:
        if was_enabled:
            gc.enable()
