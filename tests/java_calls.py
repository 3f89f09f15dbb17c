"""The end of a test by pytest-timeout while it waits for the JVM: what Java answers later is no answer to later calls.

Main function: ``leaves_no_answer``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

Handler = Callable[[int, FrameType | None], object]


def leaves_no_answer(told: Handler) -> Handler:
    """A handler of the alarm that ends a test, which closes this thread's connection to the JVM first.

    The alarm interrupts a call between its command and its answer. The thread's next call would read that answer for
    its own, and each call after it the one before. Without a connection it makes a new one.

    Args:
        told: The handler that raises.
    """

    def ended(number: int, frame: FrameType | None) -> object:
        disconnect()
        return told(number, frame)

    return ended


def disconnect() -> None:
    """Closes this thread's connection to the JVM of Spark, if there is one."""
    pyspark = sys.modules.get("pyspark.core.context")
    gateway = None if pyspark is None else pyspark.SparkContext._gateway
    if gateway is None:
        return
    connection = gateway._gateway_client.get_thread_connection()
    if connection is not None:
        connection.close()
