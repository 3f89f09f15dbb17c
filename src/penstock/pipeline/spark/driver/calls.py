"""Makes calls to the driver JVM of a classic session, as few as possible, reads rows from it, and releases its objects.

A call takes 0.1 ms while a machine is idle, and 2 to 5 ms in a worker under load: its answer waits for a core and for
the threads that hold Python's lock. So arrays are read and written element by element at known positions, no call is
made twice, and rows are read from the socket in one piece for each Arrow message, not whenever some have come.

The JVM keeps an object for as long as Python may use it, and with a DataFrame the batch from which it was made. Py4J
notices dropped objects in order and releases them one at a time, in the background: after the thousands of columns of
a new plan, batches accumulate in the JVM until its memory is full. Other objects of a DataFrame, such as its columns,
are in a cycle each: Py4J's objects refer to their methods, and these to the object. A worker's collector runs rarely,
so this module collects the young objects when a DataFrame was released. A kept query leaves none.

Main functions: ``call``, ``class_name``, ``element`` and ``assign`` for Java objects, ``rows_of`` for the rows of a
DataFrame; ``release`` for objects that PySpark has made, ``forget`` for the caller's own Java objects.
Thread: any, while the session is up.
"""

from __future__ import annotations

import gc
import io
import itertools
import logging
import os
import socket
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any, Final, cast

from penstock.errors import ConnectException
from penstock.pipeline.spark.file_descriptors import lacks_descriptor

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

#: The interval of releases after which older objects are collected too: those in use while another thread released.
_OLDER_EACH: Final = 8
_released = itertools.count(1)


def release(frames: Iterable[DataFrame]) -> None:
    """Releases unused DataFrames; those of a Spark Connect session have nothing in a local JVM."""
    forget(java for frame in frames if (java := getattr(frame, "_jdf", None)) is not None)
    gc.collect(1 if next(_released) % _OLDER_EACH == 0 else 0)


def forget(objects: Iterable[Any]) -> None:
    """Lets the JVM release its objects that are no longer used."""
    for java in objects:
        _forget(java)


def _forget(java: Any) -> None:
    from py4j.finalizer import ThreadSafeFinalizer

    client, name = java._gateway_client, java._target_id
    java._methods.clear()
    ThreadSafeFinalizer.remove_finalizer(f"{client.address}{client.port}{name}")
    try:
        client.garbage_collect_object(name, False)
    except Exception as error:
        # The JVM is gone, and the object with it.
        log.debug("An object of the JVM could not be released: %s", error)


_BUFFER_BYTES: Final = 64 * 1024
#: The JVM listens before it tells its port, so a connection that is not there at once never will be.
_CONNECT_TIMEOUT_S: Final = 15.0
#: The JVM says how a job ended before it closes the connection.
_OUTCOME_TIMEOUT: Final = "10s"


def call(target: Any, method: str, *args: Any) -> Any:
    """Calls a method of a Java object that keeps nothing of it.

    An attribute of Py4J's objects is kept in them and refers to them: a cycle for the garbage collector.
    """
    from py4j.java_gateway import JavaMember

    return JavaMember(method, None, target._target_id, target._gateway_client)(*args)


def class_name(target: Any) -> str:
    """The name of a Java object's class, without its package."""
    return str(call(call(target, "getClass"), "getSimpleName"))


def element(array: Any, index: int) -> Any:
    """An element of a Java array that is there: Py4J's own way asks for the length first, each time."""
    from py4j import protocol

    return _ask(array, protocol.ARRAY_GET_SUB_COMMAND_NAME, index)


def assign(array: Any, index: int, value: bytes | None) -> None:
    """Sets an element of a Java array of ``byte[]``."""
    from py4j import protocol

    _ask(array, protocol.ARRAY_SET_SUB_COMMAND_NAME, index, value)


def _ask(array: Any, command: str, *parts: object) -> Any:
    from py4j import protocol
    from py4j.java_gateway import get_return_value

    said = "".join(protocol.get_command_part(part) for part in parts)
    client = array._gateway_client
    answer = client.send_command(
        f"{protocol.ARRAY_COMMAND_NAME}{command}{array._target_id}\n{said}{protocol.END_COMMAND_PART}"
    )
    return get_return_value(answer, client)


def rows_of(java: Any) -> list[pa.RecordBatch]:
    """Runs the job of a DataFrame; its rows, in order. Invariant 6: it ends, whatever happens in the JVM.

    Raises:
        PySparkException: What PySpark raises for a job that fails.
        ConnectException: The JVM has given the job up without saying why.
    """
    made = [_serve(java)]
    try:
        place, secret, server = (element(made[0], index) for index in range(3))
        made.append(server)
        return _received(place, secret, server)
    finally:
        forget(made)


def _serve(java: Any) -> Any:
    """Runs the job of a DataFrame; returns where its rows are served, the secret for that, and the server."""
    return call(java, "collectAsArrowToPython")


def _received(place: int | str, secret: str | None, server: Any) -> list[pa.RecordBatch]:
    """Reads the rows that the JVM serves, in order.

    Args:
        place: A port, or the path of a Unix socket, which needs no secret.
        secret: What the server at a port asks for.
        server: Knows how the job ended.
    """
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.util import _do_server_auth

    try:
        with _connected(place) as connection, _stream_of(connection) as stream:
            if secret is not None:
                _do_server_auth(stream, secret)
            rows = list(ArrowCollectSerializer().load_stream(cast("IO[bytes]", stream)))
    except Exception as error:
        if not lacks_descriptor(error):
            with unwrap_spark_exception():
                _explain(server, error)
        raise
    with unwrap_spark_exception():
        # The thread that served the rows knows what has failed, if anything has.
        call(server, "getResult")
    return rows


def _explain(server: Any, error: Exception) -> None:
    """Raises the error that the JVM met while it served rows, if any.

    A stack overflow, as Scala has it, is nothing that a future can end with: the thread that serves dies, the
    connection is closed, and who asks how the job ended would wait for ever.
    """
    from py4j.java_gateway import JavaMember
    from py4j.protocol import Py4JJavaError

    client = server._gateway_client
    wait = JavaMember("create", None, "z:scala.concurrent.duration.Duration", client)(_OUTCOME_TIMEOUT)
    try:
        call(server, "getResult", wait)
    except Py4JJavaError as reason:
        if "TimeoutException" not in str(reason.java_exception.toString()):
            raise
        raise ConnectException(
            "The Spark JVM gave up a job without a result: the thread that worked on it has died, as it does when its "
            "stack is too small for the data or for the plan. Larger stacks are set with -Xss in "
            "spark.driver.extraJavaOptions; what the JVM printed is in the log at level DEBUG"
        ) from error
    finally:
        forget([wait])


def _connected(place: int | str) -> socket.socket:
    """A connection to where the JVM serves rows."""
    if isinstance(place, str):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_CONNECT_TIMEOUT_S)
        try:
            connection.connect(place)
        except OSError:
            connection.close()
            raise
    else:
        host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
        connection = socket.create_connection((host, place), _CONNECT_TIMEOUT_S)
    # How long a job takes is not known.
    connection.settimeout(None)
    return connection


def _stream_of(connection: socket.socket) -> io.BufferedRWPair:
    return _RowStream(_WholeReads(connection, "r"), socket.SocketIO(connection, "w"), _BUFFER_BYTES)


class _RowStream(io.BufferedRWPair):
    """Has Arrow's reader take rows in memory of its own: as bytes of Python they leave holes among smaller objects."""

    def read_buffer(self, nbytes: int) -> pa.Buffer:
        """Reads up to this many bytes; fewer only at the end. Arrow calls it in place of ``read``."""
        import pyarrow as pa

        buffer = pa.allocate_buffer(nbytes)
        taken = self.readinto(memoryview(buffer))
        return buffer if taken == nbytes else buffer.slice(0, taken)


class _WholeReads(socket.SocketIO):
    """Waits for all of a large piece in one call, without Python's lock.

    Read as it comes, a batch takes a hundred calls, each of which gives the lock away and waits to get it back.
    """

    def __init__(self, connection: socket.socket, mode: Any) -> None:
        super().__init__(connection, mode)
        self._connection = connection

    def readinto(self, buffer: Any) -> int | None:
        whole = len(buffer) > _BUFFER_BYTES
        return self._connection.recv_into(buffer, 0, socket.MSG_WAITALL) if whole else super().readinto(buffer)
