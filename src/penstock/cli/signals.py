"""Turns SIGINT and SIGTERM into events for the main thread; a second signal ends the process at once.

Main type: ``Events``, the queue that the main thread of a command waits on. Handlers run in the main thread between two
instructions, so they only use ``SimpleQueue.put`` and ``os._exit``, which are safe there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import FrameType

FORCED_EXIT = 130
_LOOK_S = 1.0


@dataclass(frozen=True)
class Ending:
    """Why the process is to end, and with what exit code."""

    reason: str
    exit_code: int


class Events:
    """What ends a worker: signals, or failures reported by other threads.

    Thread: ``install``, ``wait`` and ``restore`` by the main thread; ``end`` from any.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Ending] = SimpleQueue()
        self._signals = 0
        self._previous: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}

    def install(self) -> None:
        """Takes over SIGINT and SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._on_signal)

    def restore(self) -> None:
        """Gives the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def end(self, reason: str, exit_code: int) -> None:
        """Asks for the end of the process."""
        self._queue.put(Ending(reason, exit_code))

    def wait(self) -> Ending:
        """Waits for the first reason to end."""
        while True:
            try:
                return self._queue.get(timeout=_LOOK_S)
            except Empty:
                # A signal that the system gave to another thread is only seen once this one runs Python code.
                continue

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        name = signal.Signals(number).name
        if self._signals > 1:
            os.write(sys.stderr.fileno(), f"{name} again: ending at once\n".encode())
            os._exit(FORCED_EXIT)
        self._queue.put(Ending(f"{name} received", 0))
