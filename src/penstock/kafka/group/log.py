"""The log lines of the library behind a group's member, reduced to those that the worker's log needs.

Main function: ``tame``. The library says of one broker that is away a dozen things a second, and with DEBUG it writes
down the bytes of logins. So nothing below WARNING passes, whatever level somebody sets, and each cause once a minute.

Thread: any.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.telemetry.seldom_log import SeldomLog

_LIBRARY: Final = "kafka"
#: What another line says better, or what only says that something is tried again, by its beginning.
_SAID_ELSEWHERE: Final = (
    "%s: socket disconnected",
    "%s: Error receiving network data",
    "Bootstrap failed",
    "Bootstrap %s not ready",
    "No node available for metadata refresh",
)


class _Chatter(logging.Handler):
    """Passes on what is news."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seldom = SeldomLog(logging.getLogger("penstock.kafka.group"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING and not str(record.msg).startswith(_SAID_ELSEWHERE):
            self._seldom.warning(cause_of(record), "Group client: %s", record.getMessage())


def cause_of(record: logging.LogRecord) -> object:
    """The cause that a line is about: its error, or the kind of line.

    One lost connection is told of by the socket, the connection, the request and the coordinator, with one error.
    """
    errors = [str(one) for one in record.args or () if isinstance(one, BaseException)]
    return errors[0] if errors else (record.name, record.msg)


def tame() -> None:
    """Has the library's lines pass through here, in this process, from now on."""
    logger = logging.getLogger(_LIBRARY)
    if any(isinstance(handler, _Chatter) for handler in logger.handlers):
        return
    logger.addHandler(_Chatter())
    logger.setLevel(logging.WARNING)
    logger.propagate = False
