"""JDBC source task: reads the rows of its tables that are new.

Main types: `JdbcSourceTask`, on the task's thread; `Tables`, which says how a table is read. Needs SQLAlchemy and a
driver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.api import Chunk, PartitionedTask
from penstock.connectors.jdbc.columns import Column, TypeMapping
from penstock.connectors.jdbc.source.position import Position, partition_of, table_of
from penstock.connectors.jdbc.source.queries import Bound, Piece, Selection, pieces
from penstock.connectors.jdbc.source.reading import Looks, Reader, query_columns, reader_for
from penstock.connectors.jdbc.source.settings import JdbcSourceConfig
from penstock.connectors.jdbc.tables import Table, TableName, catalog_of, missing_table
from penstock.data import Schema, SchemaBuilder
from penstock.errors import ConnectException

log = logging.getLogger(__name__)

#: A bound that has held rows back for so long is told.
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Described:
    """The reading of one table or query.

    Attributes:
        selection: What is selected.
        topic: Where its records go.
        value_schema: A struct of its columns.
        key_schema: A struct of the columns of its primary key, or None.
    """

    selection: Selection
    topic: str
    value_schema: Schema
    key_schema: Schema | None


class Tables:
    """Says how tables are read, by reflection.

    Args:
        config: The settings.
    """

    def __init__(self, config: JdbcSourceConfig) -> None:
        self._config = config
        self.address = config.address()
        self._looks: Looks = {}
        self._mapping = TypeMapping(config.numbers, config.timestamp_granularity, config.db_timezone)
        self.catalog = catalog_of(self.address, self._mapping)

    def reader(self) -> Reader:
        """A reader with a connection of its own."""
        return reader_for(self.address, self.catalog, self._config.isolation, self._looks)

    def describe(self, name: str | None) -> Described:
        """Describes the reading of a table, or of the query for None.

        Raises:
            RetriableException: The database cannot be reached.
            ConnectException: The table is not there, or lacks what the mode needs.
        """
        config = self._config
        if name is None:
            columns = query_columns(self.address, self.catalog, config.query, self._mapping)
            table = Table(TableName(None, "query"), columns, (), frozenset(), {}, frozenset(), None)
            what = "the query"
        else:
            found = self.catalog.table(TableName.of(name))
            if found is None:
                raise missing_table(TableName.of(name), self.address)
            table, what = found, f"the table {name}"
        incrementing = self._incrementing(table, what) if config.mode.has_incrementing else None
        names = config.timestamp_column_name if config.mode.has_timestamp else ()
        timestamps = [_column(table, one, what, "timestamp.column.name") for one in names]
        if config.validate_non_null:
            self._check_nulls(what, incrementing, timestamps)
        selection = Selection(
            table.name if name is not None else config.query,
            table.columns,
            config.mode,
            incrementing.name if incrementing else None,
            tuple(one.name for one in timestamps),
            any(one.zoned for one in timestamps),
            config.db_timezone,
            config.query_suffix,
        )
        self._warn_of_index(table, what, [one.name for one in (incrementing, *timestamps) if one])
        value = _struct(table.columns, table.name.name if name is not None else None)
        keys = [one for one in table.columns if one.name in table.primary_key]
        key = _struct(keys, None) if keys and config.key_mode == "primary_key" else None
        topic = config.topic_prefix + (table.name.name if name is not None else "")
        return Described(selection, topic, value, key)

    def _incrementing(self, table: Table, what: str) -> Column:
        name = self._config.incrementing_column_name
        if not name and table.generated is None:
            raise ConnectException(
                f"No column of {what} has values that the database generates: name the column that grows with each new "
                "row in incrementing.column.name, or choose another mode"
            )
        return _column(table, name or str(table.generated), what, "incrementing.column.name")

    def _check_nulls(self, what: str, incrementing: Column | None, timestamps: list[Column]) -> None:
        advice = (
            "rows without a value would never be read. Make it NOT NULL, or set validate.non.null=false to leave "
            "such rows out"
        )
        if self._config.query:
            return
        if incrementing is not None and incrementing.schema.optional:
            raise ConnectException(f"The incrementing column {incrementing.name} of {what} may be null: {advice}")
        if timestamps and all(one.schema.optional for one in timestamps):
            names = ", ".join(one.name for one in timestamps)
            raise ConnectException(f"The timestamp column {names} of {what} may be null: {advice}")

    def _warn_of_index(self, table: Table, what: str, names: list[str]) -> None:
        if names and not self._config.query and not table.leading.intersection(names):
            log.warning(
                "No index of %s begins with %s: the database reads the whole table every poll.interval.ms. Create one",
                what,
                " or ".join(names),
            )


def _column(table: Table, name: str, what: str, setting: str) -> Column:
    found = table.column(name)
    if found is None:
        raise ConnectException(
            f"{setting}: {what} has no column {name!r}; it has {', '.join(one.name for one in table.columns)}"
        )
    return found


def _struct(columns: tuple[Column, ...] | list[Column], name: str | None) -> Schema:
    builder = SchemaBuilder.struct()
    if name is not None:
        builder.name(name)
    for one in columns:
        builder.field(one.name, one.schema)
    return builder.build()


class JdbcSourceTask(PartitionedTask):
    """Reads tables, and gives the rows of each as chunks.

    Offsets: ``{"protocol": "1", "table": "schema.table"}``, or ``{"query": "query"}``, to ``{"incrementing": number}``,
    ``{"timestamp": milliseconds, "timestamp_nanos": nanoseconds of its second}``, or both; as in the Java connector.
    """

    config_class = JdbcSourceConfig
    settings: JdbcSourceConfig

    def __init__(self) -> None:
        self._described: dict[str | None, tuple[float, Described]] = {}
        self._held: dict[str | None, _Held] = {}

    def start(self, props: Mapping[str, str]) -> None:
        """Finds the committed positions, with one read for all tables.

        Raises:
            ConnectException: The offsets cannot be read, or the configuration is not of the connector's making.
        """
        self._tables = Tables(JdbcSourceConfig.parse(props))
        super().start(props)

    @property
    def idle_s(self) -> float:  # type: ignore[override]
        """``poll.interval.ms``."""
        return self.settings.poll_interval_ms / 1000

    def positions(self, partitions: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any] | None]:
        """The committed offsets, also those that the Java connector has committed.

        It calls a table as its driver does: with the name of the database in front, or without.
        """
        database = self._tables.address.database
        others = [
            partition_of(f"{database}.{name}" if (name := table_of(one)) is not None else None) for one in partitions
        ]
        found = self.context.offset_storage_reader().offsets([*partitions, *others])
        return [own or java for own, java in zip(found[: len(partitions)], found[len(partitions) :], strict=True)]

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """See ``PartitionedTask.read``: the rows that there are now, from one connection."""
        config, name = self.settings, table_of(partition)
        position = Position.of(offset) if offset else _initial(config)
        reader = self._tables.reader()
        try:
            described = self._described_now(name)
            bound = self._bound(reader, described.selection, position, name)
            most = config.batch_max_rows
            rows = reader.rows(described.selection, position, bound, most)
            for piece in pieces(described.selection, rows, position, most):
                yield _chunk(described, piece)
        except ConnectException:
            self._described.pop(name, None)
            raise
        finally:
            reader.close()

    def _described_now(self, name: str | None) -> Described:
        now = time.monotonic()
        at, described = self._described.get(name, (0.0, None))
        if described is None or now - at > self.settings.table_poll_interval_ms / 1000:
            described = self._tables.describe(name)
            self._described[name] = now, described
        return described

    def _bound(self, reader: Reader, selection: Selection, position: Position, name: str | None) -> Bound:
        config = self.settings
        bound = reader.bound(selection, position)
        self._held.setdefault(name, _Held(name or "the query")).see(bound)
        if config.mode.has_timestamp and (bound.timestamp is None or config.timestamp_delay_interval_ms):
            bound = bound.and_before((int(time.time() * 1000) - config.timestamp_delay_interval_ms) * 1_000_000)
        return bound


class _Held:
    """Tells once that rows of a table wait for a transaction, when they have waited for long."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._since: float | None = None
        self._told = False

    def see(self, bound: Bound) -> None:
        """Takes note of how far rows may be read now."""
        if bound.because is None:
            self._since, self._told = None, False
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= PATIENCE_S and not self._told:
            self._told = True
            log.warning(
                "Rows of %s are held back by %s: rows that it commits later may come before them. They are read when "
                "it ends",
                self._table,
                bound.because,
            )


def _chunk(described: Described, piece: Piece) -> Chunk:
    return Chunk(
        piece.table,
        described.topic,
        piece.position.offset(),
        offset_after=lambda row: piece.position_after(row).offset(),
        key=[one.name for one in described.key_schema.fields] if described.key_schema else (),
        value_schema=described.value_schema,
        key_schema=described.key_schema,
    )


def _initial(config: JdbcSourceConfig) -> Position:
    if not config.mode.has_timestamp or config.timestamp_initial is None:
        return Position()
    initial = config.timestamp_initial
    return Position(time.time_ns() if initial == -1 else initial * 1_000_000)
