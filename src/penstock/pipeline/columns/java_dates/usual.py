"""Usual patterns, as expressions that Spark compiles: most of what TimestampConverter is asked for.

Main functions: ``print_usual``, for the patterns that ``is_usual`` knows and any moment, and ``read_usual``, which
gives null for what it leaves to the full arithmetic of ``parsing``, and None for a pattern it has no expression for.
What they do with a row takes a tenth of the time of Java's formatters, which Spark's own functions call: a field that
is printed is looked up in a table of texts, with whatever stands in front of it in the pattern; text is taken apart by
position where it has full width. They are small, too: Spark plans an expression anew for each batch.

Thread: pure functions that build expressions, on a pipeline thread.
Source: java.text.SimpleDateFormat.format and parse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline.columns.java_dates.arithmetic import CUTOVER, MILLIS_PER_DAY
from penstock.pipeline.columns.java_dates.pattern import MONTHS, WEEKDAYS, PatternToken, constant_text, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Years of four digits in today's calendar: from 15 October 1582 to the end of 9999.
FIRST: Final = CUTOVER * MILLIS_PER_DAY
LAST: Final = 253_402_300_799_999
#: A cycle of each calendar in milliseconds: 400 years from 1 March 2000, and 4 years from 1 March of the year 0, which
#: have the days of those from 1 March 1904.
_CYCLE: Final = 146_097 * MILLIS_PER_DAY
_START: Final = 11_017 * MILLIS_PER_DAY
_OLD_CYCLE: Final = 1_461 * MILLIS_PER_DAY
_OLD_START: Final = -719_470 * MILLIS_PER_DAY
_OLD_NEAR: Final = -24_047 * MILLIS_PER_DAY
#: Widths at which text has one meaning only.
_WIDTHS: Final = {"y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "S": 3}
_UNITS: Final = {"H": 3_600_000, "m": 60_000, "s": 1_000, "S": 1}
_TABLE_ENDS: Final = "\x1f"
_CUTOVER_TEXT: Final = "1582-10-15"
_ISO_DATE: Final = "yyyy-MM-dd"
#: The values of fields that a pattern lacks.
_STARTS: Final = {"y": "1970", "M": "01", "d": "01"}


# ------------------------------------------------------------------------------------------------------------ printing
@dataclass(frozen=True)
class Moment:
    """A moment in milliseconds, and the date near to us that stands for its own; both are used many times."""

    millis: Column
    date: Column


def near_date(millis: Column) -> Column:
    """A date between 1582 and 9999 of the same month and day as a moment: its own, if it lies there.

    Both calendars repeat, the old one after 4 years and today's after 400. ``millis`` is used several times.
    """
    new = F.pmod(millis - _START, F.lit(_CYCLE)) + _START
    old = F.pmod(millis - _OLD_START, F.lit(_OLD_CYCLE)) + _OLD_NEAR
    near = F.when(_is_near(millis), millis).when(millis > LAST, new).otherwise(old)
    # ``div`` cuts towards zero; a day later nothing is negative.
    shift = -CUTOVER
    days = F.call_function("div", near + shift * MILLIS_PER_DAY, F.lit(MILLIS_PER_DAY)) - shift
    return F.date_from_unix_date(days.cast("int"))


def _is_near(millis: Column) -> Column:
    return (millis >= FIRST) & (millis <= LAST)


def is_usual(tokens: Sequence[PatternToken]) -> bool:
    """True if ``print_usual`` has an expression for a pattern."""
    before, fields = "", 0
    for token in tokens:
        constant = constant_text(token)
        if constant is not None:
            before += constant
            continue
        letter, count = token.letter, token.count
        number = letter == "y" and count != 2
        if not number and not (count >= 3 if letter == "S" else letter in _TABLES and _TABLE_ENDS not in before):
            return False
        before, fields = "", fields + 1
    return fields > 0


def print_usual(tokens: Sequence[PatternToken], moment: Moment) -> Column:
    """The text of moments by a pattern that ``is_usual``."""
    parts: list[Column] = []
    before = ""
    for token in tokens:
        constant = constant_text(token)
        if constant is not None:
            before += constant
            continue
        parts += _printed(token, before, moment)
        before = ""
    if before:
        parts.append(F.lit(before))
    return F.concat(*parts) if len(parts) > 1 else parts[0]


def _text(text: str) -> list[Column]:
    return [F.lit(text)] if text else []


def _printed(token: PatternToken, before: str, moment: Moment) -> list[Column]:
    """A field, preceded by the text before it."""
    letter, count = token.letter, token.count
    if letter == "y" and count != 2:
        year = F.year(moment.date).cast("string")
        padded = F.concat(F.lit("0" * (count - 4)), year) if count > 4 else year
        far = F.format_string(f"%0{count}d", _far_year(moment))
        return [*_text(before), F.when(_is_near(moment.millis), padded).when(moment.millis.isNotNull(), far)]
    if letter == "S":
        digits = (F.pmod(moment.millis, F.lit(1_000)) + 1_000).cast("string")
        return [*_text(before + "0" * (count - 3)), F.substring(digits, 2, 3)]
    texts, index = _TABLES[letter]
    table = _TABLE_ENDS.join(before + text for text in texts(count))
    return [F.get(F.split(F.lit(table), _TABLE_ENDS), index(moment).cast("int"))]


def _far_year(moment: Moment) -> Column:
    """The year, counted in its era, of a moment that is not between ``FIRST`` and ``LAST``."""
    millis = moment.millis
    new = F.call_function("div", millis - _START, F.lit(_CYCLE)) * 400
    since = millis - _OLD_START
    old = F.call_function("div", since - F.pmod(since, F.lit(_OLD_CYCLE)), F.lit(_OLD_CYCLE)) * 4 - 1_904
    year = F.year(moment.date) + F.when(millis > LAST, new).otherwise(old)
    # Year 0 is 1 BC, year -1 is 2 BC.
    return F.call_function("div", F.abs(year * 2 - 1) + 1, F.lit(2))


def _short_year(moment: Moment) -> Column:
    year = F.year(moment.date)
    return F.when(_is_near(moment.millis), year).otherwise(_far_year(moment)) % 100


def _weekday(moment: Moment, thursday: int) -> Column:
    """The day of the week; the first of 1970, a Thursday, has the number given."""
    day = F.call_function("div", F.pmod(moment.millis, F.lit(7 * MILLIS_PER_DAY)), F.lit(MILLIS_PER_DAY))
    return (day + thursday) % 7


def _of_day(moment: Moment, unit: int) -> Column:
    return F.call_function("div", F.pmod(moment.millis, F.lit(MILLIS_PER_DAY)), F.lit(unit))


def _numbers(numbers: Sequence[int]) -> Callable[[int], Iterator[str]]:
    return lambda count: (f"{number:0{count}}" for number in numbers)


def _months(count: int) -> Iterator[str]:
    if count < 3:
        return _numbers(range(1, 13))(count)
    return iter(MONTHS if count > 3 else [name[:3] for name in MONTHS])


def _weekdays(count: int) -> Iterator[str]:
    return iter(WEEKDAYS if count > 3 else [name[:3] for name in WEEKDAYS])


#: The texts of a field by its count, and which of them a moment has.
_TABLES: Final[dict[str, tuple[Callable[[int], Iterator[str]], Callable[[Moment], Column]]]] = {
    "y": (_numbers(range(100)), _short_year),
    "M": (_months, lambda moment: F.month(moment.date) - 1),
    "L": (_months, lambda moment: F.month(moment.date) - 1),
    "d": (_numbers(range(1, 32)), lambda moment: F.dayofmonth(moment.date) - 1),
    "E": (_weekdays, lambda moment: _weekday(moment, 4)),
    "u": (_numbers(range(1, 8)), lambda moment: _weekday(moment, 3)),
    "a": (lambda count: iter(("AM", "PM")), lambda moment: _of_day(moment, 12 * 3_600_000)),
    "H": (_numbers(range(24)), lambda moment: _of_day(moment, 3_600_000)),
    "k": (_numbers([24, *range(1, 24)]), lambda moment: _of_day(moment, 3_600_000)),
    "K": (_numbers([*range(12)] * 2), lambda moment: _of_day(moment, 3_600_000)),
    "h": (_numbers([12, *range(1, 12)] * 2), lambda moment: _of_day(moment, 3_600_000)),
    "m": (_numbers(range(60)), lambda moment: _of_day(moment, 60_000) % 60),
    "s": (_numbers(range(60)), lambda moment: _of_day(moment, 1_000) % 60),
}


# ------------------------------------------------------------------------------------------------------------- reading
def read_usual(tokens: Sequence[PatternToken], text: Column) -> Column | None:
    """Milliseconds of texts of full width that hold a day of today's calendar; null for all others."""
    fields = [token.letter for token in tokens if token.letter]
    if not fields or len(set(fields)) < len(fields):
        return None
    if any(token.letter and _WIDTHS.get(token.letter) != token.count for token in tokens):
        return None
    expression, template = "", ""
    at: dict[str, int] = {}
    for token in tokens:
        if token.letter:
            at[token.letter] = len(template)
            expression += f"[0-9]{{{token.count}}}"
        else:
            expression += quoted(token.text)
        template += token.letter * token.count or token.text
    moment = _day_read(text, at, template) * F.lit(MILLIS_PER_DAY)
    for letter, unit in _UNITS.items():
        if letter in at:
            moment = moment + _piece(text, at, letter).try_cast("bigint") * F.lit(unit)
    return F.when(text.rlike(f"\\A{expression}\\z"), moment)


def _piece(text: Column, at: dict[str, int], letter: str) -> Column:
    return F.substring(text, at[letter] + 1, _WIDTHS[letter])


def _day_read(text: Column, at: dict[str, int], template: str) -> Column:
    """Days since 1970; null where there is no such day, or it is one of the old calendar."""
    if not at.keys() & _STARTS.keys():
        return F.lit(0).cast("bigint")
    found = template.find(_ISO_DATE)
    if found >= 0 and [at.get(letter, -1) - found for letter in _STARTS] == [0, 5, 8]:
        date = F.substring(text, found + 1, len(_ISO_DATE))
    else:
        pieces = [_piece(text, at, letter) if letter in at else F.lit(start) for letter, start in _STARTS.items()]
        date = F.concat_ws("-", *pieces)
    # All have one width, so that texts compare as dates do.
    return F.when(date >= _CUTOVER_TEXT, F.unix_date(date.try_cast("date")).cast("bigint"))
