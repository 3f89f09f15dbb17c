"""The log of a worker: the context ``[connector|task-0]`` in every line, levels that change at run time, rare warnings.

The context belongs to the thread (or asyncio task) that entered it. Any thread may change levels, one atomic step at a
time.

Source: org.apache.kafka.connect.util.LoggingContext, runtime.Loggers; the line format of Kafka Connect's log
    configuration; KIP-495, KIP-976.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Final, TextIO

from penstock.errors import stack_trace

ROOT: Final = "root"
TRACE: Final = 5
OFF: Final = logging.CRITICAL + 10

_LEVELS: Final[Mapping[str, int]] = {
    "ALL": 1,
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    "OFF": OFF,
}


@dataclass(frozen=True)
class LoggerLevel:
    """The level of a logger, by Java's name, and the time of its last change here; None if it was not changed."""

    level: str
    last_modified: int | None

    def to_json(self) -> dict[str, object]:
        return {"level": self.level, "last_modified": self.last_modified}


class Loggers:
    """The loggers of this process; ``now_ms`` is the time of day."""

    def __init__(self, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._changed: dict[str, int] = {}

    def all_levels(self) -> dict[str, LoggerLevel]:
        """The level of every known logger, by name; ``root`` is the root."""
        with self._lock:
            return {name: self._level(name, logger) for name, logger in sorted(_known().items())}

    def level(self, name: str) -> LoggerLevel | None:
        """The level of one logger; None if no code has requested a logger of that name so far."""
        with self._lock:
            logger = _known().get(_canonical(name))
            return None if logger is None else self._level(_canonical(name), logger)

    def set_level(self, name: str, level: str) -> list[str]:
        """Changes the level of a logger, which is created if needed, and of all loggers below it.

        Args:
            name: ``root`` for the root, and so for all; an invalid name (see ``is_name``) changes nothing.
            level: The level in upper or lower case; see ``is_level``.

        Returns:
            The names of the loggers whose level has changed.
        """
        if not is_name(name):
            return []
        number = _LEVELS[level.strip().upper()]
        name = _canonical(name)
        with self._lock:
            if name != ROOT:
                logging.getLogger(name)
            below = {
                found: logger
                for found, logger in _known().items()
                if name in (ROOT, found) or found.startswith(f"{name}.")
            }
            before = {found: logger.getEffectiveLevel() for found, logger in below.items()}
            for logger in below.values():
                logger.setLevel(number)
            changed = sorted(found for found, logger in below.items() if before[found] != number)
            now = self._now_ms()
            self._changed.update(dict.fromkeys(changed, now))
            return changed

    def _level(self, name: str, logger: logging.Logger) -> LoggerLevel:
        return LoggerLevel(level_name(logger.getEffectiveLevel()), self._changed.get(name))


#: The limit of characters: each dot in a name creates a parent logger with a name of its own.
_LONGEST_NAME: Final = 1_000


def is_name(text: str) -> bool:
    """True if a logger may have this name.

    >>> is_name("penstock.worker"), is_name("a." * 1000)
    (True, False)
    """
    return 0 < len(text) <= _LONGEST_NAME


def is_level(text: str) -> bool:
    """True if this names a level.

    >>> is_level("warn"), is_level("LOUD")
    (True, False)
    """
    return text.strip().upper() in _LEVELS


def level_name(number: int) -> str:
    """Java's name for a level of Python's logging: the most detailed level that it lets pass.

    >>> level_name(logging.WARNING), level_name(logging.DEBUG + 1), level_name(logging.CRITICAL)
    ('WARN', 'INFO', 'FATAL')
    """
    for name in ("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"):
        if number <= _LEVELS[name]:
            return name
    return "OFF"


def _canonical(name: str) -> str:
    return ROOT if name.lower() == ROOT else name


def _known() -> dict[str, logging.Logger]:
    root = logging.getLogger()
    found = {ROOT: root}
    for name, logger in list(root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            found[name] = logger
    return found


_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
_context: ContextVar[str] = ContextVar("penstock_log_context", default="")


@contextmanager
def log_context(connector: str, task: int | None = None, scope: str | None = None) -> Iterator[None]:
    """Marks the log lines of this thread until the block ends.

    Args:
        connector: Name of the connector.
        task: Number of the task; None for the connector itself, which is shown as ``worker``.
        scope: The work of the thread for the task, for example ``offsets``.
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
        moment = time.strftime("%Y-%m-%d %H:%M:%S", self.converter(record.created))
        return f"{moment},{int(record.msecs):03d}"

    def formatException(self, ei: _ExcInfo) -> str:
        if ei[1] is None or logging.getLogger("penstock").isEnabledFor(logging.DEBUG):
            return super().formatException(ei)
        return stack_trace(ei[1])

    def formatMessage(self, record: logging.LogRecord) -> str:
        context = getattr(record, "context", None)
        context = _context.get() if context is None else context
        return f"[{self.formatTime(record)}] {record.levelname} {context}{record.message} ({record.name})"


#: Loggers of verbose libraries, and their initial levels.
_QUIET = {
    "py4j": logging.WARNING,
    "uvicorn": logging.WARNING,
    "uvicorn.error": logging.WARNING,
    "uvicorn.access": logging.WARNING,
    "asyncio": logging.WARNING,
    # The HTTP client of schema registries, which logs each request.
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "pyspark": logging.WARNING,
}


def _not_py4j(record: logging.LogRecord) -> bool:
    """False for Py4J's lines below WARNING, and for its traces in the root logger of errors that it also raises.

    Below WARNING, Py4J logs everything that it sends to Spark and receives: settings with their secrets, and data.
    """
    if record.name.partition(".")[0] == "py4j":
        return record.levelno >= logging.WARNING
    return record.name != "root" or "py4j" not in record.pathname


def configure_logging(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends all log lines to one stream, standard output by default as in Kafka Connect, in the worker's format."""
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


REPEAT_S: Final = 60.0


class SeldomLog:
    """Warnings of one part; each kind is written once a minute: while a broker is unreachable, a client notices it many
    times a second.

    Attributes:
        last: The last warning, written or not; None before the first.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[object, float] = {}
        self.last: str | None = None

    def warning(self, key: object, text: str, *args: object) -> None:
        """Writes the line unless one with this key was written within the last minute."""
        self.last = text % args
        if self._is_due(key):
            self._logger.warning(text, *args)

    def _is_due(self, key: object) -> bool:
        now = self._clock()
        with self._lock:
            if now - self._last.get(key, now - REPEAT_S) < REPEAT_S:
                return False
            self._last[key] = now
            return True
