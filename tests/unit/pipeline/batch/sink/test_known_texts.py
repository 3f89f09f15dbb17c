"""Values that were read as columns get their texts in front of a plan, where no step works on them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.converters.json.converter import JsonConverter
from penstock.converters.json.envelope import Envelope
from penstock.data import INT64_SCHEMA, SchemaBuilder, Timestamp
from penstock.pipeline.batch.sink.frames import with_texts
from penstock.pipeline.plan.chain import ShapeGroup, Staged
from penstock.pipeline.plan.frame_values import AsText
from penstock.pipeline.plan.step import NOTHING, RAW, SCHEMALESS_TEXT, Shape, Side

POINT = SchemaBuilder.struct().field("x", INT64_SCHEMA).build()
LAST = Staged(AsText("value"), "VALUE_CONVERTER", "any.Converter")
KEY = Staged(AsText("key"), "KEY_CONVERTER", "any.Converter")


def group(side: Side, column: pa.Array, *steps: Staged) -> ShapeGroup:
    return ShapeGroup((*steps, LAST), Shape(RAW, side, sink=True), None, {"value": pa.chunked_array([column])})


def test_what_was_read_as_columns_has_texts_and_its_steps_on_keys() -> None:
    column = pa.array([{"x": 1}, None, {"x": 2}])
    own = Staged(JsonConverter().reading("value", Envelope(POINT)), "VALUE_CONVERTER", "any.Converter")

    made = with_texts(group(Side.of(POINT), column, KEY, own))

    assert made.steps == (KEY,)
    assert made.shape == Shape(RAW, SCHEMALESS_TEXT, sink=True)
    assert made.columns["value"].to_pylist() == ["Struct{x=1}", None, "Struct{x=2}"]


def test_a_transform_or_a_converter_that_has_yet_to_read_keeps_the_plan() -> None:
    transform = Staged(JsonConverter().writing("value"), "TRANSFORMATION", "any")
    own = Staged(JsonConverter().reading("value", Envelope(POINT)), "VALUE_CONVERTER", "any.Converter")
    for one in (group(Side.of(POINT), pa.array([{"x": 1}]), transform), group(RAW, pa.array([b"{}"]), own)):
        assert with_texts(one) is one


@pytest.mark.parametrize("side", [NOTHING, RAW, Side.of(None), Side.of(Timestamp.SCHEMA)])
def test_other_values_have_their_texts_made_by_the_plan(side: Side) -> None:
    one = group(side, pa.array([1]))

    assert with_texts(one) is one
