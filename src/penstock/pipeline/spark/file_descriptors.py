"""Retries jobs that failed because the worker had no free file descriptor.

Main names: `Shortage` (limits the retries), `lacks_descriptor` (recognizes the error), `FILES_USED_UP` (advice for
users). The shortage is often temporary, whether a connector leaks descriptors or a thousand clients use them.

Thread: one `Shortage` belongs to one job, and thereby to one thread.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.errors import ConnectException
from penstock.telemetry.logs import SeldomLog

PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.5
FILES_USED_UP: Final = (
    "Raise the limit of open files (ulimit -Hn), or find the connector that leaks them: ls -l /proc/PID/fd shows all"
)
_seldom = SeldomLog(logging.getLogger(__name__))


def lacks_descriptor(error: BaseException | None) -> bool:
    """True if an error, or what led to it, is that a file or connection could not be opened for lack of descriptors.

    >>> lacks_descriptor(OSError(errno.EMFILE, "Too many open files")), lacks_descriptor(OSError(errno.ENOSPC, ""))
    (True, False)
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False


class Shortage:
    """The retries of one job.

    Args:
        pause: waits the given number of seconds.
        clock: monotonic seconds.
    """

    def __init__(
        self, pause: Callable[[float], object] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pause = pause or threading.Event().wait
        self._clock = clock
        self._until: float | None = None

    def wait(self, error: BaseException) -> None:
        """Waits for a moment, after which the job may be tried again.

        Raises:
            ConnectException: it was tried for a minute.
        """
        now = self._clock()
        self._until = now + PATIENCE_S if self._until is None else self._until
        if now >= self._until:
            raise ConnectException(
                f"The worker has no file descriptor left to hand a batch to Spark, for {PATIENCE_S:.0f} s now. "
                f"{FILES_USED_UP}"
            ) from error
        _seldom.warning("files", "A batch waits: the worker has no file descriptor left. %s", FILES_USED_UP)
        self._pause(PAUSE_S)
