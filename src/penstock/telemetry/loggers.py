"""Log levels that can be read and changed while the worker runs.

Main type: ``Loggers``. Any thread; a change is one step for others who change levels.

Source: org.apache.kafka.connect.runtime.Loggers; KIP-495, KIP-976.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

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
    """The level of a logger, in Java's words, and when it was changed here; None for never."""

    level: str
    last_modified: int | None

    def to_json(self) -> dict[str, object]:
        """The shape used by REST."""
        return {"level": self.level, "last_modified": self.last_modified}


class Loggers:
    """The loggers of this process.

    Args:
        now_ms: The time of day.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._changed: dict[str, int] = {}

    def all_levels(self) -> dict[str, LoggerLevel]:
        """Every logger that is known, by name; the root as ``root``."""
        with self._lock:
            return {name: self._level(name, logger) for name, logger in sorted(_known().items())}

    def level(self, name: str) -> LoggerLevel | None:
        """The level of one logger; None when nobody has asked for a logger of that name so far."""
        with self._lock:
            logger = _known().get(_canonical(name))
            return None if logger is None else self._level(_canonical(name), logger)

    def set_level(self, name: str, level: str) -> list[str]:
        """Changes a logger, which is made when it is not known, and all below it.

        Args:
            name: ``root`` for the root, and so for all; one that is none (``is_name``) changes nothing.
            level: In any case; see ``is_level``.

        Returns:
            The names of those whose level is another one now.
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


#: A logger has one above it for each dot in its name, and each of these has a name.
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
    """Java's word for a level of Python's logging: the most detailed one that it lets pass.

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
