"""How much longer work takes for twice the input: processor time, so that a busy machine changes little."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, Final

#: Sizes are divided by it, and the time that is too short to measure: a quarter finds what is out of step.
_PART: Final = 4
#: Twice the input may take so many times as long; four times would be quadratic.
MOST = 3.0
#: What is quicker than this is measured with too much noise, and does no harm.
FLOOR_S = 0.2 / _PART
_TRIES = 5


def require_in_step(
    make: Callable[[int], Any], run: Callable[[Any], object], size: int, clock: Callable[[], float] = time.thread_time
) -> None:
    """Fails where work for an input of twice the size takes more than three times as long.

    Args:
        make: An input of a size.
        run: The work; an error that it raises is its verdict on the input.
        size: Large enough that quadratic work takes seconds.
        clock: Seconds of processor time.
    """
    size //= _PART
    small = large = float("inf")
    for _ in range(_TRIES):
        large = min(large, seconds(run, make(2 * size), clock))
        # Most work is this quick, and need not be done for the small input, too.
        if large <= FLOOR_S:
            return
        small = min(small, seconds(run, make(size), clock))
        if large <= MOST * small:
            return
    raise AssertionError(f"an input of {size} takes {small:.3f} s, one of {2 * size} takes {large:.3f} s")


def seconds(run: Callable[[Any], object], given: Any, clock: Callable[[], float] = time.thread_time) -> float:
    """How long the work for an input takes."""
    gc.collect()
    gc.disable()
    begun = clock()
    try:
        run(given)
    except Exception as error:
        str(error)
    finally:
        took = clock() - begun
        gc.enable()
    return took
