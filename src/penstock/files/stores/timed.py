"""Calls of libraries that have no limit in time of their own. Main type: ``TimedCalls``.

Threads: any; each call runs on a thread of its own, which is abandoned if the call does not return in time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import Final, TypeVar

from penstock.errors import RetriableException

_T = TypeVar("_T")
#: The number of calls without a return above which a further one waits for one of them.
_MOST_LATE: Final = 16


class TimedCalls:
    """Makes calls, and abandons each one that does not return in time.

    An abandoned call may still take effect later, like one of a frozen process.

    Args:
        limit_s: The time that a call may take, in seconds.
        label: The store, for people.
    """

    def __init__(self, limit_s: float, label: str) -> None:
        self._limit_s = limit_s
        self._label = label
        self._late: list[threading.Thread] = []
        self._lock = threading.Lock()

    def __call__(self, call: Callable[[], _T], alive: Callable[[], object] | None = None) -> _T:
        """Makes a call.

        Args:
            call: The call.
            alive: A short call that shows that the store still answers: as long as it returns, ``call`` is waited for.

        Raises:
            RetriableException: It has not returned in time.
        """
        self._wait_for_late()
        answer: Future[_T] = Future()
        thread = threading.Thread(target=_run, args=(call, answer), name="store-call", daemon=True)
        thread.start()
        while True:
            try:
                return answer.result(self._limit_s)
            except LateError:
                if answer.done():
                    return answer.result()
                if alive is None:
                    break
                try:
                    self(alive)
                except RetriableException:
                    break
        with self._lock:
            self._late.append(thread)
        raise self._fault()

    def _wait_for_late(self) -> None:
        deadline = time.monotonic() + self._limit_s
        while True:
            with self._lock:
                self._late = [one for one in self._late if one.is_alive()]
                if len(self._late) < _MOST_LATE:
                    return
                oldest = self._late[0]
            if (left := deadline - time.monotonic()) <= 0:
                raise self._fault()
            oldest.join(left)

    def _fault(self) -> RetriableException:
        return RetriableException(f"{self._label} has not answered for {self._limit_s:g} s (store.timeout.ms)")


def _run(call: Callable[[], _T], answer: Future[_T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:
        answer.set_exception(error)
