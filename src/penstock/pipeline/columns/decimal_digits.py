"""Decimals of unscaled digits, as formats carry them: bytes of two's complement, the highest first, to a column.

Main function: ``decimals``. Thread: pure functions.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

_EIGHT: Final = np.uint64(8)
_TOP: Final = np.uint64(56)
_BYTES: Final = 16
#: The smallest number of 39 digits, in two halves, and its negative.
_HIGH, _LOW = divmod(10**38, 1 << 64)
_NEGATIVE_HIGH, _NEGATIVE_LOW = divmod(-(10**38), 1 << 64)


class TooManyDigits(Exception):
    """A number of more digits than a decimal column has."""


def decimals(octets: np.ndarray, starts: np.ndarray, lengths: np.ndarray, kind: pa.Decimal128Type) -> pa.Array:
    """Numbers by their unscaled digits; no bytes are 0.

    Args:
        octets: Bytes, at least one behind the last digit.
        starts: Where each number begins.
        lengths: How many bytes it has.
        kind: The type of the column; of 38 digits.

    Raises:
        TooManyDigits: One has more than 38.

    >>> two = decimals(np.frombuffer(bytes.fromhex("009cff00"), np.uint8), np.array([0, 2]), np.array([2, 1]),
    ...                pa.decimal128(38, 2))
    >>> two.to_pylist()
    [Decimal('1.56'), Decimal('-0.01')]
    """
    most = int(lengths.max(initial=0))
    if most > _BYTES:
        raise TooManyDigits
    negative = (octets[starts] >= 0x80) & (lengths > 0)
    high = np.where(negative, np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0))
    low = high.copy()
    for place in range(most):
        there = np.flatnonzero(lengths > place)
        digit = octets[starts[there] + place].astype(np.uint64)
        before = low[there]
        high[there] = (high[there] << _EIGHT) | (before >> _TOP)
        low[there] = (before << _EIGHT) | digit
    top = high.view(np.int64)
    large = (top > _HIGH) | ((top == _HIGH) & (low >= np.uint64(_LOW)))
    small = (top < _NEGATIVE_HIGH) | ((top == _NEGATIVE_HIGH) & (low <= np.uint64(_NEGATIVE_LOW)))
    if (large | small).any():
        raise TooManyDigits
    both = np.empty(2 * len(starts), dtype=np.uint64)
    both[::2] = low
    both[1::2] = high
    return pa.Array.from_buffers(kind, len(starts), [None, pa.py_buffer(both)], 0)
