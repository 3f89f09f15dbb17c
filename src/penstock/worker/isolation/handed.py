"""Numbers for what a task has handed over, the same on both sides, so that it need not cross again to be named.

Main type: ``Handed``. Thread: one adds, one asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Handed:
    """What was handed over, in order. It is asked for in this order too, and then let go.

    >>> handed = Handed()
    >>> first, second = "a", "b"
    >>> handed.add([first, second])
    >>> handed.number_of(second), handed.at(1)
    (1, 'b')
    """

    def __init__(self) -> None:
        self._left: deque[object] = deque()
        self._first = 0

    def add(self, items: Iterable[object]) -> None:
        """Notes what was handed over."""
        self._left.extend(items)

    def number_of(self, item: object) -> int:
        """The number of an object; those before it are let go.

        Raises:
            LookupError: It is not there, or one behind it was asked for before.
        """
        while self._left:
            if self._left[0] is item:
                return self._first
            self._let_go()
        raise LookupError("what the task is to be told of was not handed over by it")

    def at(self, number: int) -> object:
        """The object of a number; those before it are let go.

        Raises:
            LookupError: It was let go.
        """
        while self._left and self._first < number:
            self._let_go()
        if not self._left or self._first != number:
            raise LookupError(f"number {number} of what the task has handed over is not there any more")
        return self._left[0]

    def _let_go(self) -> None:
        self._left.popleft()
        self._first += 1
