"""Java's texts of columns of FLOAT32 and FLOAT64, made by Arrow.

Both print the shortest digits that give the number. They lay them out in different ways: Arrow leaves a fraction of
zero out, and has exponents where Java has none, and the other way round.

Main function: ``float_texts``. Thread: any; pure functions.
Source: java.lang.Double.toString and java.lang.Float.toString of Java 19.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.text import PLAIN_FROM, PLAIN_TO, java_double, java_float

#: Below these a number may have so few digits that Java, which prints two at least, takes others than the shortest one.
_COARSE: Final = {pa.float64(): 1e-300, pa.float32(): 1e-37}
_EXPONENT: Final = r"^(?P<sign>-?)(?P<first>\d)(?:\.(?P<rest>\d+))?e(?P<minus>-?)\+?0*(?P<exponent>\d+)$"
_LARGE: Final = r"^(?P<sign>-?)(?P<first>[1-9])(?P<whole>\d+)(?:\.(?P<rest>\d+))?$"
_SMALL: Final = r"^(?P<sign>-?)0\.(?P<zeros>0+)(?P<first>[1-9])(?P<rest>\d*)$"


def float_texts(column: pa.Array) -> pa.StringArray:
    """The text of each number, null for null.

    >>> float_texts(pa.array([1.0, 2.5e7, 0.0, 1e-7, float("nan"), None])).to_pylist()
    ['1.0', '2.5E7', '0.0', '1.0E-7', 'NaN', None]
    """
    sizes = np.abs(column.fill_null(1.0).to_numpy(zero_copy_only=False))
    texts = column.cast(pa.string())
    usual = ((sizes >= PLAIN_FROM) & (sizes < PLAIN_TO)) | (sizes == 0)
    if not usual.all():
        odd = np.flatnonzero(~usual)
        place = np.arange(len(texts))
        place[odd] = len(texts) + np.arange(len(odd))
        made = _odd_texts(column.take(pa.array(odd)), texts.take(pa.array(odd)), sizes[odd])
        texts = pa.concat_arrays([texts, made]).take(pa.array(place))
    whole = pc.and_(pc.equal(pc.find_substring(texts, "."), -1), pa.array(usual))
    return pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts) if whole.true_count else texts


def _odd_texts(column: pa.Array, texts: pa.StringArray, sizes: np.ndarray) -> pa.StringArray:
    """The texts of numbers that Java prints with an exponent, or as words."""
    coarse = sizes < _COARSE[column.type]
    made = [_of_words(column), _of_exponents(texts), _of_large(texts), _of_small(texts)]
    if coarse.any():
        one = java_float if pa.types.is_float32(column.type) else java_double
        few = pa.array(np.flatnonzero(coarse))
        alone = pa.array([one(value) for value in column.take(few).to_pylist()], pa.string())
        place = np.zeros(len(column), np.int64)
        place[coarse] = np.arange(len(few))
        made.insert(0, alone.take(pa.array(place, mask=~coarse)))
    return pc.coalesce(*made)


def _of_words(column: pa.Array) -> pa.StringArray:
    infinite = pc.if_else(pc.greater(column, 0), "Infinity", "-Infinity")
    nothing = pa.scalar(None, pa.string())
    return pc.if_else(pc.is_nan(column), "NaN", pc.if_else(pc.is_inf(column), infinite, nothing))


def _of_exponents(texts: pa.StringArray) -> pa.StringArray:
    sign, first, rest, minus, exponent = pc.extract_regex(texts, _EXPONENT).flatten()
    return _scientific(sign, first, rest, pc.binary_join_element_wise(minus, exponent, ""))


def _of_large(texts: pa.StringArray) -> pa.StringArray:
    sign, first, whole, rest = pc.extract_regex(texts, _LARGE).flatten()
    digits = pc.utf8_rtrim(pc.binary_join_element_wise(whole, rest, ""), "0")
    return _scientific(sign, first, digits, pc.binary_length(whole).cast(pa.string()))


def _of_small(texts: pa.StringArray) -> pa.StringArray:
    sign, zeros, first, rest = pc.extract_regex(texts, _SMALL).flatten()
    exponent = pc.binary_join_element_wise("-", pc.add(pc.binary_length(zeros), 1).cast(pa.string()), "")
    return _scientific(sign, first, rest, exponent)


def _scientific(sign: pa.Array, first: pa.Array, rest: pa.Array, exponent: pa.Array) -> pa.StringArray:
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    return pc.binary_join_element_wise(sign, first, ".", rest, "E", exponent, "")
