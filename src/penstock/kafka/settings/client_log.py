"""Filters the Kafka client's own log lines for the worker's log.

Main name: `CLIENT_LOG`, the logger of every client, so that no client writes to standard error.

Thread: any.
"""

from __future__ import annotations

import logging
from typing import Final

#: Facilities of librdkafka that say what its error callback, or the error of the call, says too.
_SAID_ELSEWHERE: Final = frozenset({"ERROR", "FAIL", "FATAL"})


def is_news(record: logging.LogRecord) -> bool:
    """True if a client's own line says anything that the worker does not say otherwise.

    The client gives facility, client and text as arguments. With the level DEBUG everything passes.
    """
    if not isinstance(record.args, tuple) or not record.args:
        return True
    return record.args[0] not in _SAID_ELSEWHERE or CLIENT_LOG.isEnabledFor(logging.DEBUG)


CLIENT_LOG: Final = logging.getLogger("penstock.kafka.client")
CLIENT_LOG.addFilter(is_news)
