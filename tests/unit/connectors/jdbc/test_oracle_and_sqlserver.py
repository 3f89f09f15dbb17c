"""The SQL that Oracle and SQL Server get, and the types and errors of their drivers, without a server."""

from __future__ import annotations

import datetime
import decimal
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mssql, oracle
from sqlalchemy.engine import Dialect

from penstock.connectors.jdbc import oracle as oracle_ways
from penstock.connectors.jdbc import sqlserver
from penstock.connectors.jdbc.addresses import parse_address
from penstock.connectors.jdbc.columns import TypeMapping, column_of
from penstock.connectors.jdbc.faults import FaultKind, fault_of
from penstock.connectors.jdbc.sink.changes import Target
from penstock.connectors.jdbc.sink.fitting import fits
from penstock.connectors.jdbc.sink.settings import InsertMode
from penstock.connectors.jdbc.sink.statements import (
    add_columns,
    column_type,
    create_table,
    delete_rows,
    write_rows,
)
from penstock.connectors.jdbc.source.position import QueryMode, RowPosition
from penstock.connectors.jdbc.source.queries import Bound, RowSelection
from penstock.connectors.jdbc.tables import Table, TableName
from penstock.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    Time,
    Timestamp,
)

NAME = TableName("Shop", "orders")
#: A schema, and the types of a column for it on Oracle and on SQL Server.
TYPES: list[tuple[Schema, str, str]] = [
    (INT8_SCHEMA, "NUMBER(3, 0)", "SMALLINT"),
    (INT16_SCHEMA, "NUMBER(5, 0)", "SMALLINT"),
    (INT32_SCHEMA, "NUMBER(10, 0)", "INTEGER"),
    (INT64_SCHEMA, "NUMBER(19, 0)", "BIGINT"),
    (FLOAT32_SCHEMA, "BINARY_FLOAT", "REAL"),
    (FLOAT64_SCHEMA, "BINARY_DOUBLE", "DOUBLE PRECISION"),
    (BOOLEAN_SCHEMA, "NUMBER(1, 0)", "BIT"),
    (STRING_SCHEMA, "CLOB", "NVARCHAR(max)"),
    (BYTES_SCHEMA, "BLOB", "VARBINARY(max)"),
    (Decimal.schema(3), "NUMERIC(38, 3)", "NUMERIC(38, 3)"),
    (Date.SCHEMA, "DATE", "DATE"),
    (Time.SCHEMA, "VARCHAR2(15 CHAR)", "TIME(6)"),
    (Timestamp.SCHEMA, "TIMESTAMP", "DATETIME2(6)"),
]
COLUMNS = [Target("id", INT64_SCHEMA, True), Target("Name", OPTIONAL_STRING_SCHEMA, False)]


def dialect_of(name: str) -> Dialect:
    if name == "mssql":
        return mssql.dialect(paramstyle="named")
    made: Dialect = oracle.dialect()
    oracle_ways.quote_always(made)
    return made


def one_line(text: object) -> str:
    return " ".join(str(text).split())


@pytest.mark.parametrize(("schema", "on_oracle", "on_sql_server"), TYPES, ids=[str(one[0]) for one in TYPES])
def test_a_field_gets_a_column_that_takes_it(schema: Schema, on_oracle: str, on_sql_server: str) -> None:
    for name, text in (("oracle", on_oracle), ("mssql", on_sql_server)):
        kind = column_type(schema, False, dialect_of(name), "x")
        assert kind.compile(dialect=dialect_of(name)) == text
        assert fits(schema, kind, name)


def test_a_table_is_made_and_extended_in_the_databases_words() -> None:
    assert one_line(create_table(NAME, COLUMNS, dialect_of("oracle"))) == (
        'CREATE TABLE "Shop"."orders" ( "id" NUMBER(19, 0) NOT NULL, "Name" CLOB, PRIMARY KEY ("id") )'
    )
    assert one_line(create_table(NAME, COLUMNS, dialect_of("mssql"))) == (
        "CREATE TABLE [Shop].orders ( id BIGINT NOT NULL, [Name] NVARCHAR(max) NULL, PRIMARY KEY (id) )"
    )
    assert add_columns(NAME, COLUMNS[1:], dialect_of("oracle")) == ['ALTER TABLE "Shop"."orders" ADD "Name" CLOB NULL']
    assert add_columns(NAME, COLUMNS[1:], dialect_of("mssql")) == [
        "ALTER TABLE [Shop].orders ADD [Name] NVARCHAR(max) NULL"
    ]


def test_text_of_a_key_has_a_length() -> None:
    kinds = {name: column_type(STRING_SCHEMA, True, dialect_of(name), "x") for name in ("oracle", "mssql")}
    assert kinds["oracle"].compile(dialect=dialect_of("oracle")) == "NVARCHAR2(255)"
    assert kinds["mssql"].compile(dialect=dialect_of("mssql")) == "NVARCHAR(450)"


def table_of(dialect: Dialect) -> Table:
    types = {one.name: column_type(one.schema, one.is_key, dialect, "x") for one in COLUMNS}
    return Table(NAME, (), ("id",), frozenset(), types, frozenset(), None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "oracle",
            'MERGE INTO "Shop"."orders" target USING (SELECT :id AS "id", :Name AS "Name" FROM DUAL) incoming '
            'ON (target."id" = incoming."id") WHEN MATCHED THEN UPDATE SET target."Name" = incoming."Name" '
            'WHEN NOT MATCHED THEN INSERT ("id", "Name") VALUES (incoming."id", incoming."Name")',
        ),
        (
            "mssql",
            "MERGE INTO [Shop].orders WITH (HOLDLOCK) AS target USING (SELECT CAST(:id AS BIGINT) AS id, "
            "CAST(:Name AS NVARCHAR(max)) AS [Name]) incoming ON (target.id = incoming.id) WHEN MATCHED THEN UPDATE "
            "SET target.[Name] = incoming.[Name] WHEN NOT MATCHED THEN INSERT (id, [Name]) "
            "VALUES (incoming.id, incoming.[Name]);",
        ),
    ],
)
def test_an_upsert_is_a_merge(name: str, text: str) -> None:
    dialect = dialect_of(name)
    statement = write_rows(table_of(dialect), ["id", "Name"], ["id"], InsertMode.UPSERT, dialect)
    compiled = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
    assert one_line(compiled) == text
    assert sorted(compiled.params) == ["Name", "id"]


def test_an_upsert_of_a_key_only_inserts_it_and_a_lock_can_be_left_out() -> None:
    dialect = dialect_of("mssql")
    statement: Any = write_rows(table_of(dialect), ["id"], ["id"], InsertMode.UPSERT, dialect, (), False)
    assert "WHEN MATCHED" not in (text := one_line(statement.compile(dialect=dialect)))
    assert "HOLDLOCK" not in text
    delete: Any = delete_rows(table_of(dialect), ["id"])
    assert one_line(delete.compile(dialect=dialect)) == "DELETE FROM [Shop].orders WHERE [Shop].orders.id = :key_id"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "oracle",
            'SELECT CAST("penstock_source"."ID" AS VARCHAR2(4000 CHAR)) AS "ID", CAST("penstock_source"."ID" AS '
            'NUMBER(19)) AS "penstock incrementing" FROM "SHOP"."ORDERS" "penstock_source" '
            'WHERE "penstock_source"."ID" > :ID_1 ORDER BY "penstock_source"."ID"',
        ),
        (
            "mssql",
            "SELECT CAST(penstock_source.[ID] AS NVARCHAR(max)) AS [ID], CAST(penstock_source.[ID] AS BIGINT) AS "
            "[penstock incrementing] FROM [SHOP].[ORDERS] AS penstock_source WHERE penstock_source.[ID] > :ID_1 "
            "ORDER BY penstock_source.[ID]",
        ),
    ],
)
def test_new_rows_are_selected_in_the_databases_words(name: str, text: str) -> None:
    column = column_of("ID", sa.Numeric(10, 0), False, TypeMapping())
    selection = RowSelection(TableName("SHOP", "ORDERS"), (column,), QueryMode.INCREMENTING, "ID")
    statement = selection.statement(RowPosition(None, 7), Bound())
    assert one_line(statement.compile(dialect=dialect_of(name))) == text


def test_names_of_oracle_are_those_that_it_keeps() -> None:
    reflecting: Dialect = oracle.dialect()
    shown = [reflecting.normalize_name(name) for name in ("ORDERS", "Orders", "orders", "DATE")]
    assert [oracle_ways.stored_name(name, reflecting) for name in shown] == ["ORDERS", "Orders", "orders", "DATE"]
    assert oracle_ways.stored_name("orders", dialect_of("mssql")) == "orders"


def test_columns_of_a_query_have_the_types_of_the_cursor() -> None:
    def described(kind: object, precision: int | None = None, scale: int | None = None) -> tuple[Any, ...]:
        return ("X", kind, None, None, precision, scale, True)

    def of_oracle(kind: str, *numbers: int) -> Any:
        return oracle_ways.query_type(described(SimpleNamespace(name=f"DB_TYPE_{kind}"), *numbers))

    number = of_oracle("NUMBER", 10, 2)
    assert (number.precision, number.scale) == (10, 2)
    assert (of_oracle("NUMBER", 0, -127).precision, of_oracle("NUMBER", 0, -127).scale) == (None, None)
    assert isinstance(of_oracle("CLOB"), sa.Text)
    assert isinstance(of_oracle("JSON"), sa.types.NullType)
    assert isinstance(sqlserver.query_type(described(int)), sa.BigInteger)
    assert isinstance(sqlserver.query_type(described(datetime.datetime)), mssql.DATETIME2)
    money: Any = sqlserver.query_type(described(decimal.Decimal, 19, 4))
    assert (money.precision, money.scale) == (19, 4)


def test_types_whose_values_a_driver_gives_without_a_part_of_them() -> None:
    zoned = column_of("at", oracle.TIMESTAMP(timezone=True), True, TypeMapping())
    assert (zoned.zoned, zoned.as_text) == (True, True)
    (moment,) = zoned.cells(zoned.read_values(["2026-01-02T03:04:05.000006+02:00"])).to_pylist()
    assert moment == datetime.datetime(2026, 1, 2, 1, 4, 5, 6, datetime.UTC)
    assert column_of("at", mssql.DATETIMEOFFSET(), True, TypeMapping()).zoned
    money = column_of("price", mssql.MONEY(), True, TypeMapping())
    assert not money.as_text
    assert money.cells(money.read_values([decimal.Decimal("1.2345")]))[0].as_py() == decimal.Decimal("1.2345")


class Error(Exception):
    """As the drivers make theirs."""


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ORA-00001", FaultKind.ROW),
        ("ORA-12899", FaultKind.ROW),
        ("ORA-20500", FaultKind.ROW),
        ("ORA-00060", FaultKind.PASSING),
        ("DPY-4011", FaultKind.PASSING),
        ("ORA-00942", FaultKind.STATEMENT),
    ],
)
def test_errors_of_oracle(code: str, kind: FaultKind) -> None:
    error = Error(SimpleNamespace(full_code=code))
    assert fault_of(parse_address("jdbc:oracle:thin:@//db/x"), error).kind is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("OperationalError", FaultKind.PASSING),
        ("IntegrityError", FaultKind.ROW),
        ("DataError", FaultKind.ROW),
        ("ProgrammingError", FaultKind.STATEMENT),
    ],
)
def test_errors_of_sql_server(name: str, kind: FaultKind) -> None:
    error = type(name, (Exception,), {"__module__": "mssql_python.exceptions"})("no")
    assert fault_of(parse_address("jdbc:sqlserver://db"), error).kind is kind
