"""Items that a thread of their own makes ahead of the one who takes them.

Main type: `Ahead`. With several of them a task reads over several connections at once, and the next chunk is there when
the last one was handed over.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

#: The time to wait for a thread to end: its database may not respond.
_END_S = 2.0


class Ahead(Generic[T]):
    """An iterator over what a generator gives on a thread ``snapshot``, at most ``most`` items ahead.

    Args:
        make: Makes the generator; called, and closed, on that thread.
        stopping: Set when nothing more is wanted; the iterator ends.
        most: How many items may wait.
    """

    def __init__(self, make: Callable[[], Iterator[T]], stopping: threading.Event, most: int = 1) -> None:
        self._make = make
        self._stopping = stopping
        self._most = most
        self._changed = threading.Condition()
        self._items: deque[T] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False
        # In a copy of the task's context, so that log lines name the task.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="snapshot", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """The next item; raises the error of the generator, after all items."""
        with self._changed:
            while not self._items and not self._ended:
                if self._stopping.is_set():
                    raise StopIteration
                self._changed.wait(0.2)
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
        if self._error is not None:
            raise self._error
        raise StopIteration

    def close(self) -> None:
        """Ends the thread, and waits for that for a short time."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
        self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            items = self._make()
            try:
                for item in items:
                    if not self._put(item):
                        return
                    # It is not to be kept in memory until the next one is made.
                    del item
            finally:
                end = getattr(items, "close", None)
                if end is not None:
                    end()
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, item: T) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._most)
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            return not self._closed
