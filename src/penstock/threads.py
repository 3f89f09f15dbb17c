"""Threads with an owner, deadlines, and the end of work that no caller waits for.

Threads are daemons: a thread that a user's code blocks for ever must not keep the process alive. ``end_work`` ends
Python code of a plugin that loops for ever; a blocking call into C ends only when it returns. Only work that changes
nothing may be ended so: a check of a configuration, not the writing of one.
"""

from __future__ import annotations

import contextvars
import ctypes
import errno
import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import FrameType
from typing import Final, TypeVar

from penstock.errors import ConnectException, as_exception

#: Code that treats any error of a plugin as its verdict also catches this one and continues: then it is raised again.
_FIRST_S: Final = 0.05
_LONGEST_S: Final = 0.2
_TRIES_S: Final = 600.0
#: These modules take locks of the whole process, not always with a statement that releases them in every case.
_LOCKING: Final = ("threading", "logging", "importlib", "_frozen_importlib", "concurrent.futures", "queue")


class WorkEnded(BaseException):
    """Raised in a thread whose request was answered without it."""


def end_work(thread: threading.Thread) -> None:
    """Has a thread end its work soon; returns at once. Thread: any."""
    name = f"end-{thread.name}"
    try:
        threading.Thread(target=_end, args=(thread,), name=name, daemon=True).start()
    except RuntimeError:
        log.warning("%s keeps running although no caller waits for it: the system refuses another thread", thread.name)


def _end(thread: threading.Thread) -> None:
    pause, deadline = _FIRST_S, time.monotonic() + _TRIES_S
    while thread.is_alive() and time.monotonic() < deadline:
        if thread.ident is not None and not _is_locking(sys._current_frames().get(thread.ident)):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(WorkEnded))
        thread.join(pause)
        pause = min(_LONGEST_S, pause * 1.5)


def _is_locking(frame: FrameType | None) -> bool:
    """True if the thread may have taken a lock that only its next instruction lets go of; None has no frame.

    The exception is raised where the thread has released the interpreter: in the frame that is visible here.
    """
    if frame is None:
        return True
    module = str(frame.f_globals.get("__name__", ""))
    waits = module == "threading" and frame.f_code.co_name == "wait"
    return module.startswith(_LOCKING) and not waits


T = TypeVar("T")
log = logging.getLogger(__name__)


class Deadline:
    """A moment that a chain of blocking calls shares, by a monotonic clock.

    >>> now = [10.0]
    >>> deadline = Deadline(5, clock=lambda: now[0])
    >>> now[0] = 12.0
    >>> deadline.remaining(), deadline.passed
    (3.0, False)
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock() + seconds

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._at - self._clock())

    @property
    def passed(self) -> bool:
        return self.remaining() == 0.0


class NoThreadException(ConnectException):
    """The system lets the worker have no more threads."""


class StopEvent(threading.Event):
    """The event that a task waits on for its end: a task that waits here is idle.

    The stack of the thread shows ``wait`` of this class as the last of the worker's frames, and so no code of the
    author's that would keep it busy.
    """

    def __init__(self) -> None:
        super().__init__()
        self._then: list[Callable[[], None]] = []
        self._adding = threading.Lock()

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(timeout)

    def set(self) -> None:
        """See ``threading.Event``; calls the functions given to ``then``, each once."""
        super().set()
        with self._adding:
            told, self._then = self._then, []
        for call in told:
            call()

    def then(self, call: Callable[[], None]) -> None:
        """Has something called when the event is set, by the thread that sets it; at once if it is."""
        with self._adding:
            later = not self.is_set()
            if later:
                self._then.append(call)
        if not later:
            call()


class OwnedThread:
    """A named daemon thread of one owner. An error of its function is logged, because no caller would get it."""

    def __init__(self, name: str, body: Callable[[], None]) -> None:
        self._body = body
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def name(self) -> str:
        return self._thread.name

    def start(self) -> None:
        """Starts it, once; raises NoThreadException if the system refuses it."""
        try:
            self._thread.start()
        except RuntimeError as error:
            if self._thread.ident is not None:
                raise
            raise NoThreadException(
                f"The worker cannot start the thread {self.name}: it has {threading.active_count()}, and the system "
                "gives it no more. Raise the limit (ulimit -u, pids.max of a container) or find the connector that "
                "leaks threads (penstock explain, /proc/PID/task), and try again"
            ) from error

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits for its end; False when it still runs after the timeout. True at once when it never started."""
        if self._thread.ident is None:
            return True
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def end_work(self) -> None:
        """Ends its work soon, if that changes nothing; returns at once. Thread: any."""
        end_work(self._thread)

    def _run(self) -> None:
        try:
            self._body()
        except WorkEnded:
            log.info("Thread %s was ended: no caller waits for it any more", self._thread.name)
        except BaseException:
            log.exception("Thread %s ended by an error", self._thread.name)


def start_within(name: str, body: Callable[[], None]) -> OwnedThread:
    """A running thread whose log lines name the same task as the lines of the thread that starts it."""
    thread = OwnedThread(name, partial(contextvars.copy_context().run, body))
    thread.start()
    return thread


def in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Runs one call on a new thread; raises NoThreadException if the system refuses it.

    For calls in which a user's code may block for any time: a pool would run out of threads.
    """
    return in_own_thread(name, call)[0]


def in_own_thread(name: str, call: Callable[[], T]) -> tuple[Future[T], OwnedThread]:
    """As ``in_thread``, with the thread."""
    future, body = as_future(call)
    thread = OwnedThread(name, body)
    thread.start()
    return future, thread


def as_future(call: Callable[[], T]) -> tuple[Future[T], Callable[[], None]]:
    """The outcome of a call as a future, and the function that a thread must run for it, once.

    If the future is cancelled before, nothing runs; a call that has begun is not cancelled.
    """
    future: Future[T] = Future()

    def body() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = call()
        except BaseException as error:
            # An error that is no ``Exception`` would end the loop that waits for it.
            future.set_exception(as_exception(error))
        else:
            future.set_result(result)

    return future, body


FILES_USED_UP: Final = (
    "Raise the limit of open files (ulimit -Hn), or find the connector that leaks them: ls -l /proc/PID/fd shows all"
)


def lacks_descriptor(error: BaseException | None) -> bool:
    """True if an error, or what led to it, is that a file or connection could not be opened for lack of descriptors.

    >>> lacks_descriptor(OSError(errno.EMFILE, "Too many open files")), lacks_descriptor(OSError(errno.ENOSPC, ""))
    (True, False)
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False
