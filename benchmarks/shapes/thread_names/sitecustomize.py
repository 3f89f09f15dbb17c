"""Gives the system the names of Python's threads, which Python does not do before 3.14; for workers that are measured.

Python imports it at the start of a process that has this directory on its path.
"""

import ctypes
import sys
import threading

_PR_SET_NAME = 15
_system = ctypes.CDLL(None)


def _tell(frame: object, event: str, argument: object) -> None:
    """The first call in a thread: the name is told, and no other call comes here."""
    sys.setprofile(None)
    _system.prctl(_PR_SET_NAME, threading.current_thread().name.encode()[:15])


threading.setprofile(_tell)
