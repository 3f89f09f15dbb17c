"""JDBC source connector: names the tables of a database, and checks its settings against them.

Main type: `JdbcSource`. The worker calls it on the connector's thread.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.api import ConnectorTransactionBoundaries, ExactlyOnceSupport, PartitionedSource, Task
from penstock.api.partitioned import PARTITIONS_CONFIG
from penstock.connectors.jdbc.addresses import DatabaseAddress, missing_libraries
from penstock.connectors.jdbc.connection_settings import MOST_CHECKED
from penstock.connectors.jdbc.source.position import QueryMode, RowPosition, partition_of, stored_offsets, table_of
from penstock.connectors.jdbc.source.ranges import (
    EXPORTED_CONFIG,
    RangeOffset,
    RangePlan,
    is_plan,
    plan_partition,
    range_of,
)
from penstock.connectors.jdbc.source.settings import JdbcSourceConfig, is_meant, is_pattern, wanted_tables
from penstock.errors import BadRequestException, ConfigException, ConnectException

if TYPE_CHECKING:
    from penstock.connectors.jdbc.source.planning import ExportedSnapshots

log = logging.getLogger(__name__)

#: The interval of checks for a plan of ranges that a task may be making, the time limit of that, and the interval of
#: checks for the end of ranges.
_SOON_S: Final = 1.0
_EXPECTED_S: Final = 60.0
_DURING_S: Final = 5.0


class JdbcSource(PartitionedSource):
    """Reads the rows of tables, or of a query: all rows, or new and changed rows.

    Source: the documentation's chapter on Kafka Connect, whose example it is; io.confluent.connect.jdbc.
    """

    config_class = JdbcSourceConfig
    settings: JdbcSourceConfig

    def __init__(self) -> None:
        self._lacking: list[str] = []
        self._tables: tuple[float, list[str]] | None = None
        #: Until when a plan of ranges may come soon, and the tables whose ranges are read now.
        self._expects_until = 0.0
        self._plans: dict[str, RangePlan] = {}
        self._exported: Mapping[str, str] = {}
        self._snapshots: ExportedSnapshots | None = None

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        """``table.poll.interval.ms``; shorter while the initial load of a table begins or is in progress."""
        usual = self.settings.table_poll_interval_ms / 1000
        if time.monotonic() < self._expects_until:
            return min(usual, _SOON_S)
        return min(usual, _DURING_S) if self._plans else usual

    def start(self, props: Mapping[str, str]) -> None:
        """See ``PartitionedSource.start``."""
        self._tables = None
        super().start(props)

    def stop(self) -> None:
        """See ``PartitionedSource.stop``; snapshots that were exported are let go."""
        super().stop()
        snapshots, self._snapshots = self._snapshots, None
        if snapshots is not None:
            snapshots.close()

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """See ``PartitionedSource.task_configs``; with the snapshots from which the ranges of a task are read."""
        configs = super().task_configs(max_tasks)
        for config in configs:
            named = {plan: name for plan, name in self._exported.items() if f'"{plan}"' in config[PARTITIONS_CONFIG]}
            if named:
                config[EXPORTED_CONFIG] = json.dumps(named, sort_keys=True)
        return configs

    def task_class(self) -> type[Task]:
        """The task that reads tables."""
        # Needs the libraries of a database.
        from penstock.connectors.jdbc.source.task import JdbcSourceTask

        return JdbcSourceTask

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """The tables to read, or the query; and the ranges of tables whose initial load is in progress.

        Raises:
            RetriableException: The database cannot be reached.
        """
        if self.settings.statement:
            return [partition_of(None)]
        tables = self._wanted()
        partitions = [partition_of(table) for table in tables]
        if self.settings.mode is QueryMode.BULK or not self.settings.snapshot_chunk_size:
            return partitions
        self._plans = self._plans_of(tables)
        if self._snapshots is None and self._plans:
            self._snapshots = exported_snapshots(self.settings.address())
        if self._snapshots is not None:
            self._exported = self._snapshots.keep([plan.id for plan in self._plans.values()])
        return [*partitions, *(one for table, plan in self._plans.items() for one in plan.partitions(table))]

    def _wanted(self) -> list[str]:
        """The tables, looked for every ``table.poll.interval.ms``."""
        now = time.monotonic()
        if self._tables is not None and now - self._tables[0] < self.settings.table_poll_interval_ms / 1000:
            return self._tables[1]
        found, lacking = _look(self.settings)
        if lacking and lacking != self._lacking:
            log.warning("%s; read once it is there", _no_tables(lacking, self.settings))
        self._lacking = lacking
        if self._tables is None or set(found) - set(self._tables[1]):
            self._expects_until = now + _EXPECTED_S
        self._tables = now, found
        return found

    def _plans_of(self, tables: Sequence[str]) -> dict[str, RangePlan]:
        """The plans of the tables whose ranges are not all read."""
        reader, database = self.context().offset_storage_reader(), self.settings.address().database
        asked = [*(partition_of(table) for table in tables), *(plan_partition(table) for table in tables)]
        found = stored_offsets(reader, database, asked)
        positions, plans = found[: len(tables)], found[len(tables) :]
        if None not in positions:
            self._expects_until = 0.0
        return {
            table: RangePlan.of(plan)
            for table, position, plan in zip(tables, positions, plans, strict=True)
            if position is None and plan is not None
        }

    def faults(self, settings: JdbcSourceConfig) -> Iterable[tuple[str, str]]:
        """Checks whether the database is there and has the tables."""
        return _faults_of_database(settings)

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Says that the database cannot be reached, or that no table matches."""
        config = JdbcSourceConfig.parse(props)
        faults = [text for _, text in _faults_of_database(config)]
        if not faults and not config.statement and not _look(config)[0]:
            return ["no table of the database matches the settings"]
        return faults

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """Positions can be found again, but for ``mode=bulk``, which reads all rows each time."""
        bulk = JdbcSourceConfig.parse(props).mode is QueryMode.BULK
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
            BadRequestException: A partition is no table, no plan and no range, or an offset no place in it.
        """
        for partition, offset in offsets.items():
            if offset is None:
                continue
            try:
                _check_offset(JdbcSourceConfig.parse(props), dict(partition), offset)
            except ConnectException as error:
                raise BadRequestException(str(error)) from error
        return True


def _check_offset(config: JdbcSourceConfig, partition: Mapping[str, object], offset: Mapping[str, object]) -> None:
    """Raises ConnectException for what is no source partition of the connector, or no offset of it."""
    table = table_of(partition)
    if (table is None) is not bool(config.statement):
        reads = "a query" if config.statement else "tables"
        raise ConnectException(f"{dict(partition)} is no source partition of this connector, which reads {reads}")
    if table is not None and partition.get("protocol") != "1":
        raise ConnectException(f'{dict(partition)} is no source partition of a table: it lacks "protocol": "1"')
    if table is not None and not wanted_tables(config, [table]):
        raise ConnectException(f"The lists of tables do not select the table {table}")
    if is_plan(partition):
        RangePlan.of(offset)
    elif range_of(partition) is not None:
        RangeOffset.of(offset)
    else:
        RowPosition.of(offset)


def _look(config: JdbcSourceConfig) -> tuple[list[str], list[str]]:
    """The tables to read, and the tables of the settings that do not exist.

    Raises:
        ConnectException: The database cannot be reached.
    """
    missing = missing_libraries(config.address().dialect)
    if missing:
        raise ConfigException(f"connection.url: {missing}")
    from penstock.connectors.jdbc.tables import catalog_of

    tables = catalog_of(config.address()).tables(config.table_types, config.schema_pattern)
    names, database = [str(one) for one in tables], config.address().database or ""
    # The tables of a pattern may come later.
    named = [one for one in config.include if not is_pattern(one)]
    lacking = [one for one in named if not any(is_meant(table, one, database) for table in names)]
    return wanted_tables(config, tables), lacking


def _no_tables(names: Sequence[str], config: JdbcSourceConfig) -> str:
    return f"there is no table {', '.join(names)} in {config.address().label}, or the user may not see it"


def _faults_of_database(config: JdbcSourceConfig) -> list[tuple[str, str]]:
    """Names of settings that the database does not fit, each with a text for people."""
    try:
        if config.statement:
            from penstock.connectors.jdbc.source.task import Tables

            Tables(config).describe(None)
            return []
        found, lacking = _look(config)
    except ConnectException as error:
        statement = "query.masked" if config.is_masked else "query"
        return [_fault(str(error), statement if config.statement and "refuses" in str(error) else "connection.url")]
    if lacking:
        setting = "table.include.list" if config.table_include_list else "table.whitelist"
        return [(setting, _no_tables(lacking, config))]
    from penstock.connectors.jdbc.rights import faults_of_rights

    faults = faults_of_rights(config.address(), found[:MOST_CHECKED], ["SELECT"])
    return faults or [
        _fault(text, "mode") for table in found[:MOST_CHECKED] if (text := _fault_of_table(config, table))
    ]


def _fault(text: str, otherwise: str) -> tuple[str, str]:
    """The setting that a text begins with, or another one, and what is wrong with it."""
    name, colon, rest = text.partition(": ")
    return (name, rest) if colon and name in JdbcSourceConfig.definition().names() else (otherwise, text)


def _fault_of_table(config: JdbcSourceConfig, table: str) -> str | None:
    from penstock.connectors.jdbc.source.task import Tables

    try:
        Tables(config).describe(table)
    except ConnectException as error:
        return str(error)
    return None


def exported_snapshots(address: DatabaseAddress) -> ExportedSnapshots:
    """Snapshots of a database, of which none is exported yet."""
    # Needs the libraries of a database.
    from penstock.connectors.jdbc.source.planning import ExportedSnapshots
    from penstock.connectors.jdbc.tables import Catalog

    return ExportedSnapshots(Catalog(address))
