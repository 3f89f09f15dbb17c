"""What the Kafka client says by itself, as lines of the worker's log that a person can live with.

Main names: `CLIENT_LOG`, the logger that every client is made with, so that nothing reaches standard error by itself;
`SeldomLog`, which writes a warning that repeats itself once a minute. While a broker is away, a client finds that out
many times a second.

Thread: any.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

REPEAT_S: Final = 60.0

#: Facilities of librdkafka that say what its error callback says too.
_SAID_ELSEWHERE: Final = frozenset({"FAIL", "ERROR"})
#: What is part of starting and mends itself.
_ROUTINE: Final = frozenset({"GETPID"})


class SeldomLog:
    """Warnings of one client; each kind is written once a minute.

    Args:
        logger: where to.
        clock: monotonic seconds.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[object, float] = {}

    def warning(self, key: object, text: str, *args: object) -> None:
        """Writes the line unless one with this key was written within the last minute."""
        if self._is_due(key):
            self._logger.warning(text, *args)

    def _is_due(self, key: object) -> bool:
        now = self._clock()
        with self._lock:
            if now - self._last.get(key, now - REPEAT_S) < REPEAT_S:
                return False
            self._last[key] = now
            return True


def is_news(record: logging.LogRecord) -> bool:
    """Whether a client's own line says anything that the worker does not say otherwise.

    The client gives facility, client and text as arguments. With the level DEBUG everything passes.
    """
    if not isinstance(record.args, tuple) or not record.args:
        return True
    facility = record.args[0]
    return (facility not in _SAID_ELSEWHERE and facility not in _ROUTINE) or CLIENT_LOG.isEnabledFor(logging.DEBUG)


CLIENT_LOG: Final = logging.getLogger("penstock.kafka.client")
CLIENT_LOG.addFilter(is_news)
