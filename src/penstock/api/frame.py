"""Frames: batches of records as columns. ``SourceFrame``, ``SinkFrame``, and ``Frame`` for transforms.

PySpark and PyArrow are named for the type checker only: authors who use records need neither.

Owning thread: none; frames are not changed once they are handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from penstock.data import Schema, Type
from penstock.errors import IllegalWorkerStateException

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class ValueForm(Enum):
    """How a ``FrameSinkTask`` is given values.

    COLUMNS: as typed columns. TEXT: as one string column, each value printed as Java's ``toString`` does, worked out by
    Spark; for sinks that write text. Source: Penstock's own.
    """

    COLUMNS = "columns"
    TEXT = "text"


class Frame(Protocol):
    """One batch with one key schema and one value schema, as ``FrameTransformation`` sees it.

    Columns of ``dataframe``: ``seq`` long (the record's position; must be kept as it is), ``topic`` string,
    ``partition`` int, ``offset`` long (sinks), ``timestamp`` long (ms), ``headers`` array of struct<key string, schema
    int, value variant> (``schema`` counts into ``header_schemas``, -1 = none), ``key``, ``value``, ``dropped`` boolean,
    ``error`` struct<stage, exception, message>. Every field at every depth may be null; defaults are in the schemas.

    Source: Penstock's own.
    """

    @property
    def dataframe(self) -> DataFrame:
        """The columns; lazy."""
        ...

    @property
    def key_schema(self) -> Schema | None:
        """Schema of the keys; None = schemaless (a VARIANT column)."""
        ...

    @property
    def value_schema(self) -> Schema | None:
        """Schema of the values; None = schemaless (a VARIANT column)."""
        ...

    @property
    def header_schemas(self) -> Sequence[Schema]:
        """Schemas that header entries count into."""
        ...

    def replace(
        self,
        *,
        dataframe: DataFrame | None = None,
        key_schema: Schema | None = ...,
        value_schema: Schema | None = ...,
    ) -> Frame:
        """A frame with other columns or schemas; what is left out stays. Lazy.

        Args:
            dataframe: All the columns named above, those it does not change as they were; rows in any order, since
                ``seq`` says where each belongs.
            key_schema: What the column ``key`` holds now; None = schemaless.
            value_schema: What the column ``value`` holds now; None = schemaless.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SourceFrame:
    """A batch from a ``FrameSourceTask``.

    An Arrow table goes into the plan of the chain as it is. A Spark DataFrame must be lazy; the worker adds the chain's
    columns to it and runs one job. Better than a DataFrame is a function that makes one of the session it is given:
    after the session was lost it is called again, so what it makes must have the same rows in the same order each time.
    A DataFrame itself is lost with its session; the task is then started again where its committed offsets end.

    **Columns.** A frame with a column ``value`` has its values there. It may have ``key``, ``topic`` (string),
    ``partition`` (int32), ``timestamp`` (a timestamp, or milliseconds as int64) and ``headers`` (list of struct<key
    string, value binary>), which override the constants below; any other column beside them is an error. A *plain
    table*, without a column ``value``, has the fields of the value as its columns. Where one of them has one of the
    names above, ``value_fields`` has to say which columns are fields.

    **Types.** A cell is what the Python object of that value would be in a record: every column is cast to what its
    schema needs, whatever its unit, zone, width, encoding or order of fields. A column whose type or values its schema
    cannot hold without loss fails the task, and the error names column, type and schema. What Connect's types have no
    room for is lost as it is for records: digits of a timestamp or time below the millisecond (rounded down), and of a
    double under FLOAT32. Without a schema, a struct or map is a dict, a timestamp a datetime, and so on.

    Attributes:
        data: The rows, in order: a PyArrow table or record batch, a pandas DataFrame (its index is no column; NaN is
            null), a function from a Spark session to a Spark DataFrame (called on a thread of the worker's, beside
            ``poll``, once or more often), or a Spark DataFrame. What is of pandas, or a record batch, is made a PyArrow
            table when ``poll`` has returned it, also in the frame that ``commit_batch`` is given.
        topic: The topic of all rows; None: there is a column ``topic``.
        value_schema: Schema of the values; None = schemaless, and of a plain table: derived from its columns.
        source_partition: What part of the source the rows are from: a map of primitives.
        source_offset: Position AFTER the last row: where to resume when all rows are in Kafka.
        key_schema: Schema of the keys; None = schemaless.
        timestamp: Milliseconds of all rows; None: when they are sent.
        partition: Kafka partition of all rows; None: the producer chooses.
        offset_after: ``offset_after(i)`` is the position after row i. Asked when only rows 0 to i could be delivered,
            so that they are not sent again; without it the whole frame is.
        value_fields: Names of the columns that are the fields of the value, in the order of a derived schema; None: all
            columns of a plain table.

    Source: Penstock's own.
    """

    data: DataFrame | Callable[[SparkSession], DataFrame] | pa.Table
    topic: str | None
    value_schema: Schema | None
    source_partition: Mapping[str, object]
    source_offset: Mapping[str, object]
    key_schema: Schema | None = None
    timestamp: int | None = None
    partition: int | None = None
    offset_after: Callable[[int], Mapping[str, object]] | None = None
    value_fields: Sequence[str] | None = None

    @staticmethod
    def of(
        table: pa.Table,
        topic: str | None,
        *,
        source_partition: Mapping[str, object],
        source_offset: Mapping[str, object],
        key: Sequence[str] = (),
        value_schema: Schema | None = None,
        key_schema: Schema | None = None,
        offset_after: Callable[[int], Mapping[str, object]] | None = None,
        timestamp: int | None = None,
    ) -> SourceFrame:
        """A frame of a plain table, whatever its columns are called, with some of them as the key.

        Args:
            table: The rows. One with a column ``value`` is taken as it is.
            topic: Where they go.
            source_partition: See the attribute, as for all that is not named here.
            source_offset: See the attribute.
            key: The columns of the key, a struct; they are fields of the value, too.
            value_schema: Schema of the values; None: derived from the columns.
            key_schema: Schema of the keys; None: derived from their columns.
            offset_after: See the attribute.
            timestamp: See the attribute.

        Raises:
            ConnectException: The table has no column of the key.
            DataException: A column has a type that no schema has.
        """
        from penstock.api.arrow import connect_schema, struct_column

        columns: Any = table
        plain = "value" not in table.column_names or (
            value_schema is not None and value_schema.field("value") is not None
        )
        if plain:
            value = struct_column(table, table.column_names)
            value_schema = value_schema or connect_schema(value.type)
            columns = table.select([]).append_column("value", value)
        if key:
            keys = struct_column(table, key)
            key_schema = key_schema or connect_schema(keys.type)
            columns = columns.append_column("key", keys)
        return SourceFrame(
            columns,
            topic,
            value_schema,
            source_partition,
            source_offset,
            key_schema=key_schema,
            offset_after=offset_after,
            timestamp=timestamp,
        )

    @property
    def num_rows(self) -> int | None:
        """How many rows; None for a Spark DataFrame, where counting would run a job."""
        # Not an attribute of the value: a DataFrame asks Spark for the names of its columns then.
        data: Any = self.data
        rows: int | None = data.num_rows if hasattr(type(data), "num_rows") else None
        return rows


def _has_field(schema: Schema, name: str) -> bool:
    return schema.type is Type.STRUCT and schema.field(name) is not None


@dataclass(frozen=True, slots=True, eq=False)
class SinkFrame:
    """A batch for a ``FrameSinkTask``: rows of equal schemas, in order of their offsets within each partition.

    Attributes:
        table: Columns ``topic`` string and ``partition`` int32 (as transforms left them), ``offset`` int64 (as read),
            ``timestamp`` int64 (milliseconds), ``timestamp_type`` int8 (see ``TimestampType``), ``key`` and ``value``
            (typed by their schemas; schemaless: VARIANT; with ``ValueForm.TEXT`` the value is a string), ``headers``
            list of struct<key string, value binary>. Date, Time and Timestamp are real dates, times and timestamps, at
            every depth. A Decimal is a decimal128(38, scale), or a struct<unscaled binary, scale int32> where the
            converter reads any number of digits. A map with other keys than strings is a list of struct<key, value>.
        key_schema: Schema of the keys; None = schemaless.
        value_schema: Schema of the values; None = schemaless.
        spark: Gives the worker's Spark session, for ``dataframe``.

    Source: Penstock's own.
    """

    table: pa.Table
    key_schema: Schema | None
    value_schema: Schema | None
    spark: Callable[[], SparkSession] | None = field(default=None, repr=False)

    @property
    def num_rows(self) -> int:
        """How many rows."""
        rows: int = self.table.num_rows
        return rows

    def dataframe(self) -> DataFrame:
        """The rows as a Spark DataFrame: same columns, same order; lazy, runs no job. Waits for the session.

        A ``put`` that fails because the session was lost under it is called again with the same frame.

        Raises:
            IllegalWorkerStateException: The frame was made outside of a worker, without a Spark session.
            SparkUnavailableException: The session cannot start, or is not there and the task is to stop. Let it pass.
        """
        if self.spark is None:
            raise IllegalWorkerStateException("This SinkFrame has no Spark session; pass spark=lambda: session")
        table: Any = self.table
        return self.spark().createDataFrame(table)
