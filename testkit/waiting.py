"""Waits for what another thread or process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def await_true(
    holds: Callable[[], object], what: str | Callable[[], object] = "not seen", timeout_s: float = 60.0
) -> None:
    """Waits for something to become true.

    Args:
        holds: Is asked again and again, and has to be quick.
        what: The message when it does not come; a function is called then.
        timeout_s: Seconds.

    Raises:
        AssertionError: It did not become true in time.
    """
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < end, what() if callable(what) else what
        pause.wait(0.005)
