"""Random cases for the comparison with Java: what a seed makes, and how outcomes are compared."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from conformance.vectors.adapter import decode_record
from differential.cases import Cases
from differential.here import alike


def test_a_seed_always_makes_the_same_cases() -> None:
    one, other = Cases(7, 5), Cases(7, 5)

    assert [one.case() for _ in range(10)] == [other.case() for _ in range(10)]
    assert Cases(8, 5).case() != Cases(7, 5).case()


@pytest.mark.parametrize("seed", range(20))
def test_records_are_as_in_vectors_and_chains_have_links(seed: int) -> None:
    case = Cases(seed, 6).case()

    for record in case["records"]:
        assert decode_record(record).topic == record["topic"]
    assert 1 <= len(case["chain"]) <= 4


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("here", "java", "expected"),
    [
        (None, None, True),
        ("DataException", "DataException", True),
        ("DataException", None, False),
        ({"value": encoded('{"a":1,"b":2}')}, {"value": encoded('{"b":2,"a":1}')}, True),
        ({"value": encoded('{"a":1,"b":2}')}, {"value": encoded('{"a":2,"b":1}')}, False),
        ({"value": encoded("1.0")}, {"value": encoded("1.00")}, False),
        ({"headers": [["a", None]]}, {"headers": []}, False),
    ],
)
def test_outcomes_are_alike_but_for_the_order_of_maps(here: Any, java: Any, expected: bool) -> None:
    assert alike(here, java) is expected
