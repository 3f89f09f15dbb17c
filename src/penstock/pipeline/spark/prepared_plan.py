"""Runs a prepared plan with new data on the JVM of a classic session.

PySpark's ``createDataFrame``, ``select`` and ``toArrow`` make 85 calls for a batch. A call takes 0.1 ms while a machine
is idle, and 2 to 5 ms in a worker under load: its answer waits for a core and for the threads that hold Python's lock.
So what depends only on the plan is kept here, arrays are read and written element by element where the place is known,
and rows are read from the socket in one piece for each Arrow message. For a batch of fifty thousand records planning
takes a third of the time, for one of twenty nearly all. A DataFrame keeps its physical plan, and that its RDD, which
ends in partitions that hold Arrow messages: to run it again, this module replaces the messages, which go with the tasks
wherever they run (in the block store of a local driver they took the same processor time within 6 %). Only a chain of
projections may be kept, whose expressions give the same for the same row at any time. All of it depends on PySpark's
internals, so only tested releases have it.

The JVM keeps an object for as long as Python may use it, and with a DataFrame the batch from which it was made. Py4J
releases dropped objects one at a time, in the background: after the thousands of columns of a new plan, batches
accumulate in the JVM until its memory is full. So objects are given back, by ``release`` and ``forget``. Other objects
of a DataFrame, such as its columns, are in a cycle each, which a worker's collector rarely runs for.

Invariant 6: Arrow in, Arrow out, nothing else. Thread: any.
"""

from __future__ import annotations

import gc
import io
import itertools
import logging
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import pyarrow as pa

from penstock.errors import ConnectException
from penstock.threads import lacks_descriptor

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


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
    from py4j.finalizer import ThreadSafeFinalizer

    for java in objects:
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
    """Calls a method of a Java object; an attribute of Py4J's objects would be kept in them, in a cycle for the
    collector.
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
    """Reads the rows that the JVM serves at a port, or at a Unix socket, which needs no secret; in order."""
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.util import _do_server_auth

    try:
        with (
            _connected(place) as connection,
            _RowStream(_WholeReads(connection, "r"), socket.SocketIO(connection, "w"), _BUFFER_BYTES) as stream,
        ):
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


class _RowStream(io.BufferedRWPair):
    """Has Arrow's reader take rows in memory of its own: as bytes of Python they leave holes among smaller objects."""

    def read_buffer(self, nbytes: int) -> pa.Buffer:
        """Reads up to this many bytes; fewer only at the end. Arrow calls it in place of ``read``."""
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


#: The largest number of idle queries.
MAX_IDLE: Final = 64
#: The operators that may be between input and output; with others another job or its result may be part of the query.
_PROJECTING: Final = frozenset(
    {"WholeStageCodegenExec", "InputAdapter", "ProjectExec", "FilterExec", "MapInArrowExec", "ColumnarToRowExec"}
)
_SCAN: Final = "RDDScanExec"
#: The limit of a session's own setting for small batches, which may be larger than is useful to fill.
_MOST_BYTES: Final = 64 * 1024 * 1024
#: Releases of PySpark whose inside is what is expected here.
KNOWN_RELEASES: Final = ("4.3.",)
#: PySpark shifts these by the session's time zone, value by value.
_SHIFTED: Final = '"timestamp'
#: The number of small batches of a plan after which a query is prepared: its code must be compiled, which takes as long
#: as several batches that Spark computes while it plans. A large batch is compiled in any case.
FEW_BATCHES: Final = 4
#: The largest batch in bytes that goes with the call; larger ones go through a file.
SMALL_BYTES: Final = 64 * 1024

T = TypeVar("T")

_thread = threading.local()


@dataclass(frozen=True, eq=False)
class PreparedQuery:
    """A DataFrame in the JVM whose rows can be replaced, used by one thread at a time.

    Attributes:
        arrays: An array for each of its partitions, in the JVM, with room for one Arrow message.
    """

    java: Any
    arrays: Sequence[Any]
    _rdd: list[Any] = field(default_factory=list)

    def count(self) -> int:
        """Runs it only for the number of its rows, which stay in the JVM. Runs one Spark job.

        As a query of its own Spark would describe it, tell its listeners, and serve the rows from a thread.
        """
        if not self._rdd:
            self._rdd.append(call(call(self.java, "queryExecution"), "toRdd"))
        return int(call(self._rdd[0], "count"))

    def assign(self, messages: Sequence[bytes | None]) -> None:
        """Puts in a message for each partition; None takes it out."""
        for array, message in zip(self.arrays, messages, strict=True):
            assign(array, 0, message)

    def fill(self, messages: Any) -> None:
        """Puts in the messages of a Java iterator."""
        for array in self.arrays:
            # Takes the next one, as many as the array has room for.
            call(messages, "copyToArray", array)

    def empty(self) -> None:
        """Takes the messages out."""
        self.assign([None] * len(self.arrays))

    def forget(self) -> None:
        """Lets the JVM forget it."""
        forget((*self._rdd, *self.arrays, self.java))


class PreparedQueries:
    """Idle prepared queries; the least recently used ones are dropped. Thread: any."""

    def __init__(self, most: int = MAX_IDLE) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._idle: list[tuple[Hashable, PreparedQuery]] = []

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, key: Hashable) -> PreparedQuery | None:
        """Takes an idle query of this key for exclusive use; None if there is none."""
        with self._lock:
            for index in range(len(self._idle) - 1, -1, -1):
                if self._idle[index][0] == key:
                    return self._idle.pop(index)[1]
        return None

    def put(self, key: Hashable, query: PreparedQuery) -> None:
        """Puts back a query that can be used again."""
        with self._lock:
            self._idle.append((key, query))
            dropped = [old for _, old in self._idle[: -self._most]]
            del self._idle[: len(dropped)]
        for old in dropped:
            old.forget()


def prepare(session: Any, schema: str, parts: int, select: Callable[[list[Any]], None]) -> PreparedQuery | None:
    """Makes a query; its partitions hold a stand-in until they are filled.

    ``select`` gets a list that ends with the input, as a DataFrame in the JVM, and adds what is selected of it, step by
    step. None if the plan has to be made for each batch: it is more than projections, or what it gives depends on when
    or how often it is planned.
    """
    made: list[Any] = []
    try:
        rows = _no_rows(session, parts)
        if rows is None:
            return None
        made.append(rows)
        made.append(session._jvm.PythonSQLUtils.toDataFrame(rows, schema, session._jsparkSession))
        select(made)
        read = _read(session, made[-1])
        if read is None or call(read, "getNumPartitions") != parts:
            return None
        partitions = call(read, "partitions")
        arrays = [call(call(element(partitions, index), "values"), "unsafeArray") for index in range(parts)]
        return PreparedQuery(made.pop(), arrays)
    finally:
        forget(made)


def _no_rows(session: Any, parts: int) -> Any:
    """A stand-in for Arrow messages, too large to be evaluated while Spark plans."""
    jvm = session._jvm
    settings = call(call(session._jsparkSession, "sessionState"), "conf")
    nbytes = int(call(settings, "arrowLocalRelationThreshold")) // parts + 1
    if nbytes > _MOST_BYTES:
        return None
    # An array of arrays stays in the JVM; Py4J would bring an array of bytes here, and send it back with the next call.
    fillers = session._sc._gateway.new_array(jvm.byte, parts, nbytes)
    return call(jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(fillers), "iterator")


def _read(session: Any, java: Any) -> Any:
    """The RDD of the rows that a query reads; None = it cannot be run again with others."""
    query = call(java, "queryExecution")
    analyzed = call(query, "analyzed")
    now = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    if not call(analyzed, "deterministic") or call(analyzed, "containsPattern", now):
        return None
    node = call(query, "executedPlan")
    while (kind := class_name(node)) in _PROJECTING:
        node = call(node, "child")
    if kind != _SCAN:
        log.debug("A plan with %s is made again for each batch", kind)
        return None
    return call(node, "rdd")


class Mapped(Protocol):
    """The work of Spark's Python workers on the rows of a table with one column."""

    column: str
    schema: str

    def __call__(self, batches: Iterator[pa.RecordBatch], /) -> Iterator[pa.RecordBatch]:
        """Gives a row for each row, in order."""
        ...


def driver_plan(
    session: SparkSession,
    schema: pa.Schema,
    projections: Sequence[Sequence[Column | str]],
    prepared: PreparedQueries,
    mapped: Mapped | None = None,
) -> DriverPlan | None:
    """Makes a plan for input of a schema; ``mapped`` is applied to the rows after the projections.

    None if batches have to go PySpark's own way: on Spark Connect, with releases that are not known, with timestamps,
    without columns, and where Spark encrypts what it puts on disk or serves rows at a path.
    """
    from pyspark import __version__
    from pyspark.sql.pandas.types import from_arrow_schema

    context = getattr(session, "_sc", None)
    if context is None or context._encryption_enabled or not __version__.startswith(KNOWN_RELEASES):
        return None
    given = from_arrow_schema(schema)
    if not given.fields or _SHIFTED in given.json():
        return None
    return DriverPlan(session, given, projections, prepared, mapped)


class DriverPlan:
    """A plan of which all is known but the data. Thread: any, several at a time."""

    def __init__(
        self,
        session: SparkSession,
        given: StructType,
        projections: Sequence[Sequence[Column | str]],
        prepared: PreparedQueries,
        mapped: Mapped | None = None,
    ) -> None:
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
        self._prepared = prepared
        self._mapped = mapped
        with scratch_file(self._directory, in_memory=True) as path:
            # What this process has in memory is not there for a JVM of another user, or in a container of its own.
            self._in_memory = bool(jvm.java.io.File(path).canRead())
        # Not exact when batches end at the same moment, which does not matter.
        self._small_batches = 0
        self._can_be_prepared = True

    def collect(self, table: pa.Table) -> pa.Table:
        """The rows that the plan makes of these, in the same order; each chunk is a partition. Runs one Spark job."""
        table = self._activated(table)
        parts = table.to_batches()
        large = table.nbytes > SMALL_BYTES
        query = self._query(len(parts), large=large)
        if query is None:
            batches = self._collect_once(table)
        else:
            batches = self._again(query, table, parts, lambda: rows_of(query.java), large=large)
        return pa.Table.from_batches(batches).cast(self._schema) if batches else self._schema.empty_table()

    def count(self, table: pa.Table) -> int:
        """Counts the rows that the plan makes of these, in one chunk, which stay in the JVM. Runs one Spark job."""
        from pyspark.errors.exceptions.captured import unwrap_spark_exception

        table = self._activated(table)
        parts = table.to_batches()
        large = table.nbytes > SMALL_BYTES
        # The first batches have one, too: there is one plan to compile, for the life of a session.
        query = self._query(len(parts), large=True)
        if query is None:
            return int(self.collect(table).num_rows)
        with unwrap_spark_exception():
            return self._again(query, table, parts, query.count, large=large)

    def _activated(self, table: pa.Table) -> pa.Table:
        """The rows as the plan takes them, when the thread has its session."""
        session = self._session._jsparkSession
        if getattr(_thread, "session", None) is not session:
            self._activate(session)
            _thread.session = session
        return table if table.schema.equals(self._takes) else table.cast(self._takes)

    @property
    def _schema(self) -> pa.Schema:
        assert self._makes is not None, "every way to rows learns it first"
        return self._makes

    def _collect_once(self, table: pa.Table) -> list[pa.RecordBatch]:
        made: list[Any] = []
        try:
            made.append(self._sent(table))
            made.append(self._to_frame(made[-1], self._given, self._session._jsparkSession))
            self._select(made)
            return rows_of(made[-1])
        finally:
            forget(made)

    def _select(self, made: list[Any]) -> None:
        for projection in self._projections:
            made.append(call(made[-1], "select", projection))
        if self._mapped is not None:
            made.append(self._frame(made[-1]).mapInArrow(self._mapped, self._mapped.schema)._jdf)
        if self._makes is None:
            self._makes = self._schema_of(made[-1])

    # ------------------------------------------------------------------ queries that are kept
    def _query(self, parts: int, *, large: bool) -> PreparedQuery | None:
        """An idle query for this number of partitions."""
        if not self._can_be_prepared or not parts:
            return None
        query = self._prepared.take((self, parts))
        if query is not None:
            return query
        if not large and self._small_batches < FEW_BATCHES:
            self._small_batches += 1
            return None
        query = prepare(self._session, self._given, parts, self._select)
        self._can_be_prepared = query is not None
        return query

    def _again(
        self,
        query: PreparedQuery,
        table: pa.Table,
        parts: Sequence[pa.RecordBatch],
        run: Callable[[], T],
        *,
        large: bool,
    ) -> T:
        try:
            if large:
                sent = self._sent(table)
                try:
                    query.fill(sent)
                finally:
                    forget([sent])
            else:
                query.assign([part.serialize().to_pybytes() for part in parts])
            made = run()
            # Not after a failure: the query is dropped then, and a JVM that is gone would hide the cause.
            if large:
                query.empty()
        except BaseException:
            query.forget()
            raise
        self._prepared.put((self, len(parts)), query)
        return made

    # ------------------------------------------------------------------ rows to the JVM
    def _sent(self, table: pa.Table) -> Any:
        """The table's chunks in the JVM, to be gone through once."""
        with scratch_file(self._directory, in_memory=self._in_memory) as path:
            with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)
            return self._read(path)

    def _schema_of(self, java: Any) -> pa.Schema:
        return _arrow_schema(self._frame(java).schema)

    def _frame(self, java: Any) -> Any:
        from pyspark.sql.classic.dataframe import DataFrame

        return DataFrame(java, self._session)


def arrow_of(frame: DataFrame) -> pa.Table:
    """The rows of any DataFrame, as its ``toArrow``; but a job that the JVM gives up ends with an error."""
    from pyspark import __version__

    context = getattr(frame.sparkSession, "_sc", None)
    if context is None or not __version__.startswith(KNOWN_RELEASES):
        return frame.toArrow()
    schema = _arrow_schema(frame.schema)
    batches = rows_of(frame._jdf)
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def _arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")


@contextmanager
def scratch_file(directory: str, *, in_memory: bool) -> Iterator[str]:
    """The path of an empty file, for as long as the context; in memory, other processes of the same user can open it,
    too.
    """
    if in_memory and hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("penstock-batch")
        try:
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(dir=directory)
    os.close(descriptor)
    try:
        yield path
    finally:
        os.unlink(path)
