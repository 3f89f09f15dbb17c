"""Ends the work of a thread whose result nobody waits for any more.

Main function: ``end_work``. Python code of a plugin that loops for ever ends; what blocks in a call into C ends when
that call returns. Only work that changes nothing may be ended so: a check of a configuration, not the writing of one.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import time
from types import FrameType
from typing import Final

log = logging.getLogger(__name__)

#: Code that takes a plugin's error for its verdict catches this one, too, and goes on: then it is raised once more.
_FIRST_S: Final = 0.05
_LONGEST_S: Final = 0.2
_TRIES_S: Final = 600.0
#: These take locks of the whole process, not always with a statement that lets go of them whatever happens.
_LOCKING: Final = ("threading", "logging", "importlib", "_frozen_importlib", "concurrent.futures", "queue")


class WorkEnded(BaseException):
    """Raised in a thread whose request was answered without it."""


def end_work(thread: threading.Thread) -> None:
    """Has a thread end its work soon; returns at once. Thread: any."""
    name = f"end-{thread.name}"
    try:
        threading.Thread(target=_end, args=(thread,), name=name, daemon=True).start()
    except RuntimeError:
        log.warning("%s goes on though nobody waits for it: the system gives no more threads", thread.name)


def _end(thread: threading.Thread) -> None:
    pause, deadline = _FIRST_S, time.monotonic() + _TRIES_S
    while thread.is_alive() and time.monotonic() < deadline:
        if thread.ident is not None and not _is_locking(sys._current_frames().get(thread.ident)):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(WorkEnded))
        thread.join(pause)
        pause = min(_LONGEST_S, pause * 1.5)


def _is_locking(frame: FrameType | None) -> bool:
    """True if the thread may have taken a lock that only its next instruction lets go of; None has no frame.

    What is raised in a thread comes where it has left the interpreter to this one: in the frame that is seen here.
    """
    if frame is None:
        return True
    module = str(frame.f_globals.get("__name__", ""))
    waits = module == "threading" and frame.f_code.co_name == "wait"
    return module.startswith(_LOCKING) and not waits
