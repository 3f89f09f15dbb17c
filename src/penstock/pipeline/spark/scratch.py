"""The temporary directory of a session's JVM, and the removal of directories left by JVMs of killed workers.

Main functions: ``make_scratch``, ``remove_scratch``, ``remove_stale_scratch``. The owner of a directory holds a lock in
it until its process ends: a process id is not unique if several containers or machines share temporary directories.

Thread: any; the session's, in practice.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path
from typing import Final

SCRATCH_PREFIX: Final = "penstock-spark-"
#: Its text is the name of the host: whether a lock of another one is seen depends on the file system.
_OWNER: Final = "owner"
_held: dict[str, int] = {}


def make_scratch() -> str:
    """A directory of this user's, which this process holds; its path."""
    made = tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-")
    descriptor = os.open(os.path.join(made, _OWNER), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, socket.gethostname().encode())
    _held[made] = descriptor
    return made


def remove_scratch(path: str) -> None:
    """Removes a directory that ``make_scratch`` has made; one that is gone is no error."""
    shutil.rmtree(path, ignore_errors=True)
    if (descriptor := _held.pop(path, None)) is not None:
        os.close(descriptor)


def remove_stale_scratch() -> None:
    """Removes the directories of this user and host that no process holds; others are left as they are."""
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*-*"):
        descriptor = _taken(path)
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)


def _taken(path: Path) -> int | None:
    """The lock of a directory of this user and host whose owner has ended; None for others."""
    try:
        state = path.lstat()
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
            return None
        descriptor = os.open(path / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(descriptor, 1024).decode(errors="replace") == socket.gethostname():
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
