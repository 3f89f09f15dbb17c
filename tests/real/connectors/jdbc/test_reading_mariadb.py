"""The source task against a real MariaDB, without Kafka: modes, types, faults."""

from __future__ import annotations

import datetime
import decimal
import re
from typing import Any

import pyarrow as pa
import pytest
from testkit.processes.mariadb import MariaDb
from testkit.waiting import await_true
from tests.real.connectors.jdbc.reading import Reading

from penstock.api import RetryPolicy
from penstock.connectors.jdbc import JdbcSource
from penstock.connectors.jdbc.source.task import JdbcSourceTask
from penstock.data import Schema
from penstock.errors import ConnectException, RetriableException

pytestmark = pytest.mark.slow

UTC = datetime.UTC


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that finds nothing returns soon, and a table that fails is soon tried again."""
    monkeypatch.setattr(JdbcSourceTask, "poll_limit_s", 0.05)
    monkeypatch.setattr(JdbcSourceTask, "retry_policy", RetryPolicy(first_s=0.01))


def reading(server: MariaDb, name: str, settings: dict[str, str]) -> Reading:
    made = Reading(server, [name], settings, schema="shop")
    made.start()
    return made


COLUMNS: list[tuple[str, str, str, Any]] = [
    ("tinyint", "-128", "INT8", -128),
    ("tinyint unsigned", "255", "INT16", 255),
    ("boolean", "true", "INT8", 1),
    ("smallint unsigned", "65535", "INT32", 65535),
    ("mediumint unsigned", "16777215", "INT32", 16777215),
    ("int", "-2147483648", "INT32", -2147483648),
    ("int unsigned", "4294967295", "INT64", 4294967295),
    ("bigint", "-9223372036854775808", "INT64", -(2**63)),
    ("bigint unsigned", "9223372036854775807", "INT64", 2**63 - 1),
    ("float", "0.1", "FLOAT32", pytest.approx(0.1, rel=1e-6)),
    ("double", "0.1", "FLOAT64", 0.1),
    ("decimal(9,2)", "1234567.25", "FLOAT64", 1234567.25),
    ("decimal(9,0)", "-7", "INT32", -7),
    (
        "decimal(30,10)",
        "12345678901234567890.0123456789",
        "Decimal",
        decimal.Decimal("12345678901234567890.0123456789"),
    ),
    ("bit", "1", "INT8", 1),
    ("bit(12)", "b'101000000001'", "INT16", 2561),
    ("bit(64)", "18446744073709551615", "Decimal", decimal.Decimal(2**64 - 1)),
    ("year", "2024", "INT32", 2024),
    ("date", "'2024-02-29'", "Date", datetime.date(2024, 2, 29)),
    ("date", "'0000-00-00'", "Date", None),
    ("date", "'2024-00-00'", "Date", None),
    ("time(6)", "'23:59:59.000001'", "Time", datetime.time(23, 59, 59, 1)),
    ("datetime", "'0000-00-00'", "Timestamp", None),
    ("datetime(6)", "'2024-07-01 12:00:00.25'", "Timestamp", datetime.datetime(2024, 7, 1, 10, 0, 0, 250_000, UTC)),
    ("timestamp", "'2024-07-01 12:00:00'", "Timestamp", datetime.datetime(2024, 7, 1, 12, tzinfo=UTC)),
    ("char(3)", "'abc'", "STRING", "abc"),
    ("varchar(20) character set latin1", "'Grüße'", "STRING", "Grüße"),
    ("longtext", "'a\U0001f600\\0b'", "STRING", "a\U0001f600\0b"),
    ("enum('a','ß')", "'ß'", "STRING", "ß"),
    ("set('x','y')", "'x,y'", "STRING", "x,y"),
    ("json", '\'{"a": [1, "\U0001f600"]}\'', "STRING", '{"a": [1, "\U0001f600"]}'),
    ("binary(3)", "x'00ff00'", "BYTES", b"\x00\xff\x00"),
    ("varbinary(9)", "x'00ff'", "BYTES", b"\x00\xff"),
    ("longblob", "x'f09f'", "BYTES", b"\xf0\x9f"),
    ("uuid", "'6f2c9a4e-0d5b-4e0a-9d8a-1f2e3d4c5b6a'", "STRING", "6f2c9a4e-0d5b-4e0a-9d8a-1f2e3d4c5b6a"),
    ("inet6", "'::1'", "STRING", "::1"),
]


def _named(schema: Schema) -> str:
    return (schema.name or schema.type.name).rpartition(".")[2]


@pytest.mark.parametrize("query", ["", "SELECT * FROM {}"])
def test_every_type_is_read_from_tables_and_queries(mariadb: MariaDb, name: str, query: str) -> None:
    described = ", ".join(f"c{place} {one[0]} NULL" for place, one in enumerate(COLUMNS))
    mariadb.execute(
        f"CREATE TABLE {name} ({described}) CHARACTER SET utf8mb4",
        f"INSERT INTO {name} VALUES ({', '.join(one[1] for one in COLUMNS)})",
        f"INSERT INTO {name} () VALUES ()",
    )
    settings = {"mode": "bulk", "db.timezone": "Europe/Berlin"}
    if query:
        settings |= {"query": query.format(name), "table.include.list": ""}
    found = reading(mariadb, name, settings)
    frame = next(found.frames())
    assert isinstance(frame.data, pa.Table)
    row, nulls = frame.data.column("value").to_pylist()
    assert frame.value_schema is not None
    kinds = [_named(one.schema) for one in frame.value_schema.fields]
    expected = [(one[0], one[2], one[3]) for one in COLUMNS]
    assert list(zip([one[0] for one in COLUMNS], kinds, row.values(), strict=True)) == expected
    assert set(nulls.values()) == {None}


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("time NULL", "'25:00:00'", "Time.* cannot hold"),
        ("time NULL", "'-01:00:00'", "Time.* cannot hold"),
        ("bigint unsigned NULL", "18446744073709551615", "INT64.* cannot hold"),
        ("date NOT NULL", "'0000-00-00'", "'c' is NOT NULL and has a zero date"),
        ("datetime NOT NULL", "'2024-01-00'", "'c' is NOT NULL and has a zero date"),
    ],
)
def test_a_value_that_a_record_cannot_hold_names_its_column(
    mariadb: MariaDb, name: str, kind: str, value: str, said: str
) -> None:
    mariadb.execute(f"CREATE TABLE {name} (c {kind})", f"INSERT INTO {name} VALUES ({value})")
    with pytest.raises(ConnectException, match=f"The column 'c'.*{said}|{said}"):
        reading(mariadb, name, {"mode": "bulk"}).read_until_error()


@pytest.mark.parametrize("kind", ["timestamp(6)", "datetime(6)", "date"])
@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_timestamps_are_followed_in_their_zone(mariadb: MariaDb, name: str, mode: str, kind: str) -> None:
    mariadb.execute(
        f"CREATE TABLE {name} (id int unsigned PRIMARY KEY AUTO_INCREMENT, at {kind} NOT NULL, KEY (at))",
        f"INSERT INTO {name} (at) VALUES ('2024-07-01 12:00:00.000001'), ('2024-07-02'), ('2024-07-02')",
    )
    zone = {"db.timezone": "America/New_York"}
    found = reading(mariadb, name, {"mode": mode, "timestamp.column.name": "at", **zone, "batch.max.rows": "2"})
    assert found.read("id") == [1, 2, 3]
    found.start()
    assert found.read("id") == []
    mariadb.execute(f"INSERT INTO {name} (at) VALUES ('2024-07-03'), ('2024-06-01')")
    assert found.read("id") == [4]


def test_numbers_are_followed_over_a_restart(mariadb: MariaDb, name: str) -> None:
    mariadb.execute(
        f"CREATE TABLE {name} (nr bigint unsigned PRIMARY KEY AUTO_INCREMENT, `from` text)",
        f"INSERT INTO {name} (`from`) SELECT seq FROM seq_1_to_10",
    )
    found = reading(mariadb, name, {"mode": "incrementing", "batch.max.rows": "4"})
    first = found.task.poll()
    assert first is not None
    assert isinstance(first.data, pa.Table)
    assert first.data.column("key").to_pylist() == [{"nr": one} for one in range(1, 5)]
    assert first.offset_after is not None
    found.kept[str(found.tables[0])] = dict(first.offset_after(2))
    found.start()
    assert found.read("nr") == [4, 5, 6, 7, 8, 9, 10]


def test_a_server_that_was_killed_or_ends_a_connection_is_an_error_that_passes(mariadb: MariaDb, name: str) -> None:
    mariadb.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY AUTO_INCREMENT, wide char(200) DEFAULT repeat('x', 200))",
        f"INSERT INTO {name} (id) SELECT seq FROM seq_1_to_50000",
    )
    found = reading(mariadb, name, {"mode": "incrementing", "batch.max.rows": "100"})
    frame = found.task.poll()
    assert frame is not None
    found.kept[str(found.tables[0])] = dict(frame.source_offset)
    mariadb.kill()
    with pytest.raises(RetriableException):
        found.read_until_error()
    mariadb.start()
    found.start()
    rows: list[object] = []
    while not rows or rows[-1] != 50_000:
        rows += found.read("id")
    assert rows == list(range(101, 50_001))


def test_a_reader_that_stops_leaves_the_rest_of_a_result(mariadb: MariaDb, name: str) -> None:
    mariadb.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY AUTO_INCREMENT)",
        f"INSERT INTO {name} (id) SELECT seq FROM seq_1_to_300000",
    )
    found = reading(mariadb, name, {"mode": "bulk", "batch.max.rows": "10"})
    while found.task.poll() is None:
        pass
    found.task.stop()
    running = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT%penstock_source%' AND id <> "
    await_true(lambda: mariadb.rows(f"{running} connection_id()") == [(0,)], "the query has ended")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "incrementing"}, "No column of the table .* has values that the database generates"),
        ({"mode": "incrementing", "incrementing.column.name": "nr"}, "has no column 'nr'; it has id, note"),
        ({"mode": "incrementing", "incrementing.column.name": "note"}, "is TEXT, and .* follows whole numbers"),
        ({"mode": "timestamp", "timestamp.column.name": "id"}, "is INTEGER.*, and .* follows dates"),
        ({"mode": "bulk", "table.include.list": "nosuch"}, "there is no table nosuch"),
        ({"mode": "bulk", "query": "SELECT nosuch FROM x", "table.include.list": ""}, "refuses the statement"),
        ({"mode": "bulk", "connection.user": "nobody"}, "Cannot connect to mariadb://"),
        ({"mode": "bulk", "connection.url": "jdbc:mysql://127.0.0.1:1/x"}, "Cannot connect to mysql://"),
    ],
)
def test_validation_says_what_the_database_lacks(
    mariadb: MariaDb, name: str, settings: dict[str, str], said: str
) -> None:
    mariadb.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, note text)")
    base = {"connection.url": mariadb.jdbc_url, "topic.prefix": "t-", "table.include.list": name}
    checked = JdbcSource().validate({**base, **settings})
    errors = [text for value in checked.config_values for text in value.error_messages]
    assert len(errors) == 1
    assert re.search(said, errors[0]), errors


def test_parameters_of_javas_drivers_are_taken(mariadb: MariaDb, name: str) -> None:
    mariadb.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    more = "&useSSL=false&characterEncoding=UTF-8&zeroDateTimeBehavior=convertToNull&rewriteBatchedStatements=true"
    url = mariadb.jdbc_url.replace("mariadb:", "mysql:") + more
    base = {"connection.url": url, "topic.prefix": "t-", "table.include.list": name, "mode": "bulk"}
    assert not [text for value in JdbcSource().validate(base).config_values for text in value.error_messages]
