"""Values of columns as offsets: which types there are, how they are stored, and where rows of one value are cut."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from penstock.connectors.spark.source.modes import _whole
from penstock.connectors.spark.source.positions import PositionColumn, counts_within_values
from penstock.errors import ConnectException, DataException

NOON = datetime.datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "column", "stored"),
    [
        (T.LongType(), pa.array([7], pa.int64()), 7),
        (T.ByteType(), pa.array([7], pa.int8()), 7),
        (T.DecimalType(20, 2), pa.array([Decimal("1.50")], pa.decimal128(20, 2)), "1.50"),
        (T.StringType(), pa.array(["a"]), "a"),
        (T.VarcharType(5), pa.array(["a"]), "a"),
        (T.DateType(), pa.array([datetime.date(2026, 1, 2)]), "2026-01-02"),
        (T.TimestampType(), pa.array([NOON], pa.timestamp("us", "Europe/Berlin")), 1767355200123456),
        (T.TimestampNTZType(), pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")), "2026-01-02 12:00:00.123456"),
    ],
)
def test_a_value_is_stored_as_a_number_or_a_text_without_loss(kind: T.DataType, column: Any, stored: object) -> None:
    position = PositionColumn.of("c", kind)
    assert position.stored(pa.table({"c": column}))(0) == stored
    assert position.after(position.offset(stored)) == stored
    assert position.after(None) is None


@pytest.mark.parametrize(
    "kind", [T.DoubleType(), T.BinaryType(), T.BooleanType(), T.ArrayType(T.LongType()), T.StructType([]), T.TimeType()]
)
def test_a_type_that_has_no_exact_order_is_refused(kind: T.DataType) -> None:
    with pytest.raises(ConnectException, match=r"incrementing\.column\.name: the column c is of type .*: cast it in"):
        PositionColumn.of("c", kind)


def test_a_null_is_refused_with_the_column_and_what_to_do() -> None:
    with pytest.raises(DataException, match=r"The column c is null in 2 or more rows, .* WHERE c IS NOT NULL"):
        PositionColumn.of("c", T.LongType()).stored(pa.table({"c": [1, None, None]}))


def test_an_offset_of_another_column_is_refused() -> None:
    with pytest.raises(ConnectException, match="is none of the column c: reset the connector's offsets"):
        PositionColumn.of("c", T.LongType()).after({"column": "d", "value": 1})


@pytest.mark.parametrize(
    ("values", "counts", "whole"),
    [
        ([1], [0], 0),
        ([1, 1], [1, 0], 0),
        ([1, 2, 2], [0, 1, 0], 1),
        ([1, 1, 2], [1, 0, 0], 2),
        ([1, 2, 3], [0, 0, 0], 2),
    ],
)
def test_a_full_batch_is_cut_in_front_of_the_rows_of_its_last_value(
    values: list[int], counts: list[int], whole: int
) -> None:
    assert counts_within_values(values.__getitem__, len(values)) == counts
    assert _whole(counts[:-1]) == whole
