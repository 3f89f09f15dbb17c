"""Decimals as Spark columns: unscaled bytes, own scale, Java's text.

Main functions: ``unscaled_bytes`` and ``number_of_bytes`` (two's complement, as Java's ``BigInteger``),
``plain_parts`` (number text to unscaled bytes and scale), ``java_text`` (``BigDecimal.toString``). Numbers of up to
38 digits; wider ones give null.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

WIDE: Final = "decimal(38,0)"
_TWO_64: Final = "18446744073709551616"
_TWO_63: Final = "9223372036854775808"


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


def java_text(data: Column, scale: Column) -> Column:
    """``BigDecimal.toString`` of unscaled bytes and a scale; null beyond 38 digits."""
    number = number_of_bytes(data).cast("string")
    sign = F.when(number.startswith("-"), F.lit("-")).otherwise(F.lit(""))
    digits = F.regexp_replace(number, "^-", "")
    count = F.length(digits)
    exponent = count - F.lit(1) - scale
    short = F.concat(F.lit("0."), F.repeat(F.lit("0"), F.greatest(scale - count, F.lit(0))), digits)
    point = F.concat(
        F.substr(digits, F.lit(1), F.greatest(count - scale, F.lit(0))),
        F.lit("."),
        F.substr(digits, F.greatest(count - scale, F.lit(0)) + F.lit(1)),
    )
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


def plain_parts(text: Column) -> Column:
    """``struct<unscaled binary, scale int>`` of a JSON number's text, as Java has it; null beyond 38 digits."""
    mantissa = F.regexp_extract(text, "^(-?[0-9.]+)", 1)
    exponent = F.regexp_extract(text, "[eE]([+-]?[0-9]+)$", 1)
    fraction = F.length(F.regexp_extract(mantissa, "\\.([0-9]*)$", 1))
    number = F.replace(mantissa, F.lit("."), F.lit("")).try_cast(WIDE)
    scale = fraction - F.coalesce(exponent.try_cast("int"), F.lit(0))
    made = F.struct(bytes_of_number(number).alias("unscaled"), scale.cast("int").alias("scale"))
    return F.when(number.isNotNull(), made)
