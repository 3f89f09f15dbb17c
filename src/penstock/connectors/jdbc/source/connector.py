"""JDBC source connector: names the tables of a database, and checks its settings against them.

Main type: `JdbcSource`. The worker calls it on the connector's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.api import ConnectorTransactionBoundaries, ExactlyOnceSupport, PartitionedSource, Task
from penstock.connectors.jdbc.addresses import missing_libraries
from penstock.connectors.jdbc.source.position import Mode, Position, partition_of, table_of
from penstock.connectors.jdbc.source.settings import JdbcSourceConfig, is_named, wanted_tables
from penstock.errors import ConfigException, ConnectException

log = logging.getLogger(__name__)

#: Tables that a validation looks at: it has to answer in time.
_MOST_CHECKED = 20


class JdbcSource(PartitionedSource):
    """Reads the rows of tables, or of a query: all of them, or those that are new or were changed.

    Source: the documentation's chapter on Kafka Connect, whose example it is; io.confluent.connect.jdbc.
    """

    config_class = JdbcSourceConfig
    settings: JdbcSourceConfig

    def __init__(self) -> None:
        self._lacking: list[str] = []

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        """``table.poll.interval.ms``."""
        return self.settings.table_poll_interval_ms / 1000

    def task_class(self) -> type[Task]:
        """The task that reads tables."""
        # Needs the libraries of a database.
        from penstock.connectors.jdbc.source.task import JdbcSourceTask

        return JdbcSourceTask

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """The tables to read, or the query.

        Raises:
            ConnectException: The database cannot be reached.
        """
        if self.settings.query:
            return [partition_of(None)]
        found, lacking = _look(self.settings)
        if lacking and lacking != self._lacking:
            log.warning("%s; read once it is there", _no_tables(lacking, self.settings))
        self._lacking = lacking
        return [partition_of(table) for table in found]

    def faults(self, settings: JdbcSourceConfig) -> Iterable[tuple[str, str]]:
        """Checks which settings fit together, and whether the database is there and has the tables."""
        return settings.faults() or _faults_of_database(settings)

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Says that the database cannot be reached, or that no table matches."""
        config = JdbcSourceConfig.parse(props)
        faults = [text for _, text in _faults_of_database(config)]
        if not faults and not config.query and not _look(config)[0]:
            return ["no table of the database matches the settings"]
        return faults

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """Positions can be found again, but for ``mode=bulk``, which reads all rows each time."""
        bulk = JdbcSourceConfig.parse(props).mode is Mode.BULK
        return ExactlyOnceSupport.UNSUPPORTED if bulk else ExactlyOnceSupport.SUPPORTED

    def can_define_transaction_boundaries(self, props: Mapping[str, str]) -> ConnectorTransactionBoundaries:
        """A transaction is what was read at once."""
        return ConnectorTransactionBoundaries.SUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None],
    ) -> bool:
        """Checks new offsets. Removing is always allowed, also of entries that make no sense.

        Raises:
            ConnectException: A partition is no table, or an offset no position in one.
        """
        for partition, offset in offsets.items():
            if offset is not None:
                table_of(dict(partition))
                Position.of(offset)
        return True


def _look(config: JdbcSourceConfig) -> tuple[list[str], list[str]]:
    """The tables to read, and those that the settings name and that are not there.

    Raises:
        ConnectException: The database cannot be reached.
    """
    missing = missing_libraries(config.address().dialect)
    if missing:
        raise ConfigException(f"connection.url: {missing}")
    from penstock.connectors.jdbc.tables import catalog_of

    found = wanted_tables(config, catalog_of(config.address()).tables(config.table_types, config.schema_pattern))
    return found, [name for name in config.include if not any(is_named(table, name) for table in found)]


def _no_tables(names: Sequence[str], config: JdbcSourceConfig) -> str:
    return f"there is no table {', '.join(names)} in {config.address().label}, or the user may not see it"


def _faults_of_database(config: JdbcSourceConfig) -> list[tuple[str, str]]:
    """Names of settings that the database does not fit, each with a text for people."""
    try:
        if config.query:
            from penstock.connectors.jdbc.source.task import Tables

            Tables(config).describe(None)
            return []
        found, lacking = _look(config)
    except ConnectException as error:
        return [("query" if config.query and "refuses" in str(error) else "connection.url", str(error))]
    if lacking:
        setting = "table.include.list" if config.table_include_list else "table.whitelist"
        return [(setting, _no_tables(lacking, config))]
    return [("mode", text) for table in found[:_MOST_CHECKED] if (text := _fault_of_table(config, table))]


def _fault_of_table(config: JdbcSourceConfig, table: str) -> str | None:
    from penstock.connectors.jdbc.source.task import Tables

    try:
        Tables(config).describe(table)
    except ConnectException as error:
        return str(error)
    return None
