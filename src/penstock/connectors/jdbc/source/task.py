"""JDBC source task: reads its tables in turn, a piece from one, then a piece from the next.

Main types: `JdbcSourceTask`, on the task's thread; `TableReader`, one for each table; `Tables`, which says how a table
is read. Needs SQLAlchemy and a driver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.api import FrameSourceTask, SourceFrame
from penstock.connectors.jdbc.columns import Column, TypeMapping
from penstock.connectors.jdbc.source.position import Mode, Position, partition_of
from penstock.connectors.jdbc.source.queries import Bound, Piece, Selection, pieces
from penstock.connectors.jdbc.source.reading import Reader, query_columns, reader_for
from penstock.connectors.jdbc.source.settings import TABLES_CONFIG, JdbcSourceConfig, decode_tables
from penstock.connectors.jdbc.tables import Catalog, Table, TableName, missing_table
from penstock.data import Schema, SchemaBuilder
from penstock.errors import ConnectException, RetriableException

log = logging.getLogger(__name__)

POLL_LIMIT_S = 1.0
#: Results that are read side by side: each one holds a connection.
MOST_OPEN = 4
#: The first and the longest wait of a table that fails.
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
#: A bound that has held rows back for so long is told.
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Described:
    """How one table or query is read.

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
        self._mapping = TypeMapping(config.numbers, config.timestamp_granularity, config.db_timezone)
        self.catalog = Catalog(self.address, self._mapping)

    def reader(self) -> Reader:
        """A reader with a connection of its own."""
        return reader_for(self.address, self.catalog, self._config.isolation)

    def describe(self, name: str | None) -> Described:
        """How a table is read, or the query for None.

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
            any(table.is_zoned(one.name) for one in timestamps),
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


class TableReader:
    """The reading of one table or of the query.

    Args:
        name: The table, None for the query.
        tables: Says how it is read.
        config: The settings.
        position: Where to begin.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        name: str | None,
        tables: Tables,
        config: JdbcSourceConfig,
        position: Position,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.due = clock()
        self.failure: ConnectException | None = None
        self._tables = tables
        self._config = config
        self._position = position
        self._clock = clock
        self._described: Described | None = None
        self._described_at = 0.0
        self._reader: Reader | None = None
        self._pieces: Iterator[Piece] | None = None
        self._retries = 0
        self._held_since: float | None = None
        self._told = False

    @property
    def is_open(self) -> bool:
        """True if a result is being read."""
        return self._pieces is not None

    def visit(self) -> SourceFrame | None:
        """The next piece of the table; None when there is none now, and `due` says when to come again.

        Raises:
            ConnectException: It cannot be read. `due` says when to try again.
        """
        try:
            if self._pieces is None:
                self._pieces = self._begin()
            piece = next(self._pieces, None)
        except ConnectException as error:
            self._failed(error)
            raise
        self._recovered()
        if piece is None:
            self.close()
            self.due = self._clock() + self._config.poll_interval_ms / 1000
            return None
        if self._config.mode is not Mode.BULK:
            self._position = piece.position
        assert self._described is not None
        return _frame(self._described, piece, self.name)

    def close(self) -> None:
        """Ends the result and its connection. Any thread."""
        reader, self._reader, self._pieces = self._reader, None, None
        if reader is not None:
            reader.close()

    def _begin(self) -> Iterator[Piece]:
        now = self._clock()
        if self._described is None or now - self._described_at > self._config.table_poll_interval_ms / 1000:
            self._described = self._tables.describe(self.name)
            self._described_at = now
        selection = self._described.selection
        reader = self._reader = self._tables.reader()
        bound = reader.bound(selection, self._position)
        self._tell(bound)
        if self._config.mode.has_timestamp:
            late = int(time.time() * 1000) - self._config.timestamp_delay_interval_ms
            if bound.timestamp is None or self._config.timestamp_delay_interval_ms:
                bound = bound.and_before(late * 1_000_000)
        most = self._config.batch_max_rows
        return pieces(selection, reader.rows(selection, self._position, bound, most), self._position, most)

    def _tell(self, bound: Bound) -> None:
        """Logs once that rows wait for a transaction, when they have waited for long."""
        if bound.because is None:
            self._held_since, self._told = None, False
            return
        now = self._clock()
        self._held_since = now if self._held_since is None else self._held_since
        if now - self._held_since >= PATIENCE_S and not self._told:
            self._told = True
            log.warning(
                "Rows of %s are held back by %s: rows that it commits later may come before them. They are read when "
                "it ends",
                self.name or "the query",
                bound.because,
            )

    def _failed(self, error: ConnectException) -> None:
        self.close()
        self._described = None
        wait = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2**self._retries)
        self._retries = min(self._retries + 1, 10)
        self.due = self._clock() + wait
        if str(error) != str(self.failure):
            log.warning("Cannot read %s, trying again: %s", self.name or "the query", error)
        self.failure = error

    def _recovered(self) -> None:
        if self.failure is not None:
            log.info("%s can be read again", self.name or "The query")
        self.failure, self._retries = None, 0


def _frame(described: Described, piece: Piece, name: str | None) -> SourceFrame:
    table = piece.table
    fields = [pa.field(column, table.column(column).type) for column in table.column_names]
    arrays = [column.combine_chunks() for column in table.columns]
    columns = {"value": pa.StructArray.from_arrays(arrays, fields=fields)}
    if described.key_schema is not None:
        keys = [one.name for one in described.key_schema.fields]
        places = [table.column_names.index(key) for key in keys]
        columns["key"] = pa.StructArray.from_arrays(
            [arrays[place] for place in places], fields=[fields[place] for place in places]
        )
    return SourceFrame(
        data=pa.table(columns),
        topic=described.topic,
        value_schema=described.value_schema,
        key_schema=described.key_schema,
        source_partition=partition_of(name),
        source_offset=piece.position.offset(),
        offset_after=lambda row: piece.position_after(row).offset(),
    )


class JdbcSourceTask(FrameSourceTask):
    """Hands over rows as frames, each of one table.

    A table that fails waits and is tried again, and does not keep the task from the others; when all fail, so does
    ``poll``.

    Offsets: ``{"protocol": "1", "table": "schema.table"}``, or ``{"query": "query"}``, to ``{"incrementing": number}``,
    ``{"timestamp": milliseconds, "timestamp_nanos": nanoseconds of its second}``, or both; as in the Java connector.
    """

    def __init__(self) -> None:
        self._readers: list[TableReader] = []
        self._next = 0
        self._mode = Mode.BULK

    def start(self, props: Mapping[str, str]) -> None:
        """Finds the committed positions, with one read for all tables.

        Raises:
            ConnectException: The offsets cannot be read, or the configuration is not of the connector's making.
        """
        config = JdbcSourceConfig.parse(props)
        self._mode = config.mode
        names: list[str | None] = [None] if config.query else [*decode_tables(props.get(TABLES_CONFIG))]
        tables = Tables(config)
        reader = self.context.offset_storage_reader()
        # Java's connector calls a table as its driver does: with the name of the database in front, or without.
        forms = [[name, f"{tables.address.database}.{name}"] if name else [None] for name in names]
        flat = [partition_of(form) for each in forms for form in each]
        offsets = iter(reader.offsets(flat))
        for name, each in zip(names, forms, strict=True):
            found = [offset for offset in (next(offsets) for _ in each) if offset]
            position = Position.of(found[0]) if found else _initial(config)
            self._readers.append(TableReader(name, tables, config, position))

    def poll(self) -> SourceFrame | None:
        """The next rows of the next table that has some; waits up to a second.

        Raises:
            RetriableException: No table can be read now.
            ConnectException: No table can be read, and that will not pass.
        """
        deadline = time.monotonic() + POLL_LIMIT_S
        while not self.context.stopping.is_set():
            frame = self._round()
            if frame is not None:
                boundaries = self.context.transaction_context()
                if boundaries is not None:
                    boundaries.commit_transaction()
                return frame
            now = time.monotonic()
            if now >= deadline:
                return None
            due = min((one.due for one in self._readers), default=deadline)
            self.context.stopping.wait(max(0.0, min(due, deadline) - now))
        return None

    def stop(self) -> None:
        """Closes the connections."""
        for one in self._readers:
            one.close()

    def _round(self) -> SourceFrame | None:
        """Goes round the tables once, from where it stopped last time, up to the first that has rows."""
        for _ in range(len(self._readers)):
            if self.context.stopping.is_set():
                return None
            one = self._readers[self._next]
            self._next = (self._next + 1) % len(self._readers)
            if not one.is_open and (one.due > time.monotonic() or self._open() >= MOST_OPEN):
                continue
            try:
                frame = one.visit()
            except ConnectException:
                self._all_failed()
                continue
            if frame is not None:
                return frame
        return None

    def _open(self) -> int:
        return sum(one.is_open for one in self._readers)

    def _all_failed(self) -> None:
        failures = [one.failure for one in self._readers]
        if None not in failures:
            raise next((one for one in failures if isinstance(one, RetriableException)), failures[0])  # type: ignore[misc]


def _initial(config: JdbcSourceConfig) -> Position:
    if not config.mode.has_timestamp or config.timestamp_initial is None:
        return Position()
    initial = config.timestamp_initial
    return Position(time.time_ns() if initial == -1 else initial * 1_000_000)
