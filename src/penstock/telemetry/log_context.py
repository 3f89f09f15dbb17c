"""Puts ``[connector|task-0]`` into every log line that a connector's or task's thread writes.

Main names: ``log_context`` (a context manager, entered once at the top of a thread), ``ContextFormatter``,
``configure_logging``. The context belongs to the thread (or asyncio task) that entered it.

Source: org.apache.kafka.connect.util.LoggingContext; the line format of Kafka Connect's log configuration.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TextIO

from penstock.errors import stack_trace

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
_context: ContextVar[str] = ContextVar("penstock_log_context", default="")


def current_log_context() -> str:
    """The text in front of this thread's messages, ``"[name|task-0] "``, or an empty string."""
    return _context.get()


@contextmanager
def log_context(connector: str, task: int | None = None, scope: str | None = None) -> Iterator[None]:
    """Marks the log lines of this thread until the block ends.

    Args:
        connector: Name of the connector.
        task: Number of the task; None for the connector itself, which is shown as ``worker``.
        scope: What the thread does for the task, for example ``offsets``.

    >>> with log_context("local-file-source", 0):
    ...     current_log_context()
    '[local-file-source|task-0] '
    """
    who = "worker" if task is None else f"task-{task}"
    text = f"[{connector}|{who}|{scope}] " if scope else f"[{connector}|{who}] "
    token = _context.set(text)
    try:
        yield
    finally:
        _context.reset(token)


class ContextFormatter(logging.Formatter):
    """``[2026-01-31 12:00:00,123] INFO [connector|task-0] message (logger)``, and the trace of an error as in a status.

    While the worker's own loggers are at DEBUG, traces are Python's, with all frames.
    """

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """See ``logging.Formatter``. Milliseconds stand behind a comma, as in Java's logs."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", self.converter(record.created))
        return f"{moment},{int(record.msecs):03d}"

    def formatException(self, ei: _ExcInfo) -> str:
        """See ``logging.Formatter``. With DEBUG the whole trace, else the one that a status shows."""
        if ei[1] is None or logging.getLogger("penstock").isEnabledFor(logging.DEBUG):
            return super().formatException(ei)
        return stack_trace(ei[1])

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See ``logging.Formatter``. Puts time, level and context in front of the message."""
        context = getattr(record, "context", None)
        context = _context.get() if context is None else context
        return f"[{self.formatTime(record)}] {record.levelname} {context}{record.message} ({record.name})"


#: Loggers of libraries that would otherwise say too much, and the level they start with.
_QUIET = {
    "py4j": logging.WARNING,
    "uvicorn": logging.WARNING,
    "uvicorn.error": logging.WARNING,
    "uvicorn.access": logging.WARNING,
    "asyncio": logging.WARNING,
    # The client of schema registries, which tells of each request.
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "pyspark": logging.WARNING,
}


def _not_py4j(record: logging.LogRecord) -> bool:
    """Py4J writes a line of its own, with a trace, to the root logger for an error that it raises as well.

    Below WARNING it writes all that goes to Spark and comes back: settings with their secrets, and data.
    """
    if record.name.partition(".")[0] == "py4j":
        return record.levelno >= logging.WARNING
    return record.name != "root" or "py4j" not in record.pathname


def configure_logging(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends all log lines to one stream in the worker's format.

    Args:
        level: Level of the root logger.
        stream: Where to; standard output by default, as Kafka Connect does.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stdout)
    handler.setFormatter(ContextFormatter())
    handler.addFilter(_not_py4j)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)
    logging.captureWarnings(True)
