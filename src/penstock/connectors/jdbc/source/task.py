"""JDBC source task: reads new rows of its tables.

Main types: `JdbcSourceTask`, on the task's thread; `Tables`, which determines how a table is read. Needs SQLAlchemy and
a driver.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.api import BackfillPart, BackfillSpan, Chunk, PartitionedTask, assigned_partitions
from penstock.connectors.jdbc.columns import TableColumn, TypeMapping, is_moment, is_whole
from penstock.connectors.jdbc.faults import without_reason
from penstock.connectors.jdbc.source.ahead import Ahead
from penstock.connectors.jdbc.source.backfill import JdbcBackfill
from penstock.connectors.jdbc.source.planning import keys_of, rows_about
from penstock.connectors.jdbc.source.position import QueryMode, RowPosition, partition_of, stored_offsets, table_of
from penstock.connectors.jdbc.source.queries import Bound, RangePiece, ResultRows, RowSelection, pieces, range_pieces
from penstock.connectors.jdbc.source.ranges import (
    EXPORTED_CONFIG,
    SNAPSHOT,
    Key,
    KeyRange,
    RangeOffset,
    RangePlan,
    RangeStep,
    chosen,
    how_many,
    next_step,
    plan_partition,
    range_of,
)
from penstock.connectors.jdbc.source.reading import Looks, ReadConnection, query_columns, reader_for
from penstock.connectors.jdbc.source.settings import JdbcSourceConfig
from penstock.connectors.jdbc.tables import Table, TableName, catalog_of, missing_table
from penstock.connectors.jdbc.url_forms import ORACLE, SQL_SERVER
from penstock.data import Schema, SchemaBuilder
from penstock.errors import BadRequestException, ConnectException, RetriableException

log = logging.getLogger(__name__)

#: A bound that has held back rows for this long is logged.
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class TableReading:
    """The reading of one table or query.

    Attributes:
        selection: What is selected.
        topic: Where its records go.
        value_schema: A struct of its columns.
        key_schema: A struct of the columns of its primary key, or None.
        cut_by: The columns of a key by which its first load can be cut in ranges; empty where there is none.
    """

    selection: RowSelection
    topic: str
    value_schema: Schema
    key_schema: Schema | None
    cut_by: tuple[str, ...] = ()


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

    def reader(self, exported: str | None = None) -> ReadConnection:
        """A reader with a connection of its own, and with an exported snapshot, if it is given one."""
        return reader_for(self.address, self.catalog, self._config.isolation, self._looks, exported)

    def describe(self, name: str | None) -> TableReading:
        """Describes the reading of a table, or of the query for None.

        Raises:
            RetriableException: The database cannot be reached.
            ConnectException: The table is not there, or lacks what the mode needs.
        """
        config = self._config
        if name is None:
            columns = self._query_columns()
            table = Table(TableName(None, "query"), columns, (), frozenset(), {}, frozenset(), None)
            what = "the query"
        else:
            found = self.catalog.table(TableName.of(name))
            if found is None:
                raise missing_table(TableName.of(name), self.address)
            table, what = found, f"the table {name}"
        incrementing = self._incrementing(table, name, what) if config.mode.has_incrementing else None
        names = config.timestamps_of(name) if config.mode.has_timestamp else ()
        of_timestamps = "timestamp.column.mapping" if config.timestamp_column_mapping else "timestamp.column.name"
        timestamps = [_column(table, one, what, of_timestamps) for one in names]
        self._check_kinds(table, what, incrementing, timestamps)
        zoned = [one.name for one in timestamps if one.zoned]
        if zoned and self.address.dialect.name == ORACLE:
            raise ConnectException(
                f"{of_timestamps}: the column {zoned[0]!r} of {what} has a time zone, by which Oracle's driver cannot "
                "order rows: select SYS_EXTRACT_UTC of it in query, and name that column"
            )
        if config.validate_non_null:
            # What the database generates is never null, whatever SQLite says of its own key.
            generated = incrementing is not None and incrementing.name == table.generated
            self._check_nulls(what, None if generated else incrementing, timestamps)
        selection = RowSelection(
            table.name if name is not None else config.statement,
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
        cut_by = () if name is None else self._cut_by(table, incrementing)
        return TableReading(selection, topic, value, key, cut_by)

    def _cut_by(self, table: Table, incrementing: TableColumn | None) -> tuple[str, ...]:
        """The primary key, or else the incrementing column, if it has an order that ranges can name."""
        dialect = self.address.dialect.name
        if dialect == "duckdb":
            return ()
        for names in (table.primary_key, (incrementing.name,) if incrementing is not None else ()):
            columns = [one for one in table.columns if one.name in names]
            if dialect in (ORACLE, SQL_SERVER) and len(names) > 1:
                # They compare no keys of several columns as one value.
                continue
            if names and len(columns) == len(names) and all(self._has_ranges(one, table) for one in columns):
                return tuple(names)
        return ()

    def _has_ranges(self, column: TableColumn, table: Table) -> bool:
        if column.schema.optional and column.name != table.generated:
            # A null is in no range.
            return False
        kinds = pa.types
        if kinds.is_integer(column.arrow) or kinds.is_string(column.arrow):
            plain = not column.as_text and column.convert is None
            return plain or self.address.dialect.name == "postgresql"
        orders = column.as_text or kinds.is_timestamp(column.arrow) or kinds.is_date(column.arrow)
        return bool(orders) and self.address.dialect.name == "postgresql"

    def _query_columns(self) -> tuple[TableColumn, ...]:
        config = self._config
        try:
            return query_columns(self.address, self.catalog, config.statement, self._mapping)
        except ConnectException as error:
            if config.is_masked:
                raise without_reason(error) from None
            raise

    def _incrementing(self, table: Table, table_name: str | None, what: str) -> TableColumn:
        name = self._config.incrementing_of(table_name)
        if not name and table.generated is None:
            raise ConnectException(
                f"No column of {what} has values that the database generates: name the column that grows with each new "
                "row in incrementing.column.name, or choose another mode"
            )
        mapped = self._config.incrementing_column_mapping
        setting = "incrementing.column.mapping" if mapped else "incrementing.column.name"
        return _column(table, name or str(table.generated), what, setting)

    def _check_kinds(
        self, table: Table, what: str, incrementing: TableColumn | None, timestamps: list[TableColumn]
    ) -> None:
        """Raises ConnectException for a column by whose values rows cannot be followed."""
        dialect = self.address.dialect.name
        types, wrong = table.types, []
        if incrementing is not None and not is_whole(incrementing, types.get(incrementing.name), dialect):
            wrong.append(("incrementing.column.name", incrementing, "whole numbers"))
        for one in timestamps:
            if not is_moment(one, types.get(one.name), dialect):
                wrong.append(("timestamp.column.name", one, "dates with or without a time"))
        for setting, one, needed in wrong:
            raise ConnectException(
                f"{setting}: the column {one.name!r} of {what} is {types.get(one.name, one.schema)}, and "
                f"mode={self._config.mode.value} follows {needed}: name another column, or cast it in a query"
            )

    def _check_nulls(self, what: str, incrementing: TableColumn | None, timestamps: list[TableColumn]) -> None:
        advice = (
            "rows without a value would never be read. Make it NOT NULL, or set validate.non.null=false to leave "
            "such rows out"
        )
        if self._config.statement:
            return
        if incrementing is not None and incrementing.schema.optional:
            raise ConnectException(f"The incrementing column {incrementing.name} of {what} may be null: {advice}")
        if timestamps and all(one.schema.optional for one in timestamps):
            names = ", ".join(one.name for one in timestamps)
            raise ConnectException(f"The timestamp column {names} of {what} may be null: {advice}")

    def _warn_of_index(self, table: Table, what: str, names: list[str]) -> None:
        if names and not self._config.statement and not table.leading.intersection(names):
            log.warning(
                "No index of %s begins with %s: the database reads the whole table every poll.interval.ms. Create one",
                what,
                " or ".join(names),
            )


def _column(table: Table, name: str, what: str, setting: str) -> TableColumn:
    found = table.column(name)
    if found is None:
        raise ConnectException(
            f"{setting}: {what} has no column {name!r}; it has {', '.join(one.name for one in table.columns)}"
        )
    return found


def _struct(columns: tuple[TableColumn, ...] | list[TableColumn], name: str | None) -> Schema:
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
    As long as the first load of a table is read in ranges, its source partition has no offset; see ``ranges``.
    """

    config_class = JdbcSourceConfig
    settings: JdbcSourceConfig

    def __init__(self) -> None:
        self._described: dict[str | None, tuple[float, TableReading]] = {}
        self._held: dict[str | None, _Held] = {}
        self._plans: dict[str, RangePlan] = {}
        self._over: set[str] = set()
        #: Tables that are to be cut once a transaction has ended.
        self._later: set[str] = set()
        #: The positions of the ranges of this task, by plan and number.
        self._ranges: dict[tuple[str, int], RangeOffset] = {}

    def start(self, props: Mapping[str, str]) -> None:
        """Finds the committed positions and plans, with one read for all tables.

        Raises:
            ConnectException: The offsets cannot be read, or the configuration is not of the connector's making.
        """
        self._props = dict(props)
        self._tables = Tables(JdbcSourceConfig.parse(props))
        self._exported: Mapping[str, str] = json.loads(props.get(EXPORTED_CONFIG, "{}"))
        super().start(props)

    @property
    def idle_s(self) -> float:  # type: ignore[override]
        """``poll.interval.ms``."""
        return self.settings.poll_interval_ms / 1000

    def positions(self, partitions: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any] | None]:
        """The committed offsets, including those of the Java connector."""
        names = sorted({name for one in partitions if (name := table_of(one)) is not None})
        plans = self._stored([plan_partition(name) for name in names])
        self._plans = {name: RangePlan.of(one) for name, one in zip(names, plans, strict=True) if one is not None}
        tables = self._stored([partition_of(name) for name in names])
        # Ranges of a table that has a position are over, also where their offsets are gone.
        self._over = {name for name, one in zip(names, tables, strict=True) if one is not None}
        found = self._stored(partitions)
        for partition, offset in zip(partitions, found, strict=True):
            if (one := range_of(partition)) is not None:
                self._ranges[one] = RangeOffset.of(offset)
        self._tell()
        return found

    def _stored(self, partitions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
        """The committed offsets. Java calls a table as its driver does, with the name of the database in front."""
        return stored_offsets(self.context.offset_storage_reader(), self._tables.address.database, partitions)

    def may_open(self, partition: Mapping[str, Any], reading: Sequence[Mapping[str, Any]]) -> bool:
        """As many ranges as ``snapshot.max.threads``, in addition to ``most_open`` tables."""
        is_range = SNAPSHOT in partition
        alike = sum((SNAPSHOT in one) == is_range for one in reading)
        return alike < (self.settings.snapshot_max_threads if is_range else self.most_open)

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """See ``PartitionedTask.read``: the rows that there are now, from one connection."""
        name, of_range = table_of(partition), range_of(partition)
        try:
            if of_range is not None:
                assert name is not None, "a query has no ranges"
                yield from self._read_range(name, *of_range, RangeOffset.of(offset))
                return
            if name is not None and (name in self._plans or offset is None):
                offset = yield from self._follow_plan(name, offset)
                if offset is None and (name in self._plans or name in self._later):
                    return
            yield from self._read_table(name, offset)
        except ConnectException as error:
            self._described.pop(name, None)
            if name is None and self.settings.is_masked:
                raise without_reason(error) from None
            raise

    def plan_backfill(self, span: BackfillSpan) -> Sequence[BackfillPart]:
        """See ``SourceTask.plan_backfill``: a part for each table that has rows in the range."""
        try:
            return self._backfill().plan(assigned_partitions(self._props), span)
        except ConnectException as error:
            if self.settings.is_masked and not isinstance(error, BadRequestException):
                raise without_reason(error) from None
            raise

    def backfill(self, part: BackfillPart, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """See ``SourceTask.backfill``."""
        described = self._described_now(table_of(part.partition))
        try:
            for piece in self._backfill().read(part, offset):
                yield _chunk(described, piece)
        except ConnectException as error:
            if self.settings.is_masked:
                raise without_reason(error) from None
            raise

    def _backfill(self) -> JdbcBackfill:
        return JdbcBackfill(self.settings, lambda name: self._described_now(name).selection, self._tables.reader)

    def _read_table(self, name: str | None, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        position = RowPosition.of(offset) if offset else _initial(self.settings)
        reader = self._tables.reader()
        try:
            described = self._described_now(name)
            bound = self._bound(reader, described.selection, position, name)
            most = self.settings.batch_max_rows
            rows = reader.rows(described.selection, described.selection.statement(position, bound), most)
            for piece in pieces(described.selection, rows, position, most):
                yield _chunk(described, piece)
        finally:
            reader.close()

    # ---------------------------------------------------------------- the first load
    def _follow_plan(
        self, name: str, offset: Mapping[str, Any] | None
    ) -> Generator[Chunk, None, Mapping[str, Any] | None]:
        """Takes the next step of the first load of a table; returns its offset after that."""
        plan, table = self._plans.get(name), partition_of(name)
        if plan is None:
            self._later.discard(name)
            made = self._cut(name)
            if isinstance(made, RowPosition):
                yield Chunk(None, offset=made.offset())
                return made.offset()
            if made is not None:
                self._plans[name] = made
                self.context.advance(plan_partition(name), made.offset())
            return None
        of_ranges = plan.partitions(name)
        stored, *ranges = self._stored([table, *of_ranges])
        match next_step(stored, plan, ranges):
            case RangeStep.FINISH if offset is None:
                log.info("The snapshot of %s in %d ranges has ended", name, len(of_ranges))
                yield Chunk(None, offset=plan.end.offset())
                return plan.end.offset()
            case RangeStep.FORGET_RANGES:
                for one, place in zip(of_ranges, ranges, strict=True):
                    if place is not None:
                        self.context.advance(one, None)
            case RangeStep.FORGET_PLAN:
                del self._plans[name]
                self.context.advance(plan_partition(name), None)
        return offset

    def _cut(self, name: str) -> RangePlan | RowPosition | None:
        """The plan of a table that was not read before; the position to begin at, or None to read it in one go."""
        config, tables = self.settings, self._tables
        if config.mode is QueryMode.BULK:
            return None
        initial = _initial(config)
        if config.timestamp_initial == -1:
            # The present moment, once: the next read has another one.
            return initial
        described = self._described_now(name)
        if not described.cut_by or not config.snapshot_chunk_size or self.context.is_preview:
            return None
        rows, bounds = self._bounds(name, described)
        if not bounds:
            return None
        reader = tables.reader()
        try:
            bound = self._bound(reader, described.selection, initial, name)
            end = reader.last(described.selection, initial, bound)
        finally:
            reader.close()
        if end is None:
            if bound.because is not None:
                # Read in one go it would be as soon as that has ended.
                self._later.add(name)
            return None
        key = ", ".join(described.cut_by)
        log.info("The snapshot of %s, about %d rows, is read in %d ranges of %s", name, rows, len(bounds) + 1, key)
        return RangePlan(uuid.uuid4().hex[:12], described.cut_by, bounds, end, rows)

    def _bounds(self, name: str, described: TableReading) -> tuple[int, tuple[Key, ...]]:
        """About how many rows a table has, and where it is cut; no bounds where it is read in one go."""
        table, catalog = TableName.of(name), self._tables.catalog
        size = self.settings.snapshot_chunk_size
        try:
            rows = rows_about(catalog, table, 2 * size)
            count = how_many(rows, size)
            return rows, chosen(keys_of(catalog, table, described.cut_by, rows, count), count) if count > 1 else ()
        except RetriableException:
            raise
        except ConnectException as error:
            # A kind of table that can be read and not be sampled, such as a foreign one.
            log.info("The table %s is read in one go, because its keys cannot be looked at: %s", name, error)
            return 0, ()

    def _read_range(self, name: str, plan_id: str, number: int, place: RangeOffset) -> Iterator[Chunk]:
        plan = self._plans.get(name)
        if plan is None or plan.id != plan_id or place.done or name in self._over or number > len(plan.bounds):
            return
        described, limits = self._described_now(name), plan.ranges[number]
        limits = limits if place.key is None else KeyRange(place.key, limits.high)
        pieces_ahead = Ahead(lambda: self._pieces_of(described, plan, limits), self.context.stopping)
        try:
            for piece in pieces_ahead:
                after = partial(_place_after, piece, place.rows)
                place = after(piece.table.num_rows - 1)
                self._ranges[plan_id, number] = place
                self._tell()
                offset_after = partial(_offset_after, after)
                yield Chunk(
                    piece.table, described.topic, place.offset(), offset_after=offset_after, **_schemas(described)
                )
            if not self.context.stopping.is_set():
                self._ranges[plan_id, number] = place = RangeOffset(place.rows, place.key, done=True)
                self._tell()
                yield Chunk(None, offset=place.offset())
        finally:
            pieces_ahead.close()

    def _pieces_of(self, described: TableReading, plan: RangePlan, limits: KeyRange) -> Iterator[RangePiece]:
        """The rows of a range. Thread: ``snapshot``."""
        selection, most = described.selection, self.settings.batch_max_rows
        reader = self._tables.reader(self._exported.get(plan.id))
        try:
            statement = selection.of_range(plan.key, limits, _initial(self.settings), plan.end)
            yield from range_pieces(selection, plan.key, reader.rows(selection, statement, most), most)
        finally:
            reader.close()

    def _tell(self) -> None:
        """Says how far the ranges of this task are."""
        if not self._ranges:
            return
        shares = {plan.id: plan.rows / (len(plan.bounds) + 1) for plan in self._plans.values()}
        done = sum(one.rows for one in self._ranges.values())
        total = sum(
            one.rows if one.done else max(one.rows, shares.get(plan, 0)) for (plan, _), one in self._ranges.items()
        )
        self.context.progress(done, round(total), "rows")

    def _described_now(self, name: str | None) -> TableReading:
        now = time.monotonic()
        at, described = self._described.get(name, (0.0, None))
        if described is None or now - at > self.settings.table_poll_interval_ms / 1000:
            described = self._tables.describe(name)
            self._described[name] = now, described
        return described

    def _bound(self, reader: ReadConnection, selection: RowSelection, position: RowPosition, name: str | None) -> Bound:
        config = self.settings
        bound = reader.bound(selection, position)
        if config.mode.has_timestamp and (bound.timestamp is None or config.timestamp_delay_interval_ms):
            bound = bound.and_before((int(time.time() * 1000) - config.timestamp_delay_interval_ms) * 1_000_000)
        bound = bound.seen_from(position)
        self._held.setdefault(name, _Held(name or "the query")).see(bound)
        return bound


def _place_after(piece: RangePiece, before: int, row: int) -> RangeOffset:
    """The position in a range after a row of a piece that follows the given number of rows."""
    return RangeOffset(before + row + 1, piece.key_after(row))


def _offset_after(place_after: Callable[[int], RangeOffset], row: int) -> Mapping[str, object]:
    return place_after(row).offset()


class _Held:
    """Tells once that rows of a table wait for a transaction or a clock, when they have waited for long."""

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
            log.warning("Rows of %s are held back by %s", self._table, bound.because)


def _chunk(described: TableReading, piece: ResultRows) -> Chunk:
    return Chunk(
        piece.table,
        described.topic,
        piece.position.offset(),
        offset_after=lambda row: piece.position_after(row).offset(),
        **_schemas(described),
    )


def _schemas(described: TableReading) -> dict[str, Any]:
    """The arguments of a chunk that say its key and its schemas."""
    return {
        "key": [one.name for one in described.key_schema.fields] if described.key_schema else (),
        "value_schema": described.value_schema,
        "key_schema": described.key_schema,
    }


def _initial(config: JdbcSourceConfig) -> RowPosition:
    if not config.mode.has_timestamp or config.timestamp_initial is None:
        return RowPosition()
    initial = config.timestamp_initial
    return RowPosition(time.time_ns() if initial == -1 else initial * 1_000_000)
