"""A question to the cluster whose answer several callers share.

Main type: ``SharedQuestion``. An answer is good for those who asked before the question went out, and for nobody who
came later: so whoever comes while one is under way waits for the next, and all of these are served by one.

Thread: any; the question runs on the thread of one of the callers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.errors import KafkaRetriableException

T = TypeVar("T")


@dataclass
class _Round(Generic[T]):
    """One question with all who wait for its answer."""

    done: bool = False
    answer: T | None = None
    error: Exception | None = None


class SharedQuestion(Generic[T]):
    """Asks, for all who want to know at the same time.

    Args:
        ask: The question; takes the seconds it may take.
        what: What is asked, for messages.
        clock: Monotonic seconds.
    """

    def __init__(self, ask: Callable[[float], T], what: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._what = what
        self._clock = clock
        self._changed = threading.Condition()
        self._next: _Round[T] = _Round()
        self._under_way = False

    def answer(self, timeout_s: float) -> T:
        """An answer to a question that was asked after this call began.

        Raises:
            KafkaRetriableException: There was none in time.
            Exception: What the question raised.
        """
        deadline = self._clock() + timeout_s
        while True:
            with self._changed:
                mine = self._next
                if not self._changed.wait_for(lambda: mine.done or not self._under_way, self._left(deadline)):  # noqa: B023
                    raise KafkaRetriableException(f"{self._what}: no answer within {timeout_s:.3g} s")
                if not mine.done:
                    self._under_way, self._next = True, _Round()
            if not mine.done:
                self._serve(mine, deadline)
            # Another caller may have had less time than this one.
            if not isinstance(mine.error, KafkaRetriableException) or not self._left(deadline):
                break
        if mine.error is not None:
            raise mine.error
        assert mine.answer is not None
        return mine.answer

    def _serve(self, one: _Round[T], deadline: float) -> None:
        one.error = KafkaRetriableException(f"{self._what} was given up")
        try:
            one.answer = self._ask(self._left(deadline))
            one.error = None
        except Exception as error:
            one.error = error
        finally:
            with self._changed:
                one.done, self._under_way = True, False
                self._changed.notify_all()

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock())
