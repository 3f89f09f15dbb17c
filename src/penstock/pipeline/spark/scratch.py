"""Files that hand a batch to the JVM and are gone after the call.

A disk makes who writes such a file wait, however soon it is deleted: 15 ms for 8 MB that are written and read in 3. So
the file is one of memory alone, where the system has such; the kernel frees it even when the worker is killed.

Main function: ``scratch_file``. Thread: any.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def scratch_file(directory: str, *, in_memory: bool) -> Iterator[str]:
    """An empty file, for as long as the context.

    Args:
        directory: Where it is, if on disk.
        in_memory: Whether it may be one without a place on disk. Other processes of the same user on this machine can
            open its path, too.

    Returns:
        Its path.
    """
    if in_memory and hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("penstock-batch")
        try:
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(dir=directory)
    os.close(descriptor)
    try:
        yield path
    finally:
        os.unlink(path)
