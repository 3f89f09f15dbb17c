"""Settings of the source, and the tables that they select.

Main types: `JdbcSourceConfig`; `wanted_tables`. Values; any thread.

Source: the settings of io.confluent.connect.jdbc.JdbcSourceConnector.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from penstock.config import ConfigType, Importance, NonEmptyString, Password, Range, setting
from penstock.config.java_pattern import JavaPattern, compile_java
from penstock.connectors.jdbc.connection_settings import ConnectionConfig, any_case
from penstock.connectors.jdbc.mappings import NumericMapping, TimestampGranularity
from penstock.connectors.jdbc.source.column_mappings import ColumnMapping
from penstock.connectors.jdbc.source.position import QueryMode
from penstock.errors import ConfigException

if TYPE_CHECKING:
    from penstock.connectors.jdbc.tables import TableName


class JdbcSourceConfig(ConnectionConfig):
    """The settings of the JDBC source."""

    mode: QueryMode = setting(
        validator=any_case(QueryMode),
        importance=Importance.HIGH,
        doc="How new rows are found. bulk: the whole table each time. incrementing: by a column that only grows. "
        "timestamp: by columns that say when a row was changed. timestamp+incrementing: by both, which finds changed "
        "rows and tells rows of one moment apart.",
    )
    incrementing_column_name: str = setting(
        default="",
        doc="The column that grows with each new row. Left out: the column whose values the database generates.",
    )
    timestamp_column_name: tuple[str, ...] = setting(
        default=(), doc="Columns that say when a row was changed; the first one that is not null counts."
    )
    incrementing_column_mapping: tuple[str, ...] = setting(
        default=(),
        doc="In place of incrementing.column.name, for tables whose columns have different names: PATTERN:COLUMN for "
        "each kind of table. A pattern is a regular expression for the whole name, SCHEMA.TABLE.",
    )
    timestamp_column_mapping: tuple[str, ...] = setting(
        default=(),
        doc="In place of timestamp.column.name, for tables whose columns have different names: "
        "PATTERN:[COLUMN|COLUMN] for each kind of table. Exactly one pattern has to match each table.",
    )
    timestamp_initial: int | None = setting(
        type=ConfigType.LONG,
        default=None,
        importance=Importance.LOW,
        doc="Where to begin with a table that was not read before, in milliseconds since 1970; -1: at the present "
        "moment. Left out: at the first row.",
    )
    timestamp_delay_interval_ms: int = setting(
        type=ConfigType.LONG,
        default=0,
        validator=Range.at_least(0),
        doc="How old a timestamp has to be before its row is read, so that rows whose transactions commit late are not "
        "missed. PostgreSQL says itself which transactions are open, and needs no delay.",
    )
    timestamp_granularity: TimestampGranularity = setting(
        default=TimestampGranularity.CONNECT_LOGICAL,
        validator=any_case(TimestampGranularity),
        importance=Importance.LOW,
        doc="The form of timestamps: connect_logical has milliseconds, the others have micro- or nanoseconds since "
        "1970 as a number or as text, or are dates with a time as text (ISO 8601, UTC).",
    )
    validate_non_null: bool = setting(
        default=True,
        importance=Importance.LOW,
        doc="Refuse a table whose incrementing column, or all of whose timestamp columns, may be null: such rows would "
        "never be read.",
    )
    query: str = setting(
        default="",
        doc="A SELECT to read in place of tables. It may have a WHERE of its own; the conditions of the mode are put "
        "around it.",
    )
    query_masked: Password | None = setting(
        default=None, doc="The same as query, for a statement that is never shown: not by the REST API, nor in errors."
    )
    query_suffix: str = setting(
        default="", importance=Importance.LOW, doc="SQL that is put at the end of each statement, such as a hint."
    )
    catalog_pattern: str | None = setting(
        default=None,
        importance=Importance.LOW,
        doc="An SQL pattern (% and _) that the name of the database has to match.",
    )
    schema_pattern: str | None = setting(
        default=None,
        doc="The schemas to look for tables in, as an SQL pattern (% and _). Left out: all but the database's own.",
    )
    table_include_list: tuple[str, ...] = setting(
        default=(),
        doc="The tables to read, as TABLE or SCHEMA.TABLE, or as regular expressions for SCHEMA.TABLE. Left "
        "out: all that there are.",
    )
    table_exclude_list: tuple[str, ...] = setting(default=(), doc="Tables that are not read, named in the same way.")
    table_whitelist: tuple[str, ...] = setting(
        default=(), importance=Importance.LOW, doc="The former name of table.include.list."
    )
    table_blacklist: tuple[str, ...] = setting(
        default=(), importance=Importance.LOW, doc="The former name of table.exclude.list."
    )
    table_poll_interval_ms: int = setting(
        type=ConfigType.LONG,
        default=60_000,
        validator=Range.at_least(1),
        importance=Importance.LOW,
        doc="How often to look for tables that are new or gone, and for columns that were added.",
    )
    poll_interval_ms: int = setting(
        default=5000,
        validator=Range.at_least(1),
        importance=Importance.HIGH,
        doc="How often to look for new rows in each table.",
    )
    batch_max_rows: int = setting(
        default=50_000,
        validator=Range.at_least(1),
        importance=Importance.LOW,
        doc="The most rows that are handed over at once.",
    )
    snapshot_chunk_size: int = setting(
        default=100_000,
        validator=Range.at_least(0),
        importance=Importance.LOW,
        doc="About how many rows a range has when the first load of a table is cut in ranges of its key, which tasks "
        "share and which go on by themselves after a restart. A table with fewer than twice as many rows is read in "
        "one go, and so is one without a primary key or an incrementing column. 0: no table is cut.",
    )
    snapshot_max_threads: int = setting(
        default=2,
        validator=Range.between(1, 64),
        importance=Importance.LOW,
        doc="How many ranges each task reads at once, each over a connection of its own.",
    )
    topic_prefix: str = setting(
        validator=NonEmptyString(),
        importance=Importance.HIGH,
        doc="What stands in front of the name of a table in its topic's; with a query, the topic.",
    )
    numeric_mapping: NumericMapping = setting(
        default=NumericMapping.BEST_FIT,
        validator=any_case(NumericMapping),
        importance=Importance.LOW,
        doc="Schemas of NUMERIC columns. best_fit: integers where there are no decimal places and at most 18 digits, "
        "FLOAT64 for at most 15 digits and for columns without a precision, else Decimal. precision_only: integers, "
        "else Decimal. best_fit_eager_double: integers, else FLOAT64. none: Decimal.",
    )
    numeric_precision_mapping: bool = setting(
        default=False, importance=Importance.LOW, doc="The former form of numeric.mapping=precision_only."
    )
    key_mode: str = setting(
        default="primary_key",
        validator=None,
        doc="Keys of records. primary_key: a struct of the columns of the table's primary key, null without one. none: "
        "no keys.",
    )
    transaction_isolation_mode: str = setting(
        default="DEFAULT",
        importance=Importance.LOW,
        doc="The isolation of the transactions that read: DEFAULT, READ_UNCOMMITTED, READ_COMMITTED, REPEATABLE_READ "
        "or SERIALIZABLE. The default is REPEATABLE_READ for PostgreSQL, and else the database's own.",
    )
    query_retry_attempts: int = setting(
        default=-1, importance=Importance.LOW, doc="Not used: a query that fails is tried again, and others go on."
    )
    table_monitoring_startup_polling_limit_ms: int = setting(
        type=ConfigType.LONG, default=10_000, importance=Importance.LOW, doc="Not used: tables are found while it runs."
    )

    @property
    def numbers(self) -> NumericMapping:
        """``numeric.mapping``, or what its former form says."""
        return NumericMapping.PRECISION_ONLY if self.numeric_precision_mapping else self.numeric_mapping

    @property
    def statement(self) -> str:
        """The SELECT that is read in place of tables, by either name of the setting; empty: tables are read."""
        return self.query or (self.query_masked.value if self.query_masked else "")

    @property
    def is_masked(self) -> bool:
        """True if the statement is not to be shown."""
        return bool(self.statement) and not self.query

    def timestamps_of(self, table: str | None) -> tuple[str, ...]:
        """The timestamp columns of a table, or of the query (None).

        Raises:
            ConnectException: ``timestamp.column.mapping`` does not say.
        """
        mapping = ColumnMapping("timestamp.column.mapping", self.timestamp_column_mapping, _MOST_COLUMNS)
        names = self.timestamp_column_name if table is None or not mapping else self._mapped(mapping, table)
        return tuple(map(self.name_of, names))

    def incrementing_of(self, table: str | None) -> str:
        """The incrementing column of a table, or of the query (None); empty: the one that the database generates.

        Raises:
            ConnectException: ``incrementing.column.mapping`` does not say.
        """
        mapping = ColumnMapping("incrementing.column.mapping", self.incrementing_column_mapping, 1)
        name = self.incrementing_column_name if table is None or not mapping else self._mapped(mapping, table)[0]
        return self.name_of(name)

    def _mapped(self, mapping: ColumnMapping, table: str) -> tuple[str, ...]:
        return mapping.columns_of(table, self.address().database or "")

    @property
    def isolation(self) -> str | None:
        """``transaction.isolation.mode`` in SQL's words, None for the default."""
        mode = self.transaction_isolation_mode.upper().replace("_", " ")
        return None if mode == "DEFAULT" else mode

    @property
    def include(self) -> tuple[str, ...]:
        """The tables to read, by either name of the setting."""
        return tuple(map(self.name_of, self.table_include_list or self.table_whitelist))

    @property
    def exclude(self) -> tuple[str, ...]:
        """The tables not to read, by either name of the setting."""
        return tuple(map(self.name_of, self.table_exclude_list or self.table_blacklist))

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        found = super().faults(properties)
        if self.catalog_pattern and not _is_like(self.address().database or "", self.catalog_pattern):
            text = (
                f"{self.catalog_pattern!r} does not match {self.address().database}, the one catalog of the connection"
            )
            found.append(("catalog.pattern", text))
        found += self._faults_of_columns()
        if self.query and self.query_masked and self.query_masked.value:
            found.append(("query.masked", "query is set as well: leave out one of the two"))
        query = "query.masked" if self.is_masked else "query"
        if self.mode.has_timestamp and not (self.timestamp_column_name or self.timestamp_column_mapping):
            found.append(("timestamp.column.name", f"mode={self.mode.value} needs the name of a timestamp column"))
        if self.statement and (self.include or self.exclude):
            found.append((query, "a query is read in place of tables: leave out the lists of tables"))
        if self.statement and self.mode.has_incrementing and not self.incrementing_column_name:
            found.append(("incrementing.column.name", "with a query the column has to be named"))
        if self.include and self.exclude:
            found.append(("table.exclude.list", "table.include.list says already which tables are read: leave out one"))
        if self.key_mode not in ("primary_key", "none"):
            found.append(("key.mode", f"is primary_key or none, not {self.key_mode!r}"))
        if (self.isolation or "SERIALIZABLE") not in _ISOLATIONS:
            text = f"is DEFAULT, {', '.join(one.replace(' ', '_') for one in _ISOLATIONS)}, not"
            found.append(("transaction.isolation.mode", f"{text} {self.transaction_isolation_mode!r}"))
        return found

    def _faults_of_columns(self) -> list[tuple[str, str]]:
        found = []
        for kind, name, entries, most in (
            ("timestamp", self.timestamp_column_name, self.timestamp_column_mapping, _MOST_COLUMNS),
            ("incrementing", self.incrementing_column_name, self.incrementing_column_mapping, 1),
        ):
            setting_name = f"{kind}.column.mapping"
            if entries and name:
                found.append((setting_name, f"{kind}.column.name is set as well: leave out one of the two"))
            if entries and self.statement:
                found.append((setting_name, f"a query is no table: name its column in {kind}.column.name"))
            try:
                ColumnMapping(setting_name, entries, most)
            except ConfigException as error:
                found.append((setting_name, str(error).removeprefix(f"{setting_name}: ")))
        return found


#: The most timestamp columns of a table.
_MOST_COLUMNS: Final = 1_600


def _is_like(text: str, pattern: str) -> bool:
    """True if a text matches an SQL pattern."""
    parts = {"%": ".*", "_": "."}
    return re.fullmatch("".join(parts.get(one) or re.escape(one) for one in pattern), text, re.DOTALL) is not None


_ISOLATIONS: Final = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


def wanted_tables(config: JdbcSourceConfig, found: Iterable[TableName | str]) -> list[str]:
    """The found tables that the lists of the settings select, each as text."""
    listed, database = config.include or config.exclude, config.address().database or ""
    wanted = bool(config.include)
    return [str(one) for one in found if wanted is any(is_meant(str(one), name, database) for name in listed)]


def is_meant(table: str, name: str, database: str = "") -> bool:
    """True if an entry of the lists means a table.

    Args:
        table: The table with its schema; quotation marks are left out.
        name: Its name, with or without its schema or its database, or a regular expression for the whole of it.
        database: The name of the database.
    """
    table, plain = (one.replace('"', "").replace("`", "") for one in (table, name))
    if table == plain or table.endswith(f".{plain}") or plain.endswith(f".{table}"):
        return True
    pattern = _pattern(name)
    return pattern is not None and any(map(pattern.matches, (table, f"{database}.{table}")))


def is_pattern(name: str) -> bool:
    """True if an entry of the lists is a regular expression, and not only a name."""
    return _pattern(name) is not None


@cache
def _pattern(name: str) -> JavaPattern | None:
    if not set(name) & set("\\*+?[](){}|^$"):
        return None
    try:
        return compile_java(name, name="table.include.list")
    except ConfigException:
        return None  # A table may have such a name.
