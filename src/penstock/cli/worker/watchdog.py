"""A small second process that kills a worker which cannot end itself after signals.

Python runs the handler of a signal in the main thread, between two instructions. C code that holds the interpreter,
such as a regular expression that searches for hours, keeps the handler from running. But the C part of the handler
writes the signal's number into a pipe at once (``signal.set_wakeup_fd``). This process reads it.

Main type: ``WatchdogVerdict``, which decides. The worker's side is ``penstock.cli.worker.worker``, which runs this
file by its path: importing the package would take a hundred times the memory and the time. It ends when the pipe does,
which is when the worker ends.

Thread: this process's main thread.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

#: The worker writes this in addition to the numbers of signals: its clean stop has begun.
BEGUN = 0
#: Seconds after the first signal in which a clean stop must begin; once begun, it has its own deadlines.
BEGIN_WITHIN_S = 10.0
#: Seconds after the first signal in which further ones are the same request: ``timeout``
#: signals its child, then its process group.
SAME_WISH_S = 0.2
#: Seconds for Python's own handler of the second signal, before the process is killed.
AGAIN_WITHIN_S = 0.5

_ENDING = (signal.SIGINT, signal.SIGTERM)


class WatchdogVerdict:
    """Decides when to kill a worker. No I/O; times are arguments.

    >>> verdict = WatchdogVerdict()
    >>> verdict.told(signal.SIGTERM, 5.0)
    >>> verdict.kill_at
    15.0
    >>> verdict.told(BEGUN, 6.0)
    >>> verdict.kill_at
    >>> verdict.told(signal.SIGINT, 7.0)
    >>> verdict.kill_at
    7.5

    Attributes:
        kill_at: The time at which to kill the worker; None if that is not due.
    """

    def __init__(self) -> None:
        self.kill_at: float | None = None
        self._first: float | None = None
        self._begun = False
        self._again = False

    def told(self, number: int, now: float) -> None:
        """Records a signal, or the start of the clean stop."""
        if number == BEGUN:
            self._begun = True
            if not self._again:
                self.kill_at = None
        elif number not in _ENDING or self._again:
            return
        elif self._first is None:
            self._first = now
            self.kill_at = None if self._begun else now + BEGIN_WITHIN_S
        elif now - self._first > SAME_WISH_S:
            self._again = True
            self.kill_at = now + AGAIN_WITHIN_S


def main() -> None:
    """Reads the pipe on standard input until it ends; kills its parent when the verdict says so."""
    # A signal to all processes of a service is meant for the worker, which closes the pipe when it is done.
    for ignored in (signal.SIGHUP, *_ENDING):
        signal.signal(ignored, signal.SIG_IGN)
    worker = os.getppid()
    verdict = WatchdogVerdict()
    pipe = select.poll()
    pipe.register(sys.stdin.fileno(), select.POLLIN)
    while True:
        left_s = None if verdict.kill_at is None else verdict.kill_at - time.monotonic()
        if left_s is not None and left_s <= 0:
            _kill(worker)
            return
        if pipe.poll(None if left_s is None else left_s * 1000 + 1):
            numbers = os.read(sys.stdin.fileno(), 512)
            if not numbers:
                return
            for number in numbers:
                verdict.told(number, time.monotonic())


def _kill(worker: int) -> None:
    # Another parent means that the worker has ended, and that its process id may be in use again.
    if os.getppid() == worker:
        os.write(sys.stderr.fileno(), b"The worker does not react to signals: it is killed\n")
        os.kill(worker, signal.SIGKILL)


if __name__ == "__main__":
    main()
