"""Moments as text: ``SimpleDateFormat.format`` in UTC and en_US.

Main functions: ``print_millis`` (one value) and ``print_column``. Columns take what ``usual`` has for a pattern, and
calendar arithmetic otherwise.

Thread: pure functions; columns are built on a pipeline thread.
Source: java.text.SimpleDateFormat.format.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from penstock.data.text import civil
from penstock.pipeline.columns.expressions import apart
from penstock.pipeline.columns.java_dates.arithmetic import (
    COLUMNS,
    MILLIS_PER_DAY,
    PLAIN,
    Arithmetic,
    Named,
    Value,
    sunday_before,
)
from penstock.pipeline.columns.java_dates.pattern import MONTHS, WEEKDAYS, PatternToken, constant_text
from penstock.pipeline.columns.java_dates.usual import Moment, is_usual, near_date, print_usual

if TYPE_CHECKING:
    from pyspark.sql import Column

    from penstock.pipeline.plan.step import NameColumn


def print_millis(tokens: Sequence[PatternToken], millis: int) -> str:
    """The text of a moment, in milliseconds since 1970.

    >>> from penstock.pipeline.columns.java_dates.pattern import compile_pattern
    >>> print_millis(compile_pattern("yyyy-MM-dd HH:mm:ss.SSS z"), -62135769600000)
    '0001-01-01 00:00:00.000 UTC'
    """
    numbers = _numbers(tuple(tokens))
    if numbers is not None:
        days, clock = divmod(millis, MILLIS_PER_DAY)
        year, month, day = civil(days)
        if year > 0:
            minutes, rest = divmod(clock, 60_000)
            fields = (year, month, day, minutes // 60, minutes % 60, rest // 1_000, rest % 1_000)
            return numbers.form % numbers.chosen(fields)
    text = _text(PLAIN, tokens, millis)
    assert isinstance(text, str)
    return text


class _Numbers(NamedTuple):
    """A pattern of only numbers: their formats, and the field of each (year, month, day, ... milliseconds)."""

    form: str
    places: tuple[int, ...]

    def chosen(self, fields: Sequence[int]) -> tuple[int, ...]:
        return tuple([fields[place] for place in self.places])


@lru_cache(maxsize=512)
def _numbers(tokens: tuple[PatternToken, ...]) -> _Numbers | None:
    """The pattern if it consists only of numbers, as most do; else None."""
    form, places = "", []
    for token in tokens:
        constant = constant_text(token)
        if constant is not None:
            form += constant.replace("%", "%%")
            continue
        word = token.letter == "M" and token.count >= 3
        if word or token.letter not in "yMdHmsS" or (token.letter == "y" and token.count == 2):
            return None
        form += f"%0{token.count}d"
        places.append("yMdHmsS".index(token.letter))
    return _Numbers(form, tuple(places))


def print_column(tokens: Sequence[PatternToken], millis: Column, keep: NameColumn | None = None) -> Column:
    """The text of each moment.

    Args:
        tokens: The pattern.
        millis: The moments, a ``bigint``; used several times: name it first.
        keep: Names what is costly; None = nothing can be named (in a lambda, say).
    """
    if not is_usual(tokens):
        return F.when(millis.isNotNull(), apart(millis, lambda moment: _text(COLUMNS, tokens, moment)))
    if keep is not None:
        return print_usual(tokens, Moment(millis, keep(near_date(millis))))

    def text(both: Column) -> Column:
        return print_usual(tokens, Moment(both.getField("millis"), both.getField("date")))

    return apart(F.struct(millis.alias("millis"), near_date(millis).alias("date")), text)


def _text(math: Arithmetic, tokens: Sequence[PatternToken], millis: Value) -> Value:
    day = {"days": math.div(millis, MILLIS_PER_DAY), "clock": math.mod(millis, MILLIS_PER_DAY)}

    def of_day(known: Named) -> Value:
        return math.civil(known["days"], lambda date: of_date({**known, **date}))

    def of_date(known: Named) -> Value:
        year = known["year"]
        later = year > 1582
        first = math.choose(
            later,
            math.first_of_month(year, year * 0, gregorian=True),
            math.first_of_month(year, year * 0, gregorian=False),
        )
        following = math.choose(
            year >= 1582,
            math.first_of_month(year + 1, year * 0, gregorian=True),
            math.first_of_month(year + 1, year * 0, gregorian=False),
        )
        return math.let({**known, "new_year": first, "next_new_year": following}, whole)

    def whole(known: Named) -> Value:
        return math.join([_field(math, token, known) for token in tokens])

    if not any(token.letter in "DwYW" for token in tokens if token.letter):
        return math.let(day, lambda known: math.civil(known["days"], lambda date: whole({**known, **date})))
    return math.let(day, of_day)


def _field(math: Arithmetic, token: PatternToken, known: Named) -> Value:
    constant = constant_text(token)
    if constant is not None:
        return constant
    if token.letter in "ML" and token.count >= 3:
        return math.pick(MONTHS if token.count > 3 else [name[:3] for name in MONTHS], known["month"])
    if token.letter == "E":
        weekday = math.mod(known["days"] + 4, 7)
        return math.pick(WEEKDAYS if token.count > 3 else [name[:3] for name in WEEKDAYS], weekday)
    if token.letter == "a":
        return math.choose(known["clock"] < MILLIS_PER_DAY // 2, _text_of(math, "AM"), _text_of(math, "PM"))
    if token.letter == "G":
        return math.choose(known["year"] > 0, _text_of(math, "AD"), _text_of(math, "BC"))
    number = _number(math, token.letter, known)
    if token.letter in "yY" and token.count == 2:
        shown = math.mod(number, 100)
        if token.letter == "Y":
            shown = math.choose(number < 0, math.mod(number * -1, 100) * -1, shown)
        return math.signed(shown, 2)
    return math.signed(number, token.count) if token.letter == "Y" else math.digits(number, token.count)


def _text_of(math: Arithmetic, text: str) -> Value:
    return text if math is PLAIN else F.lit(text)


def _number(math: Arithmetic, letter: str, known: Named) -> Value:
    clock = known["clock"]
    match letter:
        case "y":
            return math.choose(known["year"] > 0, known["year"], known["year"] * -1 + 1)
        case "M" | "L":
            return known["month"] + 1
        case "d":
            return known["day"]
        case "H":
            return math.part(clock, 3_600_000)
        case "k":
            return math.mod(math.part(clock, 3_600_000) + 23, 24) + 1
        case "K":
            return math.mod(math.part(clock, 3_600_000), 12)
        case "h":
            return math.mod(math.part(clock, 3_600_000) + 11, 12) + 1
        case "m":
            return math.mod(math.part(clock, 60_000), 60)
        case "s":
            return math.mod(math.part(clock, 1_000), 60)
        case "S":
            return math.mod(clock, 1_000)
        case "F":
            return math.part(known["day"] - 1, 7) + 1
        case "u":
            return math.mod(known["days"] + 3, 7) + 1
        case _:
            return _week_number(math, letter, known)


def _week_number(math: Arithmetic, letter: str, known: Named) -> Value:
    """D, W, w and Y: weeks begin on Sunday, and the first of a year or month is the one its first day is in."""
    days = known["days"]
    if letter == "D":
        return days - known["new_year"] + 1
    if letter == "W":
        return math.div(days - sunday_before(math, days - known["day"] + 1), 7) + 1
    next_year = days >= sunday_before(math, known["next_new_year"])
    if letter == "Y":
        return math.choose(next_year, known["year"] + 1, known["year"])
    week = math.div(days - sunday_before(math, known["new_year"]), 7) + 1
    return math.choose(next_year, week * 0 + 1, week)
