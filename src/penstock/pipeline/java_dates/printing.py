"""Moments as text: ``SimpleDateFormat.format`` in UTC and en_US.

Main functions: ``print_millis`` (one value) and ``print_column``. Columns take Spark's ``date_format`` where pattern
and moment are such that it prints the same, and calendar arithmetic otherwise.

Thread: pure functions; columns are built on a pipeline thread.
Source: java.text.SimpleDateFormat.format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline.expressions import apart
from penstock.pipeline.java_dates.arithmetic import (
    COLUMNS,
    CUTOVER,
    MILLIS_PER_DAY,
    PLAIN,
    Arithmetic,
    Named,
    Value,
    sunday_before,
)
from penstock.pipeline.java_dates.pattern import Token

if TYPE_CHECKING:
    from pyspark.sql import Column

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
#: Moments that Spark's formatter prints as Java's old one: from 15 October 1582 to the end of 9999.
_FIRST: Final = CUTOVER * MILLIS_PER_DAY
_LAST: Final = 253_402_300_799_999
#: Fields that Spark's formatter prints as Java's old one, and up to which count.
_SAME: Final = {"M": 4, "d": 2, "H": 2, "h": 2, "k": 2, "K": 2, "m": 2, "s": 2, "E": 4, "a": 1}


def print_millis(tokens: Sequence[Token], millis: int) -> str:
    """The text of a moment, in milliseconds since 1970.

    >>> from penstock.pipeline.java_dates.pattern import compile_pattern
    >>> print_millis(compile_pattern("yyyy-MM-dd HH:mm:ss.SSS z"), -62135769600000)
    '0001-01-01 00:00:00.000 UTC'
    """
    text = _text(PLAIN, tokens, millis)
    assert isinstance(text, str)
    return text


def print_column(tokens: Sequence[Token], millis: Column) -> Column:
    """The text of each moment. ``millis`` (a ``bigint``) is used several times: name it first."""

    def slow(moment: Column) -> Column:
        text: Column = _text(COLUMNS, tokens, moment)
        return text

    same = _spark_pattern(tokens)
    if same is None:
        return apart(millis, slow)
    inside = (millis >= _FIRST) & (millis <= _LAST)
    quick = F.date_format(F.timestamp_millis(F.when(inside, millis)), same)
    return F.when(inside, quick).when(millis.isNotNull(), apart(millis, slow))


def _spark_pattern(tokens: Sequence[Token]) -> str | None:
    """The pattern for ``date_format``, None where it would print something else."""
    pattern, text = "", ""
    for token in tokens:
        constant = _constant(token)
        if constant is not None:
            text += constant
            continue
        pattern, text = pattern + _quoted(text), ""
        if token.letter == "y" and token.count in (2, 4):
            pattern += "y" * token.count
        elif token.count <= _SAME.get(token.letter, 0) or (token.letter, token.count) == ("S", 3):
            pattern += token.letter * token.count
        else:
            return None
    return pattern + _quoted(text)


def strict_pattern(tokens: Sequence[Token]) -> str | None:
    """The pattern by which Spark reads some of what Java reads, and the same of it; None where there is none.

    Dates of full-width numbers, with whatever time there is.
    """
    fields = {token.letter: token.count for token in tokens if token.letter}
    widths = {"y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "S": 3}
    dates = fields.keys() >= {"y", "M", "d"}
    once = len(fields) == sum(1 for token in tokens if token.letter)
    if not dates or not once or any(widths.get(letter) != count for letter, count in fields.items()):
        return None
    return _spark_pattern(tokens)


def _quoted(text: str) -> str:
    # Quotation marks stand outside of the others, doubled.
    return "".join(f"'{part}'" if part.strip("'") else "''" * len(part) for part in re.findall("'+|[^']+", text))


def _constant(token: Token) -> str | None:
    """The text of what does not depend on the moment."""
    match token.letter:
        case "":
            return token.text
        case "z":
            return "UTC" if token.count < 4 else "Coordinated Universal Time"
        case "Z":
            return "+0000"
        case "X":
            return "Z"
        case _:
            return None


def _text(math: Arithmetic, tokens: Sequence[Token], millis: Value) -> Value:
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


def _field(math: Arithmetic, token: Token, known: Named) -> Value:
    constant = _constant(token)
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
