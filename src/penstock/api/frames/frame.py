"""Frames: batches of records as columns. ``SourceFrame``, ``SinkFrame``, and ``Frame`` for transforms.

``isolate`` finds the rows that a system rejects; ``FrameGatherer`` collects frames until they fill a file. PySpark,
PyArrow and NumPy are imported when they are used only: authors who use records need none of them.

Owning thread: the task's; a frame does not change after it has been handed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from penstock.api.record import OffsetAndMetadata, TopicPartition
from penstock.data import Schema, Type
from penstock.errors import IllegalWorkerStateException, KafkaRetriableException, RetriableException

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.api.frames.fields import FieldTypes
    from penstock.api.sink import SinkTaskContext

#: One row number, a list of row numbers, or a mask with True for selected rows: a list, a NumPy array, or a PyArrow
#: array.
Rows: TypeAlias = "int | Sequence[int] | Sequence[bool] | Any"
#: The columns of ``SinkFrame.origin``.
ORIGIN_COLUMNS: Final = ("topic", "partition", "offset")
#: Errors of a write that have no bad row as their cause: the system is down or busy, or Spark is.
OF_NO_ROW: Final = (RetriableException, KafkaRetriableException, OSError)
#: Runs of rows at least this long on average are taken as slices; shorter ones are copied.
_RUN_ROWS: Final = 128


class ValueForm(Enum):
    """The form in which a ``FrameSinkTask`` receives values.

    COLUMNS: typed columns, including values without a schema. VARIANT: the same, except that keys and values without a
    schema are Spark VARIANT columns. TEXT: the value is one string column, each value printed as Java's ``toString``
    prints it, and keys are as in COLUMNS; for sinks that write text. Source: Penstock's own.
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
        """Returns a copy of the frame with other columns or schemas; omitted arguments stay the same. Lazy.

        Args:
            dataframe: All the columns listed in the class, changed or not. Rows may be in any order, because ``seq``
                gives each row's position.
            key_schema: The new schema of the column ``key``; None = schemaless.
            value_schema: The new schema of the column ``value``; None = schemaless.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SourceFrame:
    """A batch from a ``FrameSourceTask``.

    An Arrow table goes into the plan of the chain unchanged. A Spark DataFrame must be lazy; the worker adds the
    chain's columns to it and runs one job. Prefer a function that makes the DataFrame from the session it receives:
    after a session is lost the worker calls the function again, so it must return the same rows in the same order each
    time. A DataFrame itself is lost with its session; the worker then restarts the task from its committed offsets.

    **Columns.** A frame with a column ``value`` has its values in that column. It may also have ``key``, ``topic``
    (string), ``partition`` (int32), ``timestamp`` (a timestamp, or milliseconds as int64) and ``headers`` (list of
    struct<key string, value binary>), which override the constants below; any other column is an error. A *plain
    table*, without a column ``value``, has the fields of the value as its columns. If a field has one of the names
    above, ``value_fields`` must list the columns that are fields.

    **Types.** A cell holds what the Python object of that value would be in a record: each column is cast to the type
    that its schema needs, whatever its unit, zone, width, encoding or order of fields. A column whose type or values do
    not fit its schema without loss fails the task, and the error names column, type and schema. Precision that
    Connect's types cannot hold is lost, as it is for records: digits of a timestamp or time below the millisecond
    (rounded down), and digits of a double under FLOAT32. Without a schema, a struct or map is a dict, a timestamp a
    datetime, and so on.

    Attributes:
        data: The rows, in order: a PyArrow table or record batch, a pandas DataFrame (its index is not a column; NaN is
            null), a function from a Spark session to a Spark DataFrame (the worker calls it on one of its threads,
            while ``poll`` may run, and may call it more than once), or a Spark DataFrame. pandas DataFrames and record
            batches become PyArrow tables after ``poll`` has returned them, also in the frame that ``commit_batch``
            receives.
        topic: The topic of all rows; None: the frame has a column ``topic``.
        value_schema: Schema of the values; None = schemaless, and for a plain table: derived from its columns.
        source_partition: The part of the source that the rows come from: a map of primitives.
        source_offset: Position AFTER the last row: where to resume when all rows are in Kafka.
        key_schema: Schema of the keys; None = schemaless.
        timestamp: Milliseconds of all rows; None: the time of sending.
        partition: Kafka partition of all rows; None: the producer chooses.
        offset_after: ``offset_after(i)`` is the position after row i. The worker calls it when only rows 0 to i could
            be delivered, so that these rows are not sent again; without it the whole frame is sent again.
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
        """A frame of a plain table with any column names; some of the columns may form the key.

        Args:
            table: The rows. A table with a column ``value`` is used unchanged.
            topic: The topic of all rows.
            source_partition: See the attribute.
            source_offset: See the attribute.
            key: The columns of the key, a struct; they stay fields of the value.
            value_schema: Schema of the values; None: derived from the columns.
            key_schema: Schema of the keys; None: derived from their columns.
            offset_after: See the attribute.
            timestamp: See the attribute.

        Raises:
            ConnectException: The table has no column of the key.
            DataException: A column has a type that no schema can express.
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
        """The number of rows, or None for a Spark DataFrame, because counting would run a job."""
        # Not an attribute of the value, because a DataFrame would ask Spark for its column names.
        data: Any = self.data
        return int(data.num_rows) if hasattr(type(data), "num_rows") else None


@dataclass(frozen=True, slots=True, eq=False)
class SinkFrame:
    """A batch for a ``FrameSinkTask``: rows of equal schemas, in order of their offsets within each partition.

    A null key or value (a tombstone) is an ordinary row with null in that column, even if the schema is not optional.

    Attributes:
        table: Columns ``topic`` string and ``partition`` int32 (as transforms left them), ``offset`` int64 (as read),
            ``timestamp`` int64 (milliseconds), ``timestamp_type`` int8 (see ``TimestampType``), ``key`` and ``value``
            (typed by their schemas; with ``ValueForm.TEXT`` the value is a string; of type null if all rows are null
            and have no schema), ``headers`` list of struct<key string, value binary>. Date, Time and Timestamp are real
            dates, times and timestamps, at every depth. A Decimal is a decimal128(38, scale), or a struct<unscaled
            binary, scale int32> where a value of the frame has another scale or more digits. A map whose keys are not
            strings is a list of struct<key, value>. Without a schema, objects are structs of all fields seen so far on
            their topic; values that have no type in common are VARIANT, and with ``ValueForm.VARIANT`` all schemaless
            values are.
        key_schema: Schema of the keys; None = schemaless.
        value_schema: Schema of the values; None = schemaless.
        spark: Returns the worker's Spark session, for ``dataframe``.
        origin: The message that each row comes from: the columns ``topic`` string, ``partition`` int32 and ``offset``
            int64 as read, row i for row i of ``table``. Offsets in ``open``, ``pre_commit`` and ``context.offset``
            refer to these coordinates; a routing transform may change ``topic`` and ``partition`` of ``table``. In a
            frame made without ``origin`` it equals the columns of ``table``.
        continued: True if the message of the last row has more rows in the next frame, because a transform turned it
            into several records with different schemas.

    Source: Penstock's own; KIP-793 for the original coordinates.
    """

    table: pa.Table
    key_schema: Schema | None
    value_schema: Schema | None
    spark: Callable[[], SparkSession] | None = field(default=None, repr=False)
    origin: pa.Table = field(default=None, repr=False)  # Never None after construction.
    continued: bool = field(default=False, repr=False)
    # Marks that schemaless columns cannot express themselves; see ``fields``. Same number of rows as the
    # table.
    _marks: pa.Table = field(default=None, repr=False)
    # The reporter of bad rows, and the worker's message batch, which must live as long as the frame and its slices.
    _context: SinkTaskContext | None = field(default=None, repr=False)
    _delivered: object = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.origin is None:
            there = [name for name in ORIGIN_COLUMNS if name in self.table.column_names]
            object.__setattr__(self, "origin", self.table.select(there))

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    def by_partition(self) -> dict[TopicPartition, SinkFrame]:
        """One frame for each source partition, in the order of their first rows.

        The rows of each frame are in order of their offsets. With one partition the result is this frame itself.
        """
        groups = self._by_place()
        if len(groups) == 1:
            return dict.fromkeys(groups, self)
        return {place: self.take(rows) for place, rows in groups.items()}

    def since(self, offsets: Mapping[TopicPartition, int | None]) -> SinkFrame:
        """The rows that a sink which stores its own offsets has not written yet, in order.

        Args:
            offsets: For each partition, as read, the first offset still to write. For a partition that is missing or
                has None, all rows are kept.
        """
        import numpy as np

        if all(first is None for first in offsets.values()):
            return self
        kept = []
        read = self.origin.column("offset")
        for place, rows in self._by_place().items():
            first = offsets.get(place)
            numbers = rows.to_numpy()
            kept.append(numbers if first is None else numbers[read.take(rows).to_numpy() >= first])
        chosen = np.sort(np.concatenate(kept)) if kept else np.arange(0)
        return self if len(chosen) == self.num_rows else self.take(chosen)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that the rows were read from: where to resume after they are written."""
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
        """Returns some of the rows, in the given order.

        Args:
            rows: Row numbers, or a mask.

        Raises:
            IndexError: A row does not exist.
        """
        numbers = row_numbers(rows, self.num_rows)
        if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1 and (numbers[1:] > numbers[:-1]).all():
            return self.slice(int(numbers[0]), len(numbers))
        from penstock.api.arrow import slices_together

        runs = runs_of(numbers)
        end = int(max(numbers, default=-1)) + 1
        if not runs or len(runs) * _RUN_ROWS > len(numbers):
            return self._part(lambda table: table.take(numbers), end)
        # The partitions of a fetch come in long runs, so nothing is copied.
        return self._part(lambda table: slices_together(table, runs), end)

    def fields(self, *names: str | Sequence[str] | FieldTypes, of: Literal["value", "key"] = "value") -> pa.Table:
        """Typed columns of fields of the values, including nested and schemaless fields; one column for each name.

        A name is a field, or a path to a nested one: ``customer.address.city``. Put a name that contains a dot between
        backticks: ``customer.`zip.code` ``. A field that is missing, or inside a null, is null.

        With types each column has the requested type, whatever the schema or the JSON looked like: integers of every
        width and whole floats are cast; a decimal takes numbers of any scale that fit without loss; dates, times and
        timestamps take those of the schema. Nothing is parsed or printed: a text is never a number. Without types a
        column has the type of its schema, and a schemaless field the type of the values found: int64, double, string,
        boolean, and so on. Name the types of fields whose values may vary.

        Args:
            names: The fields: names, lists of names, or mappings of names to Arrow types (None: no requested type).
            of: ``"value"`` or ``"key"``.

        Raises:
            DataException: The schema has no such field, the values are neither structs nor maps, or a value does not
                fit the type. The text names the field, both types, and the message of the first bad row.
        """
        from penstock.api.frames.fields import fields_of

        return fields_of(self.table.column(of), names, self._place_of, may_lack=self._marks_of(of) is not None)

    def present(self, name: str, *, of: Literal["value", "key"] = "value") -> pa.Array:
        """True in the rows whose value has the field, null or not; False in the rows without it.

        If the values have a schema, a field is present if the struct that contains it is not null.

        Args:
            name: A field, or a path to a nested one, as for ``fields``.
            of: ``"value"`` or ``"key"``.

        Returns:
            A boolean Arrow array with one item for each row and no nulls.
        """
        from penstock.api.frames.fields import present, split_path

        return present(*self._with_marks(of), split_path(name))

    def field_names(self, *, of: Literal["value", "key"] = "value") -> list[str]:
        """The names of the fields that at least one of the values has, null or not, in the order of their columns.

        Without a schema the columns are all fields seen so far on a topic; a field that no value of this frame has is
        left out.

        Args:
            of: ``"value"`` or ``"key"``.
        """
        from penstock.api.frames.fields import field_names

        return field_names(*self._with_marks(of))

    def objects(self, name: str | None = None, *, of: Literal["value", "key"] = "value") -> list[object]:
        """The values as Python objects, for work that columns cannot do: a dict for each JSON object, and so on.

        Without a schema a dict has exactly the fields that the message had, in the order of the columns; a whole number
        is an ``int``, any other number a ``float``.

        Args:
            name: The field, or path to one, as for ``fields``; None: the whole values.
            of: ``"value"`` or ``"key"``.
        """
        from penstock.api.frames.fields import objects_at, split_path

        return objects_at(*self._with_marks(of), [] if name is None else split_path(name))

    def dataframe(self) -> DataFrame:
        """The rows as a Spark DataFrame: same columns, same order; lazy, runs no job. Waits for the session.

        If a ``put`` fails because the session was lost, the worker calls it again with the same frame.

        Raises:
            IllegalWorkerStateException: The frame was made outside of a worker, without a Spark session.
            SparkUnavailableException: The session cannot start, or it is down while the task stops. Do not catch it.
        """
        if self.spark is None:
            raise IllegalWorkerStateException("This SinkFrame has no Spark session; pass spark=lambda: session")
        from penstock.api.arrow import for_spark

        # PySpark makes one partition of each chunk, and so a writer makes one file of each chunk.
        return self.spark().createDataFrame(for_spark(self.table.combine_chunks()))

    def _by_place(self) -> dict[TopicPartition, pa.Array]:
        """The rows of each source partition, in order."""
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
        """Some of the rows; the last one is the row before ``end``."""
        continued = self.continued
        if end < self.num_rows:
            last, following = self.origin.slice(end - 1, 2).to_pylist() if end else (0, 1)
            continued = last == following
        marks = None if self._marks is None else part(self._marks)
        return replace(self, table=part(self.table), origin=part(self.origin), continued=continued, _marks=marks)

    def _with_marks(self, side: str) -> tuple[pa.Array, pa.Array | None]:
        """The key or value column and its marks, each as one array."""
        from penstock.api.arrow import one_array

        marks = self._marks_of(side)
        return one_array(self.table.column(side)), None if marks is None else one_array(marks)

    def _marks_of(self, side: str) -> pa.ChunkedArray | None:
        """The marks of the key or value column, or None."""
        return None if self._marks is None or side not in self._marks.column_names else self._marks.column(side)

    def _place_of(self, row: int) -> str:
        at = self.origin.slice(row, 1).to_pylist()[0]
        return ", ".join(f"{name} {value}" for name, value in at.items())


def isolate(
    write: Callable[[SinkFrame], object],
    frame: SinkFrame,
    *,
    errors: type[Exception] | tuple[type[Exception], ...] = Exception,
    report: Callable[[SinkFrame, Rows, BaseException], object] | None = None,
) -> int:
    """Writes a frame. If that fails, halves it until the bad rows are found, reports them, and writes the rest.

    ``isolate`` calls ``write`` with the whole frame and, when it raises, with the first half, then the second, and so
    on: always with parts of the frame, in order, never with an empty one. With k bad rows among n this takes about ``2
    k log2(n)`` calls. It reports a single row that fails; with ``errors.tolerance=none`` that fails the task, after the
    rows before it were written.

    ``write`` must write all rows or none, for example in a transaction that it rolls back, or it must be idempotent:
    the calls for the halves write again what a failed call left.

    **Not halved** are errors without a bad row: ``RetriableException``, ``KafkaRetriableException``, ``OSError`` (a
    broken connection), a lost Spark session, and any error that ``errors`` does not list. They are raised unchanged.
    After the first two, ``put`` is called again with the same frame, whose first rows may be written already: a write
    that is not idempotent must skip them (``SinkFrame.since``).

    Args:
        write: Writes one frame, or raises.
        frame: The frame that ``put`` received, or a part of it.
        errors: The errors that a bad row may cause; an outage of the system must not be among them.
        report: Reports a row; None: ``context.report`` of the task that received the frame.

    Returns:
        The number of rows written.

    Raises:
        IllegalWorkerStateException: A row is bad, and the frame was made outside of a worker, without ``report``.
    """
    context = frame._context
    tell = report if report is not None or context is None else context.report
    # A function that called itself for the halves would be in a cycle, and the frame with it until the collector runs.
    waiting, written = [frame], 0
    while waiting:
        part = waiting.pop()
        if not part.num_rows:
            continue
        try:
            write(part)
        except errors as error:
            if isinstance(error, OF_NO_ROW) or (context is not None and not context.blames_rows(error)):
                raise
            if part.num_rows == 1:
                if tell is None:
                    raise IllegalWorkerStateException(
                        "Only a frame of a worker reports rows itself; give it a function: "
                        "isolate(write, frame, report=...)"
                    ) from error
                tell(part, 0, error)
                continue
        else:
            written += part.num_rows
            continue
        middle = part.num_rows // 2
        waiting += [part.slice(middle), part.slice(0, middle)]
    return written


class FrameGatherer:
    """Collects frames of a ``FrameSinkTask`` until there are enough rows, or until the first row has waited long
    enough.

    A task passes each frame to ``add``, checks ``is_due`` after that and periodically (``context.every``), writes
    ``frames``, and then calls ``written``. Return ``safe`` from ``pre_commit``: it limits the offsets to the first
    collected row. A frame that ``put`` receives again after ``RetriableException`` is collected once.

    Args:
        min_rows: Write when this many rows are collected.
        max_wait_ms: Write when the first row has waited this long, in milliseconds.
        max_bytes: Write when the rows take this much memory.
        clock: Returns seconds; None: the monotonic clock.

    Attributes:
        frames: The collected frames, in order; none is empty.

    Source: Penstock's own.

    >>> import pyarrow as pa
    >>> seconds = [0.0]
    >>> held = FrameGatherer(10, 1000, clock=lambda: seconds[0])
    >>> rows = pa.table({"topic": ["t"] * 4, "partition": [0] * 4, "offset": [3, 4, 5, 6], "value": [1, 2, 3, 4]})
    >>> held.add(SinkFrame(rows, None, None))
    >>> held.rows, held.is_due
    (4, False)
    >>> place = TopicPartition("t", 0)
    >>> held.safe({place: OffsetAndMetadata(7)})[place].offset
    3
    >>> seconds[0] = 1.0
    >>> held.is_due
    True
    >>> held.written()
    >>> held.safe({place: OffsetAndMetadata(7)})[place].offset
    7
    """

    def __init__(
        self,
        min_rows: int,
        max_wait_ms: int,
        *,
        max_bytes: int = 128 << 20,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.frames: list[SinkFrame] = []
        self._min_rows = min_rows
        self._max_wait_s = max_wait_ms / 1000
        self._max_bytes = max_bytes
        self._clock = clock or time.monotonic
        self._since = 0.0
        self._last: object = None

    @property
    def rows(self) -> int:
        """The number of collected rows."""
        return sum(frame.num_rows for frame in self.frames)

    @property
    def nbytes(self) -> int:
        """The memory of the collected columns, in bytes."""
        return sum(frame.table.nbytes for frame in self.frames)

    @property
    def is_due(self) -> bool:
        """True if it is time to write the collected rows."""
        if not self.frames:
            return False
        waited_s = self._clock() - self._since
        return self.rows >= self._min_rows or waited_s >= self._max_wait_s or self.nbytes >= self._max_bytes

    def add(self, frame: SinkFrame) -> None:
        """Collects a frame. A frame that ``put`` receives again is not collected twice."""
        if frame.table is self._last:
            return
        self._last = frame.table
        if not frame.num_rows:
            return
        if not self.frames:
            self._since = self._clock()
        self.frames.append(frame)

    def written(self, count: int | None = None) -> None:
        """Drops the first frames, which are now in the target; None: drops all frames."""
        del self.frames[:count]
        self._since = self._clock()

    def done(self) -> None:
        """Marks the end of ``put``: the next frame is a new one, even if it looks the same."""
        self._last = None

    def safe(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The return value for ``pre_commit``: the offsets up to the first collected row.

        Args:
            offsets: The offsets that ``pre_commit`` received.
        """
        first: dict[TopicPartition, int] = {}
        for frame in self.frames:
            read = frame.origin.group_by(["topic", "partition"], use_threads=False).aggregate([("offset", "min")])
            for one in read.to_pylist():
                place = TopicPartition(one["topic"], one["partition"])
                first[place] = min(first.get(place, one["offset_min"]), one["offset_min"])
        return {
            place: OffsetAndMetadata(min(first[place], end.offset)) if place in first else end
            for place, end in offsets.items()
        }

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drops the rows of partitions that move to another task; call it in ``close``."""
        gone = set(partitions)
        kept: list[SinkFrame] = []
        for frame in self.frames:
            by_place = frame.by_partition()
            if gone.isdisjoint(by_place):
                kept.append(frame)
            else:
                kept += [part for place, part in by_place.items() if place not in gone]
        self.frames = kept
        self._last = None


def row_numbers(rows: Rows, count: int) -> np.ndarray:
    """The numbers of the selected rows of a frame of ``count`` rows, as an int64 array, in the given order.

    Raises:
        IndexError: A row does not exist, or a mask is not as long as the frame.
        TypeError: ``rows`` is neither numbers nor a mask.

    >>> row_numbers([False, True, True], 3).tolist(), row_numbers(2, 3).tolist()
    ([1, 2], [2])
    """
    import numpy as np

    found = np.atleast_1d(np.asarray(rows))
    if not found.size:
        found = found.astype(np.int64)
    if found.dtype == np.bool_:
        if len(found) != count:
            raise IndexError(f"A mask of {len(found)} rows does not fit a frame of {count} rows")
        return np.flatnonzero(found)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise TypeError(f"Rows are one number, numbers, or a mask of booleans without nulls, not {rows!r}")
    wrong = found[(found < 0) | (found >= count)]
    if len(wrong):
        raise IndexError(f"There is no row {wrong[0]} in a frame of {count} rows, which count from 0")
    return found.astype(np.int64)


def runs_of(numbers: np.ndarray) -> list[tuple[int, int]]:
    """Returns the runs of consecutive numbers: the first number and the length of each.

    >>> import numpy as np
    >>> runs_of(np.array([4, 5, 6, 2, 2, 3])), runs_of(np.array([], int))
    ([(4, 3), (2, 1), (2, 2)], [])
    """
    import numpy as np

    if not len(numbers):
        return []
    firsts = np.append(0, np.flatnonzero(np.diff(numbers) != 1) + 1)
    lengths = np.diff(np.append(firsts, len(numbers)))
    return list(zip(numbers[firsts].tolist(), lengths.tolist(), strict=True))


def _has_field(schema: Schema, name: str) -> bool:
    return schema.type is Type.STRUCT and schema.field(name) is not None
