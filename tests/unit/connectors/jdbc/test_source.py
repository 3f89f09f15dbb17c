"""Positions, pieces of a result, and bounds of open transactions."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from penstock.connectors.jdbc.columns import TypeMapping, column_of
from penstock.connectors.jdbc.mappings import NumericMapping, TimestampGranularity
from penstock.connectors.jdbc.source.late_commits import (
    Look,
    Snapshot,
    bound_of_numbers,
    bound_of_timestamps,
    unsettled,
)
from penstock.connectors.jdbc.source.position import QueryMode, RowPosition, partition_of, table_of
from penstock.connectors.jdbc.source.queries import (
    INCREMENTING,
    TIMESTAMP,
    Bound,
    ResultRows,
    RowSelection,
    pieces,
    utc_nanoseconds,
)
from penstock.connectors.jdbc.source.settings import JdbcSourceConfig, wanted_tables
from penstock.connectors.jdbc.tables import TableName
from penstock.errors import ConfigException, ConnectException

NAME = column_of("name", sa.Text(), True, TypeMapping())
ZONED = pa.timestamp("us", "UTC")


def selection(mode: QueryMode) -> RowSelection:
    return RowSelection(TableName("s", "t"), (NAME,), mode, "id", ("at",), True)


def batch(ids: list[int], times: list[int]) -> pa.RecordBatch:
    names = [f"n{one}" for one in ids]
    columns = [pa.array(names), pa.array(times, pa.int64()).cast(ZONED), pa.array(ids, pa.int64())]
    return pa.record_batch(columns, names=["name", TIMESTAMP, INCREMENTING])


@pytest.mark.parametrize(
    "position",
    [
        RowPosition(),
        RowPosition(None, 7),
        RowPosition(1_700_000_000_123_456_000),
        RowPosition(-1_000, 3),
        RowPosition(0, 0),
    ],
)
def test_a_position_comes_back_from_its_offset(position: RowPosition) -> None:
    assert RowPosition.of(position.offset()) == position


def test_offsets_are_those_of_java() -> None:
    assert RowPosition(1_700_000_000_123_456_000, 7).offset() == {
        "incrementing": 7,
        "timestamp": 1_700_000_000_123,
        "timestamp_nanos": 123_456_000,
    }
    # Java's older versions have no nanoseconds.
    assert RowPosition.of({"timestamp": 1_700_000_000_123}) == RowPosition(1_700_000_000_123_000_000)
    assert partition_of("s.t") == {"protocol": "1", "table": "s.t"}
    assert table_of({"protocol": "1", "table": "s.t"}) == "s.t"
    assert table_of({"query": "query"}) is None


@pytest.mark.parametrize("offset", [{"incrementing": "7"}, {"rows": 7}, {"timestamp": 1.5}, {"incrementing": True}])
def test_other_offsets_are_refused(offset: dict[str, object]) -> None:
    with pytest.raises(ConnectException, match="offset"):
        RowPosition.of(offset)


@pytest.mark.parametrize("partition", [{}, {"table": 7}, {"file": "x"}, {"table": "t", "x": "y"}])
def test_other_partitions_are_refused(partition: dict[str, object]) -> None:
    with pytest.raises(ConnectException, match="source partition"):
        table_of(partition)


def positions(found: list[ResultRows]) -> list[list[RowPosition]]:
    return [[piece.position_after(row) for row in range(piece.table.num_rows)] for piece in found]


def test_pieces_of_an_incrementing_column() -> None:
    read = [batch([1, 2, 3], [1, 1, 1]), batch([4], [1])]
    found = list(pieces(selection(QueryMode.INCREMENTING), read, RowPosition(None, 0), 2))
    assert [piece.table.column("name").to_pylist() for piece in found] == [["n1", "n2"], ["n3"], ["n4"]]
    assert positions(found) == [
        [RowPosition(None, 1), RowPosition(None, 2)],
        [RowPosition(None, 3)],
        [RowPosition(None, 4)],
    ]


def test_a_position_passes_a_timestamp_once_all_of_its_rows_were_read() -> None:
    before = RowPosition(5_000)
    read = [batch([1, 2, 3], [6, 7, 7]), batch([4], [7]), batch([5, 6], [8, 9])]
    found = list(pieces(selection(QueryMode.TIMESTAMP), read, before, 10))
    assert positions(found) == [
        [RowPosition(6_000), RowPosition(6_000), RowPosition(6_000)],
        [RowPosition(7_000)],
        [RowPosition(8_000), RowPosition(9_000)],
    ]
    lone = list(pieces(selection(QueryMode.TIMESTAMP), [batch([1, 2], [6, 6]), batch([3], [6])], before, 10))
    assert positions(lone) == [[before, before], [RowPosition(6_000)]]


def test_pieces_of_both_columns_have_both() -> None:
    found = list(pieces(selection(QueryMode.TIMESTAMP_INCREMENTING), [batch([4, 2], [6, 7])], RowPosition(), 10))
    assert positions(found) == [[RowPosition(6_000, 4), RowPosition(7_000, 2)]]


def test_a_result_without_rows_has_no_pieces() -> None:
    assert list(pieces(selection(QueryMode.TIMESTAMP), [batch([], [])], RowPosition(), 10)) == []


def sql(mode: QueryMode, after: RowPosition, bound: Bound) -> str:
    compiled = (
        selection(mode)
        .statement(after, bound)
        .compile(dialect=postgresql.dialect(paramstyle="named"), compile_kwargs={"literal_binds": True})
    )
    return " ".join(str(compiled).split("WHERE")[-1].split())


def test_statements_select_what_comes_after_a_position_and_before_a_bound() -> None:
    at, row = "penstock_source.at", "penstock_source.id"
    moment = "'2023-11-14 22:13:20.123456+00:00'"
    assert sql(QueryMode.INCREMENTING, RowPosition(), Bound()) == f"{row} IS NOT NULL ORDER BY {row}"
    assert (
        sql(QueryMode.INCREMENTING, RowPosition(None, 7), Bound(None, 9)) == f"{row} > 7 AND {row} < 9 ORDER BY {row}"
    )
    assert sql(QueryMode.TIMESTAMP, RowPosition(1_700_000_000_123_456_000), Bound()) == f"{at} > {moment} ORDER BY {at}"
    assert sql(QueryMode.TIMESTAMP_INCREMENTING, RowPosition(1_700_000_000_123_456_000, 7), Bound()) == (
        f"{at} >= {moment} AND ({at} > {moment} OR {at} = {moment} AND {row} > 7) AND {row} IS NOT NULL "
        f"ORDER BY {at}, {row}"
    )


def test_a_query_may_have_conditions_colons_and_per_cent_signs() -> None:
    text = "SELECT id::int, ':x' AS name FROM t WHERE name LIKE '%a'"
    chosen = RowSelection(text, (NAME,), QueryMode.INCREMENTING, "id", suffix="FOR SHARE")
    made = chosen.statement(RowPosition(None, 7), Bound()).compile(
        dialect=postgresql.dialect(paramstyle="named"), compile_kwargs={"literal_binds": True}
    )
    assert " ".join(str(made).split()) == (
        'SELECT penstock_source.name, CAST(penstock_source.id AS BIGINT) AS "penstock incrementing" FROM '
        f"({text}) AS penstock_source WHERE penstock_source.id > 7 ORDER BY penstock_source.id FOR SHARE"
    )


def test_rows_wait_for_transactions_that_are_open() -> None:
    settled, open_one = Snapshot(100, 100), Snapshot(100, 103)
    # The start of the oldest transaction, the first row that waits, and the present moment: the least of them.
    assert bound_of_timestamps(open_one, (50, 7, 12), 9_000).timestamp == 7_000
    assert bound_of_timestamps(open_one, (50, 7, 12), 6_000).timestamp == 6_000
    assert bound_of_timestamps(settled, (50, None, None), None) == Bound(50_000)


def test_numbers_wait_until_all_that_were_running_when_they_were_seen_have_ended() -> None:
    held = (
        "a transaction of the database that is open since 1970-01-01 00:00:07 UTC (process 12): rows that it commits "
        "later may come before them. They are read when it ends"
    )
    running = (50, 7_000_000, 12)
    now = Snapshot(100, 103)
    assert (Look.of(9, "100", None), Look.of(9, "100", 2)) == (Look(9, 100), Look(9, 103))
    assert bound_of_numbers(3, [Look(9, 101)], now, running) == Bound(None, 4, held)
    assert bound_of_numbers(3, [Look(9, 100)], now, running) == Bound(None, 10)
    assert bound_of_numbers(3, [Look(9, 100), Look(12, 103)], now, running) == Bound(None, 10, held)
    assert bound_of_numbers(3, [Look(9, 99), Look(12, 100)], now, running) == Bound(None, 13)
    # Nothing is there to wait for.
    assert bound_of_numbers(9, [Look(9, 101)], now, running) == Bound(None, 10)
    assert bound_of_numbers(None, [], now, running).because is None


def test_transaction_ids_are_compared_as_32_bits() -> None:
    assert unsettled(Snapshot((5 << 32) + 4, (5 << 32) + 9)) == (
        "mod(penstock_source.xmin::text::bigint - 4 + 4294967296, 4294967296) < 5"
    )


@pytest.mark.parametrize(
    ("kind", "numbers", "schema"),
    [
        (sa.Numeric(2, 0), NumericMapping.BEST_FIT, "INT8"),
        (sa.Numeric(4, 0), NumericMapping.PRECISION_ONLY, "INT16"),
        (sa.Numeric(9), NumericMapping.BEST_FIT, "INT32"),
        (sa.Numeric(18, 0), NumericMapping.BEST_FIT_EAGER_DOUBLE, "INT64"),
        (sa.Numeric(19, 0), NumericMapping.BEST_FIT, "org.apache.kafka.connect.data.Decimal:BYTES"),
        (sa.Numeric(12, 2), NumericMapping.BEST_FIT, "FLOAT64"),
        (sa.Numeric(12, 2), NumericMapping.PRECISION_ONLY, "org.apache.kafka.connect.data.Decimal:BYTES"),
        (sa.Numeric(30, 2), NumericMapping.BEST_FIT_EAGER_DOUBLE, "FLOAT64"),
        (sa.Numeric(), NumericMapping.BEST_FIT, "FLOAT64"),
        (sa.Numeric(4, 0), NumericMapping.NONE, "org.apache.kafka.connect.data.Decimal:BYTES"),
    ],
)
def test_schemas_of_numbers(kind: sa.Numeric[float], numbers: NumericMapping, schema: str) -> None:
    assert str(column_of("n", kind, False, TypeMapping(numbers)).schema) == f"Schema{{{schema}}}"


@pytest.mark.parametrize("kind", [postgresql.UUID(), postgresql.JSONB(), postgresql.INT4RANGE(), postgresql.INET()])
def test_types_without_a_counterpart_are_text(kind: sa.types.TypeEngine[object]) -> None:
    column = column_of("n", kind, True, TypeMapping())
    assert column.as_text
    assert str(column.schema) == "Schema{STRING}"
    assert column.schema.optional


def test_doubles_may_be_no_numbers() -> None:
    column = column_of("n", sa.Numeric(), True, TypeMapping())
    assert str(column.cells(pa.array(["1.5", "NaN", "-Infinity", None])).to_pylist()) == "[1.5, nan, -inf, None]"


def test_a_value_that_a_schema_cannot_hold_names_the_column() -> None:
    column = column_of("total", sa.Numeric(30, 2), True, TypeMapping())
    with pytest.raises(ConnectException, match=r"'total' has a value that .*Decimal.* cannot hold"):
        column.cells(pa.array(["NaN"]))


@pytest.mark.parametrize(
    ("form", "cell"),
    [
        (TimestampGranularity.MICROS_LONG, 1_704_106_800_123_456),
        (TimestampGranularity.NANOS_STRING, "1704106800123456000"),
        (TimestampGranularity.MICROS_ISO, "2024-01-01T11:00:00.123456Z"),
        (TimestampGranularity.NANOS_ISO, "2024-01-01T11:00:00.123456000Z"),
    ],
)
def test_forms_of_timestamps_in_a_time_zone(form: TimestampGranularity, cell: object) -> None:
    column = column_of("at", sa.DateTime(), True, TypeMapping(timestamps=form, zone="Europe/Berlin"))
    noon = pa.array([1_704_110_400_123_456, None], pa.timestamp("us"))
    assert column.cells(noon).to_pylist() == [cell, None]


SETTINGS = {"connection.url": "jdbc:sqlite:a.db", "mode": "incrementing", "topic.prefix": "p-"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"mode": "timestamp"}, "timestamp.column.name"),
        ({"query": "SELECT 1", "table.whitelist": "a"}, "query"),
        ({"query": "SELECT 1"}, "incrementing.column.name"),
        ({"table.include.list": "a", "table.blacklist": "b"}, "table.exclude.list"),
        ({"transaction.isolation.mode": "CHAOS"}, "transaction.isolation.mode"),
        ({"db.timezone": "Mars/Olympus"}, "db.timezone"),
        ({"key.mode": "both"}, "key.mode"),
        ({"mode": "sometimes"}, "mode"),
        ({"catalog.pattern": "shop%"}, "catalog.pattern"),
        (
            {"dialect.name": "PostgreSqlDatabaseDialect"},
            "dialect.name: is PostgreSqlDatabaseDialect, and connection.url",
        ),
        ({"dialect.name": "VerticaDatabaseDialect"}, "dialect.name: VerticaDatabaseDialect is not there"),
        ({"quote.sql.identifiers": "sometimes"}, "quote.sql.identifiers"),
        ({"mode": "timestamp", "timestamp.column.mapping": "at"}, "PATTERN:.COLUMN.COLUMN., got 'at'"),
        ({"timestamp.column.mapping": "a:[b]", "timestamp.column.name": "c"}, "timestamp.column.mapping: .*leave out"),
        ({"incrementing.column.mapping": "a:[b|c]"}, "incrementing.column.mapping: an entry has the form PATTERN:COL"),
        ({"incrementing.column.mapping": "a(:b"}, "incrementing.column.mapping"),
        ({"incrementing.column.mapping": "a:b", "incrementing.column.name": "c"}, "incrementing.column.mapping"),
        ({"mode": "bulk", "query": "SELECT 1", "timestamp.column.mapping": "a:[b]"}, "a query is no table"),
        ({"query.masked": "SELECT 1"}, "incrementing.column.name"),
        ({"mode": "bulk", "query": "SELECT 1", "query.masked": "SELECT 2"}, "query.masked: query is set as well"),
        ({"mode": "bulk", "query.masked": "SELECT 1", "table.whitelist": "a"}, "query.masked: a query is read"),
    ],
)
def test_settings_that_do_not_fit_are_named(more: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigException, match=said):
        JdbcSourceConfig.parse({**SETTINGS, **more})


def test_settings_of_the_java_connector_are_taken_as_they_are_written_there() -> None:
    there = {
        "connection.url": "jdbc:postgresql://localhost/shop",
        "connection.attempts": "3",
        "connection.backoff.ms": "10000",
        "catalog.pattern": "sh_p",
        "schema.pattern": "public",
        "dialect.name": "PostgreSqlDatabaseDialect",
        "mode": "INCREMENTING",
        "numeric.mapping": "BEST_FIT_EAGER_DOUBLE",
        "numeric.precision.mapping": "false",
        "timestamp.granularity": "MICROS_LONG",
        "transaction.isolation.mode": "read_committed",
        "quote.sql.identifiers": "NEVER",
        "table.whitelist": "Orders",
        "table.types": "TABLE,VIEW",
        "query.retry.attempts": "5",
        "query.masked": "",
        "table.monitoring.startup.polling.limit.ms": "10000",
        "incrementing.column.name": "ID",
    }
    config = JdbcSourceConfig.parse({**SETTINGS, **there})
    assert config.mode is QueryMode.INCREMENTING
    assert config.numbers is NumericMapping.BEST_FIT_EAGER_DOUBLE
    assert config.timestamp_granularity is TimestampGranularity.MICROS_LONG
    assert config.isolation == "READ COMMITTED"
    assert config.include == ("orders",), "PostgreSQL takes a name without quotes in lower case"


def test_lists_name_tables_with_or_without_their_schema() -> None:
    found = ["public.a", "public.b", "other.a"]

    def wanted(**settings: str) -> list[str]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return wanted_tables(JdbcSourceConfig.parse({**SETTINGS, **named}), found)

    assert wanted() == found
    assert wanted(table_whitelist="a") == ["public.a", "other.a"]
    assert wanted(table_include_list="public.a") == ["public.a"]
    assert wanted(table_include_list="shop.public.a") == ["public.a"]
    assert wanted(table_exclude_list="a") == ["public.b"]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (r"public\..*", ["public.a", "public.b"]),
        (".*[.]a", ["public.a", "other.a"]),
        ("shop.public.(a|c)", ["public.a"]),
        ("public.a,other.*", ["public.a", "other.a", 'other."b.c"']),
        ('other."b.c"', ['other."b.c"']),
        ("b.c", ['other."b.c"']),
        ("a*", []),
        ("[a", []),
    ],
)
def test_lists_may_have_patterns_for_whole_names_and_quoted_names(listed: str, expected: list[str]) -> None:
    found = [TableName.of(one) for one in ("public.a", "public.b", "other.a", 'other."b.c"')]
    url = {"connection.url": "jdbc:postgresql://h/shop"}
    included = JdbcSourceConfig.parse({**SETTINGS, **url, "table.include.list": listed})
    assert wanted_tables(included, found) == expected
    excluded = JdbcSourceConfig.parse({**SETTINGS, **url, "table.exclude.list": listed})
    assert wanted_tables(excluded, found) == [str(one) for one in found if str(one) not in expected]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("orders", TableName(None, "orders")),
        ("public.orders", TableName("public", "orders")),
        ("shop.public.orders", TableName("public", "orders")),
        ('"shop.orders"', TableName(None, "shop.orders")),
        ("`shop.orders`", TableName(None, "shop.orders")),
        ('public."shop.orders"', TableName("public", "shop.orders")),
        ('"a.b"."c.d"', TableName("a.b", "c.d")),
        ('5" pipes', TableName(None, '5" pipes')),
        ("größe ü", TableName(None, "größe ü")),
        ("a..b", TableName(None, "a..b")),
        ("", TableName(None, "")),
    ],
)
def test_a_name_with_a_dot_stands_in_quotation_marks(text: str, name: TableName) -> None:
    assert TableName.of(text) == name
    assert TableName.of(str(name)) == name or ".." in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime.datetime.fromisoformat("2024-07-01T12:00"), 1719828000_000_000_000),
        (datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC), 1719835200_000_000_000),
        ("2024-07-01 12:00:00.000001", 1719828000_000_001_000),
        (datetime.date(2024, 7, 1), 1719784800_000_000_000),
        (7, 7),
        (None, None),
    ],
)
def test_positions_are_what_drivers_give(value: object, expected: int | None) -> None:
    assert utc_nanoseconds(value, "Europe/Berlin") == expected
