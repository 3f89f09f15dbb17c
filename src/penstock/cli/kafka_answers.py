"""Calls to Kafka while a worker starts, made again as long as brokers do not answer.

Main functions: ``until_answered``; ``is_passing`` says which errors may go by themselves. Thread: the caller's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from penstock.errors import ConnectException, KafkaException, KafkaRetriableException

_PAUSE_S: Final = 1.0


def is_passing(error: Exception) -> bool:
    """Whether Kafka may answer another time: brokers are away, or are coming back."""
    return isinstance(error, KafkaRetriableException) or isinstance(error.__cause__, KafkaRetriableException)


def until_answered(
    call: Callable[[], object],
    stopping: threading.Event,
    tell: Callable[[Exception], None],
    passes: Callable[[Exception], bool] = is_passing,
    pause_s: float = _PAUSE_S,
) -> bool:
    """Makes a call to Kafka, again and again as long as brokers do not answer.

    Args:
        call: What may be called again after it has failed.
        stopping: Set when nobody waits for it any more.
        tell: Is told of each error that may go by itself.
        passes: Whether an error may.
        pause_s: How long after it the call is made again, in seconds.

    Returns:
        False when the worker is to stop first.
    """
    while not stopping.is_set():
        try:
            call()
            return True
        except (ConnectException, KafkaException) as error:
            if not passes(error):
                raise
            tell(error)
            stopping.wait(pause_s)
    return False
