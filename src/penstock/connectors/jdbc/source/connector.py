"""JDBC source connector: divides the tables of a database among tasks, and looks for new ones.

Main type: `JdbcSource`. The worker calls it on the connector's thread; the thread ``jdbc-tables`` looks for tables.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Mapping, Sequence

from penstock.api import ConnectorTransactionBoundaries, ConnectorUtils, ExactlyOnceSupport, SourceConnector, Task
from penstock.config import Config, ConfigDef
from penstock.connectors.jdbc.addresses import missing_libraries
from penstock.connectors.jdbc.source.position import Mode, Position, table_of
from penstock.connectors.jdbc.source.settings import TABLES_CONFIG, JdbcSourceConfig, encode_tables, wanted_tables
from penstock.errors import ConfigException, ConnectException, IllegalWorkerStateException

log = logging.getLogger(__name__)

END_S = 3.0


class JdbcSource(SourceConnector):
    """Reads the rows of tables, or of a query: all of them, or those that are new or were changed.

    Source: the documentation's chapter on Kafka Connect, whose example it is; io.confluent.connect.jdbc.
    """

    def __init__(self) -> None:
        self._props: dict[str, str] = {}
        self._tables: list[str] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, props: Mapping[str, str]) -> None:
        """Looks which tables there are, and goes on looking.

        Raises:
            ConfigException: The settings are wrong.
            ConnectException: The database cannot be reached, or lacks a table that the settings name.
        """
        config = JdbcSourceConfig.parse(props)
        self._props = dict(props)
        if config.query:
            return
        self._tables = _look(config)
        self._stopping = threading.Event()
        watching = contextvars.copy_context()
        self._thread = threading.Thread(
            target=watching.run, args=(self._watch, config, self._stopping), name="jdbc-tables", daemon=True
        )
        self._thread.start()

    def task_class(self) -> type[Task]:
        """The task that reads tables."""
        from penstock.connectors.jdbc.source.task import JdbcSourceTask

        return JdbcSourceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The tables, spread over at most ``max_tasks`` tasks; one task for a query; none without a table."""
        if self._props.get("query"):
            return [dict(self._props)]
        if not self._tables:
            return []
        groups = ConnectorUtils.group_partitions(self._tables, min(len(self._tables), max_tasks))
        return [{**self._props, TABLES_CONFIG: encode_tables(group)} for group in groups]

    def stop(self) -> None:
        """Ends the looking for tables."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(END_S)
            self._thread = None

    def config(self) -> ConfigDef:
        """The settings."""
        return JdbcSourceConfig.definition()

    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        """Checks each setting, which of them fit together, and whether the database is there and has the tables."""
        checked = super().validate(connector_configs)
        values = {value.name: value for value in checked.config_values}
        if any(value.error_messages for value in values.values()):
            return checked
        config = JdbcSourceConfig.of(JdbcSourceConfig.definition().parse(connector_configs))
        faults = config.faults() or _faults_of_database(config)
        for name, text in faults:
            values[name].add_error_message(f"{name}: {text}")
        return checked

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Says that the database cannot be reached, or that no table matches."""
        config = JdbcSourceConfig.parse(props)
        faults = _faults_of_database(config)
        if not faults and not config.query and not _look(config):
            return ["no table of the database matches the settings"]
        return [text for _, text in faults]

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

    def _watch(self, config: JdbcSourceConfig, stopping: threading.Event) -> None:
        complaint = ""
        while not stopping.wait(config.table_poll_interval_ms / 1000):
            try:
                found = _look(config)
                complaint = ""
                if found != self._tables and not stopping.is_set():
                    log.info("The tables to read have changed to %s; asking for new tasks", ", ".join(found) or "none")
                    self._tables = found
                    self.context().request_task_reconfiguration()
            except IllegalWorkerStateException:
                return
            except ConnectException as error:
                if complaint != str(error):
                    complaint = str(error)
                    log.warning("Cannot look for new tables, trying again: %s", error)


def _look(config: JdbcSourceConfig) -> list[str]:
    """The tables to read.

    Raises:
        ConnectException: The database cannot be reached, or lacks a table that the settings name.
    """
    missing = missing_libraries(config.address().dialect)
    if missing:
        raise ConfigException(f"connection.url: {missing}")
    from penstock.connectors.jdbc.tables import Catalog

    found = Catalog(config.address()).tables(config.table_types, config.schema_pattern)
    wanted = wanted_tables(config, found)
    lacking = [name for name in config.include if not any(_means(name, table) for table in wanted)]
    if lacking:
        log.warning(
            "There is no table %s in %s, or the user may not see it; it is read once it is there",
            ", ".join(lacking),
            config.address().label,
        )
    return wanted


def _means(name: str, table: str) -> bool:
    return table == name or table.endswith(f".{name}") or name.endswith(f".{table}")


def _faults_of_database(config: JdbcSourceConfig) -> list[tuple[str, str]]:
    """Names of settings that the database does not fit, each with a text for people."""
    from penstock.connectors.jdbc.source.task import Tables

    try:
        if config.query:
            Tables(config).describe(None)
            return []
        found = _look(config)
    except ConnectException as error:
        return [("query" if config.query and "refuses" in str(error) else "connection.url", str(error))]
    setting = "table.include.list" if config.table_include_list else "table.whitelist"
    lacking = [name for name in config.include if not any(_means(name, table) for table in found)]
    if lacking:
        return [(setting, f"there is no table {', '.join(lacking)} in {config.address().label}")]
    faults = []
    for table in found[:_MOST_CHECKED]:
        try:
            Tables(config).describe(table)
        except ConnectException as error:
            faults.append(("mode", str(error)))
    return faults


#: Tables that a validation looks at: it has to answer in time.
_MOST_CHECKED = 20
