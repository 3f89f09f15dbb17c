"""Rows that a quick plan leaves go through the full one, and all are put together again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.pipeline.plan.chain import Staged
from penstock.pipeline.plan.jobs import Group
from penstock.pipeline.plan.outcomes import Outcome
from penstock.pipeline.plan.quick_steps import QuickTries, part_of, put_together, quick_steps, rows_left
from penstock.pipeline.plan.step import NOTHING, RAW, SCHEMALESS_TEXT, Shape, Step, StepPlan

SHAPE = Shape(NOTHING, SCHEMALESS_TEXT, sink=True)


def outcome(values: list[str | None], rows: list[int] | None = None, *, shape: Shape = SHAPE) -> Outcome:
    column = pa.chunked_array([pa.array(values, pa.string())])
    return Outcome(None if rows is None else np.array(rows), shape, {"value": column}, None, None, {})


def group(values: list[bytes | None]) -> Group:
    return Group((), Shape(NOTHING, RAW, sink=True), None, {"value": pa.chunked_array([pa.array(values, pa.binary())])})


def test_a_null_message_is_not_left_over() -> None:
    left = rows_left(group([b"a", None, b"c"]), outcome(["A", None, None]))
    assert left.tolist() == [2]
    rest = part_of(group([b"a", None, b"c"]), left)
    assert rest.rows is not None
    assert rest.rows.tolist() == [2]
    assert rest.columns["value"].to_pylist() == [b"c"]


def test_rows_of_one_form_are_put_back_into_their_places() -> None:
    quick = outcome(["A", None, "C", None])
    (found,) = put_together(quick, np.array([1, 3]), [outcome(["b", None], [1, 3])])
    assert found.rows is None
    assert found.columns["value"].to_pylist() == ["A", "b", "C", None]


def test_rows_of_another_form_stay_apart() -> None:
    other = outcome(["b"], [1], shape=Shape(NOTHING, RAW, sink=True))
    first, second = put_together(outcome(["A", None, "C"]), np.array([1]), [other])
    assert first.rows is not None
    assert first.rows.tolist() == [0, 2]
    assert first.columns["value"].to_pylist() == ["A", "C"]
    assert second is other


def test_the_quick_plan_rests_where_it_leaves_much_and_only_there() -> None:
    tries = QuickTries()
    tries.note("good", left=10, rows=1000)
    tries.note("bad", left=100, rows=1000)
    assert tries.worth("good")
    assert not tries.worth("bad")


@dataclass(frozen=True)
class Form(Step):
    """A form of a step: the full one, then quicker ones."""

    number: int
    last: int = 2

    def plan(self, shape: Shape) -> StepPlan:
        raise NotImplementedError

    def matching(self) -> Step | None:
        return Form(self.number + 1) if self.number < self.last else None


def test_quick_forms_are_tried_in_their_order() -> None:
    steps = tuple(Staged(Form(0), "stage", name) for name in ("first", "last"))

    found = list(quick_steps(replace(group([b"a"]), steps=steps)))

    assert [[staged.step for staged in one] for one in found] == [[Form(0), Form(1)], [Form(0), Form(2)]]
    assert list(quick_steps(group([b"a"]))) == []
