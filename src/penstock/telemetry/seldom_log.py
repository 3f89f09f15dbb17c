"""Warnings that would repeat themselves: each is logged once in a while.

Main type: `SeldomLog`. While a broker is away, a client finds that out many times a second.

Thread: any.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

REPEAT_S: Final = 60.0


class SeldomLog:
    """Warnings of one part; each kind is written once a minute.

    Args:
        logger: where to.
        clock: monotonic seconds.

    Attributes:
        last: the last warning, written or not; None before the first.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[object, float] = {}
        self.last: str | None = None

    def warning(self, key: object, text: str, *args: object) -> None:
        """Writes the line unless one with this key was written within the last minute."""
        self.last = text % args
        if self._is_due(key):
            self._logger.warning(text, *args)

    def _is_due(self, key: object) -> bool:
        now = self._clock()
        with self._lock:
            if now - self._last.get(key, now - REPEAT_S) < REPEAT_S:
                return False
            self._last[key] = now
            return True
