"""What is known of the values of one schema once they are laid out."""

from __future__ import annotations

from penstock.data import Schema, SchemaBuilder, Struct, Type
from penstock.pipeline.grouping import side_column


def test_structs_are_known_to_be_present_unless_one_is_null() -> None:
    schema = SchemaBuilder.struct().field("a", Schema(Type.INT64)).optional().build()
    value = Struct(schema).put("a", 1)

    assert side_column([value, value], schema)[0].present
    assert not side_column([value, None], schema)[0].present


def test_plain_values_have_one_plan_with_and_without_nulls() -> None:
    schema = Schema(Type.INT64, optional=True)

    assert side_column([1, 2], schema)[0] == side_column([1, None], schema)[0]
