"""The stacks of this process's threads, taken at one moment.

Python 3.11 keeps a pointer from a generator's frame to the frame below it after the generator was left; following it
then reads memory with other contents, which can crash the process. So no thread may run between two steps down a stack.
A thread releases the interpreter only between instructions of Python, never inside of a built-in iterator: the whole
walk is one call of such iterators.

Main function: ``stacks``. Thread: any.
"""

from __future__ import annotations

import gc
import sys
from itertools import chain, repeat, starmap, tee
from operator import itemgetter
from types import FrameType
from typing import Any, Final

from penstock.telemetry.waits import Stack

#: The most frames of a stack that are walked.
MOST_FRAMES: Final = 160


def stacks() -> dict[int, Stack]:
    """The stack of each thread, outermost place first, by the thread's ident.

    Of a stack that is deeper these are the innermost ``MOST_FRAMES`` places.
    """
    found: dict[int, Stack] = {}
    for ident, *frames in _walked(MOST_FRAMES):
        there: list[FrameType] = frames[: frames.index(None)] if None in frames else frames
        found[ident] = [(one.f_code.co_filename, one.f_lineno, one.f_code.co_name) for one in reversed(there)]
    return found


def _walked(depth: int) -> list[tuple[Any, ...]]:
    """A row for each thread: its ident, its innermost frame, the frame below that, and so on; None where it ends."""
    by_ident: Any = chain.from_iterable(map(dict.items, starmap(sys._current_frames, [()])))
    for_idents, for_frames = tee(by_ident)
    levels: list[Any] = [map(itemgetter(1), for_frames)]
    for _ in range(depth - 1):
        levels[-1], above = tee(levels[-1])
        levels.append(map(getattr, above, repeat("f_back"), repeat(None)))
    rows = zip(map(itemgetter(0), for_idents), *levels, strict=True)
    # Finalizers that the collector calls are Python, too.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return list(rows)
    finally:
        if was_enabled:
            gc.enable()
