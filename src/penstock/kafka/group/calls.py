"""Runs long calls on other threads than that of the heartbeats: calls of a member's owner, and host name lookups.

Main type: ``GroupCalls``: one call after the other, each on its own thread.

Thread: ``submit`` the member's own, ``close`` the owner's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

Ended = Callable[[object, BaseException | None], None]


class GroupCalls:
    """Runs calls one after the other.

    Args:
        name: Of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], object], Ended]] = deque()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], object], ended: Ended) -> None:
        """Runs a call after all earlier calls have ended.

        Args:
            call: It may block.
            ended: Receives the call's result or exception, on the thread of the call.
        """
        with self._lock:
            self._waiting.append((call, ended))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """Drops calls that have not begun, and waits for a running one; False if that does not end in time."""
        with self._lock:
            self._waiting.clear()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                call, ended = self._waiting.popleft()
            try:
                result = call()
            except BaseException as error:
                ended(None, error)
            else:
                ended(result, None)
