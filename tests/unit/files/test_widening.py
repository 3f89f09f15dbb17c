"""Types that only widen."""

from __future__ import annotations

import datetime
from decimal import Decimal
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from penstock.files.widening import conform, inferred, widened

VALUES: list[Any] = [
    None,
    True,
    7,
    2.5,
    Decimal("1.25"),
    Decimal(10**40),
    "text",
    b"bytes",
    [1, None],
    [],
    {"a": 1},
    {},
    {"a": {"b": [{"c": "x"}]}},
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    1 << 70,
]


@pytest.mark.parametrize("pair", list(permutations(range(len(VALUES)), 2)))
def test_a_column_holds_values_of_any_two_kinds_whichever_comes_first(pair: tuple[int, int]) -> None:
    """In one batch, and as two whose columns meet when the file is written."""
    one, other = (VALUES[index] for index in pair)
    whole = inferred([one, other, None])
    assert [value is None for value in whole.to_pylist()] == [one is None, other is None, True]
    first, second = inferred([one]), inferred([other])
    kind = widened(first.type, second.type)
    for value, column in ((one, first), (other, second)):
        found = conform(column, kind)
        assert found.type == kind
        assert (found.to_pylist() == [None]) == (value is None)
    assert widened(kind, first.type) == kind
    assert widened(kind, second.type) == kind


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float32(), pa.float32()),
        (pa.decimal128(38, 2), pa.int64(), pa.decimal128(38, 2)),
        (pa.decimal128(38, 2), pa.decimal128(20, 10), pa.decimal256(76, 10)),
        (pa.decimal128(10, 2), pa.decimal128(10, 4), pa.decimal128(38, 4)),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ms", "UTC"), pa.timestamp("ms"), pa.string()),
        (pa.list_(pa.int32()), pa.list_(pa.float64()), pa.list_(pa.float64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
        (pa.bool_(), pa.int64(), pa.string()),
    ],
)
def test_the_type_of_two_is_the_narrowest_that_holds_both(one: Any, other: Any, kind: Any) -> None:
    assert widened(one, other) == kind
    assert widened(other, one) == kind


def test_columns_are_conformed_where_they_are_slices_and_have_nulls() -> None:
    array = pa.array([{"a": 1}, None, {"a": None}, {"a": 4}]).slice(1)
    kind = pa.struct([("b", pa.string()), ("a", pa.float64())])
    assert conform(array, kind).to_pylist() == [None, {"b": None, "a": None}, {"b": None, "a": 4.0}]
    assert conform(pa.array([(1 << 53) + 1]), pa.float64()).to_pylist() == [float((1 << 53) + 1)]
