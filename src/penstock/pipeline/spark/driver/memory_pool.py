"""The allocators from which a worker takes its memory, and how these keep what is freed.

A batch is made by one thread, converted by another and freed by a third, and a worker with many tasks has a hundred
threads. Arrow's own choice, mimalloc, keeps what each thread has freed for that thread: with twenty file sources five
times of what is in use. jemalloc gives it back after a while, and is as fast.

All else, messages of the Kafka client above all, is from the C library. The GNU one has a heap for each few threads and
learns to put even large blocks there; between messages that come and go hardly a page of these is ever free. Four sink
tasks with messages of 1 KB had 200 MB of such holes.

Main function: ``choose_memory_pool``. Thread: the one that starts the worker, before there are batches.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

#: Arrow's own way for users to choose.
CHOICE: Final = "ARROW_DEFAULT_MEMORY_POOL"
#: The environment variable for the number of heaps of the GNU C library, and the number.
HEAPS_VARIABLE: Final = "MALLOC_ARENA_MAX"
MOST_HEAPS: Final = 2
#: The settings of the library: the environment variable, its number in ``malloc.h``, the value.
GNU_SETTINGS: Final = (
    (HEAPS_VARIABLE, -8, MOST_HEAPS),
    # A set value no longer grows: blocks of at least this size are pages of their own, returned at once.
    ("MALLOC_MMAP_THRESHOLD_", -3, 256 * 1024),
    ("MALLOC_TRIM_THRESHOLD_", -1, 64 * 1024 * 1024),
)
#: The time for which jemalloc keeps free memory, in milliseconds. The next batches use it again within this time; with
#: the default of a second, four tasks with messages of 1 KB had 70 MB more of unused memory.
DECAY_MS: Final = 300
_GNU_TUNABLES: Final = "GLIBC_TUNABLES"


def choose_memory_pool() -> str:
    """Sets the allocators up. Where the environment speaks of one, that one stays as it is.

    Returns:
        The name of the pool that Arrow uses now: jemalloc if it has it.
    """
    _set_up_malloc(os.environ)
    if not os.environ.get(CHOICE) and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
        pa.jemalloc_set_decay_ms(DECAY_MS)
    return str(pa.default_memory_pool().backend_name)


def _set_up_malloc(environment: Mapping[str, str]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or environment.get(_GNU_TUNABLES) or any(name in environment for name, _, _ in GNU_SETTINGS):
        return
    for _, number, value in GNU_SETTINGS:
        mallopt(number, value)
