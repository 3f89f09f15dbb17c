"""Calls that may take long, away from the thread that heartbeats need: of a member's owner, and for names of hosts.

Main type: ``GroupCalls``: one call after the other, each on a thread that exists for it.

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
        """Runs a call when those before it have ended.

        Args:
            call: It may block.
            ended: Is told what the call has returned, or what it has raised; on the thread of the call.
        """
        with self._lock:
            self._waiting.append((call, ended))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """Drops what has not begun, and waits for what has; False when that has not ended in time."""
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
