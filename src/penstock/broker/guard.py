"""Processes that end when their owner does, however the owner ends.

Main type: `OwnerGuard`. A small shell waits on a pipe that only the owner holds open; when the owner is gone, even by
SIGKILL, the pipe ends and the shell kills the guarded process. (Linux's parent-death signal follows the thread that
started the child, not the process, and is lost on other systems.)

Thread: one owner; start and release from any one thread at a time.
"""

import os
import subprocess

# The process id arrives on the first line; the second read ends when the owner is gone or releases the guard.
_SCRIPT = 'read -r pid || exit 0; read -r word || kill -KILL "$pid" 2>/dev/null'


class OwnerGuard:
    """Kills one process when this one disappears.

    Start the guard before the process to guard, so that the time without a guard is as short as can be.
    """

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=os.sep,
        )

    def watch(self, pid: int) -> None:
        """From now on, kill `pid` when this process ends without `release`."""
        self._write(f"{pid}\n")

    def release(self) -> None:
        """Let go: the guarded process has ended, or may outlive this one."""
        self._write("released\n")
        if self._shell.stdin is not None:
            try:
                self._shell.stdin.close()
            except BrokenPipeError:
                pass
        self._shell.wait(timeout=10)

    def _write(self, text: str) -> None:
        if self._shell.stdin is None or self._shell.stdin.closed:
            return
        try:
            self._shell.stdin.write(text.encode())
            self._shell.stdin.flush()
        except BrokenPipeError:
            pass
