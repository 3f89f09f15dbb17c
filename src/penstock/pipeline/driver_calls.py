"""Runs a plan on a classic session with as few calls to the driver JVM as it takes.

A call takes 0.1 ms while a machine is idle, and 2 to 5 ms in a worker under load: its answer waits for a core and for
the threads that hold Python's lock. PySpark's ``createDataFrame``, ``select`` and ``toArrow`` make 85 calls for a
batch, most of them to read settings that do not change, to build lists of columns, and to read arrays element by
element. What they tell is kept with the plan here, and a batch makes 17. For the same reason rows are read from the
socket in one piece for each Arrow message, not whenever some have come.

Main types: `DriverPlan` (a plan for one schema of input) and ``driver_plan``, which says when this way cannot be taken:
it knows PySpark's inside, so it is for the releases it was tried with, and for data that PySpark only hands on.

Invariant 6: Arrow in, Arrow out, nothing else.

Thread: any.
"""

from __future__ import annotations

import io
import os
import socket
import tempfile
import threading
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from penstock.pipeline.release import forget

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

#: Releases of PySpark whose inside is what is expected here.
KNOWN_RELEASES: Final = ("4.3.",)
#: PySpark shifts these by the session's time zone, value by value.
_SHIFTED: Final = '"timestamp'
_SERVED_AT_A_PATH: Final = "spark.python.unix.domain.socket.enabled"
_BUFFER_BYTES: Final = 64 * 1024
#: The JVM listens before it tells its port, so a connection that is not there at once never will be.
_CONNECT_TIMEOUT_S: Final = 15.0

_thread = threading.local()


def driver_plan(
    session: SparkSession, schema: pa.Schema, projections: Sequence[Sequence[Column | str]]
) -> DriverPlan | None:
    """Makes a plan for input of a schema.

    Args:
        session: The session to run it on.
        schema: Of the input.
        projections: What is selected of it, one after the other.

    Returns:
        None when batches have to go PySpark's own way: on Spark Connect, with releases that are not known, with
        timestamps, without columns, and where Spark encrypts what it puts on disk or serves rows at a path.
    """
    from pyspark import __version__
    from pyspark.sql.pandas.types import from_arrow_schema

    context = getattr(session, "_sc", None)
    if context is None or context._encryption_enabled or not __version__.startswith(KNOWN_RELEASES):
        return None
    if context._conf.get(_SERVED_AT_A_PATH, "false").lower() == "true":
        return None
    given = from_arrow_schema(schema)
    if not given.fields or _SHIFTED in given.json():
        return None
    return DriverPlan(session, given, projections)


class DriverPlan:
    """A plan of which all is known but the data. Made by ``driver_plan``.

    Thread: any, several at a time.
    """

    def __init__(self, session: SparkSession, given: StructType, projections: Sequence[Sequence[Column | str]]) -> None:
        from pyspark.sql.classic.column import _to_java_column, _to_seq

        context = session._sc
        jvm: Any = context._jvm
        self._session: Any = session
        self._directory: str = context._temp_dir
        self._given = given.json()
        self._takes = _arrow_schema(given)
        self._makes: pa.Schema | None = None
        self._activate = jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession
        self._read = jvm.PythonSQLUtils.readArrowStreamFromFile
        self._to_frame = jvm.PythonSQLUtils.toDataFrame
        self._projections = [_to_seq(context, columns, _to_java_column) for columns in projections]

    def collect(self, table: pa.Table) -> pa.Table:
        """The rows that the plan makes of these, in the same order. Runs one Spark job.

        Args:
            table: Of the schema that the plan was made for; each chunk becomes a partition.

        Raises:
            PySparkException: What PySpark raises for a job that fails.
        """
        session = self._session._jsparkSession
        if getattr(_thread, "session", None) is not session:
            self._activate(session)
            _thread.session = session
        made: list[Any] = []
        try:
            made.append(self._sent(table if table.schema.equals(self._takes) else table.cast(self._takes)))
            made.append(self._to_frame(made[-1], self._given, session))
            for projection in self._projections:
                made.append(_call(made[-1], "select", projection))
            if self._makes is None:
                self._makes = self._schema_of(made[-1])
            made.append(_serve(made[-1]))
            port, secret, server = (_element(made[-1], index) for index in range(3))
            made.append(server)
            batches = _received(port, secret, server)
        finally:
            forget(made)
        return pa.Table.from_batches(batches).cast(self._makes) if batches else self._makes.empty_table()

    def _sent(self, table: pa.Table) -> Any:
        """The table's chunks in the JVM."""
        descriptor, path = tempfile.mkstemp(dir=self._directory)
        os.close(descriptor)
        try:
            with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)
            return self._read(path)
        finally:
            os.unlink(path)

    def _schema_of(self, java: Any) -> pa.Schema:
        from pyspark.sql.classic.dataframe import DataFrame

        return _arrow_schema(DataFrame(java, self._session).schema)


def _serve(java: Any) -> Any:
    """Runs the job of a DataFrame. Where its rows are served: port, secret, and who serves them."""
    return _call(java, "collectAsArrowToPython")


def _received(port: int, secret: str, server: Any) -> list[pa.RecordBatch]:
    """What the JVM serves, in order."""
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.util import _do_server_auth

    try:
        with _connected(port) as connection, _stream_of(connection) as stream:
            _do_server_auth(stream, secret)
            return list(ArrowCollectSerializer().load_stream(cast("IO[bytes]", stream)))
    finally:
        with unwrap_spark_exception():
            # The thread that served the rows knows what has failed, if anything has.
            _call(server, "getResult")


def _arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")


def _call(target: Any, method: str, *args: Any) -> Any:
    """Calls a method of a Java object that keeps nothing of it.

    An attribute of Py4J's objects is kept in them and refers to them: a cycle for the garbage collector.
    """
    from py4j.java_gateway import JavaMember

    return JavaMember(method, None, target._target_id, target._gateway_client)(*args)


def _element(array: Any, index: int) -> Any:
    """An element of a Java array that is there: Py4J's own way asks for the length first, each time."""
    from py4j import protocol
    from py4j.java_gateway import get_return_value

    command = protocol.ARRAY_COMMAND_NAME + protocol.ARRAY_GET_SUB_COMMAND_NAME + f"{array._target_id}\n"
    client = array._gateway_client
    answer = client.send_command(command + protocol.get_command_part(index) + protocol.END_COMMAND_PART)
    return get_return_value(answer, client)


def _connected(port: int) -> socket.socket:
    """A connection to where the JVM serves rows."""
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
    connection = socket.create_connection((host, port), _CONNECT_TIMEOUT_S)
    # How long a job takes is not known.
    connection.settimeout(None)
    return connection


def _stream_of(connection: socket.socket) -> io.BufferedRWPair:
    return io.BufferedRWPair(_WholeReads(connection, "r"), socket.SocketIO(connection, "w"), _BUFFER_BYTES)


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
