"""Settings of the table sink: `TableSinkConfig`. Values; any thread.

Source: the settings of org.apache.iceberg.connect.IcebergSinkConnector, and of Tabular's connector before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from penstock.config import (
    CaseInsensitiveValidString,
    ClassResolver,
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
from penstock.connectors.setting_values import OnNull
from penstock.connectors.tables.places import LakeConfig, TableFormat, terms
from penstock.errors import ConfigException

#: The names of settings in Iceberg's sink, with their names here.
OTHER_NAMES: Final[Mapping[str, str]] = {
    "iceberg.tables": "tables",
    "iceberg.tables.route-field": "route.field",
    "iceberg.tables.dynamic-enabled": "dynamic.tables",
    "iceberg.tables.auto-create-enabled": "auto.create",
    "iceberg.tables.evolve-schema-enabled": "auto.evolve",
    "iceberg.tables.schema-force-optional": "schema.force.optional",
    "iceberg.tables.default-commit-branch": "commit.branch",
    "iceberg.tables.default-id-columns": "id.columns",
    "iceberg.tables.default-partition-by": "partition.by",
    "iceberg.tables.cdc-field": "cdc.field",
    "iceberg.control.commit.interval-ms": "commit.interval.ms",
    "iceberg.catalog": "catalog.name",
}
#: Settings of Iceberg's sink, and prefixes of settings, that have no effect here.
UNUSED: Final = (
    "iceberg.control.topic",
    "iceberg.control.group-id-prefix",
    "iceberg.control.group-id",
    "iceberg.control.commit.timeout-ms",
    "iceberg.control.commit.threads",
    "iceberg.coordinator.transactional.prefix",
    "iceberg.coordinator-executor-keep-alive-timeout-ms",
    "iceberg.connect.group-id",
    "iceberg.hadoop-conf-dir",
    "iceberg.kafka.",
    "iceberg.hadoop.",
)
#: Prefixes of names with any suffix.
PREFIXES: Final = ("iceberg.catalog.", "iceberg.table.", "table.properties.", "iceberg.tables.auto-create-props.",
                   "delta.storage.", "tables.")  # fmt: skip
#: The settings of single tables: by the last part of the name in both spellings.
_OF_TABLES: Final = {
    "id-columns": "id.columns",
    "partition-by": "partition.by",
    "route-regex": "route.regex",
    "commit-branch": "commit.branch",
}


class WriteMode(Enum):
    """The values of ``write.mode``."""

    APPEND = "append"
    UPSERT = "upsert"


class Commit(Enum):
    """The values of ``tables.commit``."""

    TASK = "task"
    CONNECTOR = "connector"


def _check_age(name: str, value: object) -> None:
    if isinstance(value, int) and value != -1 and value < 3_600_000:
        raise ConfigException(
            name,
            value,
            "has to be an hour (3600000) or more, since files that are being written have no version yet",
        )


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of one table.

    Attributes:
        keys: The columns of its key.
        partition_by: Its partition fields.
        branch: The branch to write; empty for the main one.
    """

    keys: tuple[str, ...]
    partition_by: tuple[str, ...]
    branch: str


class TableSinkConfig(LakeConfig):
    """The settings of the table sink."""

    tables: tuple[str, ...] = setting(
        default=(),
        importance=Importance.HIGH,
        doc="The tables to write. Without route.field each record goes to all of them. Left out: table.name.format "
        "says the table of a topic.",
    )
    table_name_format: str = setting(
        default="${topic}",
        importance=Importance.HIGH,
        doc="The table of a topic; ${topic} stands for the topic, as transforms have left it.",
    )
    route_field: str = setting(
        default="",
        doc="The field of the value that says the table: by tables.TABLE.route.regex, or with dynamic.tables the name.",
    )
    dynamic_tables: bool = setting(
        default=False, doc="The table of a record is the value of route.field, in lower case."
    )
    write_mode: WriteMode = setting(
        default=WriteMode.APPEND,
        importance=Importance.HIGH,
        doc="append: each record is a new row. upsert: a record replaces the row of its key, and one whose value is "
        "null, or whose cdc.field says so, deletes it.",
    )
    id_columns: tuple[str, ...] = setting(
        default=(),
        importance=Importance.HIGH,
        doc="The columns of the key with write.mode=upsert; left out: the fields of the record's key.",
    )
    cdc_field: str = setting(
        default="",
        doc="The field of the value that says what a change is: d, delete or true deletes the row of the key, anything "
        "else replaces it.",
    )
    partition_by: str = setting(
        default="",
        doc="How tables that are made are partitioned: fields, with commas; of Iceberg also year(F), month(F), day(F), "
        "hour(F), bucket(F, COUNT) and truncate(F, WIDTH).",
    )
    auto_create: bool = setting(
        default=False, importance=Importance.HIGH, doc="Make a table that is not there, from the records."
    )
    auto_evolve: bool = setting(
        default=False,
        importance=Importance.HIGH,
        doc="Add a column for each new field, and make columns optional; of Iceberg also widen int to long, float to "
        "double, and decimals. false: fields without a column are left out.",
    )
    schema_force_optional: bool = setting(
        default=False, doc="Columns of tables that are made may be null, whatever the schema of the records says."
    )
    commit_interval_ms: int = setting(
        default=300_000,
        type=ConfigType.LONG,
        validator=Range.at_least(100),
        importance=Importance.HIGH,
        doc="How often a task commits to its tables, also when no record comes.",
    )
    tables_commit: Commit = setting(
        default=Commit.TASK,
        validator=CaseInsensitiveValidString("task", "connector"),
        importance=Importance.HIGH,
        doc="task: each task commits what its partitions have. connector: tasks write files, and one of them commits "
        "those of all tasks, once an interval; with write.mode=append.",
    )
    commit_wait_ms: int = setting(
        default=5000,
        type=ConfigType.LONG,
        validator=Range.at_least(0),
        doc="With tables.commit=connector: how long after the end of an interval the commit waits for files of other "
        "tasks; at most half of commit.interval.ms.",
    )
    tables_bulk: bool = setting(
        default=False,
        doc="Spark's executors fetch ranges of the topics and write the files, and the task commits them, with "
        "write.mode=append: for much at once. Ranges that are shorter than bulk.range.rows wait for "
        "commit.interval.ms.",
    )
    bulk_range_rows: int = setting(
        default=200_000,
        validator=Range.at_least(1),
        doc="With tables.bulk=true: the length of a range in offsets, which one executor writes as a file or more.",
    )
    compact_small_files: bool = setting(
        default=False,
        doc="Join files that are smaller than target.file.bytes, between commits, every maintenance.interval.ms.",
    )
    expire_older_than_ms: int = setting(
        default=-1,
        type=ConfigType.LONG,
        validator=LambdaValidator(_check_age, "-1, or an hour (3600000) and more"),
        doc="Remove what only versions have that are older, every maintenance.interval.ms: files of Delta, in whole "
        "hours, and snapshots of Iceberg; -1: nothing.",
    )
    maintenance_interval_ms: int = setting(
        default=3_600_000,
        type=ConfigType.LONG,
        validator=Range.at_least(1000),
        doc="How often the task that has partition 0 of a topic does what the two settings above say.",
    )
    commit_branch: str = setting(default="", doc="The branch of Iceberg tables that is written; left out: main.")
    target_file_bytes: int = setting(
        default=128 << 20,
        type=ConfigType.LONG,
        validator=Range.at_least(1 << 20),
        doc="About the size of a file, where a commit has so much.",
    )
    parquet_codec: str = setting(
        default="zstd",
        validator=ValidString("none", "snappy", "gzip", "zstd"),
        doc="The compression of files; an Iceberg table that is there has its own.",
    )
    behavior_on_null_values: str = setting(
        default="",
        validator=CaseInsensitiveValidString("", "ignore", "fail"),
        doc="Records whose value is null, with write.mode=append. fail: are bad records, as errors.tolerance says. "
        "ignore: are left out. Not set: fail, or ignore where the settings are those of Iceberg's sink.",
    )
    metadata_columns: tuple[str, ...] = setting(
        default=(), validator=ValidList.of(*METADATA), doc="Columns to add to the fields of the values."
    )
    metadata_columns_prefix: str = setting(
        default="kafka_", importance=Importance.LOW, doc="What the names of these columns begin with."
    )
    buffer_bytes: int = setting(
        default=128 << 20,
        type=ConfigType.LONG,
        validator=Range.at_least(1 << 20),
        doc="The memory for records of a task that wait for the next commit. With write.mode=append more are moved to "
        "a file in buffer.dir; with upsert the commit comes earlier.",
    )
    buffer_dir: str = setting(
        default="",
        importance=Importance.LOW,
        doc="Where such a file is; left out: where the system has temporary files.",
    )
    retry_backoff_ms: int = setting(
        default=1000,
        type=ConfigType.LONG,
        validator=Range.at_least(0),
        doc="How long to wait before a commit that failed is tried again; each time twice as long, up to 60 s.",
    )
    renamed_from: str = setting(
        default="",
        doc="The former name of this connector, or of a deleted one, after whose offsets in the tables it continues: "
        "the records of a topic are written to a table by one connector. Its own name: the one of this name in another "
        "Kafka cluster.",
    )
    shared_tables: bool = setting(
        default=False,
        doc="Other connectors write records of the same topics into the tables, for example those that pass a filter.",
    )

    @classmethod
    def parse(cls, properties: Mapping[str, object], *, resolve_class: ClassResolver | None = None) -> Self:
        """See ``AbstractConfig``; accepts the names of Iceberg's sink, too."""
        return super().parse(with_own_names(properties), resolve_class=resolve_class)

    @classmethod
    def refused(cls, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        given = {name: str(value) for name, value in properties.items() if value is not None}
        found = super().refused(properties)
        if given.get("iceberg.tables.schema-case-insensitive", "false").lower() == "true":
            found.append(("iceberg.tables.schema-case-insensitive", "is not there: names count as they are written"))
        for name in given:
            if name.startswith("iceberg.tables.write-props."):
                found.append((name, "is not there: set it as a property of the table, or target.file.bytes"))
        kind, implementation = given.get("iceberg.catalog.type", ""), given.get("iceberg.catalog.catalog-impl", "")
        if kind in ("hadoop", "nessie") or implementation.endswith(("HadoopCatalog", "NessieCatalog")):
            text = "is not there: pyiceberg has the catalogs rest, sql, hive, glue, dynamodb and bigquery"
            found.append(("iceberg.catalog.type" if kind else "iceberg.catalog.catalog-impl", text))
        return found

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        found = super().faults(properties)
        if self.dynamic_tables and not self.route_field:
            found.append(("route.field", "dynamic.tables needs the field that has the name of the table"))
        if self.cdc_field and self.write_mode is WriteMode.APPEND:
            found.append(("write.mode", "cdc.field says which rows are deleted: that needs write.mode=upsert"))
        if self.tables_commit is Commit.CONNECTOR and self.write_mode is WriteMode.UPSERT:
            found.append(
                (
                    "tables.commit",
                    "connector adds files that tasks have written, and write.mode=upsert replaces files that are in "
                    "the table: set tables.commit=task, or write.mode=append",
                )
            )
        if self.tables_bulk and self.write_mode is WriteMode.UPSERT:
            found.append(
                (
                    "tables.bulk",
                    "has executors write files that are added, and write.mode=upsert replaces files that are in the "
                    "table: set tables.bulk=false, or write.mode=append",
                )
            )
        if self.tables_bulk and self.tables_commit is Commit.CONNECTOR:
            found.append(
                (
                    "tables.commit",
                    "connector is for tasks that write themselves; with tables.bulk=true a task commits what executors "
                    "have written for it: leave one of them out, and set tasks.max=1 for one commit at once",
                )
            )
        for name, text in own_partitions(properties, self.partition_by):
            if self.format is TableFormat.DELTA:
                if "(" in text:
                    found.append((name, f"Delta tables are partitioned by columns, not by {text}"))
                continue
            try:
                _parsed(text)
            except ConfigException as error:
                found.append((name, str(error)))
        for name, pattern in _below_tables(properties, "route.regex"):
            try:
                compile_java(pattern, name=name)
            except ConfigException as error:
                found.append((name, f"is no regular expression: {error}"))
        return found

    def on_null(self, properties: Mapping[str, object]) -> OnNull:
        """The treatment of a null in ``write.mode=append``."""
        if self.behavior_on_null_values:
            return OnNull(self.behavior_on_null_values.lower())
        return OnNull.IGNORE if any(name.startswith("iceberg.tables") for name in properties) else OnNull.FAIL

    def of_table(self, name: str, properties: Mapping[str, object]) -> TableSettings:
        """The settings of a table; its own take precedence over those of all."""
        own = {wanted: value for wanted in _OF_TABLES.values() for at, value in _below_tables(properties, wanted, name)}
        keys = own.get("id.columns")
        return TableSettings(
            self.id_columns if keys is None else tuple(one.strip() for one in keys.split(",") if one.strip()),
            tuple(terms(own.get("partition.by", self.partition_by))),
            own.get("commit.branch", self.commit_branch),
        )

    def routes(self, properties: Mapping[str, object]) -> dict[str, JavaPattern]:
        """The pattern of each of ``tables`` that has one."""
        found = {}
        for name in self.tables:
            for _, pattern in _below_tables(properties, "route.regex", name):
                found[name] = compile_java(pattern)
        return found


def with_own_names(properties: Mapping[str, object]) -> dict[str, object]:
    """Converts the names of settings to those used here; names of Iceberg's sink apply if there is no other.

    >>> with_own_names({"iceberg.tables.auto-create-enabled": "true"})["auto.create"]
    'true'
    """
    found = dict(properties)
    for other, own in OTHER_NAMES.items():
        if properties.get(other) is not None and own not in properties:
            found[own] = properties[other]
    if str(properties.get("iceberg.tables.upsert-mode-enabled", "")).lower() == "true":
        found.setdefault("write.mode", "upsert")
    if found.get("cdc.field") and "iceberg.tables.cdc-field" in properties:
        found.setdefault("write.mode", "upsert")
    if "table.format" not in found and any(name.startswith("iceberg.") for name in properties):
        found["table.format"] = "iceberg"
    return found


def is_known(name: str) -> bool:
    """True if a name without a definition is read, or ignored on purpose.

    >>> is_known("iceberg.catalog.uri"), is_known("iceberg.control.topic"), is_known("iceberg.tabels")
    (True, True, False)
    """
    return name in OTHER_NAMES or name == "iceberg.tables.upsert-mode-enabled" or name.startswith((*PREFIXES, *UNUSED))


def own_partitions(properties: Mapping[str, object], default: str) -> Iterator[tuple[str, str]]:
    """The settings with partitions, each with its text."""
    if default:
        yield "partition.by", default
    yield from _below_tables(properties, "partition.by")


def _parsed(text: str) -> None:
    from penstock.connectors.tables.partitions import parse

    for one in terms(text):
        parse(one)


def _below_tables(properties: Mapping[str, object], wanted: str, table: str | None = None) -> Iterator[tuple[str, str]]:
    """The settings of single tables of one kind: their names, and values."""
    other = next(one for one, own in _OF_TABLES.items() if own == wanted)
    for name, value in properties.items():
        for prefix, ending in (("iceberg.table.", f".{other}"), ("tables.", f".{wanted}")):
            if value is None or not name.startswith(prefix) or not name.endswith(ending):
                continue
            found = name[len(prefix) : len(name) - len(ending)]
            if found and (table is None or found == table):
                yield name, str(value)
