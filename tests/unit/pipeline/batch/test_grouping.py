"""What is known of the values of one schema once they are laid out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.api import SourceFrame
from penstock.data import INT64_SCHEMA, STRING_SCHEMA, Schema, SchemaBuilder, Struct, Type
from penstock.pipeline.batch.groups import rows_of_pairs, side_column
from penstock.pipeline.batch.source.frame_input import columns_of_table
from penstock.pipeline.plan.step import Side, Sorted


def test_structs_are_known_to_be_present_unless_one_is_null() -> None:
    schema = SchemaBuilder.struct().field("a", Schema(Type.INT64)).optional().build()
    value = Struct(schema).put("a", 1)

    assert side_column([value, value], schema)[0].present
    assert not side_column([value, None], schema)[0].present


def test_plain_values_have_one_plan_with_and_without_nulls() -> None:
    schema = Schema(Type.INT64, optional=True)

    assert side_column([1, 2], schema)[0] == side_column([1, None], schema)[0]


def test_required_values_are_known_to_be_present_unless_one_is_null() -> None:
    assert side_column([1, 2], INT64_SCHEMA)[0].present
    assert not side_column([1, None], INT64_SCHEMA)[0].present


def test_a_column_of_required_values_is_looked_at_too() -> None:
    full = pa.table({"value": ["a", "b"]})
    gappy = pa.table({"value": ["a", None]})

    assert columns_of_table(SourceFrame(full, "t", STRING_SCHEMA, {}, {}), full).shape.value.present
    assert not columns_of_table(SourceFrame(gappy, "t", STRING_SCHEMA, {}, {}), gappy).shape.value.present


def test_messages_that_are_read_by_themselves_are_in_no_group() -> None:
    keys = Sorted((None,))
    values = Sorted((None, None), np.array([0, -1, 1, 0, -1], dtype=np.int32))
    found = [
        (None if rows is None else rows.tolist(), codes["value"]) for rows, codes in rows_of_pairs(keys, values, 5)
    ]
    assert found == [([0, 3], 0), ([2], 1)]
    assert rows_of_pairs(keys, Sorted((None,), np.full(3, -1, dtype=np.int32)), 3) == []
    assert rows_of_pairs(keys, Sorted((None,), np.zeros(3, dtype=np.int32)), 3) == [(None, {"key": 0, "value": 0})]


def test_what_was_read_of_some_messages_is_found_by_their_rows() -> None:
    column = pa.chunked_array([["a", "b", "c"]])
    side = Side.of(STRING_SCHEMA)
    found = Sorted((None,), read={0: (side, column)}, places=np.array([0, 9, 1, 9, 2]))
    assert found.read_rows(0, np.array([0, 2, 4])) == (side, column)
    assert found.read_rows(0, np.array([2, 4]))[1].to_pylist() == ["b", "c"]
    assert found.read_rows(0, None) == (side, column)
