"""Which fields fit which columns, and which columns are widened."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from penstock.connectors.jdbc.sink.fitting import fits, widened
from penstock.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    SchemaBuilder,
    Time,
    Timestamp,
)

STRUCT = SchemaBuilder.struct().field("a", INT64_SCHEMA).build()
LIST = SchemaBuilder.array(INT64_SCHEMA).build()
SCHEMAS: dict[str, Schema] = {
    "int8": INT8_SCHEMA,
    "int64": INT64_SCHEMA,
    "float32": FLOAT32_SCHEMA,
    "float64": FLOAT64_SCHEMA,
    "whole": Decimal.schema(0),
    "decimal": Decimal.schema(2),
    "bool": BOOLEAN_SCHEMA,
    "text": STRING_SCHEMA,
    "bytes": BYTES_SCHEMA,
    "date": Date.SCHEMA,
    "time": Time.SCHEMA,
    "timestamp": Timestamp.SCHEMA,
    "struct": STRUCT,
    "list": LIST,
}
SCALARS = set(SCHEMAS) - {"struct", "list", "bytes", "date", "time", "timestamp"}
NUMBERS = {"int8", "int64", "float32", "float64", "whole", "decimal"}


@pytest.mark.parametrize(
    ("kind", "fitting"),
    [
        (sa.SmallInteger(), {"int8", "int64", "whole"}),
        (sa.BigInteger(), {"int8", "int64", "whole"}),
        (sa.REAL(), NUMBERS),
        (sa.Double(), NUMBERS),
        (sa.Numeric(9, 2), NUMBERS),
        (sa.Boolean(), {"bool"}),
        (sa.Text(), SCALARS),
        (sa.String(3), SCALARS),
        (postgresql.BYTEA(), {"bytes"}),
        (sa.LargeBinary(), {"bytes"}),
        (sa.Date(), {"date"}),
        (sa.Time(), {"time"}),
        (sa.DateTime(), {"date", "timestamp"}),
        (postgresql.TIMESTAMP(timezone=True), {"date", "timestamp"}),
        (postgresql.JSONB(), {"text", "struct", "list"}),
        (postgresql.UUID(), {"text"}),
        (postgresql.INET(), {"text"}),
        (sa.Enum("a", name="e"), {"text"}),
        (postgresql.DOMAIN("d", sa.Integer()), {"int8", "int64", "whole"}),
        (sa.ARRAY(sa.BigInteger()), {"list"}),
        (sa.ARRAY(sa.Text()), {"list"}),
        (sa.ARRAY(sa.Date()), set()),
        (sa.types.NullType(), set(SCHEMAS)),
    ],
)
def test_a_column_takes_what_it_holds_without_loss(kind: sa.types.TypeEngine[Any], fitting: set[str]) -> None:
    assert {name for name, schema in SCHEMAS.items() if fits(schema, kind, "postgresql")} == fitting


def test_databases_without_such_types_hold_them_in_others() -> None:
    assert fits(BOOLEAN_SCHEMA, sa.Integer(), "sqlite")
    assert fits(BOOLEAN_SCHEMA, sa.SmallInteger(), "mysql")
    assert fits(Timestamp.SCHEMA, sa.Text(), "sqlite")
    assert fits(STRING_SCHEMA, sa.DateTime(), "postgresql", is_text=True)
    assert not fits(STRING_SCHEMA, sa.Integer(), "postgresql", is_text=True)


@pytest.mark.parametrize(
    ("schema", "kind", "values", "wanted"),
    [
        (INT64_SCHEMA, sa.Integer(), [2**31 - 1, -(2**31), None], None),
        (INT64_SCHEMA, sa.Integer(), [2**31], "BIGINT"),
        (INT64_SCHEMA, sa.Integer(), [-(2**31) - 1], "BIGINT"),
        (INT32_SCHEMA, sa.SmallInteger(), [2**15], "INTEGER"),
        (INT64_SCHEMA, sa.SmallInteger(), [2**40], "BIGINT"),
        (INT64_SCHEMA, sa.BigInteger(), [2**40], None),
        (INT64_SCHEMA, sa.Integer(), [None], None),
        (FLOAT64_SCHEMA, sa.REAL(), [0.1], "DOUBLE PRECISION"),
        (FLOAT32_SCHEMA, sa.REAL(), [0.5], None),
        (FLOAT64_SCHEMA, sa.Double(), [0.1], None),
        (STRING_SCHEMA, sa.VARCHAR(3), ["äöü", None], None),
        (STRING_SCHEMA, sa.VARCHAR(3), ["abcd"], "TEXT"),
        (STRING_SCHEMA, sa.Text(), ["abcd"], None),
        (Decimal.schema(4), sa.Numeric(9, 2), [None], "NUMERIC"),
        (Decimal.schema(2), sa.Numeric(9, 2), [None], None),
    ],
)
def test_a_column_is_widened_only_for_values_that_need_it(
    schema: Schema, kind: sa.types.TypeEngine[Any], values: list[Any], wanted: str | None
) -> None:
    cells = pa.chunked_array([pa.array(values, pa.int64() if values == [None] else None)])
    found = widened(schema, kind, cells, "postgresql")
    assert (None if found is None else str(found.compile(dialect=postgresql.dialect()))) == wanted
    assert widened(schema, kind, cells, "sqlite") is None
