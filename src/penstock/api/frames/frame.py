"""Frames: batches of records as columns. ``SourceFrame``, ``SinkFrame``, and ``Frame`` for transforms.

What rows an author means, and which of them are at fault, is in ``rows``; typed columns of fields are in ``fields``.

PySpark and PyArrow are named for the type checker only: authors who use records need neither.

Owning thread: none; frames are not changed once they are handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from penstock.api.frames.rows import Rows, row_numbers, runs_of
from penstock.api.record import TopicPartition
from penstock.data import Schema, Type
from penstock.errors import IllegalWorkerStateException

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.api.frames.fields import FieldTypes
    from penstock.api.sink import SinkTaskContext

#: The columns of ``SinkFrame.origin``.
ORIGIN_COLUMNS: Final = ("topic", "partition", "offset")
#: Rows in runs of so many on average are slices of what they are taken from; others are copied.
_RUN_ROWS: Final = 128


class ValueForm(Enum):
    """The form in which a ``FrameSinkTask`` is given values.

    COLUMNS: as typed columns, also of values without a schema. VARIANT: the same, but keys and values without a schema
    are Spark's VARIANT. TEXT: as one string column, each value printed as Java's ``toString`` does, beside keys as
    COLUMNS has them; for sinks that write text. Source: Penstock's own.
    """

    COLUMNS = "columns"
    VARIANT = "variant"
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
        """The number of rows, or None for a Spark DataFrame, where counting would run a job."""
        # Not an attribute of the value: a DataFrame asks Spark for the names of its columns then.
        data: Any = self.data
        rows: int | None = data.num_rows if hasattr(type(data), "num_rows") else None
        return rows


def _has_field(schema: Schema, name: str) -> bool:
    return schema.type is Type.STRUCT and schema.field(name) is not None


@dataclass(frozen=True, slots=True, eq=False)
class SinkFrame:
    """A batch for a ``FrameSinkTask``: rows of equal schemas, in order of their offsets within each partition.

    A null key or value (a tombstone) is a row like the others, whatever the schema says: its column is null there.

    Attributes:
        table: Columns ``topic`` string and ``partition`` int32 (as transforms left them), ``offset`` int64 (as read),
            ``timestamp`` int64 (milliseconds), ``timestamp_type`` int8 (see ``TimestampType``), ``key`` and ``value``
            (typed by their schemas; with ``ValueForm.TEXT`` the value is a string; where all rows are null and have no
            schema: of type null), ``headers`` list of struct<key string, value binary>. Date, Time and Timestamp are
            real dates, times and timestamps, at every depth. A Decimal is a decimal128(38, scale), or a struct<unscaled
            binary, scale int32> where the converter reads any number of digits. A map with other keys than strings is a
            list of struct<key, value>. Without a schema objects are structs of the fields that are known of their
            topic; what has no type in common is VARIANT, and with ``ValueForm.VARIANT`` all is.
        key_schema: Schema of the keys; None = schemaless.
        value_schema: Schema of the values; None = schemaless.
        spark: Gives the worker's Spark session, for ``dataframe``.
        origin: The message each row was made of: the columns ``topic`` string, ``partition`` int32 and ``offset`` int64
            as read, row i for row i of ``table``. Offsets in ``open``, ``pre_commit`` and ``context.offset`` are about
            these; ``topic`` and ``partition`` of ``table`` may be others behind a router. Of a frame that is made
            without it: what ``table`` says.
        continued: True if the message of the last row has more rows, in the next frame: a transform made several
            records of it, and their schemas differ.

    Source: Penstock's own; KIP-793 for the original coordinates.
    """

    table: pa.Table
    key_schema: Schema | None
    value_schema: Schema | None
    spark: Callable[[], SparkSession] | None = field(default=None, repr=False)
    origin: pa.Table = field(default=None, repr=False)  # never None once it is made
    continued: bool = field(default=False, repr=False)
    # What columns without a schema cannot say, by the side: see ``schemaless_columns``. As many rows as the table.
    _marks: pa.Table = field(default=None, repr=False)
    # Where the rows are reported, and the worker's batch of messages that lives as long as the frame and its parts.
    _context: SinkTaskContext | None = field(default=None, repr=False)
    _delivered: object = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.origin is None:
            there = [name for name in ORIGIN_COLUMNS if name in self.table.column_names]
            object.__setattr__(self, "origin", self.table.select(there))

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        rows: int = self.table.num_rows
        return rows

    def by_partition(self) -> dict[TopicPartition, SinkFrame]:
        """A frame for each partition that rows were read from, in the order of their first rows.

        The rows of each are in order of their offsets. With one partition it is this frame itself.
        """
        groups = self._by_place()
        if len(groups) == 1:
            return dict.fromkeys(groups, self)
        return {place: self.take(rows) for place, rows in groups.items()}

    def since(self, offsets: Mapping[TopicPartition, int | None]) -> SinkFrame:
        """The rows that a sink which keeps offsets in its own system has not written yet, in order.

        Args:
            offsets: For each partition, as read, the offset of the first message that counts. Of a partition that is
                not there, or has None, all rows count.
        """
        import numpy as np

        kept = []
        read = self.origin.column("offset")
        for place, rows in self._by_place().items():
            first = offsets.get(place)
            numbers = rows.to_numpy()
            kept.append(numbers if first is None else numbers[read.take(rows).to_numpy() >= first])
        chosen = np.sort(np.concatenate(kept)) if kept else np.arange(0)
        return self if len(chosen) == self.num_rows else self.take(chosen)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """For each partition that rows were read from the offset behind them: where to go on once they are written."""
        last = self.origin.group_by(list(ORIGIN_COLUMNS[:2]), use_threads=False).aggregate([("offset", "max")])
        found = {TopicPartition(one["topic"], one["partition"]): one["offset_max"] + 1 for one in last.to_pylist()}
        if self.continued and self.num_rows:
            at = self.origin.slice(self.num_rows - 1).to_pylist()[0]
            found[TopicPartition(at["topic"], at["partition"])] = at["offset"]
        return found

    def slice(self, start: int, length: int | None = None) -> SinkFrame:
        """The rows from ``start`` on, at most ``length`` of them (None: all), without a copy."""
        end = self.num_rows if length is None else min(self.num_rows, start + length)
        return self._part(lambda table: table.slice(start, length), end)

    def take(self, rows: Rows) -> SinkFrame:
        """Some of the rows, in the order given.

        Args:
            rows: Their numbers, or a mask.

        Raises:
            IndexError: There is no such row.
        """
        numbers = row_numbers(rows, self.num_rows)
        if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1 and (numbers[1:] > numbers[:-1]).all():
            return self.slice(int(numbers[0]), len(numbers))
        from penstock.api.arrow import slices_together

        runs = runs_of(numbers)
        end = int(max(numbers, default=-1)) + 1
        if not runs or len(runs) * _RUN_ROWS > len(numbers):
            return self._part(lambda table: table.take(numbers), end)
        # The partitions of a fetch follow each other in long runs: nothing of them is copied.
        return self._part(lambda table: slices_together(table, runs), end)

    def fields(self, *names: str | Sequence[str] | FieldTypes, of: Literal["value", "key"] = "value") -> pa.Table:
        """Typed columns of fields of the values, also of nested and schemaless ones, one for each name.

        A name is a field, or a path to one inside of others: ``customer.address.city``. Where a name has a dot itself,
        it stands between backticks: ``customer.`zip.code` ``. What is missing, or inside of a null, is null.

        With types each column has its type, whatever the schema was or the JSON looked like: integers of every width,
        and floats as far as they are whole, are cast; a decimal takes numbers of any scale that fit without loss;
        dates, times and timestamps take those of the schema. Nothing is parsed or printed: text is no number. Without
        types a column has the type of its schema, and a schemaless field that of the values found: int64, double,
        string, boolean, and so on; name the types where they may change.

        Args:
            names: Which fields: names, lists of names, or mappings of names to Arrow types (None: as without).
            of: Whether of the values or of the keys.

        Raises:
            DataException: The schema has no such field, the values are no structs or maps, or a value does not fit the
                type: names the field, both types, and the message of the first row it is about.
        """
        from penstock.api.frames.fields import fields_of

        return fields_of(self.table.column(of), names, self._place_of, may_lack=self._marks_of(of) is not None)

    def present(self, name: str, *, of: Literal["value", "key"] = "value") -> pa.Array:
        """True in the rows whose value has the field, null or not; False where it is missing.

        Where values have a schema, a field is there wherever what it is in is not null.

        Args:
            name: A field, or a path to one inside of others, as for ``fields``.
            of: Whether of the values or of the keys.

        Returns:
            Arrow's booleans, a row each; none is null.
        """
        from penstock.api.frames.fields import split_path
        from penstock.api.frames.schemaless_columns import present

        return present(*self._with_marks(of), split_path(name))

    def field_names(self, *, of: Literal["value", "key"] = "value") -> list[str]:
        """The names of the fields that at least one of the values has, null or not, in the order of their columns.

        Without a schema the columns are those that are known of a topic: a field that no value of this frame has is not
        among the names.

        Args:
            of: Whether of the values or of the keys.
        """
        from penstock.api.frames.schemaless_columns import field_names

        return field_names(*self._with_marks(of))

    def objects(self, name: str | None = None, *, of: Literal["value", "key"] = "value") -> list[object]:
        """The values as Python objects, for what cannot be done with columns: a dict for each JSON object, and so on.

        Without a schema a dict has the fields that the message had, and no others, in the order of the columns; a whole
        number is an ``int``, another one a ``float``.

        Args:
            name: The field, or path to one, as for ``fields``, whose values are wanted; None: the values as a whole.
            of: Whether of the values or of the keys.
        """
        from penstock.api.frames.fields import split_path
        from penstock.api.frames.schemaless_columns import objects_at

        return objects_at(*self._with_marks(of), [] if name is None else split_path(name))

    def dataframe(self) -> DataFrame:
        """The rows as a Spark DataFrame: same columns, same order; lazy, runs no job. Waits for the session.

        A ``put`` that fails because the session was lost under it is called again with the same frame.

        Raises:
            IllegalWorkerStateException: The frame was made outside of a worker, without a Spark session.
            SparkUnavailableException: The session cannot start, or is not there and the task is to stop. Let it pass.
        """
        if self.spark is None:
            raise IllegalWorkerStateException("This SinkFrame has no Spark session; pass spark=lambda: session")
        from penstock.api.arrow import for_spark

        # PySpark makes a partition, and so a writer makes a file, of each chunk.
        return self.spark().createDataFrame(for_spark(self.table.combine_chunks()))

    def _by_place(self) -> dict[TopicPartition, pa.Array]:
        """The rows of each partition, as read, in order."""
        import numpy as np

        places = self.origin.select(ORIGIN_COLUMNS[:2]).append_column("row", [np.arange(self.num_rows)])
        grouped = places.group_by(list(ORIGIN_COLUMNS[:2]), use_threads=False).aggregate([("row", "list")])
        topics, partitions = (grouped.column(name).to_pylist() for name in ORIGIN_COLUMNS[:2])
        rows = grouped.column("row_list").combine_chunks()
        return {
            TopicPartition(topic, partition): rows[index].values
            for index, (topic, partition) in enumerate(zip(topics, partitions, strict=True))
        }

    def _part(self, part: Callable[[pa.Table], pa.Table], end: int) -> SinkFrame:
        """Some rows, the last of which is the one before ``end``."""
        continued = self.continued if end == self.num_rows else end > 0 and self._is_one_message(end - 1)
        marks = None if self._marks is None else part(self._marks)
        return replace(self, table=part(self.table), origin=part(self.origin), continued=continued, _marks=marks)

    def _with_marks(self, side: str) -> tuple[pa.Array, pa.Array | None]:
        """A side and its marks, each as one array."""
        from penstock.api.arrow import one_array

        marks = self._marks_of(side)
        return one_array(self.table.column(side)), None if marks is None else one_array(marks)

    def _marks_of(self, side: str) -> pa.ChunkedArray | None:
        """The marks of a side; None: there are none."""
        return None if self._marks is None or side not in self._marks.column_names else self._marks.column(side)

    def _is_one_message(self, row: int) -> bool:
        first, second = self.origin.slice(row, 2).to_pylist()
        return bool(first == second)

    def _place_of(self, row: int) -> str:
        at = self.origin.slice(row, 1).to_pylist()[0]
        return ", ".join(f"{name} {value}" for name, value in at.items())
