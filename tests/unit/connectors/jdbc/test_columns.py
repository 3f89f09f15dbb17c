"""Columns of each database: schemas, and cells as they were read."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from penstock.connectors.jdbc.columns import TypeMapping, column_of, is_moment, is_whole
from penstock.connectors.jdbc.duckdb import type_of
from penstock.connectors.jdbc.mappings import TimestampGranularity
from penstock.errors import ConnectException

BERLIN = TypeMapping(zone="Europe/Berlin")
NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "schema", "arrow"),
    [
        (mysql.TINYINT(), "INT8", pa.int8()),
        (mysql.TINYINT(unsigned=True), "INT16", pa.int16()),
        (mysql.SMALLINT(unsigned=True), "INT32", pa.int32()),
        (mysql.MEDIUMINT(unsigned=True), "INT32", pa.int32()),
        (mysql.INTEGER(unsigned=True), "INT64", pa.int64()),
        (mysql.BIGINT(unsigned=True), "INT64", pa.int64()),
        (mysql.YEAR(), "INT32", pa.int32()),
        (mysql.FLOAT(), "FLOAT32", pa.float32()),
        (mysql.DOUBLE(), "FLOAT64", pa.float64()),
        (mysql.BIT(1), "INT8", pa.int8()),
        (mysql.BIT(8), "INT16", pa.int16()),
        (mysql.BIT(63), "INT64", pa.int64()),
        (mysql.LONGBLOB(), "BYTES", pa.binary()),
        (mysql.LONGTEXT(), "STRING", pa.string()),
        (mysql.ENUM("a"), "STRING", pa.string()),
        (type_of("UTINYINT"), "INT16", pa.int16()),
        (type_of("UBIGINT"), "INT64", pa.int64()),
        (type_of("FLOAT"), "FLOAT32", pa.float32()),
        (type_of("VARCHAR[]"), "ARRAY", pa.list_(pa.string())),
        (type_of("INTEGER[][]"), "STRING", pa.string()),
        (type_of("MAP(VARCHAR, INTEGER)"), "STRING", pa.string()),
    ],
)
def test_types_have_the_smallest_schema_that_holds_each_value(
    kind: sa.types.TypeEngine[Any], schema: str, arrow: pa.DataType
) -> None:
    made = column_of("c", kind, True, TypeMapping())
    assert (made.schema.type.name, made.arrow) == (schema, arrow)


@pytest.mark.parametrize(
    ("kind", "read", "cells"),
    [
        (mysql.BIT(12), pa.array([b"\x0a\x01", None]), [2561, None]),
        (mysql.BIT(64), pa.array([b"\xff" * 8]), [decimal.Decimal(2**64 - 1)]),
        (sa.Date(), pa.array(["2024-02-29", "0000-00-00", "2024-00-01", "2024-01-00"]), [datetime.date(2024, 2, 29)]),
        (mysql.TIME(), pa.array(["23:59:59.5"]), [datetime.time(23, 59, 59, 500_000)]),
        (mysql.DATETIME(), pa.array(["2024-07-01 14:00:00", "0000-00-00 00:00:00"]), [NOON]),
        (mysql.TIMESTAMP(), pa.array(["2024-07-01 12:00:00.000000"]), [NOON]),
        (sa.DateTime(), pa.array(["2024-07-01T14:00:00"]), [NOON]),
        (sa.DateTime(timezone=True), pa.array(["2024-07-01T14:00:00+02:00"]), [NOON]),
        (sa.DateTime(), pa.nulls(1), []),
    ],
)
def test_cells_are_read_from_text_and_zero_dates_are_null(
    kind: sa.types.TypeEngine[Any], read: pa.Array, cells: list[Any]
) -> None:
    made = column_of("c", kind, True, BERLIN).cells(read).to_pylist()
    while len(cells) < len(made):
        cells = [*cells, None]
    assert made == cells


@pytest.mark.parametrize("form", [one for one in TimestampGranularity if one.value != "connect_logical"])
def test_moments_of_a_cursor_have_each_granularity(form: TimestampGranularity) -> None:
    column = column_of("c", mysql.TIMESTAMP(), True, TypeMapping(timestamps=form))
    (found,) = column.cells(column.read_values(["2024-07-01 12:00:00"])).to_pylist()
    assert str(found).startswith("2024-07-01T12:00:00" if "iso" in form.value else "1719835200")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (mysql.BIGINT(unsigned=True), [2**64 - 1]),
        (mysql.TIME(), ["25:00:00"]),
        (mysql.TIME(), ["-01:00:00"]),
        (sa.DateTime(), ["no date"]),
        (sa.DateTime(), [5]),
        (sa.Integer(), [1, "a"]),
    ],
)
def test_a_value_that_the_schema_cannot_hold_names_its_column(
    kind: sa.types.TypeEngine[Any], values: list[Any]
) -> None:
    column = column_of("c", kind, True, TypeMapping())
    with pytest.raises(ConnectException, match=r"The column 'c' has a value that .* cannot hold"):
        column.cells(column.read_values(values))


def test_a_zero_date_of_a_column_that_is_not_null_names_it() -> None:
    column = column_of("c", sa.Date(), False, TypeMapping())
    with pytest.raises(ConnectException, match="'c' is NOT NULL and has a zero date"):
        column.cells(pa.array(["0000-00-00"]))


@pytest.mark.parametrize(
    ("kind", "whole", "moment"),
    [
        (sa.INTEGER(), True, False),
        (mysql.BIGINT(unsigned=True), True, False),
        (sa.NUMERIC(30, 0), True, False),
        (postgresql.DOMAIN("d", sa.BIGINT()), True, False),
        (sa.DOUBLE(), False, False),
        (sa.TEXT(), False, False),
        (sa.BOOLEAN(), False, False),
        (sa.UUID(), False, False),
        (sa.TIMESTAMP(timezone=True), False, True),
        (mysql.DATETIME(fsp=6), False, True),
        (sa.DATE(), False, True),
        (sa.TIME(), False, False),
        (postgresql.DOMAIN("d", sa.TIMESTAMP()), False, True),
        (sa.types.NullType(), True, True),
    ],
)
def test_columns_that_rows_can_be_followed_by(kind: sa.types.TypeEngine[Any], whole: bool, moment: bool) -> None:
    column = column_of("a", kind, False, TypeMapping())
    assert is_whole(column, kind, "postgresql") is whole
    assert is_moment(column, kind, "postgresql") is moment
    known = not isinstance(kind, (sa.types.NullType, postgresql.DOMAIN))
    if known:
        assert is_whole(column, None, "postgresql") is (whole or isinstance(kind, sa.DOUBLE))
        assert is_moment(column, None, "postgresql") is moment
    assert is_moment(column, None, "sqlite")
    assert is_moment(column, sa.TEXT(), "sqlite")
    assert not is_moment(column, sa.TEXT(), "postgresql")
