"""Numbers as Kafka's big-endian bytes and back, as Spark columns.

Functions ``bytes_of_integer``, ``bytes_of_float``, ``integer_of_bytes``, ``float_of_bytes``. Spark has no access to the
bits of a floating point number, so they are worked out; each step (scaling by a power of two) is exact.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class FloatLayout:
    """How IEEE 754 lays a floating point number out.

    Attributes:
        size: Bytes.
        fraction: Bits behind the point.
        bias: What is added to the exponent.
        nan: The bits of NaN, as Java writes them.
        spark: Spark's name of the type.
    """

    size: int
    fraction: int
    bias: int
    nan: int
    spark: str

    @property
    def infinity(self) -> int:
        """The bits of positive infinity."""
        return (2 * self.bias + 1) << self.fraction


FLOAT: Final = FloatLayout(4, 23, 127, 0x7FC00000, "float")
DOUBLE: Final = FloatLayout(8, 52, 1023, 0x7FF8000000000000, "double")


def bytes_of_integer(column: Column, size: int) -> Column:
    """The last ``size`` bytes of an integer's two's complement."""
    return F.unhex(F.right(F.lpad(F.hex(column.cast("bigint")), 16, "0"), F.lit(2 * size)))


def integer_of_bytes(data: Column, size: int) -> Column:
    """The integer of ``size`` bytes of two's complement, as a bigint; of other bytes, any number or null."""
    digits = F.hex(F.substring(data, 1, size))
    if size == 8:
        return F.conv(digits, 16, -10).try_cast("bigint")
    number = F.conv(digits, 16, 10).try_cast("bigint")
    limit = 1 << (8 * size - 1)
    return F.when(number >= limit, number - F.lit(2 * limit)).otherwise(number)


def bytes_of_float(column: Column, layout: FloatLayout) -> Column:
    """The bytes of a floating point number."""
    number = column.cast("double")

    def bits(x: Column) -> Column:
        size = F.abs(x)
        fraction, bias = layout.fraction, layout.bias
        about = F.floor(F.log2(size)).cast("int")
        # The logarithm may be off next to a power of two.
        exact = about + F.when(size < F.pow(F.lit(2.0), about), -1).when(
            size / F.pow(F.lit(2.0), about) >= 2.0, 1
        ).otherwise(0)
        exponent = F.greatest(exact, F.lit(1 - bias))
        # In two steps: the power of two itself may be too large.
        shift = F.lit(fraction) - exponent
        half = F.floor(shift / F.lit(2)).cast("int")
        digits = (size * F.pow(F.lit(2.0), half) * F.pow(F.lit(2.0), shift - half)).cast("bigint")
        # Without its leading one, which is there unless the number is subnormal; that carries into the exponent.
        magnitude = (exponent + F.lit(bias - 1)).cast("bigint") * F.lit(1 << fraction) + digits
        return (
            F.when(F.isnan(x), F.lit(layout.nan))
            .when(size == 0.0, F.lit(0))
            .when(size == float("inf"), F.lit(layout.infinity))
            .otherwise(magnitude)
        )

    magnitude = F.get(F.transform(F.array(number), bits), F.lit(0))
    whole = bytes_of_integer(magnitude, layout.size)
    # Only the text tells -0.0 from 0.0.
    negative = column.cast("string").startswith("-")
    first = bytes_of_integer(F.conv(F.hex(F.substring(whole, 1, 1)), 16, 10).cast("bigint") + F.lit(0x80), 1)
    return F.when(negative, F.concat(first, F.substring(whole, 2, layout.size - 1))).otherwise(whole)


def float_of_bytes(data: Column, layout: FloatLayout) -> Column:
    """The floating point number of bytes; of a wrong number of bytes, any number or null."""
    fraction, bias = layout.fraction, layout.bias

    def value(digits: Column) -> Column:
        first = F.conv(F.substring(digits, 1, 4), 16, 10).try_cast("bigint")
        exponent = F.shiftright(first.bitwiseAND(F.lit(0x7FFF)), 15 - layout.size * 8 + fraction + 1)
        rest = F.conv(digits, 16, 10).try_cast("decimal(20,0)") % F.lit(1 << fraction)
        mantissa = rest.cast("bigint")
        normal = (mantissa + F.lit(1 << fraction)).cast("double") * F.pow(F.lit(2.0), exponent - F.lit(bias + fraction))
        subnormal = mantissa.cast("double") * F.pow(F.lit(2.0), F.lit(1 - bias - fraction))
        size = (
            F.when(exponent == 0, subnormal)
            .when(exponent < 2 * bias + 1, normal)
            .when(mantissa == 0, F.lit(float("inf")))
            .otherwise(F.lit(float("nan")))
        )
        return F.when(first >= 0x8000, -size).otherwise(size)

    digits = F.hex(F.substring(data, 1, layout.size))
    return F.get(F.transform(F.array(digits), value), F.lit(0)).cast(layout.spark)
