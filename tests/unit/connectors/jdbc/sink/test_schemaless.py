"""Values without a schema as rows of an existing table."""

from __future__ import annotations

import base64
import datetime
import math
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql
from tests.unit.connectors.files.writing import frame, schemaless

from penstock.connectors.jdbc.columns import TypeMapping, column_of
from penstock.connectors.jdbc.sink.changes import RowsRefused
from penstock.connectors.jdbc.sink.schemaless import typed_by
from penstock.connectors.jdbc.tables import Table, TableName
from penstock.errors import DataException


def typed(kind: sa.types.TypeEngine[Any], values: list[object]) -> pa.Array:
    """The cells of the one column of a table."""
    column = column_of("v", kind, True, TypeMapping())
    table = Table(TableName(None, "t"), (column,), (), frozenset(), {"v": kind}, frozenset(), None)
    part, _ = typed_by(table, frame(schemaless([{"v": one} for one in values]), None), (), ())
    return pa.chunked_array([part.table.column("value").chunk(0).field("v")]).combine_chunks()


DATES = [sa.Date(), postgresql.DATE(), mysql.DATE()]
TIMES = [sa.Time(), postgresql.TIME(), mysql.TIME()]
BINARIES = [sa.LargeBinary(), postgresql.BYTEA(), mysql.LONGBLOB(), mysql.VARBINARY(9), sa.BINARY(3)]
FLOATS = [sa.Float(), postgresql.DOUBLE_PRECISION(), mysql.DOUBLE()]


@pytest.mark.parametrize("kind", DATES, ids=repr)
def test_days_since_1970_are_dates(kind: sa.types.TypeEngine[Any]) -> None:
    date = datetime.date
    assert typed(kind, [19_000, -135_081, None, -719_162, 2_932_896]).to_pylist() == [
        date(2022, 1, 8),
        date(1600, 2, 29),
        None,
        date.min,
        date.max,
    ]
    assert typed(kind, ["2024-02-29", None]).to_pylist() == ["2024-02-29", None]


@pytest.mark.parametrize("kind", TIMES, ids=repr)
def test_milliseconds_since_midnight_are_times(kind: sa.types.TypeEngine[Any]) -> None:
    time = datetime.time
    assert typed(kind, [0, 86_399_999, None]).to_pylist() == [time(), time(23, 59, 59, 999_000), None]
    assert typed(kind, ["01:02:03.5"]).to_pylist() == ["01:02:03.5"]


@pytest.mark.parametrize("kind", BINARIES, ids=repr)
def test_base64_is_bytes(kind: sa.types.TypeEngine[Any]) -> None:
    text = base64.b64encode(b"\0\xff").decode()
    assert typed(kind, [text, None, ""]).to_pylist() == [b"\0\xff", None, b""]


@pytest.mark.parametrize("kind", FLOATS, ids=repr)
def test_texts_that_json_converter_writes_for_floats_are_floats(kind: sa.types.TypeEngine[Any]) -> None:
    found = typed(kind, ["NaN", 1, 1.5, "-Infinity", "Infinity", None]).to_pylist()
    assert math.isnan(found[0])
    assert found[1:] == [1.0, 1.5, -math.inf, math.inf, None]
    with pytest.raises(DataException, match='field "v" is of the type'):
        typed(kind, [1.5, "nan"])


@pytest.mark.parametrize(
    ("kind", "bad", "said"),
    [
        (sa.Date(), 2_932_897, "days since 1970, and no date"),
        (sa.Date(), -719_163, "days since 1970, and no date"),
        (sa.Date(), 2**40, "days since 1970, and no date"),
        (sa.Time(), 86_400_000, "milliseconds since midnight, and no time of a day"),
        (sa.Time(), -1, "milliseconds since midnight, and no time of a day"),
        (mysql.BLOB(), "zz", "no base64"),
        (sa.LargeBinary(), "ü", "no base64"),
    ],
)
def test_the_row_with_a_value_that_is_none_is_named(kind: sa.types.TypeEngine[Any], bad: object, said: str) -> None:
    good: object = "AAE=" if isinstance(bad, str) else 5
    with pytest.raises(RowsRefused, match=f"offset 1 has .* field v that is {said}") as refused:
        typed(kind, [good, bad, good])
    assert list(refused.value.rows) == [1]
