"""Unscaled digits become the decimals that Python makes of them; more than 38 digits are refused."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.pipeline.columns.expressions import TooManyDigits, decimals

MOST = 10**38 - 1
KIND = pa.decimal128(38, 5)


def column_of(parts: list[bytes]) -> pa.Array:
    lengths = np.array([len(one) for one in parts], dtype=np.int64)
    starts = np.cumsum(np.array([0, *lengths[:-1]], dtype=np.int64))
    return decimals(np.frombuffer(b"".join(parts) + b"\0", np.uint8), starts, lengths, KIND)


def written(number: int, size: int) -> bytes:
    return number.to_bytes(max(size, (number.bit_length() + 8) // 8), "big", signed=True)


@examples(40)
@given(st.lists(st.tuples(st.integers(-MOST, MOST), st.integers(1, 16)), min_size=1))
def test_digits_of_any_width_are_the_numbers_they_are(numbers: list[tuple[int, int]]) -> None:
    found = column_of([written(*one) for one in numbers])
    found.validate(full=True)
    with decimal.localcontext(prec=40):
        assert found.to_pylist() == [decimal.Decimal(number).scaleb(-5) for number, _ in numbers]


@pytest.mark.parametrize("number", [MOST + 1, -MOST - 1, 2**127 - 1, -(2**127), 2**127, 2**200])
def test_a_number_of_more_digits_is_refused(number: int) -> None:
    with pytest.raises(TooManyDigits):
        column_of([written(1, 1), written(number, 1)])


def test_no_bytes_are_zero() -> None:
    assert column_of([b"", b"\xff", b""]).to_pylist() == [0, decimal.Decimal("-0.00001"), 0]
