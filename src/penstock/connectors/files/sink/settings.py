"""Settings of the sink: `FileSinkConfig`. Values; any thread.

Source: the settings of Confluent's connectors for Amazon S3, Google Cloud Storage, Azure Blob Storage and HDFS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from zoneinfo import ZoneInfo

from penstock.config import (
    AbsentSetting,
    CaseInsensitiveValidString,
    ConfigType,
    Importance,
    LambdaValidator,
    Range,
    ValidList,
    ValidString,
    setting,
)
from penstock.connectors.files.columns import METADATA
from penstock.connectors.files.sink.avro import missing_library
from penstock.connectors.files.sink.compatibility import Compatibility
from penstock.connectors.files.sink.partitioners import DirectoryPartitioner, PathFormat, Times, TimestampExtractor
from penstock.connectors.setting_values import TIME_ZONE, OnNull
from penstock.errors import ConfigException
from penstock.files.generations import Rotation
from penstock.files.location import OFF, STORES_ABSENT, StoreConfig
from penstock.files.manifests import faults_of_store

_DAY_MS: Final = 24 * 3600 * 1000
_DAILY: Final = "'year'=YYYY/'month'=MM/'day'=dd"
#: Formats and partitioners by the names of Java's classes (the part after the last dot).
FORMATS: Final = {
    "parquet": "parquet",
    "parquetformat": "parquet",
    "json": "json",
    "jsonformat": "json",
    "avro": "avro",
    "avroformat": "avro",
    "csv": "csv",
    "csvformat": "csv",
    "orc": "orc",
    "orcformat": "orc",
    "bytes": "bytes",
    "bytearrayformat": "bytes",
    "stringformat": "bytes",
}
PARTITIONERS: Final = {
    "default": "default",
    "defaultpartitioner": "default",
    "field": "field",
    "fieldpartitioner": "field",
    "time": "time",
    "timebasedpartitioner": "time",
    "daily": "daily",
    "dailypartitioner": "daily",
    "hourly": "hourly",
    "hourlypartitioner": "hourly",
    "field+time": "field+time",
    "fieldandtimebasedpartitioner": "field+time",
    "timeandfieldpartitioner": "field+time",
}
#: Unsupported settings of the Java connectors that would change the files, with harmless values, and what to do
#: instead.
ABSENT: Final[Mapping[str, AbsentSetting]] = {
    **STORES_ABSENT,
    "hive.integration": AbsentSetting("tables of Hive are not made; register the directory where it is queried", OFF),
    "s3.object.tagging": AbsentSetting("objects get no tags; their names hold topic, partition and first offset", OFF),
}


def _last(text: str) -> str:
    return text.rpartition(".")[2].lower()


def _one_of(known: Mapping[str, str], names: str) -> LambdaValidator:
    def check(name: str, value: object) -> None:
        if _last(str(value)) not in known:
            raise ConfigException(
                name, value, f"is not there: write one of {names}, or the class of the Java connector"
            )

    return LambdaValidator(check, f"{names}, or the name of such a class of the Java connectors")


def _interval(name: str, value: object) -> None:
    if isinstance(value, int) and value != -1 and value <= 0:
        raise ConfigException(name, value, "has to be a number of milliseconds above 0, or -1 for never")


_INTERVAL: Final = LambdaValidator(_interval, "-1, or above 0")


class FileSinkConfig(StoreConfig):
    """The settings of the file sink."""

    topics_dir: str = setting(
        default="topics", importance=Importance.HIGH, doc="The directory of all topics, below url."
    )
    format_class: str = setting(
        default="parquet",
        validator=_one_of(FORMATS, "parquet, json, avro, orc, csv, bytes"),
        importance=Importance.HIGH,
        doc="The format of the files.",
    )
    layout: str = setting(
        default="offsets",
        validator=ValidString("offsets", "manifest"),
        doc="offsets: files are of one topic partition, and named by their first offset. manifest: the records of all "
        "partitions of a task are in the same files, so that there are fewer, and a manifest says which offsets they "
        "are; flush.size is then over all partitions of the task.",
    )
    flush_size: int = setting(
        default=100_000,
        validator=Range.at_least(1),
        importance=Importance.HIGH,
        doc="The files of a topic partition are closed when they have this number of records in total.",
    )
    flush_bytes: int = setting(
        default=256 << 20,
        type=ConfigType.LONG,
        validator=_INTERVAL,
        doc="The files of a topic partition are closed when one of them has about this number of bytes; -1: no limit.",
    )
    rotate_interval_ms: int = setting(
        default=-1,
        type=ConfigType.LONG,
        validator=_INTERVAL,
        importance=Importance.HIGH,
        doc="The files of a topic partition are closed before a record whose time (timestamp.extractor) is so much "
        "after that of their first one, and when no record came for so long; -1: not.",
    )
    rotate_schedule_interval_ms: int = setting(
        default=600_000,
        type=ConfigType.LONG,
        validator=_INTERVAL,
        importance=Importance.HIGH,
        doc="Files are closed at the multiples of this on the clock, counted from midnight in timezone, also when no "
        "record comes; -1: not.",
    )
    flush_on_close: bool = setting(
        default=True,
        doc="Files are closed when partitions go to another task or the task ends, so that nothing is read twice. "
        "false: the records of open files are read again, and files have the sizes that the other settings say.",
    )
    buffer_bytes: int = setting(
        default=128 << 20,
        type=ConfigType.LONG,
        validator=Range.at_least(1 << 20),
        doc="The memory for records of all open files of a task. When there are more, they are moved to a file in "
        "buffer.dir.",
    )
    buffer_dir: str = setting(
        default="",
        importance=Importance.LOW,
        doc="Where such a file is; left out: where the system has temporary files.",
    )
    partitioner_class: str = setting(
        default="default",
        validator=_one_of(PARTITIONERS, "default, field, time, daily, hourly, field+time"),
        importance=Importance.HIGH,
        doc="The directories of records below that of their topic: by Kafka partition, by fields, or by time.",
    )
    partition_field_name: tuple[str, ...] = setting(
        default=(), doc="The fields of partitioner.class=field and field+time; dots lead into nested ones."
    )
    partition_field_format_path: bool = setting(
        default=True, doc="Directories of fields are called FIELD=VALUE; false: VALUE."
    )
    partition_duration_ms: int = setting(
        default=-1,
        type=ConfigType.LONG,
        validator=_INTERVAL,
        doc="How long a directory of partitioner.class=time and field+time lasts.",
    )
    path_format: str = setting(
        default="", doc="The names of directories by time, such as 'year'=yyyy/'month'=MM/'day'=dd/'hour'=HH."
    )
    locale: str = setting(default="en", doc="The language of names of months and days in path.format.")
    timezone: str = setting(
        default="UTC",
        validator=TIME_ZONE,
        doc="The time zone of path.format and rotate.schedule.interval.ms.",
    )
    timestamp_extractor: str = setting(
        default="Record",
        doc="The time of a record: Record (its timestamp), RecordField (a field), or Wallclock (the clock).",
    )
    timestamp_field: str = setting(
        default="timestamp",
        doc="The field of timestamp.extractor=RecordField: a timestamp, milliseconds, or text in ISO 8601.",
    )
    schema_compatibility: Compatibility = setting(
        default=Compatibility.NONE,
        validator=CaseInsensitiveValidString("NONE", "BACKWARD", "FORWARD", "FULL"),
        doc="Records whose schema is another than that of the file. NONE: go into a file of their own. BACKWARD, FULL: "
        "are projected to the newest version. FORWARD: to the oldest.",
    )
    behavior_on_null_values: OnNull = setting(
        default=OnNull.FAIL,
        validator=CaseInsensitiveValidString("ignore", "fail"),
        doc="Records whose value is null. fail: are bad records, as errors.tolerance says. ignore: are left out.",
    )
    metadata_columns: tuple[str, ...] = setting(
        default=(),
        validator=ValidList.of(*METADATA),
        doc="Columns to add to the fields of the values.",
    )
    metadata_columns_prefix: str = setting(
        default="kafka_", importance=Importance.LOW, doc="What the names of these columns begin with."
    )
    store_kafka_keys: bool = setting(
        default=False,
        doc="Keys are written to a file next to each file: NAME.keys.EXTENSION, whose row i is the key of row i.",
    )
    keys_format_class: str = setting(
        default="avro",
        validator=_one_of(FORMATS, "parquet, json, avro, orc, csv, bytes"),
        doc="The format of files of keys.",
    )
    store_kafka_headers: bool = setting(
        default=False,
        doc="Headers are written to a file next to each file: NAME.headers.EXTENSION.",
    )
    headers_format_class: str = setting(
        default="avro",
        validator=_one_of(FORMATS, "parquet, json, avro, orc, csv"),
        doc="The format of files of headers.",
    )
    parquet_codec: str = setting(
        default="snappy",
        validator=ValidString("none", "snappy", "gzip", "zstd", "lz4", "brotli"),
        doc="The compression of Parquet files.",
    )
    avro_codec: str = setting(
        default="null",
        validator=ValidString("null", "deflate", "bzip2", "snappy", "zstandard"),
        doc="The compression of Avro files.",
    )
    compression_type: str = setting(
        default="none",
        validator=ValidString("none", "gzip", "zstd", "bz2", "lz4"),
        doc="The compression of JSON, CSV and bytes files.",
    )
    s3_compression_type: str = setting(
        default="none",
        validator=ValidString("none", "gzip"),
        importance=Importance.LOW,
        doc="The name of compression.type in the S3 sink.",
    )
    format_bytearray_extension: str = setting(default=".bin", doc="The ending of names of bytes files.")
    format_bytearray_separator: str = setting(
        default="\\n", doc="What follows each value in a bytes file; \\n, \\r, \\t and \\0 stand for characters."
    )
    file_delim: str = setting(default="+", doc="What stands between topic, partition and offset in a file's name.")
    directory_delim: str = setting(default="/", importance=Importance.LOW, doc="What stands between directories.")
    filename_offset_zero_pad_width: int = setting(
        default=10, validator=Range.between(1, 19), doc="The digits of the offset in a file's name."
    )
    retry_backoff_ms: int = setting(
        default=5000,
        type=ConfigType.LONG,
        validator=Range.at_least(0),
        doc="How long to wait before a store that was away is written to again.",
    )
    renamed_from: str = setting(
        default="",
        doc="The former name of this connector, or of a deleted one, whose files it continues: a path is written by "
        "one connector. Its own name: the one of this name in another Kafka cluster.",
    )
    storage_class: str = setting(default="", importance=Importance.LOW, doc="Not used: url says which store it is.")
    schema_generator_class: str = setting(default="", importance=Importance.LOW, doc="Not used.")
    schema_cache_size: int = setting(default=1000, importance=Importance.LOW, doc="Not used.")

    absent = ABSENT

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        found = []
        if not self.location().url:
            where = "says where the files go: a path, s3://BUCKET/PREFIX, gs://.., abfss://.. or hdfs://.."
            found.append(self.missing_place(where))
        elif text := self.location().missing():
            found.append(("url", text))
        if self.layout == "manifest" and (text := faults_of_store(self.location().scheme)):
            found.append(("layout", text))
        if self.uses_fields and not self.partition_field_name:
            found.append(("partition.field.name", f"partitioner.class={self.partitioner} needs the names of fields"))
        if self.partitioner in ("time", "field+time"):
            if self.partition_duration_ms == -1:
                found.append(("partition.duration.ms", f"partitioner.class={self.partitioner} needs it"))
            if not self.path_format:
                found.append(("path.format", f"partitioner.class={self.partitioner} needs it: 'year'=yyyy/'month'=MM"))
        try:
            self._extractor()
        except ConfigException as error:
            found.append(("timestamp.extractor", str(error)))
        try:
            PathFormat(self.path_format, self.locale)
        except ConfigException as error:
            found.append(("path.format", str(error)))
        if self.format == "bytes" and self.metadata_columns:
            found.append(("metadata.columns", "files of bytes have no columns: set another format.class"))
        if "avro" in (self.format, *self.beside.values()) and (text := missing_library(self.avro_codec)):
            found.append(("avro.codec", text))
        if self.beside.get("headers") == "bytes":
            found.append(("headers.format.class", "headers are no bytes: write parquet, json, avro, orc or csv"))
        if not self.file_delim or "/" in self.file_delim:
            found.append(("file.delim", "is text without a slash"))
        if self.directory_delim != "/":
            found.append(("directory.delim", "has to be a slash"))
        return found

    @property
    def format(self) -> str:
        """The format, by its short name."""
        return FORMATS[_last(self.format_class)]

    @property
    def beside(self) -> dict[str, str]:
        """The formats of the separate files: of ``keys``, of ``headers``, or of both."""
        found = {}
        if self.store_kafka_keys:
            found["keys"] = FORMATS[_last(self.keys_format_class)]
        if self.store_kafka_headers:
            found["headers"] = FORMATS[_last(self.headers_format_class)]
        return found

    @property
    def partitioner(self) -> str:
        """The partitioner, by its short name."""
        return PARTITIONERS[_last(self.partitioner_class)]

    @property
    def uses_fields(self) -> bool:
        """True if directories are named by fields."""
        return self.partitioner in ("field", "field+time")

    @property
    def compression(self) -> str:
        """The compression of text files, by either name of the setting."""
        return self.compression_type if self.compression_type != "none" else self.s3_compression_type

    def rotation(self) -> Rotation:
        """Returns the rules for when files are closed."""
        return Rotation(
            self.flush_size,
            None if self.flush_bytes == -1 else self.flush_bytes,
            None if self.rotate_interval_ms == -1 else self.rotate_interval_ms,
            None if self.rotate_schedule_interval_ms == -1 else self.rotate_schedule_interval_ms,
            ZoneInfo(self.timezone),
        )

    def directories(self) -> DirectoryPartitioner:
        """Returns the partitioner that chooses the directories."""
        kind = self.partitioner
        pattern, duration = {
            "daily": (_DAILY, _DAY_MS),
            "hourly": (f"{_DAILY}/'hour'=HH", _DAY_MS // 24),
        }.get(kind, (self.path_format, self.partition_duration_ms))
        by_time = kind in ("time", "daily", "hourly", "field+time")
        times = Times(PathFormat(pattern, self.locale), ZoneInfo(self.timezone), duration) if by_time else None
        return DirectoryPartitioner(
            self.partition_field_name if self.uses_fields else (),
            self.partition_field_format_path,
            times,
            self._extractor() if times or self.rotate_interval_ms != -1 else TimestampExtractor.RECORD,
            self.timestamp_field,
            by_partition=self.layout != "manifest",
        )

    def _extractor(self) -> TimestampExtractor:
        wanted = _last(self.timestamp_extractor).rpartition("$")[2].removesuffix("timestampextractor")
        for one in TimestampExtractor:
            if one.value.lower() == wanted:
                return one
        raise ConfigException(f"{self.timestamp_extractor} is not there: write Record, RecordField or Wallclock")
