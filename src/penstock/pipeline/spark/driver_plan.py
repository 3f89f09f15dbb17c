"""Runs a plan on the JVM of a classic session, where all of it is known but the data.

PySpark's ``createDataFrame``, ``select`` and ``toArrow`` make 85 calls for a batch, most of them to read settings that
do not change, to build lists of columns, and to read arrays element by element. What they tell is kept with the plan
here. A plan that is used again is not even planned again: its query is kept, and gets other rows (``prepared.py``).

Main types: `DriverPlan` (a plan for one schema of input) and ``driver_plan``, which says when this way cannot be taken
(``arrow_of`` gets the rows of any other DataFrame):
it knows PySpark's inside, so it is for the releases it was tried with, and for data that PySpark only hands on.

Invariant 6: Arrow in, Arrow out, nothing else.

Thread: any.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from penstock.pipeline.spark.driver_calls import call, forget, rows_of
from penstock.pipeline.spark.prepared import PreparedQueries, PreparedQuery, prepare
from penstock.pipeline.spark.scratch import scratch_file

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Releases of PySpark whose inside is what is expected here.
KNOWN_RELEASES: Final = ("4.3.",)
#: PySpark shifts these by the session's time zone, value by value.
_SHIFTED: Final = '"timestamp'
_SERVED_AT_A_PATH: Final = "spark.python.unix.domain.socket.enabled"
#: A query is prepared once so many small batches have used its plan: it has to be compiled, which takes as long as
#: several batches that Spark works out while it plans. A large batch is compiled anyway.
FEW_BATCHES: Final = 4
#: Batches up to so many bytes go with the call, larger ones through a file.
SMALL_BYTES: Final = 64 * 1024

_thread = threading.local()


class Mapped(Protocol):
    """What Spark's Python workers do to the rows of a table with one column.

    Attributes:
        column: Its name.
        schema: The same column for Spark, with its type.
    """

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
    """Makes a plan for input of a schema.

    Args:
        session: The session to run it on.
        schema: Of the input.
        projections: What is selected of it, one after the other.
        prepared: Keeps the queries of plans that are used again.
        mapped: What Python workers make of the rows behind that; None = nothing.

    Returns:
        None when batches have to go PySpark's own way: on Spark Connect, with releases that are not known, with
        timestamps, without columns, and where Spark encrypts what it puts on disk or serves rows at a path.
    """
    from pyspark import __version__
    from pyspark.sql.pandas.types import from_arrow_schema

    context = getattr(session, "_sc", None)
    if context is None or context._encryption_enabled or not __version__.startswith(KNOWN_RELEASES):
        return None
    if _serves_at_a_path(context):
        return None
    given = from_arrow_schema(schema)
    if not given.fields or _SHIFTED in given.json():
        return None
    return DriverPlan(session, given, projections, prepared, mapped)


class DriverPlan:
    """A plan of which all is known but the data. Made by ``driver_plan``.

    Thread: any, several at a time.
    """

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
        table = table if table.schema.equals(self._takes) else table.cast(self._takes)
        parts = table.to_batches()
        large = table.nbytes > SMALL_BYTES
        query = self._query(len(parts), large=large)
        batches = self._collect_once(table) if query is None else self._collect_again(query, table, parts, large=large)
        return pa.Table.from_batches(batches).cast(self._schema) if batches else self._schema.empty_table()

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
        """A query for so many partitions that nobody else uses now."""
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

    def _collect_again(
        self, query: PreparedQuery, table: pa.Table, parts: Sequence[pa.RecordBatch], *, large: bool
    ) -> list[pa.RecordBatch]:
        try:
            if large:
                sent = self._sent(table)
                try:
                    query.fill(sent)
                finally:
                    forget([sent])
            else:
                query.assign([part.serialize().to_pybytes() for part in parts])
            rows = rows_of(query.java)
            # Not after a failure: the query is given up then, and a JVM that is gone would hide why.
            if large:
                query.empty()
        except BaseException:
            query.forget()
            raise
        self._prepared.put((self, len(parts)), query)
        return rows

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
    if context is None or not __version__.startswith(KNOWN_RELEASES) or _serves_at_a_path(context):
        return frame.toArrow()
    schema = _arrow_schema(frame.schema)
    batches = rows_of(frame._jdf)
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def _serves_at_a_path(context: Any) -> bool:
    return str(context._conf.get(_SERVED_AT_A_PATH, "false")).lower() == "true"


def _arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
