"""Timed calls of a sink task: ``context.every``.

Main types: ``ClockCalls``, and ``ClockCall``, one of them. When a call is due is decided here; ``put`` makes it.

Owning thread: the task's thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class ClockCall:
    """One function that is called again and again.

    Attributes:
        seconds: From the beginning of one call to that of the next.
        call: The function.
        due: Monotonic seconds.
        asks_again: True while its last call has raised ``RetriableException``: nothing else is delivered before it.
    """

    seconds: float
    call: Callable[[], object]
    due: float
    asks_again: bool = False

    def began(self, now: float) -> None:
        """The call begins: calls that were missed are not made up for."""
        self.due = now + self.seconds

    def ask_again(self, at: float) -> None:
        """Schedules the call for that time, before the next delivery."""
        self.asks_again, self.due = True, at


class ClockCalls:
    """All of a task's.

    >>> calls = ClockCalls()
    >>> end = calls.add(10.0, list, now=100.0)
    >>> calls.next_due(109.0), calls.next_due(110.0) is not None, calls.wait_s(103.0)
    (None, True, 7.0)
    >>> end()
    >>> calls.wait_s(103.0)
    inf
    """

    def __init__(self) -> None:
        self._calls: list[ClockCall] = []

    def add(self, seconds: float, call: Callable[[], object], *, now: float) -> Callable[[], None]:
        """Adds a function.

        Args:
            seconds: From one call to the next; the first one comes after as long.
            call: The function.
            now: Monotonic seconds.

        Returns:
            A function that ends the calls; calling it again has no effect.

        Raises:
            ValueError: It is no function, or the time is none.
        """
        if not (math.isfinite(seconds) and seconds > 0):
            raise ValueError(f"every() takes a number of seconds above 0, not {seconds!r}")
        if not callable(call):
            raise ValueError(f"every() takes a function without arguments, not a {type(call).__name__}")
        added = ClockCall(seconds, call, now + seconds)
        self._calls.append(added)

        def end() -> None:
            self._calls = [one for one in self._calls if one is not added]

        return end

    def next_due(self, now: float) -> ClockCall | None:
        """The one that is due longest; None: none is. One that asks again keeps the others waiting."""
        waiting = [one for one in self._calls if one.asks_again] or self._calls
        first = min(waiting, key=lambda one: one.due, default=None)
        return first if first is not None and first.due <= now else None

    def wait_s(self, now: float) -> float:
        """Returns the seconds until the next call is due; infinity if there is none."""
        return max(0.0, min((one.due for one in self._calls), default=math.inf) - now)

    @property
    def asks_again_at(self) -> float | None:
        """The time when the call is due that has asked to be made again, or None if none has."""
        return next((one.due for one in self._calls if one.asks_again), None)
