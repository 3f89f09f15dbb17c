"""`SparkReader` makes DataFrames from the settings, and reads their rows at once or in pieces.

Thread: the task's. Source: Penstock's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.api.spark_types import connect_schema, struct_type
from penstock.connectors.spark.faults import translated
from penstock.connectors.spark.names import quoted
from penstock.connectors.spark.settings import SELF_DESCRIBING
from penstock.connectors.spark.source.chunks import QueryChunks
from penstock.connectors.spark.source.planning import File
from penstock.connectors.spark.source.positions import PositionColumn
from penstock.connectors.spark.source.settings import SOURCE_VIEW, SparkSourceConfig
from penstock.data import Schema
from penstock.errors import ConnectException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Types that no ORDER BY takes.
_UNSORTED: Final = ("map", "variant", "interval", "void", "geography", "geometry")
#: Options of readers that say which files are taken.
_OF_LISTING: Final = ("pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter", "ignoreMissingFiles")


class SparkReader:
    """Reads the data of the settings, on the current session.

    Args:
        config: The settings.
        session: Returns the session; called for each query.
    """

    def __init__(self, config: SparkSourceConfig, session: Callable[[], SparkSession]) -> None:
        self._config = config
        #: Returns the session.
        self.session = session
        self._inferred: StructType | None = None
        self.what = f"reading {config.label}"

    def on(self, session: Callable[[], SparkSession]) -> SparkReader:
        """The same on another session."""
        return SparkReader(self._config, session)

    def translated(self) -> Any:
        """Errors of Spark in the block are errors for users."""
        return translated(self.what, self._config.format, self._config.spark_path)

    def all(self, *, stream: bool = False) -> DataFrame:
        """The rows of the whole path, table or query, with columns that Kafka Connect has.

        Args:
            stream: True for those of the format's reader of micro-batches.

        Raises:
            ConnectException: Spark refuses.
        """
        session, config = self.session(), self._config
        with self.translated():
            if not config.spark_query.strip():
                return _plain(self._load(session, None, stream=stream))
            query = config.spark_query
            if SOURCE_VIEW not in query:
                return _plain(session.sql(query))
            # Braces of the query's own are doubled: PySpark takes the text for a pattern.
            pattern = query.replace("{", "{{").replace("}", "}}").replace("{{source}}", "{source}")
            return _plain(session.sql(pattern, source=self._load(session, None, stream=stream)))

    def kind_of(self, column: str) -> str:
        """The type of a position column, by its name in Spark's JSON.

        Raises:
            ConnectException: The column does not exist, its values cannot be stored as positions, or Spark fails.
        """
        return position_by(column, self.all(), self.what).kind

    def within(self, column: str, first: Any, end: Any) -> DataFrame:
        """The rows from one value of a column on up to another, as ``PositionColumn`` stores them; lazy.

        Raises:
            ConnectException: As for ``kind_of``.
        """
        rows = self.all()
        position, by = position_by(column, rows, self.what), rows[quoted(column)]
        return rows.where((by >= position.literal(first)) & (by < position.literal(end)))

    def count(self, rows: DataFrame) -> int:
        """The number of rows.

        Raises:
            ConnectException: Spark refuses.
        """
        with self.translated():
            return rows.count()

    def of_files(self, files: Sequence[File]) -> DataFrame:
        """The rows of some files, with the columns of their directories.

        Raises:
            ConnectException: Spark refuses.
        """
        with self.translated():
            return _plain(self._load(self.session(), [one.path for one in files]))

    def option(self, **options: str | int) -> DataFrame:
        """The rows of the path, read with more options.

        Raises:
            ConnectException: Spark refuses.
        """
        with self.translated():
            reader = self.session().read.format(self._config.format).options(**self._config.options())
            return _plain(reader.options(**options).load(self._config.spark_path))

    def files(self) -> list[File]:
        """The files of the path, as Spark finds them, in no order.

        Raises:
            RetriableException: The path does not exist.
            ConnectException: Spark rejects the request.
        """
        given = self._config.options()
        options = {name: value for name, value in given.items() if name.lower() in map(str.lower, _OF_LISTING)}
        with self.translated():
            listing = self.session().read.format("binaryFile").options(**options).load(self._config.spark_path)
            # Seconds and fractions as numbers, because PySpark would show a time in the local zone of the machine.
            rows = (
                listing.selectExpr("path", "unix_millis(modificationTime) AS modified", "length").toArrow().to_pylist()
            )
        return [File(one["path"], one["modified"], one["length"]) for one in rows]

    def at_once(self, rows: DataFrame) -> pa.Table:
        """All rows, which have to be few.

        Raises:
            ConnectException: Spark refuses.
        """
        with self.translated():
            return rows.toArrow()

    def pieces(self, rows: DataFrame) -> Iterator[pa.Table]:
        """The rows in their order, a batch of Arrow at a time: the memory is that of a partition.

        Raises:
            ConnectException: Spark refuses.
        """
        with self.translated():
            packed = rows.mapInArrow(_packer(), "data binary").toLocalIterator(prefetchPartitions=False)
            for one in packed:
                with pa.ipc.open_stream(pa.py_buffer(one.data)) as stream:
                    yield stream.read_all()

    def sorted(self, rows: DataFrame) -> DataFrame:
        """The rows in an order that does not depend on how they are read: by the key, then by all other columns."""
        by = self.sort_columns(rows)
        return rows.orderBy(*by) if by else rows

    def sort_columns(self, rows: DataFrame) -> list[str]:
        """The columns by which rows can be sorted: the key, then all others."""
        first = self._config.key_columns
        names = [*first, *(name for name in rows.columns if name not in first)]
        kinds = {one.name: one.dataType.jsonValue() for one in rows.schema.fields}
        return [f"`{name.replace('`', '``')}`" for name in names if name in kinds and _is_sortable(kinds[name])]

    def records(self, rows: DataFrame) -> QueryChunks:
        """Makes chunks of rows like these.

        Raises:
            DataException: A column has a type that no schema has.
            ConnectException: A column that the settings name is not there.
        """
        config = self._config
        with self.translated():
            schema: Schema = connect_schema(rows.schema)
        return QueryChunks(schema, config.topic, config.key_columns, config.timestamp_column)

    def sql(self, text: str) -> list[dict[str, Any]]:
        """The rows of a statement, which have to be few.

        Raises:
            ConnectException: Spark refuses.
        """
        with self.translated():
            found: list[dict[str, Any]] = self.session().sql(text).toArrow().to_pylist()
            return found

    def _load(self, session: SparkSession, files: Sequence[str] | None, *, stream: bool = False) -> DataFrame:
        config = self._config
        reader: Any = session.readStream if stream else session.read
        reader = reader.format(config.format).options(**config.options())
        is_pattern = any(sign in config.spark_path for sign in "*?[]{}")
        if files is not None and not is_pattern and "basepath" not in map(str.lower, config.options()):
            # Where the directories of columns begin.
            reader = reader.option("basePath", config.spark_path)
        if config.spark_schema.strip():
            reader = reader.schema(struct_type(config.spark_schema))
        elif files is not None and config.format not in SELF_DESCRIBING:
            # Guessed from all files, and once: from some of them it would change with each query.
            reader = reader.schema(self._guessed(session))
        found: DataFrame
        if files is not None:
            found = reader.load(list(files))
        else:
            found = reader.load(config.spark_path) if config.spark_path else reader.load()
        return found

    def _guessed(self, session: SparkSession) -> StructType:
        if self._inferred is None:
            self._inferred = self._load(session, None).schema
        return self._inferred


def position_by(column: str, rows: DataFrame, what: str) -> PositionColumn:
    """The form in which values of a column are stored and compared.

    Args:
        column: Its name.
        rows: The rows with the column.
        what: The operation, for errors.

    Raises:
        ConnectException: The column does not exist, or its values cannot be stored as positions.
    """
    if column not in rows.columns:
        raise ConnectException(
            f"incrementing.column.name: {what} gives no column {column}; there are {', '.join(rows.columns)}"
        )
    return PositionColumn.of(column, rows.schema[column].dataType)


def _plain(rows: DataFrame) -> DataFrame:
    """The same with VARIANT columns as the text of their JSON."""
    from pyspark.sql import functions

    variants = [one.name for one in rows.schema.fields if one.dataType.jsonValue() == "variant"]
    return rows.withColumns({name: functions.to_json(rows[f"`{name}`"]) for name in variants}) if variants else rows


def _is_sortable(kind: Any) -> bool:
    if isinstance(kind, str):
        return not kind.startswith(_UNSORTED)
    match kind["type"]:
        case "struct":
            return all(_is_sortable(one["type"]) for one in kind["fields"])
        case "array":
            return _is_sortable(kind["elementType"])
    return False


def _packer() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for executors, which need no Penstock for it: one that is made here goes as code, not by name."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        for batch in batches:
            if not batch.num_rows:
                continue
            sink = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            yield pyarrow.record_batch({"data": pyarrow.array([sink.getvalue().to_pybytes()], pyarrow.binary())})

    return pack
