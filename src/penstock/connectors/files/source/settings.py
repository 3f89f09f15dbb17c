"""Settings of the source: ``FileSourceConfig``. Values; any thread.

Source: the settings of the SpoolDir connectors, of FilePulse, and of Confluent's Amazon S3 source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

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
from penstock.config.java_pattern import JavaPattern, compile_java
from penstock.connectors.files.columns import METADATA
from penstock.connectors.files.sink.avro import missing_library
from penstock.connectors.files.source.archive import HEADERS, KEYS
from penstock.connectors.files.source.checks import (
    CHARACTER,
    CHARSET,
    PATTERN,
    SCHEMA,
    character,
    check_charset,
    parse_schema,
    strptime_pattern,
)
from penstock.connectors.files.source.listing import ORDERS, OnDone
from penstock.connectors.files.source.readers.csv import CsvDialect
from penstock.connectors.setting_values import TIME_ZONE
from penstock.data import Schema
from penstock.errors import ConfigException
from penstock.files import Location
from penstock.files.location import OFF, STORES_ABSENT, StoreConfig, local_path

#: Formats by the names in ``format.class``, the class of a Java connector and its reader (the part after the last dot).
FORMATS: Final = {
    "auto": "auto",
    "csv": "csv",
    "csvformat": "csv",
    "spooldircsvsourceconnector": "csv",
    "json": "json",
    "jsonformat": "json",
    "spooldirjsonsourceconnector": "json",
    "localjsonfileinputreader": "json",
    "json-text": "json-text",
    "spooldirschemalessjsonsourceconnector": "json-text",
    "parquet": "parquet",
    "parquetformat": "parquet",
    "avro": "avro",
    "avroformat": "avro",
    "spooldiravrosourceconnector": "avro",
    "avrofileinputreader": "avro",
    "orc": "orc",
    "orcformat": "orc",
    "text": "text",
    "stringformat": "text",
    "spooldirlinedelimitedsourceconnector": "text",
    "rowfileinputreader": "text",
    "bytes": "bytes",
    "bytearrayformat": "bytes",
    "spooldirbinaryfilesourceconnector": "bytes",
    "bytesarrayinputreader": "bytes",
    "jsonfileinputreader": "json",
    "xml": "xml",
    "xmlformat": "xml",
    "xmlfileinputreader": "xml",
}
#: The formats of file extensions, if ``format.class`` is ``auto``.
ENDINGS: Final = {
    "csv": "csv", "tsv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "parquet": "parquet", "avro": "avro",
    "orc": "orc", "txt": "text", "log": "text", "text": "text", "bin": "bytes",
    "xml": "xml",
}  # fmt: skip
_READERS: Final = re.compile(r"(?:local|amazons3|gcs|azureblobstorage|aliyunoss|sftp)?", re.I)
_ORDERS_OF_FILEPULSE: Final = {
    "LAST_MODIFIED": "LastModifiedAsc",
    "URI": "NameAsc",
    "CONTENT_LENGTH": "LengthAsc",
    "CONTENT_LENGTH_DESC": "LengthDesc",
}
_CLEANUPS_OF_FILEPULSE: Final = {
    "logcleanuppolicy": "NONE",
    "deletecleanuppolicy": "DELETE",
    "localmovecleanuppolicy": "MOVE",
    "amazons3movecleanuppolicy": "MOVE",
    "gcsmovecleanuppolicy": "MOVE",
    "azureblobstoragemovecleanuppolicy": "MOVE",
}
ATTRIBUTES: Final = ("path", "uri", "name", "lastModified", "size")
#: Unsupported settings of the Java connectors.
ABSENT: Final[Mapping[str, AbsentSetting]] = {
    **STORES_ABSENT,
    "filters": AbsentSetting("filters of FilePulse do not run here: use transforms"),
    "csv.strict.quotes": AbsentSetting("what is outside of quotes is a part of the field", OFF),
    "csv.ignore.quotations": AbsentSetting("set csv.quote.char=0: no character is a quote then", OFF),
    "csv.keep.carriage.return": AbsentSetting("a carriage return in front of a line end is a part of it", OFF),
    "file.charset.detection": AbsentSetting("name the encoding: charset", OFF),
    "task.partitioner": AbsentSetting("files are dealt out by their names", ("ByName",)),
}


def _last(text: str) -> str:
    return re.split(r"[.$]", text)[-1].lower()


def _check_format(name: str, value: object) -> None:
    text = _last(str(value))
    if text not in FORMATS:
        raise ConfigException(
            name,
            value,
            "is not there: write one of auto, csv, json, json-text, xml, parquet, avro, orc, text, bytes, or the class "
            "of a Java connector's format",
        )


class FileSourceConfig(StoreConfig):
    """The settings of the file source."""

    absent = ABSENT

    topic: str = setting(
        default="",
        importance=Importance.HIGH,
        doc="The topic of all files. Left out: those of topic.regex.list; without that, files have the layout of "
        "FileSink, and each topic is written again (mode=RESTORE_BACKUP).",
    )
    topic_regex_list: tuple[str, ...] = setting(
        default=(), doc="Topics by the paths of files below url: TOPIC:REGULAR_EXPRESSION, the first that matches."
    )
    mode: str = setting(
        default="",
        validator=CaseInsensitiveValidString("", "GENERIC", "RESTORE_BACKUP"),
        doc="RESTORE_BACKUP: files as FileSink writes them; topics are the directories below topics.dir, partitions "
        "are those of the files' names. GENERIC: any others. Left out: GENERIC where a topic is set.",
    )
    topics_dir: str = setting(default="topics", doc="The directory of all topics, below url, in mode RESTORE_BACKUP.")
    format_class: str = setting(
        default="auto",
        validator=LambdaValidator(
            _check_format, "auto, csv, json, json-text, xml, parquet, avro, orc, text, bytes, or a class of Java's"
        ),
        importance=Importance.HIGH,
        doc="The format of the files. auto: by the ends of their names. json-text: a line is a text, and stays one.",
    )
    xml_row_tag: str = setting(
        default="", doc="The name of the elements of XML that are rows; left out: those right below the root."
    )
    input_path: str = setting(default="", doc="The name of url in the SpoolDir connectors.")
    input_file_pattern: str = setting(
        default="",
        validator=PATTERN,
        importance=Importance.HIGH,
        doc="A regular expression that the names of files have to match as a whole; left out: all files whose names "
        "begin with neither a dot nor an underscore.",
    )
    input_path_walk_recursively: bool = setting(default=True, doc="Directories below url are looked into.")
    finished_path: str = setting(
        default="",
        importance=Importance.HIGH,
        doc="Where files go once all their records are in Kafka: a path below url, or of the same bucket or "
        "computer. Left out: see cleanup.policy.",
    )
    error_path: str = setting(
        default="", importance=Importance.HIGH, doc="Where files go that cannot be read; left out: they stay."
    )
    cleanup_policy: OnDone = setting(
        default=OnDone.AUTO,
        validator=CaseInsensitiveValidString("", "NONE", "DELETE", "MOVE", "MOVEBYDATE"),
        doc="The treatment of files that were read. NONE: they stay. DELETE: they are deleted. MOVE: they are moved to "
        "finished.path. MOVEBYDATE: there into a directory for each day. Default: MOVE if finished.path is set, "
        "otherwise NONE.",
    )
    halt_on_error: bool = setting(
        default=False,
        importance=Importance.HIGH,
        doc="A row or file that cannot be read fails the task. false: it is reported, and the task continues.",
    )
    behavior_on_error: str = setting(
        default="",
        validator=CaseInsensitiveValidString("", "fail", "ignore", "log"),
        importance=Importance.LOW,
        doc="The name of halt.on.error in Confluent's connectors: fail is true.",
    )
    errors_deadletterqueue_topic_name: str = setting(
        default="",
        doc="A topic for rows and files that cannot be read: the text of the row, with the headers file, line, error.",
    )
    empty_poll_wait_ms: int = setting(
        default=500,
        type=ConfigType.LONG,
        validator=Range.at_least(1),
        doc="How long to wait until files are listed again once all were read; at least as long as listing them took.",
    )
    s3_poll_interval_ms: int = setting(
        default=-1,
        type=ConfigType.LONG,
        importance=Importance.LOW,
        doc="The name of empty.poll.wait.ms in Confluent's S3 source.",
    )
    fs_listing_interval_ms: int = setting(
        default=-1, type=ConfigType.LONG, importance=Importance.LOW, doc="The name of empty.poll.wait.ms in FilePulse."
    )
    fs_listing_directory_path: str = setting(default="", importance=Importance.LOW, doc="The name of url in FilePulse.")
    fs_listing_class: str = setting(default="", importance=Importance.LOW, doc="Not used: url says which store it is.")
    fs_recursive_scan_enable: bool = setting(
        default=True, importance=Importance.LOW, doc="The name of input.path.walk.recursively in FilePulse."
    )
    fs_cleanup_policy_class: str = setting(
        default="", importance=Importance.LOW, doc="The name of cleanup.policy in FilePulse: one of its classes."
    )
    fs_cleanup_policy_move_success_path: str = setting(
        default="", importance=Importance.LOW, doc="The name of finished.path in FilePulse."
    )
    fs_cleanup_policy_move_failure_path: str = setting(
        default="", importance=Importance.LOW, doc="The name of error.path in FilePulse."
    )
    file_filter_regex_pattern: str = setting(
        default="",
        validator=PATTERN,
        importance=Importance.LOW,
        doc="The name of input.file.pattern in FilePulse.",
    )
    tasks_reader_class: str = setting(
        default="", importance=Importance.LOW, doc="The name of format.class in FilePulse: one of its readers."
    )
    tasks_file_processing_order_by: str = setting(
        default="",
        validator=CaseInsensitiveValidString("", *_ORDERS_OF_FILEPULSE),
        importance=Importance.LOW,
        doc="The name of files.sort.attributes in FilePulse.",
    )
    file_minimum_age_ms: int = setting(
        default=1000,
        type=ConfigType.LONG,
        validator=Range.at_least(0),
        doc="Files that were changed less than so long ago are left for later, since they may still be written.",
    )
    file_minimum_size_bytes: int = setting(
        default=0, type=ConfigType.LONG, validator=Range.at_least(0), doc="Smaller files are not read."
    )
    file_maximum_size_bytes: int = setting(
        default=(1 << 63) - 1, type=ConfigType.LONG, validator=Range.at_least(1), doc="Larger files are not read."
    )
    files_sort_attributes: tuple[str, ...] = setting(
        default=("NameAsc",),
        validator=ValidList.of(*ORDERS),
        doc="The order in which a task reads files. NameAsc begins while files are still listed.",
    )
    split_bytes: int = setting(
        default=128 << 20,
        type=ConfigType.LONG,
        validator=Range.at_least(0),
        doc="Several tasks read a larger file in parts of about this number of bytes, if the format allows it: "
        "Parquet, lines of text and JSON without compression. 0: files are read as a whole.",
    )
    offset_attributes_string: str = setting(
        default="path+lastModified+size",
        doc="What makes a file one that was not read yet: its path (or uri), name, lastModified and size, with plus "
        "signs between.",
    )
    charset: str = setting(default="UTF-8", validator=CHARSET, doc="The encoding of text, JSON and CSV files.")
    csv_file_charset: str | None = setting(
        default=None, importance=Importance.LOW, doc="The name of charset in SpoolDir's CSV connector."
    )
    file_charset: str | None = setting(
        default=None, importance=Importance.LOW, doc="The name of charset in SpoolDir's connector for lines."
    )
    file_encoding: str | None = setting(
        default=None, importance=Importance.LOW, doc="The name of charset in FilePulse."
    )
    csv_first_row_as_header: bool = setting(
        default=True, importance=Importance.HIGH, doc="The first line has the names of the columns."
    )
    csv_separator_char: str = setting(
        default="44", validator=CHARACTER, doc="The character between fields, or its number; a tab is 9."
    )
    csv_quote_char: str = setting(
        default="34", validator=CHARACTER, doc="The character around fields, or its number; 0: there is none."
    )
    csv_escape_char: str = setting(
        default="0",
        validator=CHARACTER,
        doc="The character in front of one that stands for itself; 0: quotes in quotes are doubled. With one, fields "
        "cannot have line ends.",
    )
    csv_skip_lines: int = setting(
        default=0, validator=Range.at_least(0), doc="Lines in front of the header, or of the first row."
    )
    csv_null_field_indicator: str = setting(
        default="EMPTY_SEPARATORS",
        validator=ValidString("NEITHER", "EMPTY_SEPARATORS", "EMPTY_QUOTES", "BOTH"),
        doc="Which empty fields of text are null: those without quotes (EMPTY_SEPARATORS), with and without (BOTH, "
        "EMPTY_QUOTES), or none (NEITHER).",
    )
    csv_infer_types: bool = setting(
        default=True,
        doc="Types of columns are found in the beginning of a file, and widened later on where values do not fit; "
        "false: all columns are text. value.schema goes before.",
    )
    value_schema: str = setting(
        default="",
        validator=SCHEMA,
        importance=Importance.HIGH,
        doc="The schema of the values: id int64 not null, name string, price decimal(10,2), at timestamp; or JSON as "
        "in the SpoolDir connectors. Rows that do not fit are bad. Left out: what the files have.",
    )
    key_schema: str = setting(
        default="", validator=SCHEMA, doc="The schema of the keys, whose fields are taken from the values."
    )
    key_fields: tuple[str, ...] = setting(
        default=(), doc="The fields of the values that make the key, a struct; left out: those of key.schema."
    )
    schema_generation_key_fields: tuple[str, ...] = setting(
        default=(), importance=Importance.LOW, doc="The name of key.fields in the SpoolDir connectors."
    )
    schema_generation_enabled: bool = setting(
        default=True, importance=Importance.LOW, doc="Not used: without value.schema it is found in the files."
    )
    schema_generation_key_name: str = setting(
        default="", importance=Importance.LOW, doc="The name of the keys' schema."
    )
    schema_generation_value_name: str = setting(
        default="", importance=Importance.LOW, doc="The name of the values' schema."
    )
    timestamp_mode: str = setting(
        default="PROCESS_TIME",
        validator=ValidString("PROCESS_TIME", "FILE_TIME", "FIELD"),
        doc="The time of a record: when it is sent, when its file was changed last, or a field of it.",
    )
    timestamp_field: str = setting(default="", doc="The field of timestamp.mode=FIELD: a timestamp, or milliseconds.")
    parser_timestamp_timezone: str = setting(
        default="UTC",
        validator=TIME_ZONE,
        doc="The time zone of times in CSV files that do not tell it.",
    )
    parser_timestamp_date_formats: tuple[str, ...] = setting(
        default=(),
        doc="How CSV files write times, as Java's patterns; left out: ISO 8601: 2026-01-31 12:00:00.",
    )
    metadata_columns: tuple[str, ...] = setting(
        default=(),
        validator=ValidList.of(*METADATA),
        doc="Columns of FileSink that are no fields of the values, but key, headers, partition and timestamp of the "
        "records; topic and offset are left out. Left out: with mode=RESTORE_BACKUP all that a file has, else none.",
    )
    metadata_columns_prefix: str = setting(
        default="kafka_", importance=Importance.LOW, doc="What the names of these columns begin with."
    )
    store_kafka_keys: bool = setting(
        default=True,
        doc="With mode=RESTORE_BACKUP, files of keys next to the files of values (NAME.keys.EXTENSION) contain the "
        "keys of the records; false: they are ignored.",
    )
    store_kafka_headers: bool = setting(default=True, doc="The same for files of headers (NAME.headers.EXTENSION).")
    metadata_location: str = setting(
        default="NONE",
        validator=ValidString("NONE", "HEADERS"),
        doc="HEADERS: records have the headers file.path, file.name, file.length and file.last.modified.",
    )
    file_delim: str = setting(
        default="+", importance=Importance.LOW, doc="The separator of topic, partition and offset in a file's name."
    )
    batch_size: int = setting(default=1000, importance=Importance.LOW, doc="Not used.")
    file_buffer_size_bytes: int = setting(default=131_072, importance=Importance.LOW, doc="Not used.")
    processing_file_extension: str = setting(
        default=".PROCESSING", importance=Importance.LOW, doc="Files with this ending are not read."
    )

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        connector = str(properties.get("connector.class", ""))
        found = []
        if not self.address:
            where = "says where the files are: a path, s3://BUCKET/PREFIX, gs://.., abfss://.. or hdfs://.."
            found.append(self.missing_place(where))
        elif text := self.location().missing():
            found.append(("url", text))
        if not self.restores and not self.topic and not self.topic_regex_list:
            found.append(("topic", "has no value, and neither has topic.regex.list: one of them says where records go"))
        for one in self.topic_regex_list:
            topic, _, pattern = one.partition(":")
            try:
                compile_java(pattern, name="topic.regex.list")
            except ConfigException as error:
                found.append(("topic.regex.list", f"has {one}: {error}"))
            if not topic or not pattern:
                found.append(("topic.regex.list", f"has {one}: write TOPIC:REGULAR_EXPRESSION"))
        if self.on_done in (OnDone.MOVE, OnDone.MOVE_BY_DATE) and not self.finished:
            found.append(("finished.path", f"has no value, and cleanup.policy={self.on_done.value} needs it"))
        for name in ("finished.path", "error.path"):
            fault = self._place_fault(self.finished if name == "finished.path" else self.failed)
            if fault is not None:
                found.append((name, fault))
        if self.timestamp_mode == "FIELD" and not self.timestamp_field:
            found.append(("timestamp.field", "has no value, and timestamp.mode=FIELD needs it"))
        unknown = [one for one in self.attributes if one not in ATTRIBUTES]
        if unknown:
            found.append(
                ("offset.attributes.string", f"has {', '.join(unknown)}, and there are {', '.join(ATTRIBUTES)}")
            )
        try:
            _check_format("tasks.reader.class", self.format_name(connector))
        except ConfigException as error:
            name = "tasks.reader.class" if self.tasks_reader_class else "format.class"
            found.append((name, str(error).partition(": ")[2] or str(error)))
        else:
            if self.format(connector) == "avro" and (text := missing_library("null")):
                found.append(("format.class", text))
        for one in self.parser_timestamp_date_formats:
            try:
                strptime_pattern(one)
            except ValueError as error:
                found.append(("parser.timestamp.date.formats", str(error)))
        for name in ("csv_file_charset", "file_charset", "file_encoding"):
            if (value := getattr(self, name)) is not None:
                try:
                    check_charset(name.replace("_", "."), value)
                except ConfigException as error:
                    found.append((name.replace("_", "."), str(error)))
        return found

    @property
    def address(self) -> str:
        """The address of the files, by any name of the setting."""
        return self.location().url

    def location(self) -> Location:
        """See ``StoreConfig``; also accepts SpoolDir's and FilePulse's names."""
        found = super().location()
        if found.url:
            return found
        return replace(found, url=self.input_path or self.fs_listing_directory_path)

    def place(self) -> Location:
        """The address of the files, with ``topics.dir`` if the files are there."""
        found = self.location()
        if not self.restores or not self.topics_dir.strip("/"):
            return found
        below = self.topics_dir.strip("/")
        s3 = found.s3
        if s3 is not None:
            s3 = replace(s3, prefix=f"{s3.prefix}/{below}".strip("/"))
        return replace(found, url=f"{found.url.rstrip('/')}/{below}", s3=s3)

    @property
    def root(self) -> str:
        """The address of the files in the ledger and in headers: absolute, without a slash at its end."""
        place = self.place()
        return os.path.abspath(local_path(place.url)) if place.scheme == "file" else place.url.rstrip("/")

    @property
    def restores(self) -> bool:
        """True if the files are those of ``FileSink``, whose topics are restored."""
        if self.mode:
            return self.mode.upper() == "RESTORE_BACKUP"
        return not self.topic and not self.topic_regex_list

    @property
    def beside(self) -> tuple[str, ...]:
        """The columns of separate files to join."""
        wanted = {KEYS: self.store_kafka_keys, HEADERS: self.store_kafka_headers}
        return tuple(column for column, is_wanted in wanted.items() if is_wanted)

    def format_name(self, connector: str) -> str:
        """The format, by any name of the setting."""
        if self.tasks_reader_class:
            return re.sub(_READERS, "", _last(self.tasks_reader_class), count=1)
        if self.format_class == "auto" and _last(connector) in FORMATS:
            return _last(connector)
        return self.format_class

    def format(self, connector: str) -> str:
        """The format, by its short name."""
        return FORMATS[_last(self.format_name(connector))]

    @property
    def on_done(self) -> OnDone:
        """The treatment of files that were read."""
        policy = self.cleanup_policy
        if policy is OnDone.AUTO and self.fs_cleanup_policy_class:
            policy = OnDone(_CLEANUPS_OF_FILEPULSE.get(_last(self.fs_cleanup_policy_class), "NONE"))
        if policy is OnDone.AUTO:
            return OnDone.MOVE if self.finished else OnDone.NONE
        return policy

    @property
    def finished(self) -> str:
        """The directory for files that were read."""
        return self._place(self.finished_path or self.fs_cleanup_policy_move_success_path)

    @property
    def failed(self) -> str:
        """The directory for files that cannot be read."""
        return self._place(self.error_path or self.fs_cleanup_policy_move_failure_path)

    def _place(self, path: str) -> str:
        """Converts a path for the store: below its own, or an absolute one."""
        if not path:
            return ""
        if self.location().scheme != "file":
            return path.removeprefix(self.root + "/").rstrip("/")
        given = os.path.abspath(local_path(path)) if os.path.isabs(path) or "://" in path else path.rstrip("/")
        return given.removeprefix(self.root + "/")

    def _place_fault(self, path: str) -> str | None:
        local = self.location().scheme == "file"
        if "://" in path or (path.startswith("/") and not local):
            return "has to be a path below url, without a scheme; the store moves files within itself only"
        return None

    @property
    def pattern(self) -> JavaPattern | None:
        """The pattern that the names of files have to match."""
        text = self.input_file_pattern or self.file_filter_regex_pattern
        return compile_java(text, name="input.file.pattern") if text else None

    @property
    def recursive(self) -> bool:
        """True to search directories."""
        return self.input_path_walk_recursively and self.fs_recursive_scan_enable

    @property
    def halts(self) -> bool:
        """True if unreadable rows and files fail the task."""
        return self.halt_on_error or self.behavior_on_error.lower() == "fail"

    @property
    def wait_s(self) -> float:
        """Seconds between two listings."""
        more = [one for one in (self.s3_poll_interval_ms, self.fs_listing_interval_ms) if one > 0]
        return (more[0] if more else self.empty_poll_wait_ms) / 1000

    @property
    def order(self) -> tuple[str, ...]:
        """The order of files."""
        if self.tasks_file_processing_order_by:
            return (_ORDERS_OF_FILEPULSE[self.tasks_file_processing_order_by.upper()],)
        return self.files_sort_attributes

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that identify a file."""
        return tuple(one.strip() for one in self.offset_attributes_string.split("+"))

    @property
    def encoding(self) -> str:
        """The encoding of text, by any name of the setting."""
        return self.csv_file_charset or self.file_charset or self.file_encoding or self.charset

    def dialect(self, ending: str) -> CsvDialect:
        """The dialect of CSV files.

        Args:
            ending: The extension of a file's name: ``tsv`` has tabs.
        """
        separator = character(self.csv_separator_char) or ","
        if ending == "tsv" and self.csv_separator_char == "44":
            separator = "\t"
        names = () if self.values is None else tuple(one.name for one in self.values.fields)
        return CsvDialect(
            separator,
            character(self.csv_quote_char),
            character(self.csv_escape_char),
            self.csv_skip_lines,
            self.csv_first_row_as_header,
            names,
            self.encoding,
            self.csv_null_field_indicator != "NEITHER",
            self.csv_null_field_indicator in ("BOTH", "EMPTY_QUOTES"),
            self.csv_infer_types,
            self.parser_timestamp_timezone,
            tuple(strptime_pattern(one) for one in self.parser_timestamp_date_formats),
        )

    @property
    def values(self) -> Schema | None:
        """The schema of the values."""
        return parse_schema(self.value_schema) if self.value_schema else None

    @property
    def keys(self) -> Schema | None:
        """The schema of the keys."""
        return parse_schema(self.key_schema) if self.key_schema else None

    @property
    def fields_of_key(self) -> tuple[str, ...]:
        """The fields of the values that are the key."""
        if self.key_fields or self.schema_generation_key_fields:
            return self.key_fields or self.schema_generation_key_fields
        return () if self.keys is None else tuple(one.name for one in self.keys.fields)
