"""Texts that are known in front of a plan meet again what the plan says of their rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.converters.as_json import JsonConverter
from penstock.converters.json_envelope import Envelope
from penstock.data import INT64_SCHEMA, OPTIONAL_INT32_SCHEMA, SchemaBuilder, Timestamp
from penstock.pipeline.batch.known_texts import KnownTexts, texts_of_read
from penstock.pipeline.plan.chain import Staged
from penstock.pipeline.plan.java_text import AsLength, AsText
from penstock.pipeline.plan.jobs import Group
from penstock.pipeline.plan.outcomes import Outcome
from penstock.pipeline.plan.step import NOTHING, RAW, SCHEMALESS_TEXT, Shape, Side

POINT = SchemaBuilder.struct().field("x", INT64_SCHEMA).build()
LAST = Staged(AsText("value"), "VALUE_CONVERTER", "any.Converter")
LENGTH = Side.of(OPTIONAL_INT32_SCHEMA)
KEY = Staged(AsText("key"), "KEY_CONVERTER", "any.Converter")


def group(side: Side, column: pa.Array, *steps: Staged, rows: np.ndarray | None = None) -> Group:
    return Group((*steps, LAST), Shape(RAW, side, sink=True), rows, {"value": pa.chunked_array([column])})


def outcome(rows: np.ndarray | None, side: Side, column: pa.Array) -> Outcome:
    return Outcome(rows, Shape(NOTHING, side, sink=True), {"value": pa.chunked_array([column])}, None, None, {})


def texts_in(made: Outcome) -> list[str | None]:
    assert made.shape.value == SCHEMALESS_TEXT
    found: list[str | None] = made.columns["value"].to_pylist()
    return found


def test_a_group_is_given_lengths_to_say_and_its_steps_on_keys() -> None:
    known = KnownTexts(2)

    made = known.instead(group(Side.of(INT64_SCHEMA), pa.array([1, 2]), KEY), pa.chunked_array([["a", None]]))

    assert [one.step for one in made.steps] == [KEY.step, AsLength("value")]
    assert (made.steps[-1].stage, made.steps[-1].executing_class) == (LAST.stage, LAST.executing_class)
    assert made.shape.value == SCHEMALESS_TEXT
    assert made.columns["value"].to_pylist() == ["a", None]


def test_outcomes_get_the_texts_of_their_rows_back_however_groups_were_cut() -> None:
    known = KnownTexts(5)
    column = pa.array([0, 0])
    known.instead(group(Side.of(INT64_SCHEMA), column, rows=np.array([3, 0])), pa.chunked_array([["three", "nought"]]))
    known.instead(group(Side.of(INT64_SCHEMA), column, rows=np.array([1, 4])), pa.chunked_array([["one", None]]))

    assert texts_in(known.told(outcome(np.array([3, 0]), LENGTH, pa.array([5, 6])))) == ["three", "nought"]
    assert texts_in(known.told(outcome(np.array([4]), LENGTH, pa.array([None], pa.int32())))) == [None]
    for side, column in ((SCHEMALESS_TEXT, pa.array(["by the plan"])), (LENGTH, pa.array([7]))):
        other = outcome(np.array([2]), side, column)
        assert known.told(other) is other


def test_texts_of_a_whole_batch_are_handed_back_as_they_are() -> None:
    known, texts = KnownTexts(3), pa.chunked_array([["a"], ["b", "c"]])
    known.instead(group(SCHEMALESS_TEXT, pa.array(["a", "b", "c"])), texts)

    assert texts_in(known.told(outcome(None, LENGTH, pa.array([1, 1, 1])))) == ["a", "b", "c"]


def test_what_was_read_as_columns_has_texts_where_no_step_works_on_it() -> None:
    column = pa.array([{"x": 1}, {"x": 2}])
    reading = JsonConverter().reading("value", Envelope(POINT))
    own = Staged(reading, "VALUE_CONVERTER", "any.Converter")

    texts = texts_of_read(group(Side.of(POINT), column, KEY, own))

    assert texts is not None
    assert texts.to_pylist() == ["Struct{x=1}", "Struct{x=2}"]
    # A transform, or a converter that has yet to read.
    assert texts_of_read(group(Side.of(POINT), column, Staged(AsLength("value"), "TRANSFORMATION", "any"))) is None
    assert texts_of_read(group(RAW, pa.array([b"{}"]), own)) is None


@pytest.mark.parametrize("side", [NOTHING, RAW, Side.of(None), Side.of(Timestamp.SCHEMA)])
def test_other_values_have_their_texts_made_by_the_plan(side: Side) -> None:
    assert texts_of_read(group(side, pa.array([1]))) is None
