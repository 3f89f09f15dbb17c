"""Which allocator Arrow takes its memory from in a worker.

A batch is made by one thread, converted by another and freed by a third, and a worker with many tasks has a hundred
threads. Arrow's own choice, mimalloc, keeps what each thread has freed for that thread: with twenty file sources five
times of what is in use. jemalloc gives it back after a second, and is as fast.

Thread: the one that starts the worker, before there are batches.
"""

from __future__ import annotations

import os
from typing import Final

import pyarrow as pa

#: Arrow's own way for users to choose.
CHOICE: Final = "ARROW_DEFAULT_MEMORY_POOL"


def choose_memory_pool() -> str:
    """Takes jemalloc where Arrow has it, unless the environment says otherwise.

    Returns:
        The name of the allocator that is used from now on.
    """
    if not os.environ.get(CHOICE) and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    return str(pa.default_memory_pool().backend_name)
