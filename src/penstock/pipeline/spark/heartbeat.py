"""Asks whether something still answers, without ever waiting for it longer than asked to.

Main types: ``Heartbeat``, and ``Silence``, which adds up how long it has not. Thread: the owner's, which calls
``answers``; each question runs on a ``spark-heartbeat`` thread that ends with its answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


class Silence:
    """For how long there was no answer, by rounds of asking and not by the clock alone.

    Args:
        max_round_s: What a round counts at most. One that takes longer was frozen itself, as a whole container or
            machine is, and knows nothing of what it asks.
        clock: Monotonic seconds.

    >>> moments = iter([0.0, 2.0, 4.0, 3600.0, 3602.0, 3604.0])
    >>> silence = Silence(3.0, lambda: next(moments))
    >>> [silence.after(answered=answered) for answered in (True, False, False, False, True)]
    [0.0, 2.0, 5.0, 7.0, 0.0]
    """

    def __init__(self, max_round_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_round_s = max_round_s
        self._clock = clock
        self._latest = clock()
        self._seconds = 0.0

    def after(self, *, answered: bool) -> float:
        """Seconds without an answer, after one more round."""
        before, self._latest = self._latest, self._clock()
        self._seconds = 0.0 if answered else self._seconds + min(self._max_round_s, self._latest - before)
        return self._seconds


class Heartbeat:
    """Puts one question again and again; what does not answer blocks the thread of the question, not the asker.

    Args:
        ask: The question; it may raise, and it may block for ever. Such a thread ends when its connection is closed.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._thread: threading.Thread | None = None
        self._answered = threading.Event()
        self._refused: BaseException | None = None

    @property
    def refused(self) -> BaseException | None:
        """What the latest question that came back raised; None when it was answered."""
        return self._refused

    def answers(self, wait_s: float) -> bool:
        """Whether the latest question was answered; waits for that up to ``wait_s``. Asks the next one."""
        if self._thread is not None and self._thread.is_alive():
            return self._joined(wait_s)
        ok = self._thread is None or self._answered.is_set()
        self._answered.clear()
        self._thread = threading.Thread(target=self._put, name="spark-heartbeat", daemon=True)
        self._thread.start()
        return self._joined(wait_s) and ok

    def _joined(self, wait_s: float) -> bool:
        assert self._thread is not None
        self._thread.join(wait_s)
        return self._answered.is_set()

    def _put(self) -> None:
        try:
            self._ask()
        except Exception as error:
            self._refused = error
            log.debug("Heartbeat of Spark: %s", error)
        else:
            self._refused = None
            self._answered.set()
