"""Calendar arithmetic, written once for Python integers and for Spark columns.

Main types: ``Plain`` (numbers are ``int``, text is ``str``) and ``Columns`` (both are columns); ``Arithmetic`` is
either. Functions ``civil`` (days since 1970 to year, month and day) and ``first_of_month``.

Columns never raise: divisors are constants, and what may overflow uses Spark's ``try_`` forms.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import functions as F

from penstock.pipeline.expressions import rare

#: The first day of the Gregorian calendar, 15 October 1582, in days since 1970.
CUTOVER: Final = -141_427
MILLIS_PER_DAY: Final = 86_400_000

#: A number or a text: an ``int`` or ``str`` of Python, or a column.
Value = Any
Named = Mapping[str, Value]


class Plain:
    """Arithmetic on Python values."""

    def number(self, value: int) -> Value:
        """A number that is known."""
        return value

    def div(self, number: Value, divisor: int) -> Value:
        """Division, rounded down."""
        return number // divisor

    def mod(self, number: Value, divisor: int) -> Value:
        """The remainder of ``div``; never negative."""
        return number % divisor

    def choose(self, condition: Value, yes: Value, no: Value) -> Value:
        """One of two values."""
        return yes if condition else no

    def let(self, values: Named, body: Callable[[Named], Value]) -> Value:
        """``body`` of values that are worked out once."""
        return body(values)

    def digits(self, number: Value, width: int) -> Value:
        """A number as text, with zeros in front up to a width."""
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


class Columns(Plain):
    """Arithmetic on columns; numbers are ``bigint``."""

    def number(self, value: int) -> Value:
        return F.lit(value).cast("bigint")

    def div(self, number: Value, divisor: int) -> Value:
        n = F.lit(divisor)
        return F.call_function("div", number, n) - F.when(number % n < 0, F.lit(1)).otherwise(F.lit(0))

    def mod(self, number: Value, divisor: int) -> Value:
        return F.pmod(number, F.lit(divisor))

    def choose(self, condition: Value, yes: Value, no: Value) -> Value:
        return F.when(condition, yes).otherwise(no)

    def let(self, values: Named, body: Callable[[Named], Value]) -> Value:
        struct = F.struct(*[F.lit(value).alias(name) for name, value in values.items()])
        return rare(struct, lambda made: body({name: made.getField(name) for name in values}))

    def digits(self, number: Value, width: int) -> Value:
        text = number.cast("string")
        if width <= 1:
            return text
        padded = F.lpad(text, F.greatest(F.length(text), F.lit(width)), F.lit("0"))
        negative = F.abs(number).cast("string")
        wide = F.lpad(negative, F.greatest(F.length(negative), F.lit(width)), F.lit("0"))
        return F.when(number < 0, F.concat(F.lit("-"), wide)).otherwise(padded)

    def pick(self, texts: Sequence[str], index: Value) -> Value:
        return F.get(F.array(*[F.lit(text) for text in texts]), index.cast("int"))

    def join(self, texts: Sequence[Value]) -> Value:
        return F.concat(*[F.lit(text) for text in texts]) if texts else F.lit("")

    def moment(self, days: Value, clock: Value) -> Value:
        # A day has 84,375 times 2**10 milliseconds, and a shift never overflows.
        return F.try_add(F.shiftleft(days * 84_375, 10), clock)


Arithmetic = Plain
PLAIN: Final = Plain()
COLUMNS: Final = Columns()


def civil(math: Arithmetic, days: Value, body: Callable[[Named], Value]) -> Value:
    """``body`` of year (0 is 1 BC), month (from 0), day (from 1) and ``gregorian`` of a number of days since 1970."""

    def cycle(known: Named) -> Value:
        # Years here begin on the first of March of year 0, so that a leap day is the last of its year.
        z, gregorian = known["z"], known["gregorian"]
        era = math.choose(gregorian, math.div(z, 146_097), math.div(z, 1_461))
        day = math.choose(gregorian, math.mod(z, 146_097), math.mod(z, 1_461))
        return math.let({"era": era, "day": day, "gregorian": gregorian}, year)

    def year(known: Named) -> Value:
        day, gregorian = known["day"], known["gregorian"]
        century = math.choose(gregorian, math.div(day, 36_524) - math.div(day, 146_096), day * 0)
        of_era = math.div(day - math.div(day, 1_460) + century, 365)
        return math.let({**known, "of_era": of_era}, month)

    def month(known: Named) -> Value:
        of_era, gregorian = known["of_era"], known["gregorian"]
        leaps = math.div(of_era, 4) - math.choose(gregorian, math.div(of_era, 100), of_era * 0)
        of_year = known["day"] - (of_era * 365 + leaps)
        years = known["era"] * math.choose(gregorian, of_era * 0 + 400, of_era * 0 + 4) + of_era
        return math.let({"of_year": of_year, "years": years, "gregorian": gregorian}, parts)

    def parts(known: Named) -> Value:
        of_year = known["of_year"]
        march_month = math.div(of_year * 5 + 2, 153)
        day = of_year - math.div(march_month * 153 + 2, 5) + 1
        late = march_month >= 10
        number = math.choose(late, march_month - 10, march_month + 2)
        the_year = math.choose(late, known["years"] + 1, known["years"])
        return math.let({"year": the_year, "month": number, "day": day, "gregorian": known["gregorian"]}, body)

    gregorian = days >= CUTOVER
    return math.let({"gregorian": gregorian, "z": math.choose(gregorian, days + 719_468, days + 719_470)}, cycle)


def first_of_month(math: Arithmetic, year: Value, month: Value, *, gregorian: bool) -> Value:
    """Days since 1970 of the first of a month (from 0, of any size) in one of the two calendars."""
    the_year, index = year + math.div(month, 12), math.mod(month, 12)
    early = index < 2
    march_year = math.choose(early, the_year - 1, the_year)
    march_month = math.choose(early, index + 10, index - 2)
    days = march_year * 365 + math.div(march_year, 4) + math.div(march_month * 153 + 2, 5)
    if gregorian:
        return days - math.div(march_year, 100) + math.div(march_year, 400) - 719_468
    return days - 719_470


def sunday_before(math: Arithmetic, days: Value) -> Value:
    """The Sunday on or before a day."""
    return days - math.mod(days + 4, 7)
