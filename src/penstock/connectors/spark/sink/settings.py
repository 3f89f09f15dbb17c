"""Settings of the sink: `SparkSinkConfig`. Values; any thread. Source: Penstock's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from penstock.config import CaseInsensitiveValidString, ConfigType, Importance, Range, ValidList, setting
from penstock.connectors.files.columns import METADATA
from penstock.connectors.setting_values import OnNull
from penstock.connectors.spark.settings import FILE_FORMATS, MERGING, TABLE_FORMATS, SparkConfig

#: Formats that executors write without Spark's writer, and the compressions that each of them has.
BULK_COMPRESSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "parquet": ("snappy", "gzip", "zstd", "lz4", "none"),
    "orc": ("zstd",),
    "csv": ("none", "gzip", "zstd", "bz2"),
    "json": ("none", "gzip", "zstd", "bz2"),
}
BULK_FORMATS: Final = tuple(BULK_COMPRESSIONS)


class SaveMode(Enum):
    """The ways to write rows."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"


class SparkSinkConfig(SparkConfig):
    """The settings of the Spark sink."""

    spark_table: str = setting(
        default="",
        importance=Importance.HIGH,
        doc="The table of a catalog of the session, in place of spark.path; made if it is not there, with "
        "spark.format.",
    )
    mode: SaveMode = setting(
        default=SaveMode.APPEND,
        importance=Importance.HIGH,
        doc="append: rows are added. overwrite: each write replaces the partitions that it has rows of. upsert: "
        "rows take "
        "the place of those with the same key.columns, where the format has MERGE.",
    )
    key_columns: tuple[str, ...] = setting(
        default=(),
        doc="The columns of mode=upsert that name a row: fields of the values, else of the records' keys; one "
        "name may stand "
        "for a key that is no struct.",
    )
    delete_enabled: bool = setting(
        default=False, doc="With mode=upsert a record without a value deletes the row of its key."
    )
    behavior_on_null_values: OnNull = setting(
        default=OnNull.FAIL,
        validator=CaseInsensitiveValidString("ignore", "fail"),
        doc="Records whose value is null, unless they delete. fail: are bad records, as errors.tolerance says. "
        "ignore: are "
        "left out.",
    )
    partition_columns: tuple[str, ...] = setting(
        default=(), doc="The columns that make directories, or the partitions of a table that is made."
    )
    metadata_columns: tuple[str, ...] = setting(
        default=(),
        validator=ValidList.of(*METADATA),
        doc="Columns to add to the fields of the values: topic, partition and offset tell rows apart that were "
        "written twice.",
    )
    metadata_columns_prefix: str = setting(
        default="kafka_", importance=Importance.LOW, doc="What the names of these columns begin with."
    )
    frame_min_rows: int = setting(
        default=100_000,
        validator=Range.at_least(1),
        importance=Importance.HIGH,
        doc="The number of rows that are written at once, as one file, or as one for each of their partitions.",
    )
    frame_max_wait_ms: int = setting(
        default=60_000,
        type=ConfigType.LONG,
        validator=Range.at_least(1),
        importance=Importance.HIGH,
        doc="Fewer rows are written when the first of them has waited so long, also on a quiet topic. Offsets "
        "are committed "
        "of what was written.",
    )
    spark_bulk: bool = setting(
        default=False,
        doc="Spark's executors fetch ranges of the topics and write each as a file, with mode=append and one of "
        "parquet, orc, csv and json: each record once. frame.min.rows is the length of a range in offsets.",
    )
    retry_backoff_ms: int = setting(
        default=5000,
        type=ConfigType.LONG,
        validator=Range.at_least(0),
        doc="How long to wait before a system that was away is written to again.",
    )

    @property
    def target(self) -> str:
        """The target of rows, for messages."""
        return self.spark_table or self.spark_path or self.options().get("dbtable", self.format)

    @property
    def deletes(self) -> bool:
        """True if a record without a value deletes."""
        return self.mode is SaveMode.UPSERT and self.delete_enabled

    def faults(self, properties: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """See ``AbstractConfig``."""
        yield from self.schema_faults()
        if not self.format and not self.spark_table:
            yield "spark.format", "is missing: say what is written, spark.format and spark.path, or spark.table"
        elif self.spark_path and self.spark_table:
            yield "spark.table", "and spark.path are both set: rows go to one place"
        elif self.format in (*FILE_FORMATS, *TABLE_FORMATS) and not self.spark_path and not self.spark_table:
            yield "spark.path", f"is missing: {self.format} is written to a directory, or to spark.table"
        elif self.format == "binaryfile":
            yield "spark.format", "binaryFile is read only: write parquet, or use the file sink with format.class=bytes"
        if self.mode is SaveMode.UPSERT:
            yield from self._faults_of_upsert()
        elif self.delete_enabled:
            yield "delete.enabled", f"is for mode=upsert; with mode={self.mode.value} nothing is deleted"
        if self.mode is SaveMode.OVERWRITE:
            if not self.partition_columns:
                yield (
                    "partition.columns",
                    "is missing: mode=overwrite replaces the partitions that rows are of, and without any each write "
                    "would replace all that is there",
                )
            if self.format == "jdbc":
                yield (
                    "mode",
                    "jdbc has no partitions to overwrite: take append, or the JDBC sink with insert.mode=upsert",
                )

        if self.spark_bulk:
            yield from self._faults_of_bulk()

    def _faults_of_bulk(self) -> Iterator[tuple[str, str]]:
        only = "with spark.bulk=true executors write"
        if self.format not in BULK_FORMATS or not self.spark_path:
            yield "spark.bulk", f"is for spark.path and the formats {', '.join(BULK_FORMATS)}; leave it out for others"
        if self.mode is not SaveMode.APPEND:
            yield "mode", f"is {self.mode.value}, and {only} files that are added: set mode=append"
        if self.partition_columns:
            yield "partition.columns", f"are set, and {only} one file for a range of offsets: leave one of them out"
        given = {name.lower(): (name, value.lower()) for name, value in self.options().items()}
        if self.format == "csv" and given.pop("header", ("", ""))[1] != "true":
            yield "spark.format", f"is csv, and {only} CSV with a line of names: set spark.option.header=true"
        allowed = BULK_COMPRESSIONS.get(self.format, ())
        name, compression = given.pop("compression", ("", ""))
        if name and compression not in allowed:
            yield f"spark.option.{name}", f"is {compression}, and {only} {self.format} with {', '.join(allowed)}"
        for name, _ in given.values():
            yield f"spark.option.{name}", f"is for Spark's own writer, and {only} without it: leave it out"

    def _faults_of_upsert(self) -> Iterator[tuple[str, str]]:
        if not self.key_columns:
            yield "key.columns", "is missing: mode=upsert replaces rows by it"
        if self.format == "jdbc":
            yield "mode", "Spark's jdbc cannot update rows: take the JDBC sink with insert.mode=upsert, or append"
        elif self.format in FILE_FORMATS:
            yield (
                "mode",
                f"{self.format} has no MERGE: rows of files cannot be replaced. Take {', '.join(MERGING)}, or append",
            )
