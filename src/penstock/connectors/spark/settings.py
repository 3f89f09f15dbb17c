"""The common settings of sources and sinks: the data to read or write. `SparkConfig`. Values; any thread.

Source: Penstock's own; the options of formats are those of Spark's ``DataFrameReader`` and ``DataFrameWriter``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

from penstock.api.spark_types import connect_schema, parse_ddl
from penstock.config import AbsentSetting, AbstractConfig, Importance, Password, setting
from penstock.errors import DataException

#: Formats that keep files of rows, which can be listed and read one by one.
FILE_FORMATS: Final = ("parquet", "orc", "csv", "json", "text", "avro", "xml", "binaryfile")
#: Formats whose files contain their own columns.
SELF_DESCRIBING: Final = ("parquet", "orc", "avro", "binaryfile", "text")
#: Formats whose directories have rows that do not count any more: they are read as tables.
TABLE_FORMATS: Final = ("delta", "iceberg", "hudi")
#: Formats that take a ``MERGE``.
MERGING: Final = ("delta", "iceberg", "hudi")


class SparkConfig(AbstractConfig):
    """The settings that sources and sinks share."""

    absent: ClassVar[Mapping[str, AbsentSetting]] = {
        "task.isolation": AbsentSetting(
            "a process of its own has no Spark session, which this connector works with. Leave the setting out",
            harmless=("", "none"),
        )
    }

    spark_format: str = setting(
        default="",
        importance=Importance.HIGH,
        doc="The format, as Spark calls it: parquet, orc, csv, json, text, jdbc, avro, delta, or one that jars of "
        "spark.jars.packages in the worker's file bring.",
    )
    spark_path: str = setting(
        default="",
        importance=Importance.HIGH,
        doc="The file or directory, as Spark takes it: /data/in, s3a://bucket/dir, hdfs://... Formats without a path, "
        "such as jdbc, have none.",
    )
    spark_option: Mapping[str, str | Password] = setting(
        "spark.option.",
        doc="Options of the format, as of Spark's reader and writer: spark.option.header=true. Those whose names have "
        "password, secret, token, key or credential in them are not shown.",
    )
    spark_schema: str = setting(
        default="",
        doc='The columns and their types, in Spark\'s DDL: "id bigint, name string".',
    )

    @property
    def format(self) -> str:
        """The format in lower case."""
        return self.spark_format.strip().lower()

    def options(self) -> dict[str, str]:
        """The options of the format, secrets among them."""
        return {
            name: value.value if isinstance(value, Password) else value
            for name, value in self.spark_option.items()
            if value is not None
        }

    def schema_faults(self) -> Iterator[tuple[str, str]]:
        """The fault of ``spark.schema``, if there is one."""
        if self.spark_schema.strip():
            try:
                connect_schema(parse_ddl(self.spark_schema))
            except DataException as error:
                yield "spark.schema", str(error)


def local_path(path: str) -> Path | None:
    """The place of a path in this machine's file system; None for another system, and for patterns.

    >>> str(local_path("file:/data/in")), local_path("s3a://b/in"), local_path("/data/*.csv")
    ('/data/in', None, None)
    """
    scheme, colon, rest = path.partition(":")
    if colon and "/" not in scheme:
        if scheme.lower() != "file":
            return None
        path = "/" + rest.lstrip("/")
    return None if not path or any(sign in path for sign in "*?[]{}") else Path(path)
