"""Finds the origin of the frames of a trace, and removes frames that do not help users. Pure."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from typing import Final

_PACKAGE: Final = os.path.dirname(os.path.abspath(__file__))
_BEGIN: Final = "Traceback (most recent call last):"
#: Where the standard library is.
_STANDARD: Final = tuple({sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib")})
#: A module among installed ones.
_INSTALLED: Final = re.compile(r"/(?:site|dist)-packages/(\w+)")
#: The libraries that the worker calls, and their dependencies.
_LIBRARIES: Final = re.compile(
    "anyio|attrs?|authlib|cachetools|certifi|click|confluent_kafka|cryptography|fastavro|google|grpc|h11|httpcore2?|httpx2?"
    "|javaproperties|jsonschema|numpy|orjson|pandas|py4j|pyarrow|pyspark|referencing|rich|starlette|uvicorn"
)


def python_trace(exc: BaseException) -> str:
    """Python's trace of an error with its causes, with the frames of authors and the last one of each error.

    Files are shown from where they are imported. Errors that were never raised have none: then it is empty.
    """
    shown = traceback.TracebackException.from_exception(exc)
    roots = sorted((entry.rstrip(os.sep) for entry in sys.path if entry), key=len, reverse=True)
    everything = _all_of(shown)
    if not any(one.stack for one in everything):
        return ""
    for one in everything:
        _leave_out_our_frames(one)
        _shorten(one, roots)
    text = "".join(shown.format()).rstrip("\n")
    return text if text.startswith(_BEGIN) else f"{_BEGIN}\n{text}"


def root_cause(trace: str) -> str:
    """The error in a status's trace: the text before the frames.

    >>> root_cause("KeyError: 'price'\\nLed to: a.B: no rows\\nTraceback (most recent call last):\\n  File ...")
    "KeyError: 'price'\\nLed to: a.B: no rows"
    """
    return trace.partition(f"\n{_BEGIN}")[0].strip()


def _all_of(shown: traceback.TracebackException) -> list[traceback.TracebackException]:
    """A trace, its causes, and the members of groups."""
    found: list[traceback.TracebackException] = []
    left = [shown]
    while left:
        one = left.pop()
        if one not in found:
            found.append(one)
            left += [other for other in (one.__cause__, one.__context__, *(one.exceptions or ())) if other is not None]
    return found


def _leave_out_our_frames(shown: traceback.TracebackException) -> None:
    """Takes out the frames of the worker, and of libraries that it calls; the last frame stays."""
    frames, authors = shown.stack, False
    kept = []
    for frame in frames:
        if frame.filename.startswith(_PACKAGE + os.sep):
            authors = is_authors_part(frame.filename)
        elif not is_library(frame.filename):
            authors = True
        if authors:
            kept.append(frame)
    if frames and (not kept or kept[-1] is not frames[-1]):
        kept.append(frames[-1])
    shown.stack = traceback.StackSummary.from_list(kept)


def is_authors_part(file: str) -> bool:
    """True if a file of this package runs as code of users does: a built-in connector, or files that it writes."""
    return file[len(_PACKAGE) + 1 :].split(os.sep, 1)[0] in ("connectors", "files")


def is_library(file: str) -> bool:
    """True if a file is of the standard library, or of a library that the worker itself calls.

    A plugin that is installed as a distribution is not a library, although it is installed next to them.
    """
    installed = _INSTALLED.search(file)
    if installed is not None:
        return _LIBRARIES.fullmatch(installed[1]) is not None
    return file.startswith(("<", *_STANDARD))


def _shorten(shown: traceback.TracebackException, roots: Sequence[str]) -> None:
    """Takes directories off the files of a trace."""
    for frame in shown.stack:
        if os.path.isabs(frame.filename):
            root = next((one for one in roots if frame.filename.startswith(one + os.sep)), None)
            frame.filename = (
                os.path.basename(frame.filename) if root is None else frame.filename[len(root) + len(os.sep) :]
            )
    if getattr(shown, "filename", None) is not None and os.path.isabs(shown.filename or ""):
        shown.filename = os.path.basename(shown.filename or "")
