"""Columns of bytes beside Spark: as they are, and only bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.converters.primitives import ByteArrayConverter
from penstock.data import BYTES_SCHEMA, OPTIONAL_BYTES_SCHEMA, STRING_SCHEMA, Decimal, Schema
from penstock.pipeline.plan.step import Side


@pytest.mark.parametrize("schema", [BYTES_SCHEMA, OPTIONAL_BYTES_SCHEMA])
def test_bytes_are_written_as_they_are(schema: Schema) -> None:
    values = [b"", b"\x00\xff", None, b"x" * 1000]
    for column in (pa.array(values, pa.binary()), pa.chunked_array([values[:2], values[2:]], pa.binary())):
        made = ByteArrayConverter().write_column(Side.of(schema), column)
        assert made is not None
        assert made.to_pylist() == values


def test_other_values_are_left_to_the_plan() -> None:
    converter = ByteArrayConverter()
    assert converter.write_column(Side.of(STRING_SCHEMA), pa.array(["a"])) is None
    assert converter.write_column(Side.of(None), pa.array([b"a"])) is None
    assert converter.write_column(Side.of(Decimal.schema(2)), pa.array([1], pa.decimal128(10, 2))) is None


def test_bytes_in_pieces_stay_where_they_are() -> None:
    column = pa.chunked_array([[b"a", None], [b"b"]], pa.binary())

    made = ByteArrayConverter().write_column(Side.of(OPTIONAL_BYTES_SCHEMA), column)

    assert isinstance(made, pa.ChunkedArray)
    assert [one.buffers()[2].address for one in made.chunks] == [one.buffers()[2].address for one in column.chunks]
