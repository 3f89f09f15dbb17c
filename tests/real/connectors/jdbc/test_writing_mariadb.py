"""The sink task against a real MariaDB, without Kafka: tables that it makes, rows that are refused, kills."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from testkit.processes.mariadb import MariaDb
from tests.real.connectors.jdbc.writing import Database, Start, record, schemaless

from penstock.data import Date, Decimal, SchemaBuilder, Time, Timestamp, Type
from penstock.errors import ConnectException, RetriableException

pytestmark = pytest.mark.slow

FIELDS: list[tuple[str, Any, pa.DataType, Any]] = [
    ("id", SchemaBuilder(Type.STRING).build(), pa.string(), "K\U0001f600"),
    ("tiny", SchemaBuilder(Type.INT8).build(), pa.int8(), -128),
    ("big", SchemaBuilder(Type.INT64).build(), pa.int64(), 2**63 - 1),
    ("single", SchemaBuilder(Type.FLOAT32).build(), pa.float32(), 0.5),
    ("twice", SchemaBuilder(Type.FLOAT64).build(), pa.float64(), 0.1),
    ("ok", SchemaBuilder(Type.BOOLEAN).build(), pa.bool_(), True),
    ("name", SchemaBuilder(Type.STRING).build(), pa.string(), "\U0001f600'\\%s\0" + "x" * 70_000),
    ("raw", SchemaBuilder(Type.BYTES).build(), pa.binary(), b"\x00\xff" * 40_000),
    ("price", Decimal.schema(6), pa.decimal128(38, 6), decimal.Decimal("12345678901234567890123456789012.123456")),
    ("day", Date.SCHEMA, pa.date32(), datetime.date(2024, 2, 29)),
    ("at", Time.SCHEMA, pa.time64("us"), datetime.time(23, 59, 59, 123_000)),
    ("made", Timestamp.SCHEMA, pa.timestamp("us", "UTC"), datetime.datetime(2024, 2, 29, 9, 0, 0, 5, datetime.UTC)),
]


def test_a_table_that_is_made_holds_each_type_as_it_is(start: Start, mariadb: MariaDb, name: str) -> None:
    builder = SchemaBuilder.struct()
    for field, schema, _, _ in FIELDS:
        builder.field(field, schema)
    kind = pa.struct([(field, arrow) for field, _, arrow, _ in FIELDS])
    row = {field: value for field, _, _, value in FIELDS}
    settings = {"auto.create": "true", "insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"}
    writing = start(Database.of_mariadb(mariadb), name, settings)
    # Keys that differ in case only are two rows.
    writing.put([row, {**row, "id": row["id"].lower()}, row], builder.build(), kind=kind)
    assert writing.context.reported == []
    mariadb.execute("SET GLOBAL time_zone = '+05:00'")
    try:
        found = mariadb.rows(f"SELECT * FROM {name} ORDER BY id")
    finally:
        mariadb.execute("SET GLOBAL time_zone = 'SYSTEM'")
    expected = [*row.values()]
    expected[-2] = datetime.timedelta(hours=23, minutes=59, seconds=59, milliseconds=123)
    expected[-1] = row["made"].replace(tzinfo=None)
    assert found == [tuple(expected), (expected[0].lower(), *expected[1:])]


def test_columns_are_added_and_moments_are_moments(start: Start, mariadb: MariaDb, name: str) -> None:
    mariadb.execute(f"CREATE TABLE {name} (id bigint, zoned timestamp NULL, plain datetime, extra json)")
    moment = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC)
    inner = SchemaBuilder.struct().field("a", SchemaBuilder(Type.STRING).build()).build()
    schema = (
        SchemaBuilder.struct()
        .field("id", SchemaBuilder(Type.INT64).build())
        .field("zoned", Timestamp.SCHEMA)
        .field("plain", Timestamp.SCHEMA)
        .field("extra", inner)
        .field("later", SchemaBuilder(Type.STRING).optional().build())
        .build()
    )
    kind = pa.struct(
        [
            ("id", pa.int64()),
            ("zoned", pa.timestamp("us", "UTC")),
            ("plain", pa.timestamp("us", "UTC")),
            ("extra", pa.struct([("a", pa.string())])),
            ("later", pa.string()),
        ]
    )
    settings = {"auto.evolve": "true", "db.timezone": "Europe/Berlin"}
    writing = start(Database.of_mariadb(mariadb), name, settings)
    row = {"id": 1, "zoned": moment, "plain": moment, "extra": {"a": "\U0001f600"}, "later": "x"}
    writing.put([row], schema, kind=kind)
    assert writing.context.reported == []
    seconds = f"SELECT id, unix_timestamp(zoned), CAST(plain AS char), extra, later FROM {name}"
    assert mariadb.rows(seconds) == [
        (1, int(moment.timestamp()), "2024-07-01 14:00:00", '{"a": "\U0001f600"}', "x"),
    ]


def test_json_without_a_schema_is_text_numbers_and_truth(start: Start, mariadb: MariaDb, name: str) -> None:
    mariadb.execute(
        f"CREATE TABLE {name} (id bigint unsigned PRIMARY KEY, ok boolean, extra json, e enum('a','b'), u uuid, "
        "at timestamp NULL, b bit(3))"
    )
    writing = start(Database.of_mariadb(mariadb), name, {"insert.mode": "upsert", "pk.mode": "record_value"})
    code = "6f2c9a4e-0d5b-4e0a-9d8a-1f2e3d4c5b6a"
    values = [
        {"id": 1, "ok": True, "extra": {"a": [None, "\U0001f600"]}, "e": "a", "u": code, "at": "2024-07-01 12:00:00"},
        {"id": 2, "ok": False, "e": "c"},
        {"id": 3, "u": "no uuid"},
        {"id": -4},
        {"id": 5, "at": "0000-13-00"},
        {"id": 6, "extra": "text"},
    ]
    writing.put(schemaless(values), None, key_schema=None)
    assert mariadb.rows(f"SELECT id, ok, extra, e, u FROM {name} ORDER BY id") == [
        (1, 1, '{"a": [null, "\U0001f600"]}', "a", code),
        (6, None, '"text"', None, None),
    ]
    assert writing.reported == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("columns", "number", "text"),
    [
        ("id smallint, name text", 70_000, "a"),
        ("id bigint unsigned, name text", -1, "a"),
        ("id bigint, name varchar(2)", 1, "abc"),
        ("id bigint, name varchar(9) CHARACTER SET latin1", 1, "\U0001f600"),
        ("id bigint, name text NOT NULL", 1, None),
        ("id bigint PRIMARY KEY, name text", 0, "a"),
        ("id bigint, name enum('x','y')", 1, "z"),
        ("id bigint, name text, CHECK (id <> 1)", 1, "a"),
        ("id bigint, name longtext", 1, "x" * 17_000_000),
    ],
)
def test_what_mariadb_refuses_is_one_row_whatever_its_mode(
    start: Start, mariadb: MariaDb, name: str, columns: str, number: int, text: str | None
) -> None:
    mariadb.execute(f"CREATE TABLE {name} ({columns})", "SET GLOBAL sql_mode = ''")
    try:
        writing = start(Database.of_mariadb(mariadb), name, {})
        writing.put([record(0, "x"), record(number, text), record(2, "y")])
    finally:
        mariadb.execute("SET GLOBAL sql_mode = DEFAULT")
    assert mariadb.rows(f"SELECT id FROM {name} ORDER BY id") == [(0,), (2,)]
    assert writing.reported == [1]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_sql_does_not_have_are_one_row(start: Start, mariadb: MariaDb, name: str, number: float) -> None:
    mariadb.execute(f"CREATE TABLE {name} (x double)")
    schema = SchemaBuilder.struct().field("x", SchemaBuilder(Type.FLOAT64).build()).build()
    writing = start(Database.of_mariadb(mariadb), name, {})
    writing.put([{"x": 1.5}, {"x": number}, {"x": 2.5}], schema, kind=pa.struct([("x", pa.float64())]))
    assert mariadb.rows(f"SELECT x FROM {name}") == [(1.5,), (2.5,)]
    assert writing.reported == [1]


@pytest.mark.parametrize("settings", [{}, {"offsets.in.target": "true"}])
def test_a_server_that_is_killed_or_ends_connections_costs_no_row(
    start: Start, mariadb: MariaDb, name: str, settings: dict[str, str]
) -> None:
    mariadb.execute(f"CREATE TABLE {name} (id bigint CHECK (id <> 5), name text)")
    writing = start(Database.of_mariadb(mariadb), name, {**settings, "name": name})
    for first in range(0, 30, 10):
        frame = writing.frame([record(first + n, "x") for n in range(10)], first=first)
        if first == 10:
            mariadb.kill()
            with pytest.raises(RetriableException):
                writing.task.put(frame)
            mariadb.start()
        writing.task.put(frame)
    assert mariadb.rows(f"SELECT id FROM {name} ORDER BY id") == [(n,) for n in range(30) if n != 5]
    assert writing.reported == [5]


def test_a_locked_table_is_tried_again_and_then_the_task_fails(start: Start, mariadb: MariaDb, name: str) -> None:
    mariadb.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text)", f"INSERT INTO {name} VALUES (1, 'a')")
    mariadb.execute("SET GLOBAL innodb_lock_wait_timeout = 1")
    settings = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id", "max.retries": "1"}
    writing = start(Database.of_mariadb(mariadb), name, settings)
    locking = mariadb.connect()
    try:
        locking.begin()
        locking.cursor().execute(f"UPDATE {name} SET name = 'locked'")
        frame = writing.frame([record(1, "b")])
        with pytest.raises(RetriableException, match="Lock wait timeout"):
            writing.task.put(frame)
        with pytest.raises(ConnectException, match="Tried 2 times"):
            writing.task.put(frame)
    finally:
        locking.close()
        mariadb.execute("SET GLOBAL innodb_lock_wait_timeout = DEFAULT")
    writing.task.put(frame)
    assert mariadb.rows(f"SELECT * FROM {name}") == [(1, "b")]
