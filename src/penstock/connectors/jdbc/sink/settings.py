"""Settings of the sink: `JdbcSinkConfig`, `InsertMode`, `PkMode`. Values; any thread.

Source: the settings of io.confluent.connect.jdbc.JdbcSinkConnector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from penstock.config import AbsentSetting, CaseInsensitiveValidString, Importance, NonEmptyString, Range, setting
from penstock.connectors.jdbc.connection_settings import ConnectionConfig, any_case

#: The columns of ``pk.mode=kafka``, unless ``pk.fields`` names others.
KAFKA_KEYS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")

#: The databases whose statements ``offsets.in.target`` needs.
OFFSETS_IN_TARGET: Final = ("postgresql", "sqlite", "mysql", "mariadb", "duckdb")


class InsertMode(Enum):
    """The statement of a row: the values of ``insert.mode``."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"


class PkMode(Enum):
    """The source of the primary key: the values of ``pk.mode``."""

    NONE = "none"
    KAFKA = "kafka"
    RECORD_KEY = "record_key"
    RECORD_VALUE = "record_value"


class JdbcSinkConfig(ConnectionConfig):
    """The settings of the JDBC sink."""

    insert_mode: InsertMode = setting(
        default=InsertMode.INSERT,
        validator=any_case(InsertMode),
        importance=Importance.HIGH,
        doc="insert: each record is a new row. upsert: a row with the same primary key is replaced, so that records "
        "that come twice do no harm. update: only rows that are there are changed.",
    )
    pk_mode: PkMode = setting(
        default=PkMode.NONE,
        validator=any_case(PkMode),
        importance=Importance.HIGH,
        doc="The primary key. none: no key. kafka: topic, partition and offset of the message. record_key: the key, or "
        "fields of it. record_value: fields of the value.",
    )
    pk_fields: tuple[str, ...] = setting(
        default=(),
        doc="The columns of the primary key. With pk.mode=kafka: the names of the three columns. With record_key: the "
        "name of the column, where the key is no struct; else the fields to take, all if left out. With record_value: "
        "the fields to take, all if left out.",
    )
    delete_enabled: bool = setting(
        default=False,
        doc="A record whose value is null deletes the row of its key. Needs pk.mode=record_key.",
    )
    auto_create: bool = setting(default=False, doc="Create a table that is not there, from the schema of the records.")
    auto_evolve: bool = setting(
        default=False,
        doc="Add a column for each field that a table lacks, if the field may be null or has a default; on PostgreSQL "
        "also widen columns for values that need it, where nothing is lost.",
    )
    offsets_in_target: bool = setting(
        default=False,
        doc="Keep the offsets of the topics in the table penstock_offsets of the database, where they move in the "
        "transaction that writes the rows, so that each record is written once. On PostgreSQL, MySQL, MariaDB, "
        "SQLite and DuckDB.",
    )
    table_name_format: str = setting(
        default="${topic}",
        validator=NonEmptyString(),
        doc="The table of a topic, as TABLE or SCHEMA.TABLE; ${topic} stands for the topic. A name with a dot is in "
        'quotation marks: "${topic}".',
    )
    topic_to_table_map: tuple[str, ...] = setting(
        default=(), doc="Tables of single topics, as TOPIC:TABLE; all others go by table.name.format."
    )
    fields_include_list: tuple[str, ...] = setting(
        default=(), doc="The fields of the value to write; left out: all. Those of the primary key are written anyway."
    )
    fields_whitelist: tuple[str, ...] = setting(
        default=(), importance=Importance.LOW, doc="The former name of fields.include.list."
    )
    batch_size: int = setting(
        default=3000,
        validator=Range.at_least(1),
        doc="The rows of one statement, for databases that have no bulk load. PostgreSQL loads all that there are.",
    )
    max_retries: int = setting(
        default=10,
        validator=Range.at_least(-1),
        doc="How often a write that the database interrupted is tried again before the task fails; -1: for ever.",
    )
    retry_backoff_ms: int = setting(
        default=3000, validator=Range.at_least(0), doc="How long to wait before such a write is tried again."
    )
    replace_null_with_default: bool = setting(
        default=True,
        importance=Importance.LOW,
        doc="Write the default that the schema of a field has in place of a null.",
    )
    date_timezone: str = setting(
        default="DB_TIMEZONE",
        validator=CaseInsensitiveValidString("DB_TIMEZONE", "UTC"),
        importance=Importance.LOW,
        doc="Not used: a date is a day, in no time zone.",
    )
    mssql_use_merge_holdlock: bool = setting(
        default=True,
        importance=Importance.LOW,
        doc="True: an upsert on SQL Server locks the row that it looks for, so that two tasks cannot both insert it.",
    )
    trim_sensitive_log: bool = setting(
        default=False, importance=Importance.LOW, doc="Not used: the log has no values of records."
    )

    absent = {
        "timestamp.fields.list": AbsentSetting("a transform makes timestamps of numbers: TimestampConverter"),
        "timestamp.precision.mode": AbsentSetting(
            "timestamps have milliseconds, as those of Connect", ("", "microseconds")
        ),
    }

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the value to write, by either name of the setting; empty: all."""
        return self.fields_include_list or self.fields_whitelist

    @property
    def rights(self) -> Sequence[str]:
        """The rights on a table that its statements need; those on a key that is there need to read it."""
        rights = {InsertMode.INSERT: ["INSERT"], InsertMode.UPDATE: ["SELECT", "UPDATE"]}
        found = rights.get(self.insert_mode, ["SELECT", "INSERT", "UPDATE"])
        return [*found, *(["SELECT", "DELETE"] if self.delete_enabled else [])]

    @property
    def kafka_keys(self) -> tuple[str, ...]:
        """The names of the columns of ``pk.mode=kafka``."""
        return self.pk_fields or KAFKA_KEYS

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        found = super().faults(properties)
        if self.delete_enabled and self.pk_mode is not PkMode.RECORD_KEY:
            found.append(("delete.enabled", "a row is deleted by the key of its record: set pk.mode=record_key"))
        if self.insert_mode is not InsertMode.INSERT and self.pk_mode is PkMode.NONE:
            text = f"insert.mode={self.insert_mode.value} needs a primary key: set pk.mode"
            found.append(("pk.mode", text))
        if self.pk_mode is PkMode.KAFKA and len(self.kafka_keys) != len(KAFKA_KEYS):
            found.append(("pk.fields", "with pk.mode=kafka it names three columns, for topic, partition and offset"))
        if self.offsets_in_target and self.address().dialect.name not in OFFSETS_IN_TARGET:
            where = " and ".join(OFFSETS_IN_TARGET)
            found.append(("offsets.in.target", f"is there for {where}, not for {self.address().dialect.name}"))
        for entry in self.topic_to_table_map:
            topic, colon, table = entry.partition(":")
            if not (topic and colon and table):
                found.append(("topic.to.table.map", f"an entry is TOPIC:TABLE, not {entry!r}"))
        return found

    def table_of(self, topic: str) -> str:
        """The table of a topic."""
        tables = dict(entry.split(":", 1) for entry in self.topic_to_table_map)
        return self.name_of(tables.get(topic) or self.table_name_format.replace("${topic}", topic))
