"""Calendar arithmetic, written once for Python integers and for Spark columns.

Main types: ``PythonArithmetic`` (numbers are ``int``, text is ``str``) and ``ColumnArithmetic`` (both are columns);
``Arithmetic`` is either. Function ``sunday_before``.

Columns never raise: divisors are constants, and what may overflow uses Spark's ``try_`` forms.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, Final

from pyspark.sql import functions as F

from penstock.data.text import CUTOVER, MILLIS_PER_DAY, civil
from penstock.pipeline.columns.expressions import apart

__all__ = [
    "COLUMNS",
    "CUTOVER",
    "MILLIS_PER_DAY",
    "PLAIN",
    "Arithmetic",
    "ColumnArithmetic",
    "Named",
    "PythonArithmetic",
    "Value",
    "sunday_before",
]

#: 1 March 2000, where a cycle of 400 years begins, and 1 March 1904, where one of four years does.
_CYCLE: Final = 11_017
_OLD_CYCLE: Final = -24_047
_EPOCH: Final = date(1970, 1, 1)

#: A number or a text: an ``int`` or ``str`` of Python, or a column.
Value = Any
Named = Mapping[str, Value]


class PythonArithmetic:
    """Arithmetic on Python values."""

    def number(self, value: int) -> Value:
        """A number that is known."""
        return value

    def div(self, number: Value, divisor: int) -> Value:
        """Division, rounded down."""
        return number // divisor

    def part(self, number: Value, divisor: int) -> Value:
        """``div`` of what is not negative."""
        return number // divisor

    def mod(self, number: Value, divisor: int) -> Value:
        """The remainder of ``div``; never negative."""
        return number % divisor

    def civil(self, days: Value, body: Callable[[Named], Value]) -> Value:
        """``body`` of year (0 is 1 BC), month (from 0) and day (from 1) of a number of days since 1970."""
        year, month, day = civil(days)
        return body({"year": year, "month": month - 1, "day": day})

    def first_of_month(self, year: Value, month: Value, *, gregorian: bool) -> Value:
        """Days since 1970 of the first of a month (from 0, of any size) in one of the two calendars."""
        return _first_of_month(year, month, gregorian=gregorian)

    def choose(self, condition: Value, yes: Value, no: Value) -> Value:
        """One of two values."""
        return yes if condition else no

    def let(self, values: Named, body: Callable[[Named], Value]) -> Value:
        """``body`` of values that are worked out once."""
        return body(values)

    def digits(self, number: Value, width: int) -> Value:
        """A number that is not negative as text, with zeros in front up to a width."""
        return f"{number:0{width}}"

    def signed(self, number: Value, width: int) -> Value:
        """``digits`` of any number."""
        return f"-{-number:0{width}}" if number < 0 else f"{number:0{width}}"

    def pick(self, texts: Sequence[str], index: Value) -> Value:
        """One of some texts."""
        return texts[index]

    def join(self, texts: Sequence[Value]) -> Value:
        """Texts put together."""
        return "".join(texts)

    def moment(self, days: Value, clock: Value) -> Value:
        """Milliseconds of days and of a clock; wraps in 64 bits, as Java does."""
        return (days * MILLIS_PER_DAY + clock + 2**63) % 2**64 - 2**63


class ColumnArithmetic(PythonArithmetic):
    """Arithmetic on columns; numbers are ``bigint``."""

    def number(self, value: int) -> Value:
        """See ``PythonArithmetic``."""
        return F.lit(value).cast("bigint")

    def div(self, number: Value, divisor: int) -> Value:
        """See ``PythonArithmetic``."""
        n = F.lit(divisor)
        return F.call_function("div", number, n) - F.when(number % n < 0, F.lit(1)).otherwise(F.lit(0))

    def part(self, number: Value, divisor: int) -> Value:
        """See ``PythonArithmetic``."""
        return F.call_function("div", number, F.lit(divisor))

    def mod(self, number: Value, divisor: int) -> Value:
        """See ``PythonArithmetic``."""
        return F.pmod(number, F.lit(divisor))

    def civil(self, days: Value, body: Callable[[Named], Value]) -> Value:
        """See ``PythonArithmetic``. Spark is asked about the same day of a cycle that it knows."""
        # Both calendars repeat: Spark is asked about the same day of a cycle it knows, and years are added.
        old = days < CUTOVER
        cycle = F.when(old, F.lit(1_461)).otherwise(F.lit(146_097)).cast("bigint")
        start = F.when(old, F.lit(-719_470)).otherwise(F.lit(_CYCLE)).cast("bigint")
        shifted = days - start
        same = F.date_from_unix_date((F.pmod(shifted, cycle) + F.when(old, _OLD_CYCLE).otherwise(_CYCLE)).cast("int"))
        cycles = F.call_function("div", shifted - F.pmod(shifted, cycle), cycle)
        years = F.when(old, cycles * 4 - 1904).otherwise(cycles * 400)

        def parts(known: Named) -> Value:
            same = known["date"]
            year = F.year(same) + known["years"]
            return self.let({"year": year, "month": F.month(same) - 1, "day": F.dayofmonth(same)}, body)

        return self.let({"date": same, "years": years}, parts)

    def first_of_month(self, year: Value, month: Value, *, gregorian: bool) -> Value:
        """See ``PythonArithmetic``."""
        # The years from 1970 on begin a cycle in both calendars, which were 13 days apart then.
        months = (year - 1970) * 12 + month
        size, days, apart = (4_800, 146_097, 0) if gregorian else (48, 1_461, 13)
        within = F.add_months(F.lit(_EPOCH), F.pmod(months, F.lit(size)).cast("int"))
        return F.unix_date(within).cast("bigint") + self.div(months, size) * days + apart

    def choose(self, condition: Value, yes: Value, no: Value) -> Value:
        """See ``PythonArithmetic``."""
        return F.when(condition, yes).otherwise(no)

    def let(self, values: Named, body: Callable[[Named], Value]) -> Value:
        """See ``PythonArithmetic``. The values are one struct."""
        struct = F.struct(*[F.lit(value).alias(name) for name, value in values.items()])
        return apart(struct, lambda made: body({name: made.getField(name) for name in values}))

    def digits(self, number: Value, width: int) -> Value:
        """See ``PythonArithmetic``."""
        text = number.cast("string")
        if width <= 1:
            return text
        return F.lpad(text, F.greatest(F.length(text), F.lit(width)), F.lit("0"))

    def signed(self, number: Value, width: int) -> Value:
        """See ``PythonArithmetic``."""
        digits = self.digits(F.abs(number), width)
        return F.when(number < 0, F.concat(F.lit("-"), digits)).otherwise(digits)

    def pick(self, texts: Sequence[str], index: Value) -> Value:
        """See ``PythonArithmetic``."""
        return F.get(F.array(*[F.lit(text) for text in texts]), index.cast("int"))

    def join(self, texts: Sequence[Value]) -> Value:
        """See ``PythonArithmetic``."""
        return F.concat(*[F.lit(text) for text in texts]) if texts else F.lit("")

    def moment(self, days: Value, clock: Value) -> Value:
        """See ``PythonArithmetic``. Null instead of what does not fit 64 bits."""
        # A day has 84,375 times 2**10 milliseconds, and a shift never overflows.
        return F.try_add(F.shiftleft(days * 84_375, 10), clock)


Arithmetic = PythonArithmetic
PLAIN: Final = PythonArithmetic()
COLUMNS: Final = ColumnArithmetic()


def _first_of_month(year: int, month: int, *, gregorian: bool) -> int:
    the_year, index = year + month // 12, month % 12
    march_year, march_month = (the_year - 1, index + 10) if index < 2 else (the_year, index - 2)
    days = march_year * 365 + march_year // 4 + (march_month * 153 + 2) // 5
    return days - march_year // 100 + march_year // 400 - 719_468 if gregorian else days - 719_470


def sunday_before(math: Arithmetic, days: Value) -> Value:
    """The Sunday on or before a day."""
    return days - math.mod(days + 4, 7)
