"""A file that takes another's place as a whole: after a crash at any moment there is the old one or the new one.

Main function: ``replace_file``. Thread: any; one at a time for a file.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Points of a replacement, for tests that end the process there.
TEMPORARY_WRITTEN: Final = "temporary-written"
RENAMED: Final = "renamed"


def replace_file(file: Path, content: bytes, at_point: Callable[[str], None] = lambda point: None) -> None:
    """Writes a temporary file beside a file, makes it durable, and puts it in the file's place.

    A file that is there keeps its mode; a new one is readable by its owner alone, whatever the umask.

    Args:
        file: The file.
        content: What it is to hold.
        at_point: Called with ``TEMPORARY_WRITTEN`` and ``RENAMED`` on the way.

    Raises:
        OSError: It cannot be written. The old one is there, unless the directory alone could not be made durable.
    """
    temporary = file.with_name(f"{file.name}.tmp")
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o600
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
            os.fchmod(handle.fileno(), mode)
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        at_point(TEMPORARY_WRITTEN)
        temporary.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    at_point(RENAMED)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
