"""The rows of frames as changes of a table, and the statements of these."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from penstock.connectors.jdbc.addresses import parse_address
from penstock.connectors.jdbc.duckdb import DuckDbDialect
from penstock.connectors.jdbc.faults import FaultKind, fault_of
from penstock.connectors.jdbc.sink.changes import RowsRefused, TableChanges, Target, changes_of
from penstock.connectors.jdbc.sink.settings import InsertMode, JdbcSinkConfig
from penstock.connectors.jdbc.sink.statements import (
    add_columns,
    cast_to,
    copied_deletes,
    copied_rows,
    create_table,
    write_rows,
)
from penstock.connectors.jdbc.sink.writing import Write, _of_schema, writer_for
from penstock.connectors.jdbc.tables import Table, TableName
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, STRING_SCHEMA, Decimal, Schema, SchemaBuilder, Timestamp
from penstock.errors import ConfigException, ConnectException, DataException

VALUE = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()
KEY = SchemaBuilder.struct().field("id", INT64_SCHEMA).build()
URL = {"connection.url": "jdbc:sqlite:a.db"}
UPSERT = {**URL, "insert.mode": "upsert", "pk.mode": "record_key"}
NAME = TableName("s", "t")
PG = postgresql.dialect()


def changes(
    settings: dict[str, str],
    rows: list[tuple[int | None, str | None]],
    key_schema: Schema | None = KEY,
    value_schema: Schema | None = VALUE,
) -> TableChanges:
    """The changes of rows: an id, which is the key, and a name; the whole value is null where it is."""
    ids = pa.array([one for one, _ in rows], pa.int64())
    names = pa.array([name for _, name in rows], pa.string())
    gone = pa.array([name is None for _, name in rows])
    key: pa.Array = ids
    if key_schema is KEY:
        key = pa.StructArray.from_arrays([ids], names=["id"])
    value = pa.StructArray.from_arrays([ids, names], names=["id", "name"], mask=gone)
    table = pa.table({"key": key, "value": value})
    origin = pa.table({"topic": ["t"] * len(rows), "partition": [0] * len(rows), "offset": list(range(len(rows)))})
    return changes_of(JdbcSinkConfig.parse(settings), table, origin, key_schema, value_schema, "the records of t")


def test_settings_of_the_java_connector_are_taken_as_they_are_written_there() -> None:
    there = {
        "connection.url": "jdbc:postgresql://localhost/shop",
        "dialect.name": "PostgreSqlDatabaseDialect",
        "insert.mode": "UPSERT",
        "pk.mode": "RECORD_VALUE",
        "pk.fields": "ID",
        "quote.sql.identifiers": "never",
        "table.name.format": "Shop_${topic}",
        "date.timezone": "DB_TIMEZONE",
        "timestamp.precision.mode": "microseconds",
        "mssql.use.merge.holdlock": "true",
        "trim.sensitive.log": "false",
    }
    config = JdbcSinkConfig.parse(there)
    assert config.insert_mode is InsertMode.UPSERT
    assert config.table_of("Orders") == "shop_orders", "PostgreSQL takes a name without quotes in lower case"
    with pytest.raises(ConfigException, match="a transform makes timestamps"):
        JdbcSinkConfig.parse({**there, "timestamp.fields.list": "a"})


def test_names_without_quotes_are_columns_in_lower_case() -> None:
    value = pa.StructArray.from_arrays([pa.array([1]), pa.array(["a"])], names=["Id", "Full Name"])
    schema = SchemaBuilder.struct().field("Id", INT64_SCHEMA).field("Full Name", STRING_SCHEMA).build()
    settings = {"connection.url": "jdbc:postgresql://h/d", "pk.mode": "record_value", "pk.fields": "Id"}
    origin = pa.table({"topic": ["t"], "partition": [0], "offset": [0]})
    table = pa.table({"key": pa.nulls(1), "value": value})
    config = JdbcSinkConfig.parse({**settings, "quote.sql.identifiers": "never"})
    assert changes_of(config, table, origin, None, schema, "x").rows.to_pylist() == [{"id": 1, "full name": "a"}]


@pytest.mark.parametrize(("setting", "cell"), [("true", "none"), ("false", None)])
def test_a_null_is_the_default_of_its_schema_unless_it_is_to_be_null(setting: str, cell: str | None) -> None:
    optional = SchemaBuilder.string().optional().default_value("none").build()
    schema = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", optional).build()
    made = changes(
        {**UPSERT, "replace.null.with.default": setting, "delete.enabled": "true"}, [(1, None), (2, "b")], KEY, schema
    )
    assert made.rows.to_pylist() == [{"id": 2, "name": "b"}], "a record without a value deletes"
    names = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([None, "b"])], names=["id", "name"])
    table = pa.table({"key": pa.nulls(2), "value": names})
    origin = pa.table({"topic": ["t"] * 2, "partition": [0] * 2, "offset": [0, 1]})
    config = JdbcSinkConfig.parse({**URL, "replace.null.with.default": setting})
    written = changes_of(config, table, origin, None, schema, "x").rows.column("name").to_pylist()
    assert written == [cell, "b"]


def test_each_record_is_a_row_of_an_insert() -> None:
    made = changes(URL, [(1, "a"), (1, "b")])
    assert made.rows.to_pylist() == [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]
    assert made.keys == []
    assert made.deletes.num_rows == 0


def test_the_last_change_of_a_key_wins() -> None:
    made = changes({**UPSERT, "delete.enabled": "true"}, [(1, "a"), (2, "b"), (1, "c"), (2, None), (3, None), (3, "d")])
    assert made.rows.to_pylist() == [{"id": 1, "name": "c"}, {"id": 3, "name": "d"}]
    assert made.row_numbers.to_pylist() == [2, 5]
    assert made.deletes.to_pylist() == [{"id": 2}]
    assert made.delete_numbers.to_pylist() == [3]


def test_a_batch_of_deletes_has_no_rows() -> None:
    made = changes({**UPSERT, "delete.enabled": "true"}, [(1, None), (1, None)])
    assert made.deletes.to_pylist() == [{"id": 1}]
    assert made.rows.num_rows == 0


def test_rows_without_a_column_are_written_without_it() -> None:
    made = changes({**UPSERT, "delete.enabled": "true"}, [(1, "a"), (2, "b"), (1, "c"), (3, None), (4, "d")])
    assert made.by_missing({}) == [made]
    parts = made.by_missing({"name": np.array([True, False, False, False, True])})
    assert [one.rows.to_pylist() for one in parts] == [[{"id": 2, "name": "b"}, {"id": 1, "name": "c"}], [{"id": 4}]]
    assert [one.row_numbers.to_pylist() for one in parts] == [[1, 2], [4]]
    assert [[target.name for target in one.columns] for one in parts] == [["id", "name"], ["id"]]
    assert [one.deletes.to_pylist() for one in parts] == [[{"id": 3}], []]


def test_keys_are_of_the_message_the_key_or_the_value() -> None:
    kafka = changes({**URL, "pk.mode": "kafka"}, [(5, "a")])
    assert kafka.keys == ["__connect_topic", "__connect_partition", "__connect_offset"]
    assert kafka.rows.to_pylist() == [
        {"__connect_topic": "t", "__connect_partition": 0, "__connect_offset": 0, "id": 5, "name": "a"}
    ]
    value = changes({**URL, "pk.mode": "record_value", "pk.fields": "name"}, [(5, "a")])
    assert (value.keys, value.rows.to_pylist()) == (["name"], [{"name": "a", "id": 5}])
    plain = changes({**UPSERT, "pk.fields": "number"}, [(5, "a")], key_schema=INT64_SCHEMA)
    assert plain.rows.to_pylist() == [{"number": 5, "id": 5, "name": "a"}]


def test_fields_are_chosen_by_either_name_of_the_setting() -> None:
    for name in ("fields.whitelist", "fields.include.list"):
        assert changes({**UPSERT, name: "name"}, [(5, "a")]).rows.to_pylist() == [{"id": 5, "name": "a"}]
        assert changes({**URL, name: "name"}, [(5, "a")]).rows.to_pylist() == [{"name": "a"}]


@pytest.mark.parametrize(
    ("settings", "rows", "key", "value", "said"),
    [
        (UPSERT, [(1, "a"), (2, None)], KEY, VALUE, "offset 1, is null: with delete.enabled=true"),
        (UPSERT, [(1, None), (2, "a"), (3, None), (4, None)], KEY, VALUE, "offset 0 and 2 more, is null"),
        (UPSERT, [(None, "a")], KEY, VALUE, "'id' of the primary key is null in the records of t, offset 0"),
        (UPSERT, [(1, "a")], None, VALUE, "The key of the records of t has no schema"),
        (UPSERT, [(1, "a")], INT64_SCHEMA, VALUE, "pk.fields has to name one column"),
        (URL, [(1, "a")], KEY, None, "The value of the records of t has no schema"),
        (URL, [(1, "a")], KEY, STRING_SCHEMA, "HoistField"),
        ({**UPSERT, "pk.fields": "nr"}, [(1, "a")], KEY, VALUE, "no field 'nr'; it has id"),
    ],
)
def test_records_that_lack_something_are_named(
    settings: dict[str, str],
    rows: list[tuple[int | None, str | None]],
    key: Schema | None,
    value: Schema | None,
    said: str,
) -> None:
    with pytest.raises(DataException, match=said):
        changes(settings, rows, key, value)


@pytest.mark.parametrize(
    ("settings", "rows", "value", "refused"),
    [
        (UPSERT, [(1, "a"), (2, None), (3, "b"), (4, None)], VALUE, [1, 3]),
        (UPSERT, [(None, "a"), (3, "b"), (None, "c")], VALUE, [0, 2]),
        ({**UPSERT, "delete.enabled": "true"}, [(1, None), (3, "b"), (4, None)], None, [1]),
        ({**UPSERT, "pk.fields": "nr"}, [(1, "a"), (2, "b")], VALUE, [0, 1]),
    ],
)
def test_only_the_rows_that_lack_something_are_refused(
    settings: dict[str, str], rows: list[tuple[int | None, str | None]], value: Schema | None, refused: list[int]
) -> None:
    with pytest.raises(RowsRefused) as caught:
        changes(settings, rows, KEY, value)
    assert caught.value.rows.tolist() == refused


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"insert.mode": "upsert"}, "pk.mode"),
        ({"delete.enabled": "true"}, "delete.enabled"),
        ({"pk.mode": "kafka", "pk.fields": "a,b"}, "pk.fields"),
        ({"topic.to.table.map": "a"}, "topic.to.table.map"),
        ({"insert.mode": "replace"}, "insert.mode"),
    ],
)
def test_settings_that_do_not_fit_are_named(more: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigException, match=said):
        JdbcSinkConfig.parse({**URL, **more})


def test_tables_of_topics() -> None:
    config = JdbcSinkConfig.parse({**URL, "table.name.format": "kafka.${topic}_v1", "topic.to.table.map": "a:x,b:y.z"})
    assert [config.table_of(topic) for topic in ("a", "b", "c")] == ["x", "y.z", "kafka.c_v1"]


COLUMNS = (
    Target("id", INT64_SCHEMA, True),
    Target("Name", OPTIONAL_STRING_SCHEMA, False),
    Target("total", Decimal.builder(2).optional().build(), False),
    Target("at", Timestamp.SCHEMA, False),
)


def test_tables_are_made_for_each_database() -> None:
    def made(dialect: sa.engine.Dialect) -> str:
        return " ".join(create_table(NAME, COLUMNS, dialect).split())

    assert made(PG) == (
        'CREATE TABLE IF NOT EXISTS s.t ( id BIGINT NOT NULL, "Name" TEXT, total NUMERIC, at TIMESTAMP WITHOUT TIME '
        "ZONE NOT NULL, PRIMARY KEY (id) )"
    )
    assert made(mysql.dialect()) == (
        "CREATE TABLE IF NOT EXISTS s.t ( id BIGINT NOT NULL, `Name` LONGTEXT, total NUMERIC(65, 2), at DATETIME(6) "
        "NOT NULL, PRIMARY KEY (id) )CHARSET=utf8mb4 COLLATE utf8mb4_bin"
    )
    assert made(sqlite.dialect()) == (
        'CREATE TABLE IF NOT EXISTS s.t ( id BIGINT NOT NULL, "Name" TEXT, total NUMERIC(38, 2), at DATETIME NOT NULL, '
        "PRIMARY KEY (id) )"
    )


def test_duckdb_speaks_as_postgresql_and_quotes_each_name() -> None:
    dialect = DuckDbDialect()
    made = " ".join(create_table(NAME, COLUMNS, dialect).split())
    assert made.startswith('CREATE TABLE IF NOT EXISTS "s"."t" ( "id" BIGINT NOT NULL, "Name" TEXT, "total" NUMERIC(38')
    columns = [("id", ""), ("at", "")]
    assert copied_rows(NAME, "rows", columns, ["id"], InsertMode.UPDATE, dialect) == (
        'UPDATE "s"."t" AS target SET "at" = "rows"."at" FROM "rows" WHERE target."id" = "rows"."id"'
    )


def test_columns_are_added_where_old_rows_can_have_a_value() -> None:
    assert add_columns(NAME, COLUMNS[1:2], PG) == ['ALTER TABLE s.t ADD COLUMN "Name" TEXT NULL']
    with pytest.raises(DataException, match=r"'at' for the table s.t has neither a default"):
        add_columns(NAME, COLUMNS[3:], PG)


def test_a_field_that_is_no_column_is_named() -> None:
    nested = Target("inner", SchemaBuilder.struct().field("a", STRING_SCHEMA).build(), False)
    with pytest.raises(DataException, match=r"'inner' for the table s.t is .*STRUCT.*Flatten"):
        create_table(NAME, [nested], PG)


def test_postgresql_moves_rows_from_a_temporary_table() -> None:
    columns = [("id", "BIGINT"), ("Name", "")]
    assert copied_rows(NAME, "tmp", columns, ["id"], InsertMode.INSERT) == (
        'INSERT INTO s.t (id, "Name") SELECT tmp.id::BIGINT, tmp."Name" FROM tmp'
    )
    assert copied_rows(NAME, "tmp", columns, ["id"], InsertMode.UPSERT).endswith(
        ' ON CONFLICT (id) DO UPDATE SET "Name" = excluded."Name"'
    )
    assert copied_rows(NAME, "tmp", columns[:1], ["id"], InsertMode.UPSERT).endswith(" ON CONFLICT (id) DO NOTHING")
    assert copied_rows(NAME, "tmp", columns, ["id"], InsertMode.UPDATE) == (
        'UPDATE s.t AS target SET "Name" = tmp."Name" FROM tmp WHERE target.id = tmp.id::BIGINT'
    )
    assert copied_deletes(NAME, "tmp", columns[:1]) == (
        "DELETE FROM s.t AS target USING tmp WHERE target.id = tmp.id::BIGINT"
    )


def test_text_is_not_cast_since_a_cast_would_cut_it() -> None:
    assert [cast_to(kind) for kind in (sa.String(3), sa.Text(), sa.Integer(), postgresql.UUID())] == [
        "",
        "",
        "INTEGER",
        "UUID",
    ]


def test_upserts_of_other_databases() -> None:
    kinds: dict[str, sa.types.TypeEngine[Any]] = {"id": sa.BigInteger(), "n": sa.Text()}
    table = Table(TableName(None, "t"), (), ("id",), frozenset(), kinds, frozenset(), None)

    def made(dialect: sa.engine.Dialect) -> str:
        statement = cast(sa.Insert, write_rows(table, ["id", "n"], ["id"], InsertMode.UPSERT, dialect))
        return " ".join(str(statement.compile(dialect=dialect)).split())

    assert made(sqlite.dialect()) == (
        "INSERT INTO t (id, n) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET n = excluded.n"
    )
    mariadb, newest = mysql.dialect(), mysql.dialect()
    mariadb.is_mariadb, newest.server_version_info = True, (9, 0, 0)
    for dialect in (mariadb, newest):
        # PyMySQL makes one statement of many rows in this form only.
        assert made(dialect) == ("INSERT INTO t (id, n) VALUES (%s, %s) ON DUPLICATE KEY UPDATE n = values(n)")


class FromPyMySql(Exception):
    sqlstate = "HY000"


class FromDriver(Exception):
    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FromDriver("x", "57P01"), FaultKind.PASSING),
        (FromDriver("x", "40001"), FaultKind.PASSING),
        (FromDriver("x", "40P01"), FaultKind.PASSING),
        (FromDriver("x", "53300"), FaultKind.PASSING),
        (FromDriver("x", "23505"), FaultKind.ROW),
        (FromDriver("x", "22P05"), FaultKind.ROW),
        (FromDriver("x", "21000"), FaultKind.ROW),
        (FromDriver("x", "P0001"), FaultKind.ROW),
        (FromDriver("x", "44000"), FaultKind.ROW),
        (FromDriver("x", "42703"), FaultKind.STATEMENT),
        (FromDriver("x", "42501"), FaultKind.STATEMENT),
        (FromDriver("server closed the connection unexpectedly"), FaultKind.PASSING),
        (Exception(2013, "Lost connection"), FaultKind.PASSING),
        (Exception(1927, "Connection was killed"), FaultKind.PASSING),
        (FromPyMySql(1205, "Lock wait timeout exceeded"), FaultKind.PASSING),
        (FromPyMySql(1366, "Incorrect string value"), FaultKind.ROW),
        (FromPyMySql(4025, "CONSTRAINT failed"), FaultKind.ROW),
        (FromPyMySql(1153, "Got a packet bigger than 'max_allowed_packet' bytes"), FaultKind.ROW),
        (Exception("nan can not be used with MySQL"), FaultKind.ROW),
        (type("TransactionException", (Exception,), {})("Conflict on update!"), FaultKind.PASSING),
        (type("IOException", (Exception,), {})("Could not set lock on file"), FaultKind.PASSING),
        (type("ConversionException", (Exception,), {})("Could not convert string"), FaultKind.ROW),
        (type("BinderException", (Exception,), {})("no column"), FaultKind.STATEMENT),
        (Exception(1062, "Duplicate entry"), FaultKind.ROW),
        (Exception(1146, "No such table"), FaultKind.STATEMENT),
        (Exception("database is locked"), FaultKind.PASSING),
        (Exception("database or disk is full"), FaultKind.PASSING),
    ],
)
def test_errors_of_drivers_are_sorted(error: Exception, kind: FaultKind) -> None:
    assert fault_of(parse_address("jdbc:postgresql://db/x"), error).kind is kind


class Refusing:
    """A connection of either driver that refuses every row."""

    def cursor(self) -> Refusing:
        return self

    def __enter__(self) -> Refusing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def begin(self) -> None: ...

    def rollback(self) -> None: ...

    def refuse(self, *_: object, **__: object) -> None:
        raise ValueError("no")

    execute = adbc_ingest = register = refuse


@pytest.mark.parametrize("url", ["jdbc:postgresql://h/d", "jdbc:duckdb:/a/b.db"])
def test_rows_that_a_database_refused_are_not_kept(url: str) -> None:
    writer: Any = writer_for(JdbcSinkConfig.parse({"connection.url": url}))
    writer._connection = Refusing()
    rows = pa.table({"a": [1]})
    kept = weakref.ref(rows)
    table = cast("Table", SimpleNamespace(name=TableName(None, "t"), types={}))
    write = Write(table, TableChanges((), rows, pa.array([0]), rows.slice(1), pa.array([], pa.int64())))
    del rows
    gc.collect()
    gc.disable()
    try:
        with suppress(ConnectException):
            writer.write([write])
        del write
        assert kept() is None, "nothing waits for the collector"
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "text",
    [
        'refuses the statement: schema "d.10" does not exist LINE 1',
        "(1049, \"Unknown database 'd.10'\")",
        'unknown database "d.10"',
        "Catalog Error: Schema with name d.10 does not exist!",
        'The specified schema name "d.10" either does not exist or you do not have permission to use it.',
    ],
)
def test_a_schema_that_comes_from_a_dot_in_a_topic_is_explained(text: str) -> None:
    said = str(_of_schema(ConnectException(text), TableName("d.10", "orders")))
    assert said.startswith(text)
    assert "a dot in the topic or in table.name.format ends a schema" in said


@pytest.mark.parametrize("name", [TableName(None, "orders"), TableName("shop", "orders")])
def test_another_refusal_is_left_as_it_is(name: TableName) -> None:
    error = ConnectException("The database sqlite:a.db refuses the statement: disk full")
    assert _of_schema(error, name) is error


def test_the_error_of_a_row_of_postgresql_has_no_statement() -> None:
    said = (
        "INTEGRITY: [libpq] Failed to execute query 'INSERT INTO t SELECT a FROM penstock_0': ERROR:  null in "
        'column "a"\nDETAIL:  Failing row contains (3, null).\n. SQLSTATE: 23502'
    )
    found = fault_of(parse_address("jdbc:postgresql://db/x"), type("DataError", (Exception,), {})(said))
    assert found.kind is FaultKind.ROW
    told = 'accept a row: null in column "a" DETAIL: Failing row contains (3, null) (SQLSTATE 23502)'
    assert str(found.error).endswith(told)
    other = type("DataError", (Exception,), {})("INVALID_DATA: [libpq] another form. SQLSTATE: 22001")
    assert str(fault_of(parse_address("jdbc:postgresql://db/x"), other).error).endswith(f"a row: {other}")
