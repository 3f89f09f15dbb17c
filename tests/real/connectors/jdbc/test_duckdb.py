"""Source and sink against files of DuckDB, without Kafka: types both ways, modes, a file that another process has."""

from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.real.connectors.jdbc.reading import Reading
from tests.real.connectors.jdbc.writing import Database, Start, record

from penstock.api import RetryPolicy
from penstock.connectors.jdbc import JdbcSource
from penstock.connectors.jdbc.source.task import JdbcSourceTask
from penstock.data import Date, Decimal, Schema, SchemaBuilder, Time, Timestamp, Type
from penstock.errors import ConnectException, RetriableException

pytestmark = pytest.mark.slow

UTC = datetime.UTC
MOMENT = datetime.datetime(2024, 7, 1, 12, 0, 0, 250_000, UTC)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that finds nothing returns soon, and a table that fails is soon tried again."""
    monkeypatch.setattr(JdbcSourceTask, "poll_limit_s", 0.05)
    monkeypatch.setattr(JdbcSourceTask, "retry_policy", RetryPolicy(first_s=0.01))


@pytest.fixture
def file(tmp_path: Path) -> Database:
    """A file without tables."""
    return Database.of_duckdb(tmp_path / "a.duckdb")


def reading(file: Database, settings: dict[str, str], table: str = "t") -> Reading:
    made = Reading(file, [table], settings, schema="main")
    made.start()
    return made


COLUMNS: list[tuple[str, str, str, Any]] = [
    ("TINYINT", "-128", "INT8", -128),
    ("UTINYINT", "255", "INT16", 255),
    ("USMALLINT", "65535", "INT32", 65535),
    ("UINTEGER", "4294967295", "INT64", 4294967295),
    ("BIGINT", "-9223372036854775808", "INT64", -(2**63)),
    ("HUGEINT", "12345678901234567890123456789", "Decimal", decimal.Decimal("12345678901234567890123456789")),
    ("FLOAT", "0.5", "FLOAT32", 0.5),
    ("DOUBLE", "'nan'", "FLOAT64", pytest.approx(float("nan"), nan_ok=True)),
    ("DECIMAL(9,2)", "1.25", "FLOAT64", 1.25),
    ("DECIMAL(30,2)", "1234567890123456789012.25", "Decimal", decimal.Decimal("1234567890123456789012.25")),
    ("BOOLEAN", "true", "BOOLEAN", True),
    ("VARCHAR", "'\U0001f600'", "STRING", "\U0001f600"),
    ("BLOB", "'\\x00\\xFF'::BLOB", "BYTES", b"\x00\xff"),
    ("DATE", "'2024-02-29'", "Date", datetime.date(2024, 2, 29)),
    ("TIME", "'23:59:59.000001'", "Time", datetime.time(23, 59, 59, 1)),
    ("TIMESTAMP", "'2024-07-01 14:00:00.25'", "Timestamp", MOMENT),
    ("TIMESTAMP_NS", "'2024-07-01 14:00:00.25'", "Timestamp", MOMENT),
    ("TIMESTAMPTZ", "'2024-07-01 12:00:00.25+00'", "Timestamp", MOMENT),
    ("UUID", "'6f2c9a4e-0d5b-4e0a-9d8a-1f2e3d4c5b6a'", "STRING", "6f2c9a4e-0d5b-4e0a-9d8a-1f2e3d4c5b6a"),
    ("JSON", "'{\"a\": 1}'", "STRING", '{"a": 1}'),
    ("ENUM('a', 'b')", "'b'", "STRING", "b"),
    ("INTEGER[]", "[1, NULL]", "ARRAY", [1, None]),
    ("VARCHAR[]", "['x']", "ARRAY", ["x"]),
    ("STRUCT(a INTEGER)", "{'a': 1}", "STRING", "{'a': 1}"),
    ("INTERVAL", "INTERVAL 1 DAY", "STRING", "1 day"),
    ("BIT", "'101'", "STRING", "101"),
]


def _named(schema: Schema) -> str:
    return (schema.name or schema.type.name).rpartition(".")[2]


@pytest.mark.parametrize("query", ["", "SELECT * FROM t"])
def test_every_type_is_read_from_tables_and_queries(file: Database, query: str) -> None:
    file.run(
        f"CREATE TABLE t ({', '.join(f'c{place} {one[0]}' for place, one in enumerate(COLUMNS))})",
        f"INSERT INTO t VALUES ({', '.join(one[1] for one in COLUMNS)})",
        "INSERT INTO t (c0) VALUES (NULL)",
    )
    settings = {"mode": "bulk", "db.timezone": "Europe/Berlin"}
    found = reading(file, settings | ({"query": query, "table.include.list": ""} if query else {}))
    frame = next(found.frames())
    assert isinstance(frame.data, pa.Table)
    assert frame.value_schema is not None
    row, nulls = frame.data.column("value").to_pylist()
    kinds = [_named(one.schema) for one in frame.value_schema.fields]
    expected = [(one[0], one[2], one[3]) for one in COLUMNS]
    assert list(zip([one[0] for one in COLUMNS], kinds, row.values(), strict=True)) == expected
    assert set(nulls.values()) == {None}


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMPTZ"])
@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing"])
def test_new_rows_are_followed_over_a_restart(file: Database, mode: str, kind: str) -> None:
    file.run(
        "CREATE SEQUENCE s",
        f"CREATE TABLE t (id BIGINT PRIMARY KEY DEFAULT nextval('s'), \"at\" {kind} NOT NULL)",
        "INSERT INTO t (\"at\") SELECT TIMESTAMP '2024-07-01' + INTERVAL 1 MINUTE * n FROM range(10) r(n)",
    )
    zone = {"db.timezone": "America/New_York", "batch.max.rows": "4", "timestamp.column.name": "at", "mode": mode}
    found = reading(file, zone)
    assert found.read("id") == list(range(1, 11))
    found.start()
    assert found.read("id") == []
    file.run("INSERT INTO t (\"at\") VALUES (TIMESTAMP '2024-07-02')")
    assert found.read("id") == [11]


FIELDS: list[tuple[str, Any, pa.DataType, Any]] = [
    ("id", SchemaBuilder(Type.STRING).build(), pa.string(), "K\U0001f600"),
    ("tiny", SchemaBuilder(Type.INT8).build(), pa.int8(), -128),
    ("big", SchemaBuilder(Type.INT64).build(), pa.int64(), 2**63 - 1),
    ("single", SchemaBuilder(Type.FLOAT32).build(), pa.float32(), 0.5),
    ("ok", SchemaBuilder(Type.BOOLEAN).build(), pa.bool_(), True),
    ("raw", SchemaBuilder(Type.BYTES).build(), pa.binary(), b"\x00\xff"),
    ("price", Decimal.schema(6), pa.decimal128(38, 6), decimal.Decimal("12345678901234567890123456789012.123456")),
    ("day", Date.SCHEMA, pa.date32(), datetime.date(2024, 2, 29)),
    ("at", Time.SCHEMA, pa.time64("us"), datetime.time(23, 59, 59, 123_000)),
    ("made", Timestamp.SCHEMA, pa.timestamp("us", "UTC"), MOMENT),
]


def test_a_table_that_is_made_holds_each_type_as_it_is(start: Start, file: Database) -> None:
    builder = SchemaBuilder.struct()
    for field, schema, _, _ in FIELDS:
        builder.field(field, schema)
    row = {field: value for field, _, _, value in FIELDS}
    settings = {"auto.create": "true", "insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"}
    writing = start(file, "t", settings | {"db.timezone": "Europe/Berlin"})
    kind = pa.struct([(field, arrow) for field, _, arrow, _ in FIELDS])
    for first in (0, 2):
        writing.put([row, {**row, "id": "other"}], builder.build(), kind=kind, first=first)
    assert writing.context.reported == []
    # A timestamp without a zone is one of db.timezone.
    expected = [*[*row.values()][:-1], MOMENT.replace(tzinfo=None) + datetime.timedelta(hours=2)]
    assert file.rows("SELECT * FROM t ORDER BY id") == [tuple(expected), ("other", *expected[1:])]


def test_a_file_that_another_process_has_is_an_error_that_passes(start: Start, file: Database, tmp_path: Path) -> None:
    file.run("CREATE TABLE t (id BIGINT, name VARCHAR)")
    code = f"import duckdb; c = duckdb.connect({str(tmp_path / 'a.duckdb')!r}); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"open\n"
            writing = start(file, "t", {})
            with pytest.raises(RetriableException, match=r"Cannot connect to duckdb:.*lock"):
                writing.put([record(1, "a")])
            base = {"connection.url": file.url, "topic.prefix": "t-", "mode": "bulk", "table.include.list": "t"}
            checked = JdbcSource().validate(base)
            assert "lock" in str([one.error_messages for one in checked.config_values])
        finally:
            other.communicate(b"\n", timeout=30)
    writing.put([record(1, "a")])
    assert file.rows("SELECT * FROM t") == [(1, "a")]


def test_what_the_database_lacks_is_said(file: Database) -> None:
    file.run("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    base = {"connection.url": file.url, "topic.prefix": "t-", "table.include.list": "t"}
    for settings, said in (
        ({"mode": "incrementing"}, "values that the database generates"),
        ({"mode": "bulk", "table.include.list": "nosuch"}, "there is no table nosuch"),
        ({"mode": "bulk", "query": "SELECT nosuch FROM t", "table.include.list": ""}, "refuses the statement"),
    ):
        checked = JdbcSource().validate({**base, **settings})
        assert said in str([text for value in checked.config_values for text in value.error_messages])


def test_a_number_that_a_record_cannot_hold_names_its_column(file: Database) -> None:
    file.run("CREATE TABLE t (c UBIGINT)", "INSERT INTO t VALUES (18446744073709551615)")
    with pytest.raises(ConnectException, match=r"'c' has a value that .*INT64"):
        reading(file, {"mode": "bulk"}).read_until_error()
