"""Which batches have all their required values."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.data import Schema, SchemaBuilder, Struct
from penstock.pipeline.columns.layout import default_physical, has_all_required
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.plan.step import Shape, Side

INT = SchemaBuilder.int32().build()
MAYBE = SchemaBuilder.int32().optional().build()
PAIR = SchemaBuilder.struct().field("must", INT).field("may", MAYBE).optional().build()


def pair(must: int | None, may: int | None = None) -> Struct:
    return Struct.unchecked(PAIR, [must, may])


@pytest.mark.parametrize(
    ("schema", "whole", "lacking"),
    [
        (INT, [1, None], None),
        (PAIR, [pair(1), None], [pair(1), pair(None, 1)]),
        (SchemaBuilder.array(INT).build(), [[1], [], None], [[1], [2, None]]),
        (SchemaBuilder.array(MAYBE).build(), [[None]], None),
        (SchemaBuilder.array(PAIR).build(), [[pair(1), None]], [[pair(None)]]),
        (SchemaBuilder.map(SchemaBuilder.string().build(), INT).build(), [{"a": 1}, {}], [{"a": None}]),
        (SchemaBuilder.map(INT, SchemaBuilder.array(INT).build()).build(), [{1: [2]}], [{1: [2, None]}]),
    ],
)
def test_what_is_required_is_there_at_any_depth(
    schema: Schema, whole: Sequence[object], lacking: Sequence[object] | None
) -> None:
    assert holds(schema, whole)
    if lacking is not None:
        assert not holds(schema, lacking)


def test_only_the_rows_that_are_there_count() -> None:
    schema = SchemaBuilder.array(INT).build()
    array, _, physical = to_arrow([[1], [None], [2]], schema)
    assert array is not None

    assert has_all_required(schema, physical, array.slice(0, 1))
    assert has_all_required(schema, physical, array.slice(2))
    assert not has_all_required(schema, physical, pa.chunked_array([array.slice(0, 1), array.slice(1)]))


def test_a_step_that_says_nothing_of_what_it_makes_leaves_nothing_known() -> None:
    side = Side.of(PAIR, default_physical(PAIR), complete=True)
    shape = Shape(side, side)

    assert shape.without_bounds({"value"}) == Shape(side, Side.of(PAIR, default_physical(PAIR)))


def holds(schema: Schema, values: Sequence[object]) -> bool:
    array, _, physical = to_arrow(values, schema)
    return has_all_required(schema, physical, array)
