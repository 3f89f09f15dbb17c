"""A Spark session in a separate process, for batches that crashed the worker's session.

PySpark supports one session in a process, and a JVM that runs out of memory ends all its jobs. So a suspected batch
runs in a separate session: the worker's session comes up again for all other batches, and only the separate session may
crash. It is local, whatever the worker's master is, with the same memory.

Thread: any; orders run one after the other. ``isolated-idle`` ends an idle process. In the process itself the main
thread waits for orders and for the end; ``isolated-orders`` runs the orders.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import pickle
import queue
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, PySparkException

from penstock.errors import ConnectException, SparkStoppedException, stack_trace
from penstock.pipeline.columns.expressions import spark_text
from penstock.telemetry import waiting_for

if TYPE_CHECKING:
    from penstock.pipeline.spark.session import SparkRuntime


log = logging.getLogger(__name__)

#: A batch of at least this many bytes is suspected when a session ran out of memory while it was running.
SUSPECT_BYTES: Final = 1024 * 1024
#: A batch of any size is suspected after this many lost sessions.
SUSPECT_LOSSES: Final = 2
#: An order takes at most so long; then it counts as one that its session cannot do.
ORDER_S: Final = 300.0
#: An unused process is ended, with its JVM, after this time.
IDLE_S: Final = 60.0
_LENGTH: Final = struct.Struct(">Q")
#: Not ``-m``: classes of this module cross between the processes, and have to be those of its own name.
_PROGRAM: Final = f"from {__name__} import main; main()"


@dataclass(frozen=True)
class Loss:
    """The sessions that a job has lost.

    Attributes:
        out_of_memory: True if the latest one ran out of memory.
        jobs: The number of jobs that were running on it, including this one.
        overdue: True if it was replaced because a job took too long.
    """

    count: int
    out_of_memory: bool
    ended: str
    jobs: int = 2
    overdue: bool = False


class IsolatedSessionLostException(ConnectException):
    """The isolated session was lost under an order, or the worker's under a batch that is to be tried in parts."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss.ended)
        self.loss = loss


def goes_alone(loss: Loss, nbytes: int, passed: int = 0) -> bool:
    """True if a batch is not to be tried on the worker's session again.

    The first session may have been lost by any of the jobs that were on it, or have been killed from outside.
    ``passed`` is the size of the largest batch that the same plan has taken on that session.
    """
    unknown = not passed or nbytes >= SUSPECT_BYTES or loss.jobs == 1
    return loss.count >= SUSPECT_LOSSES or (loss.out_of_memory and unknown)


@dataclass(frozen=True)
class SessionOrder:
    """An order for an isolated session: a function by its module and name, which gets the ``SparkRuntime`` and the
    arguments.
    """

    module: str
    function: str
    arguments: tuple[Any, ...]


class IsolatedSession:
    """The process, started when it is first needed."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = dict(conf) | {"spark.master": "local[1]"}
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._idle: threading.Timer | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id; None while it does not run."""
        process = self._process
        return None if process is None else process.pid

    def run(self, order: SessionOrder) -> Any:
        """Has an order done.

        Raises:
            IsolatedSessionLostException: The session was lost under it.
            SparkStoppedException: The worker is stopping.
            ConnectException: What it ended with on a healthy session, or that no session can be started.
        """
        # Before waiting for the turn, so that an order that cannot be sent blocks no other one.
        sent = pickle.dumps(order)
        with waiting_for("spark", "a batch that crashed a session is tried in a separate one"), self._turn:
            if self._idle is not None:
                self._idle.cancel()
            try:
                status, result = self._asked(sent)
            except TimeoutError:
                self._end()
                told = f"the session did not end its work within {ORDER_S:.0f} s"
                raise IsolatedSessionLostException(Loss(1, False, told, overdue=True)) from None
            except (OSError, EOFError) as error:
                self._end()
                if self._closed:
                    raise SparkStoppedException("the worker is stopping") from error
                raise IsolatedSessionLostException(Loss(1, False, f"its process ended: {error}")) from error
            finally:
                if self._process is not None:
                    self._idle = threading.Timer(IDLE_S, self._end_idle)
                    self._idle.name, self._idle.daemon = "isolated-idle", True
                    self._idle.start()
        if status == "lost":
            raise IsolatedSessionLostException(result)
        if status == "failed":
            raise result
        return result

    def close(self) -> None:
        """Ends the process; what it is asked meanwhile fails. Thread: any."""
        self._closed = True
        self._end()

    def _asked(self, sent: bytes) -> tuple[str, Any]:
        connection = self._started()
        send(connection, sent)
        status, result = pickle.loads(receive(connection))
        return status, result

    def _started(self) -> socket.socket:
        if self._closed:
            raise SparkStoppedException("the worker is stopping")
        if self._socket is None:
            ours, theirs = socket.socketpair()
            ours.settimeout(ORDER_S)
            command = [sys.executable, "-c", _PROGRAM, str(theirs.fileno())]
            with theirs:
                # Signals to the worker's process group are the worker's; it ends when the worker's end of this does.
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0
                )
            self._socket = ours
            send(ours, pickle.dumps((self._conf, sys.path)))
            log.info("A separate Spark session starts for a batch that crashed one (process %d)", self._process.pid)
        return self._socket

    def _end_idle(self) -> None:
        with self._turn:
            self._end()

    def _end(self) -> None:
        connection, self._socket = self._socket, None
        process, self._process = self._process, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        if process is not None:
            process.kill()
            process.wait(10)


def send(connection: socket.socket, data: bytes) -> None:
    """Sends a message."""
    connection.sendall(_LENGTH.pack(len(data)))
    connection.sendall(data)


def receive(connection: socket.socket) -> bytes:
    """Receives a message; raises EOFError if the other end was closed."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        read = connection.recv_into(view[got:])
        if not read:
            raise EOFError("the connection was closed")
        got += read
    return bytes(data)


def main() -> None:
    """Does orders in the other process until the connection ends, whatever the session is doing."""
    from penstock.pipeline.spark.session import SparkRuntime

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
    """For ``SparkRuntime.run``: a job is not run again here."""
    raise IsolatedSessionLostException(loss)
