"""Settings of the source: `SparkSourceConfig`. Values; any thread. Source: Penstock's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from penstock.config import ConfigType, Importance, NonEmptyString, Range, setting
from penstock.connectors.spark.repeatable import doubts
from penstock.connectors.spark.settings import FILE_FORMATS, TABLE_FORMATS, SparkConfig

#: The placeholder in ``spark.query`` for the rows of ``spark.format``.
SOURCE_VIEW = "{source}"


class ReadMode(Enum):
    """The ways to find new rows."""

    BULK = "bulk"
    FILES = "files"
    INCREMENTING = "incrementing"
    VERSIONS = "versions"
    STREAM = "stream"


class SparkSourceConfig(SparkConfig):
    """The settings of the Spark source."""

    topic: str = setting(validator=NonEmptyString(), importance=Importance.HIGH, doc="Where the rows go.")
    mode: ReadMode = setting(
        importance=Importance.HIGH,
        doc="How new rows are found. bulk: all rows once, and again every bulk.interval.ms. files: the files of "
        "spark.path "
        "that were not read yet. incrementing: rows whose incrementing.column.name is greater than that of all rows "
        "before. versions: a table of Delta as it is, and then the changes of each new version. stream: what the "
        "format's reader of micro-batches (readStream) finds; needs spark.checkpoint.path.",
    )
    spark_checkpoint_path: str = setting(
        default="",
        doc="The directory in which mode=stream keeps the position of the query and the rows that are not in Kafka "
        "yet, below the connector's name. All workers and executors have to see it: /data/streams, s3a://bucket/dir.",
    )
    spark_query: str = setting(
        default="",
        importance=Importance.HIGH,
        doc="SQL that gives the rows, over tables and views of the Spark session, or over the rows of "
        "spark.format, which "
        "are called {source}: SELECT id, total FROM {source} WHERE total > 0.",
    )
    key_columns: tuple[str, ...] = setting(
        default=(), doc="The columns that make the key of the records, a struct. Left out: records have no key."
    )
    timestamp_column: str = setting(
        default="",
        doc="The column with the timestamp of the records: a timestamp, or milliseconds. Left out: when they are sent.",
    )
    incrementing_column_name: str = setting(
        default="",
        doc="The column of mode=incrementing: a whole number, a decimal, a date, a timestamp or a text. Rows that come "
        "later have to have greater values.",
    )
    batch_max_rows: int = setting(
        default=10_000, validator=Range.between(1, 1_000_000), doc="The rows of one query of mode=incrementing, about."
    )
    poll_interval_ms: int = setting(
        default=5000,
        type=ConfigType.LONG,
        validator=Range.at_least(1),
        doc="How often it is looked for new rows, files or versions.",
    )
    bulk_interval_ms: int = setting(
        default=-1,
        type=ConfigType.LONG,
        validator=Range.at_least(-1),
        doc="How long after mode=bulk has read all rows it reads all of them again; -1: never.",
    )
    spark_bulk: bool = setting(
        default=False,
        doc="With mode=bulk Spark's executors read the rows, convert them and write them to Kafka themselves, once: "
        "rows of one Spark partition in order, several Spark partitions at the same time.",
    )
    files_settle_ms: int = setting(
        default=1000,
        type=ConfigType.LONG,
        validator=Range.at_least(0),
        doc="How long a file has to be as it is before mode=files reads it, by its time and the clock of the worker's "
        "machine; 0: at once, where files appear whole.",
    )
    files_late_ms: int = setting(
        default=600_000,
        type=ConfigType.LONG,
        validator=Range.at_least(0),
        doc="How much older than the newest file that was read a new file may be. The names of the files of so "
        "long are in "
        "the connector's offset. One that is older still is not read; the log names it.",
    )

    @property
    def label(self) -> str:
        """The name of the data that is read, for the source partition and for messages."""
        return self.spark_query.strip() or self.spark_path.strip() or self.options().get("dbtable", self.format)

    @property
    def is_of_files(self) -> bool:
        """True if files are read one by one."""
        return bool(self.spark_path) and not self.spark_query and self.format in FILE_FORMATS

    def faults(self, properties: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """See ``AbstractConfig``."""
        yield from self.schema_faults()
        query = self.spark_query.strip()
        if not query and not self.format:
            yield "spark.format", "is missing: say what is read, spark.format and spark.path, or spark.query"
        elif query and not self.format and SOURCE_VIEW in query:
            yield "spark.format", f"is missing: spark.query reads from {SOURCE_VIEW}, the rows of spark.format"
        elif query and self.format and SOURCE_VIEW not in query:
            yield "spark.query", f"has no {SOURCE_VIEW}, so that spark.format is not read: write FROM {SOURCE_VIEW}"
        elif self.spark_schema and not self.format:
            yield "spark.schema", "is for the reader of spark.format, which is not set: cast columns in spark.query"
        elif self.format in (*FILE_FORMATS, *TABLE_FORMATS) and not self.spark_path.strip():
            yield "spark.path", f"is missing: {self.format} reads files or a directory"
        yield from self._faults_of_mode(query)

    def _faults_of_mode(self, query: str) -> Iterator[tuple[str, str]]:
        # A micro-batch that was read is kept.
        found = [] if self.mode is ReadMode.STREAM else list(doubts(query))
        if found:
            yield (
                "spark.query",
                "does not give the same rows each time, which reading on after a failure needs: "
                f"{'; '.join(found)}. Take "
                "it out, or write the rows into a table first",
            )
        match self.mode:
            case ReadMode.FILES if query:
                yield "spark.query", "cannot be read file by file: take mode=bulk or incrementing, or transforms"
            case ReadMode.FILES if self.format in TABLE_FORMATS:
                yield (
                    "mode",
                    f"a table of {self.format} has files whose rows do not count any more: take bulk or incrementing"
                    + (", or versions" if self.format == "delta" else ""),
                )
            case ReadMode.FILES if self.format and not self.is_of_files:
                yield "mode", f"{self.format} has no files that could be listed: take bulk or incrementing"
            case ReadMode.INCREMENTING if not self.incrementing_column_name.strip():
                yield "incrementing.column.name", "is missing: mode=incrementing goes by a column that only grows"
            case ReadMode.STREAM if not self.format:
                yield "spark.format", "is missing: mode=stream reads with the reader of micro-batches of a format"
            case ReadMode.STREAM if not self.spark_checkpoint_path.strip():
                yield (
                    "spark.checkpoint.path",
                    "is missing: mode=stream keeps its position there, where all workers and executors see it",
                )
            case ReadMode.VERSIONS if self.format != "delta" or query:
                yield "mode", "versions are those of a table of Delta: spark.format=delta with spark.path"
        if self.spark_bulk and self.mode is not ReadMode.BULK:
            yield "spark.bulk", f"is for mode=bulk: executors read all rows once, and mode is {self.mode.value}"
        if self.spark_bulk and self.bulk_interval_ms > 0:
            yield "bulk.interval.ms", "is for rows that the worker reads: with spark.bulk=true they are read once"
        if self.bulk_interval_ms == 0:
            yield "bulk.interval.ms", "has to be above 0, or -1 for never"
