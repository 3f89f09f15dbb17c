"""The entry points of the installed commands: they import the implementation, and end quietly if that is interrupted.

An import takes some tenths of a second; by default Python answers SIGINT during that time with a stack trace.

Main functions: ``connect_standalone``, ``connect_distributed``, ``penstock``. Thread: the main thread of the command.
"""

from __future__ import annotations

import importlib
import os
import signal
from types import FrameType
from typing import Any

#: The exit code with which a shell reports a command that SIGINT has ended.
_INTERRUPTED = 128 + signal.SIGINT


def connect_standalone() -> None:
    """``connect-standalone``."""
    _imported("penstock.cli.worker.standalone").main()


def connect_distributed() -> None:
    """``connect-distributed``."""
    _imported("penstock.cli.worker.distributed").main()


def penstock() -> None:
    """``penstock``."""
    _imported("penstock.cli.main").main()


def _imported(module: str) -> Any:
    # If the signal is ignored, as in the background of a script, it stays ignored.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return importlib.import_module(module)
    signal.signal(signal.SIGINT, _end)
    try:
        return importlib.import_module(module)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    # The command has not started anything yet that would need an orderly end.
    os._exit(_INTERRUPTED)
