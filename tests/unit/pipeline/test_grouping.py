"""What is known of the values of one schema once they are laid out."""

from __future__ import annotations

import pyarrow as pa

from penstock.api import SourceFrame
from penstock.data import INT64_SCHEMA, STRING_SCHEMA, Schema, SchemaBuilder, Struct, Type
from penstock.pipeline.batch.frame import columns_of_table
from penstock.pipeline.batch.grouping import side_column


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
