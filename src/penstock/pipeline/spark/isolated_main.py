"""The process of an ``IsolatedSession``: ``python -m penstock.pipeline.spark.isolated_main DESCRIPTOR``.

It receives the settings, then one order after the other, and returns the result of each. It ends, together with its
JVM, when the worker's end of the connection is closed, whatever its session is doing.

Thread: the main thread waits for orders and for the end; ``isolated-orders`` runs the orders.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import queue
import socket
import sys
import threading
from typing import Any

from pyspark.errors import AnalysisException, PySparkException

from penstock.errors import ConnectException, stack_trace
from penstock.pipeline.columns.expressions import spark_text
from penstock.pipeline.spark.isolated_session import IsolatedSessionLostException, Loss, SessionOrder, receive, send
from penstock.pipeline.spark.session import SparkRuntime


def main() -> None:
    """Does orders until the connection ends."""
    logging.basicConfig(level=logging.WARNING, format="[%(asctime)s] %(levelname)s [isolated] %(message)s (%(name)s)")
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        conf, path = pickle.loads(receive(connection))
        # Classes of authors are found where the worker found them.
        sys.path[:] = path
        runtime = SparkRuntime(conf)
        orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def work() -> None:
            while True:
                send(connection, _answer(runtime, orders.get()))

        threading.Thread(target=work, name="isolated-orders", daemon=True).start()
        while True:
            orders.put(receive(connection))
    except (EOFError, OSError):
        # Threads may stand in a call to a JVM that never answers; it ends when its standard input is closed.
        os._exit(0)


def _answer(runtime: SparkRuntime, data: bytes) -> bytes:
    try:
        order: SessionOrder = pickle.loads(data)
        done: Any = getattr(importlib.import_module(order.module), order.function)(runtime, *order.arguments)
        return pickle.dumps(("done", done))
    except IsolatedSessionLostException as lost:
        return pickle.dumps(("lost", lost.loss))
    except Exception as error:
        return pickle.dumps(("failed", _sendable(error)))


def _sendable(error: Exception) -> Exception:
    """The error, or one with its text where it cannot cross: Spark's kind tells a wrong plan from a wrong value."""
    if isinstance(error, PySparkException):
        kind = AnalysisException if isinstance(error, AnalysisException) else PySparkException
        return kind(spark_text(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ConnectException(stack_trace(error))
    return error


def raise_lost(loss: Loss) -> None:
    """For ``SparkRuntime.run``: a job is not run again here.

    Raises:
        IsolatedSessionLostException: Always.
    """
    raise IsolatedSessionLostException(loss)


if __name__ == "__main__":
    main()
