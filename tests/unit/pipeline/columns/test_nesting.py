"""How deep values and schemas may be nested."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from penstock.data import INT32_SCHEMA, STRING_SCHEMA, Schema, SchemaBuilder
from penstock.errors import DataException
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.columns.sizes import MAX_LEVELS, MAX_SCHEMA_LEVELS, exceeds, is_deep, make_room
from penstock.pipeline.columns.variant import decode, encode


@pytest.fixture(autouse=True)
def room() -> Iterator[None]:
    before = sys.getrecursionlimit()
    make_room()
    yield
    sys.setrecursionlimit(before)


def lists(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def objects(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"a": value, "b": "text"}
    return value


def structs(levels: int) -> Schema:
    schema = INT32_SCHEMA
    for _ in range(levels):
        schema = SchemaBuilder.struct().field("a", schema).build()
    return schema


def levels_of(value: object) -> int:
    levels = 0
    while isinstance(value, (list, dict)):
        value = value[0] if isinstance(value, list) else value["a"]
        levels += 1
    return levels


@pytest.mark.parametrize("make", [lists, objects])
def test_a_schemaless_value_may_have_a_thousand_levels(make: Callable[[int], object]) -> None:
    assert levels_of(decode(*encode(make(MAX_LEVELS)))) == MAX_LEVELS


@pytest.mark.parametrize("make", [lists, objects])
def test_a_value_with_more_levels_is_refused_and_its_neighbours_are_not(make: Callable[[int], object]) -> None:
    values = [{"x": 1}, make(MAX_LEVELS + 1), [2]]

    array, errors, _ = to_arrow(values, None)

    assert list(errors) == [1]
    assert isinstance(errors[1], DataException)
    assert "more than 1000 levels of nesting" in str(errors[1])
    assert array.null_count == 1


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    assert is_deep(value)
    assert list(to_arrow([value, 1], None)[1]) == [0]


def test_records_of_a_schema_that_is_too_deep_for_columns_are_refused() -> None:
    deep = structs(MAX_SCHEMA_LEVELS + 1)

    array, errors, _ = to_arrow([None, None], deep)

    assert len(array) == 2
    assert list(errors) == [0, 1]
    assert "more than 20 levels" in str(errors[0])
    assert not to_arrow([None], structs(MAX_SCHEMA_LEVELS))[1]


def test_a_map_counts_two_levels_and_the_deepest_part_counts() -> None:
    schema = SchemaBuilder.map(STRING_SCHEMA, SchemaBuilder.array(INT32_SCHEMA).build()).build()
    wide = SchemaBuilder.struct().field("flat", INT32_SCHEMA).field("deep", schema).build()
    assert exceeds(wide, 3)
    assert not exceeds(wide, 4)
    assert not exceeds(STRING_SCHEMA, 0)
    assert not exceeds(None, 0)
