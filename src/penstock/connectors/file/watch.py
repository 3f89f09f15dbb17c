"""Wakes tasks that wait for their files: one thread looks at the files of all of them.

Hundreds of threads that look for themselves a hundred times a second keep a core busy with waking up.

Main types: `FileWatch` and `Mark`, what a file looked like.

Threads: `wait` is called on the tasks' threads. `FileWatch` owns the thread `file-watch`, which runs while somebody
waits and a moment longer.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

#: How often the files are looked at.
LOOK_S = 0.01
#: How long the thread stays when nobody waits.
LINGER_S = 2.0

Mark = tuple[int, int, int, int] | None


def mark_of(path: str) -> Mark:
    """Returns the device, inode, size and time of change of a file, which show a change; None if it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(eq=False)
class _Waiting:
    path: str
    seen: Mark
    woken: threading.Event


class FileWatch:
    """Files that are waited for. Thread: any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: set[_Waiting] = set()
        self._running = False

    def wait(self, path: str, seen: Mark, woken: threading.Event, timeout_s: float) -> None:
        """Wait until a file differs from what it was, or somebody sets the event, which is cleared in the end.

        Args:
            path: the file.
            seen: what it looked like before it was read to its end.
            woken: set when it has changed; whoever else sets it ends the wait, too.
            timeout_s: how long at most.
        """
        entry = _Waiting(path, seen, woken)
        with self._changed:
            self._waiting.add(entry)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="file-watch", daemon=True).start()
            self._changed.notify_all()
        try:
            woken.wait(timeout_s)
        finally:
            with self._changed:
                self._waiting.discard(entry)
            woken.clear()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, LINGER_S):
                    self._running = False
                    return
                entries = list(self._waiting)
            for entry in entries:
                if mark_of(entry.path) != entry.seen:
                    entry.woken.set()
            pause.wait(LOOK_S)
