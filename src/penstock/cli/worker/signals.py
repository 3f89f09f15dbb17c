"""Turns SIGINT and SIGTERM into events for the main thread; a second signal ends the process at once.

Main type: ``Events``, the queue that the main thread of a command waits on. Handlers run in the main thread between two
instructions, so they only use ``SimpleQueue.put`` and ``os._exit``, which are safe there. A second process,
``penstock.cli.worker.watchdog``, acts while no handler can run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import FrameType

from penstock.cli.worker import watchdog

log = logging.getLogger(__name__)

FORCED_EXIT = 130
_LOOK_S = 1.0
_WATCHDOG_END_S = 5.0


@dataclass(frozen=True)
class ExitReason:
    """The reason for the end of the process, and its exit code."""

    reason: str
    exit_code: int


class Events:
    """The events that end a worker: signals, or failures reported by other threads.

    Thread: ``install``, ``wait`` and ``restore`` by the main thread; ``end`` from any.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[ExitReason] = SimpleQueue()
        self._first: float | None = None
        self._previous: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

    def install(self) -> None:
        """Takes over SIGINT and SIGTERM, and starts the process that kills this one when it cannot react to them."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._on_signal)
        # A signal to a forked child does not concern this process, and no thread of the child waits for events.
        os.register_at_fork(after_in_child=self._let_go)
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        try:
            self._watchdog = subprocess.Popen(
                # Without site-packages: 10 ms, and only the memory of the interpreter itself.
                [sys.executable, "-I", "-S", watchdog.__file__],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                cwd=os.sep,
            )
        except OSError as error:
            os.close(write_end)
            log.warning("A worker that does not react to signals can only be killed: no process for that: %s", error)
        else:
            self._pipe = write_end
            signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        finally:
            os.close(read_end)

    def restore(self) -> None:
        """Gives the signals back."""
        self._let_go()
        if self._watchdog is None:
            return
        try:
            self._watchdog.wait(_WATCHDOG_END_S)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            self._watchdog.wait()

    def end(self, reason: str, exit_code: int) -> None:
        """Asks for the end of the process."""
        self._queue.put(ExitReason(reason, exit_code))

    def wait(self) -> ExitReason:
        """Waits for the first reason to end. The caller then stops the worker."""
        while True:
            try:
                ending = self._queue.get(timeout=_LOOK_S)
            except Empty:
                # A signal that the system gave to another thread is only seen once this one runs Python code.
                continue
            self._tell(watchdog.BEGUN)
            return ending

    def _tell(self, what: int) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                os.write(self._pipe, bytes([what]))

    def _let_go(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)
            os.close(self._pipe)
            self._pipe = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        name = signal.Signals(number).name
        if self._first is None:
            self._first = now
            self._queue.put(ExitReason(f"{name} received", 0))
        elif now - self._first > watchdog.SAME_WISH_S:
            os.write(sys.stderr.fileno(), f"{name} again: ending at once\n".encode())
            os._exit(FORCED_EXIT)
