"""Which batches of dicts look alike, so that they travel as typed columns."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.pipeline.batch.groups import side_column
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.plan.map_structs import object_array


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 1)
    monkeypatch.setattr(objects, "_known", {})


def test_values_and_nulls_are_kept_and_keys_are_in_order() -> None:
    values = [{"b": 1, "a": {"y": 1.5, "x": "t"}}, None, {"b": None, "a": {"y": None, "x": None}}]

    made = object_array(values)

    assert made is not None
    side, array = made
    assert array.to_pylist() == [{"a": {"x": "t", "y": 1.5}, "b": 1}, None, {"a": {"x": None, "y": None}, "b": None}]
    assert side.is_object
    assert (side.schema, side.present, side.is_variant) == (None, False, False)


@pytest.mark.parametrize(
    "values",
    [
        [{"a": 1}, {"b": 1}],
        [{"a": 1, "b": 1}, {"b": 1, "a": 1}],
        [{"a": 1}, {"a": 1.0}],
        [{"a": 1}, {"a": True}],
        [{"a": 2**63}],
        [{"a": "\ud800"}],
        [{"a": None}],
        [{"a": {"b": 1}}, {"a": None}],
        [{"a": [1]}],
        [{"a": b"x"}],
        [{}],
        [{1: 1}],
        [{"": 1}],
        [{"\x00map": 1}],
        [None],
    ],
)
def test_other_values_are_none(values: list[Any]) -> None:
    assert object_array(values) is None


def test_a_few_values_are_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [{"a": 1}] * 3
    monkeypatch.setattr(objects, "MIN_ROWS", 4)

    assert side_column(values, None)[0].is_variant
    assert side_column([*values, {"a": 2}], None)[0].is_object


def test_so_many_sets_of_keys_are_laid_out_so_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_MAX_KNOWN", 2)

    laid_out = [object_array([{name: 1}]) is not None for name in ("a", "b", "c", "a")]

    assert laid_out == [True, True, False, True]


def test_a_few_values_of_a_kind_of_which_there_were_many_are_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 2)
    small: list[Any] = [{"b": 2, "a": {"c": "x"}}, {"b": None, "a": {"c": None}}, {"b": 1.0, "a": {"c": "x"}}, {"b": 1}]

    before = [object_array([one]) for one in small]
    object_array([{"b": 1, "a": {"c": "x"}}] * 2)
    after = [object_array([one]) for one in small]

    assert before == [None] * 4
    assert [one and one[1].to_pylist() for one in after] == [
        [{"a": {"c": "x"}, "b": 2}],
        [{"a": {"c": None}, "b": None}],
        None,
        None,
    ]


def test_a_member_may_be_a_map_where_it_was_none_before() -> None:
    object_array([{"a": 1}])

    made = object_array([{"a": {"b": 1}}])

    assert made is not None
    assert made[1].to_pylist() == [{"a": {"b": 1}}]


def test_a_member_that_is_always_null_is_what_it_was_before() -> None:
    object_array([{"a": 1, "b": "x"}])

    made = object_array([{"a": 1, "b": None}, None])

    assert made is not None
    assert made[1].to_pylist() == [{"a": 1, "b": None}, None]
