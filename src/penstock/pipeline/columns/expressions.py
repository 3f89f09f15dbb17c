"""Spark expressions that several steps use: small generated code, and decimals of any number of digits.

Spark puts a projection into one Java method. Beyond 8,000 bytes of byte code a JVM by itself only ever interprets a
method, which makes everything in it some thirty times slower. The worker's JVM compiles such methods too, which takes
long. So rarely needed code should not be part of it: ``apart`` evaluates an expression without generated code, ``rare``
guards it with one condition.

Spark's decimals end at 38 digits. Wider numbers are worked out in pieces of nine or ten digits, which takes the cube of
their length: so a decimal has at most ``MAX_UNSCALED_DIGITS``. The code that makes columns of decimals checks that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from penstock.pipeline.columns.variant import MAX_UNSCALED_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column


#: The plan begins with the name of a node, quoted as long as it is not resolved. "DataFrame" tells a line of ours.
_BEHIND_MESSAGE: Final = re.compile(r"\n\nJVM stacktrace|\n== DataFrame ==|;\n(?='?[A-Z]\w*[ \[(])")


def rare(column: Column, build: Callable[[Column], Column]) -> Column:
    """``build(column)`` for rows that seldom need it: it costs other rows nothing but the size of the method.

    Use it inside of ``when``. In ``build`` the column is evaluated once, however often it is used.
    """
    return F.get(F.transform(F.array(column), build), F.lit(0))


def apart(column: Column, build: Callable[[Column], Column]) -> Column:
    """``build(column)`` evaluated without generated code, for expressions that are too large for one method.

    ``transform`` (see ``rare``) has generated code since Spark 4.3, so what it holds counts; ``zip_with`` has none.
    Each row pays for the nodes it passes through, some ten nanoseconds each, and other rows pay nothing.
    """
    return F.get(F.zip_with(F.array(column), F.array(F.lit(0)), lambda one, _: build(one)), F.lit(0))


def spark_text(error: Exception) -> str:
    """Spark's own text of an error, with the position, without the plan and the JVM's trace."""
    return _BEHIND_MESSAGE.split(str(error), maxsplit=1)[0].strip()


WIDE: Final = "decimal(38,0)"
_TWO_64: Final = "18446744073709551616"
_TWO_63: Final = "9223372036854775808"
#: Multiples of ten to this power have zeros in the lowest 64 bits.
_LOW_BITS: Final = 64
_INT_LIMIT: Final = 2**31


def unscaled_number(column: Column) -> Column:
    """The digits of a ``decimal(38, s)`` without its point, as ``decimal(38, 0)``."""
    return F.replace(column.cast("string"), F.lit("."), F.lit("")).try_cast(WIDE)


def bytes_of_number(number: Column) -> Column:
    """The shortest two's complement of a ``decimal(38, 0)``, big-endian."""
    base = F.lit(_TWO_64).cast(WIDE)
    zero = F.lit(0).cast(WIDE)
    rest = number % base
    high = F.call_function("div", number, base) - F.when(rest < zero, F.lit(1)).otherwise(F.lit(0))
    low = F.when(rest < zero, rest + base).otherwise(rest)
    signed = F.when(low >= F.lit(_TWO_63).cast(WIDE), low - base).otherwise(low).cast("bigint")
    digits = F.concat(F.lpad(F.hex(high), 16, "0"), F.lpad(F.hex(signed), 16, "0"))
    positive = F.regexp_replace(digits, "^(?:00)+(?=[0-7])", "")
    return F.unhex(F.regexp_replace(positive, "^(?:FF)+(?=[89A-F])", ""))


def unscaled_bytes(column: Column) -> Column:
    """The unscaled value of a ``decimal(38, s)`` as bytes."""
    return bytes_of_number(unscaled_number(column))


def number_of_bytes(data: Column) -> Column:
    """The ``decimal(38, 0)`` of two's complement bytes; null where it has more digits, 0 for no bytes."""
    digits = F.hex(data)
    padded = F.when(digits.rlike("^[89A-F]"), F.lpad(digits, 32, "F")).otherwise(F.lpad(digits, 32, "0"))
    high = F.conv(F.substring(padded, 1, 16), 16, -10).cast(WIDE)
    low = F.conv(F.substring(padded, 17, 16), 16, 10).cast(WIDE)
    whole = F.try_add(F.try_multiply(high, F.lit(_TWO_64).cast(WIDE)), low)
    return F.when(F.octet_length(data) <= 16, whole.try_cast(WIDE))


def digits_of_bytes(data: Column) -> Column:
    """The decimal digits of two's complement bytes, with a minus where they are negative."""
    wide = apart(F.hex(data), _wide_digits)
    return F.when(data.isNotNull(), F.coalesce(number_of_bytes(data).cast("string"), wide))


def bytes_of_digits(text: Column) -> Column:
    """The shortest two's complement of decimal digits, which a minus may precede."""
    number = text.try_cast(WIDE)
    return F.when(number.isNotNull(), bytes_of_number(number)).when(text.isNotNull(), apart(text, _wide_bytes))


def _wide_digits(hexadecimal: Column) -> Column:
    negative = hexadecimal.rlike("^[89A-F]")
    # The complement of a negative number is its magnitude less one.
    magnitude = F.when(negative, _complement(hexadecimal)).otherwise(hexadecimal)
    words = _pieces(magnitude, 7, lambda piece: F.conv(piece, 16, 10).cast("bigint"), F.when(negative, 1).otherwise(0))
    limbs = F.transform(_limbs(words, 2**28, 10**10), lambda limb: F.lpad(limb.cast("string"), 10, "0"))
    digits = F.regexp_replace(F.array_join(F.reverse(limbs), ""), "^0+(?=.)", "")
    return F.concat(F.when(negative, F.lit("-")).otherwise(F.lit("")), digits)


def _wide_bytes(text: Column) -> Column:
    negative = text.startswith("-")
    digits = F.regexp_replace(text, "^-?0*", "")
    words = _pieces(digits, 9, lambda piece: piece.cast("bigint"), F.when(negative, -1).otherwise(0))
    limbs = F.transform(_limbs(words, 10**9, 2**32), lambda limb: F.lpad(F.hex(limb), 8, "0"))
    magnitude = F.array_join(F.reverse(limbs), "")
    signed = F.when(negative, F.concat(F.lit("FF"), _complement(magnitude))).otherwise(F.concat(F.lit("00"), magnitude))
    return F.unhex(F.regexp_replace(signed, "^(?:(?:00)+(?=[0-7])|(?:FF)+(?=[89A-F]))", ""))


def _complement(hexadecimal: Column) -> Column:
    return F.translate(hexadecimal, "0123456789ABCDEF", "FEDCBA9876543210")


def _pieces(text: Column, size: int, number: Callable[[Column], Column], more: Column) -> Column:
    """The numbers of a text's pieces of some digits, the first one filled with zeros; ``more`` is added to the last."""
    last = F.call_function("div", F.length(text) - F.lit(1), F.lit(size)).cast("int")
    filled = F.lpad(text, (last + F.lit(1)) * F.lit(size), F.lit("0"))

    def piece(index: Column) -> Column:
        part = number(F.substr(filled, index * F.lit(size) + F.lit(1), F.lit(size)))
        return part + F.when(index == last, more).otherwise(0)

    return F.transform(F.sequence(F.lit(0), last), piece)


def _limbs(words: Column, factor: int, base: int) -> Column:
    """A number that is given by its digits in base ``factor``, by its digits in ``base``, the lowest first.

    ``factor`` is not above ``base``, and their product is below 2**63.
    """
    none = F.array().cast("array<bigint>")

    def add(made: Column, word: Column) -> Column:
        def times(done: Column, limb: Column) -> Column:
            whole = limb * F.lit(factor) + done.getField("carry")
            low = F.pmod(whole, F.lit(base))
            carry = F.call_function("div", whole - low, F.lit(base))
            return F.struct(F.array_append(done.getField("limbs"), low).alias("limbs"), carry.alias("carry"))

        def end(done: Column) -> Column:
            limbs, carry = done.getField("limbs"), done.getField("carry")
            return F.when(carry > 0, F.array_append(limbs, carry)).otherwise(limbs)

        return F.aggregate(made, F.struct(none.alias("limbs"), word.cast("bigint").alias("carry")), times, end)

    return F.aggregate(words, none, add)


def java_text(data: Column, scale: Column) -> Column:
    """``BigDecimal.toString`` of unscaled bytes and a scale."""
    return rare(digits_of_bytes(data), lambda number: _java_text(number, scale.cast("bigint")))


def _java_text(number: Column, scale: Column) -> Column:
    sign = F.when(number.startswith("-"), F.lit("-")).otherwise(F.lit(""))
    digits = F.regexp_replace(number, "^-", "")
    count = F.length(digits)
    exponent = count - F.lit(1) - scale
    short = F.concat(F.lit("0."), F.repeat(F.lit("0"), F.greatest(scale - count, F.lit(0)).cast("int")), digits)
    whole = F.greatest(count - scale, F.lit(0)).cast("int")
    point = F.concat(F.substr(digits, F.lit(1), whole), F.lit("."), F.substr(digits, whole + F.lit(1)))
    fraction = F.when(count > 1, F.concat(F.lit("."), F.substring(digits, 2, 1_000_000))).otherwise(F.lit(""))
    plus = F.when(exponent >= 0, F.lit("+")).otherwise(F.lit(""))
    scientific = F.concat(F.substring(digits, 1, 1), fraction, F.lit("E"), plus, exponent.cast("string"))
    text = (
        F.when(scale == 0, digits)
        .when((scale < 0) | (exponent < -6), scientific)
        .when(count > scale, point)
        .otherwise(short)
    )
    return F.concat(sign, text)


def low_bits(data: Column, scale: Column) -> Column:
    """``BigDecimal.longValue`` of unscaled bytes and a scale: the lowest 64 bits of what stands before the point."""
    return rare(digits_of_bytes(data), lambda number: _low_bits(number, scale))


def _low_bits(number: Column, scale: Column) -> Column:
    sign = F.when(number.startswith("-"), F.lit("-")).otherwise(F.lit(""))
    digits = F.regexp_replace(number, "^-", "")
    zeros = F.when(scale > -_LOW_BITS, -scale).otherwise(_LOW_BITS)
    whole = (
        F.when(scale <= 0, F.concat(digits, F.repeat(F.lit("0"), zeros)))
        .when(scale < F.length(digits), F.substr(digits, F.lit(1), F.length(digits) - scale))
        .otherwise(F.lit("0"))
    )

    def lowest(text: Column) -> Column:
        return F.coalesce(text.try_cast("bigint"), apart(text, lambda wide: _lowest(bytes_of_digits(wide))))

    return rare(F.concat(sign, whole), lowest)


def low_bits_of_number(whole: Column) -> Column:
    """The lowest 64 bits of a ``decimal(38, 0)``, as a bigint."""
    return _lowest(bytes_of_number(whole))


def _lowest(data: Column) -> Column:
    digits = F.hex(data)
    sign = F.when(digits.rlike("^[89A-F]"), F.lit("F")).otherwise(F.lit("0"))
    padded = F.concat(F.repeat(sign, F.lit(16)), digits)
    return F.conv(F.substring(padded, -16, 16), 16, -10).try_cast("bigint")


def plain_parts(text: Column) -> Column:
    """``struct<unscaled binary, scale int>`` of a JSON number's text, as Java has it; null where ``is_beyond``."""
    mantissa = F.regexp_extract(text, "^(-?[0-9.]+)", 1)
    data = bytes_of_digits(F.replace(mantissa, F.lit("."), F.lit("")))
    made = F.struct(data.alias("unscaled"), _plain_scale(text).try_cast("int").alias("scale"))
    return F.when(text.isNotNull() & ~is_beyond(text), made)


def is_beyond(text: Column) -> Column:
    """True if a JSON number's text has more digits than Java reads, or a scale of more than 32 bits."""
    scale = _plain_scale(text)
    inside = (scale >= -_INT_LIMIT) & (scale < _INT_LIMIT)
    digits = F.length(F.translate(text, "+-.eE", ""))
    return (digits > MAX_UNSCALED_DIGITS) | ~F.coalesce(inside, F.lit(False))


def _plain_scale(text: Column) -> Column:
    """The scale as a bigint; null where the exponent has more than 64 bits."""
    exponent = F.regexp_extract(text, "[eE]([+-]?[0-9]+)$", 1)
    fraction = F.length(F.regexp_extract(text, "\\.([0-9]*)", 1))
    power = F.when(exponent == "", F.lit(0)).otherwise(exponent.try_cast("bigint"))
    return F.try_subtract(fraction.cast("bigint"), power.cast("bigint"))


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
        octets: Bytes, with at least one after the last digit.
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
