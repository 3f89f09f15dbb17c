"""Usual patterns for usual moments, as expressions that Spark compiles: most of what TimestampConverter is asked for.

Main functions: ``print_usual`` and ``read_usual``. Both give null for what they leave to the full arithmetic of
``printing`` and ``parsing``, and None for a pattern they have no expression for. What they do with a row takes a tenth
of the time of Java's formatters, which Spark's own functions call: a field that is printed is looked up in a table of
texts, with whatever stands in front of it in the pattern; text is taken apart by position where it has full width.

Thread: pure functions that build expressions, on a pipeline thread.
Source: java.text.SimpleDateFormat.format and parse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline.java_dates.arithmetic import CUTOVER, MILLIS_PER_DAY
from penstock.pipeline.java_dates.pattern import Token, quoted
from penstock.pipeline.java_dates.words import MONTHS, WEEKDAYS, constant_text

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Years of four digits in today's calendar: from 15 October 1582 to the end of 9999.
FIRST: Final = CUTOVER * MILLIS_PER_DAY
LAST: Final = 253_402_300_799_999
#: Widths at which text has one meaning only.
_WIDTHS: Final = {"y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "S": 3}
_UNITS: Final = {"H": 3_600_000, "m": 60_000, "s": 1_000, "S": 1}
_TABLE_ENDS: Final = "\x1f"
_ISO_DATE: Final = "yyyy-MM-dd"
#: What a pattern without the field means.
_STARTS: Final = {"y": "1970", "M": "01", "d": "01"}


# ------------------------------------------------------------------------------------------------------------ printing
def print_usual(tokens: Sequence[Token], millis: Column) -> Column | None:
    """The text of moments between ``FIRST`` and ``LAST``; for others it is of no use. ``millis`` is used many times."""
    parts: list[Column] = []
    before = ""
    for token in tokens:
        constant = constant_text(token)
        if constant is not None:
            before += constant
            continue
        printed = _printed(token, before, millis)
        if printed is None:
            return None
        parts += printed
        before = ""
    if before or not parts:
        parts.append(F.lit(before))
    return F.concat(*parts) if len(parts) > 1 else parts[0]


def _text(text: str) -> list[Column]:
    return [F.lit(text)] if text else []


def _printed(token: Token, before: str, millis: Column) -> list[Column] | None:
    """A field behind the text that stands before it."""
    letter, count = token.letter, token.count
    if letter == "y" and count != 2:
        year = F.year(_date(millis)).cast("string")
        return [*_text(before + "0" * (count - 4)), year]
    if letter == "S":
        digits = (F.pmod(millis, F.lit(1_000)) + 1_000).cast("string")
        if count < 3:
            return None
        return [*_text(before + "0" * (count - 3)), F.substring(digits, 2, 3)]
    found = _TABLES.get(letter)
    if found is None or _TABLE_ENDS in before:
        return None
    texts, index = found
    table = _TABLE_ENDS.join(before + text for text in texts(count))
    return [F.get(F.split(F.lit(table), _TABLE_ENDS), index(millis).cast("int"))]


def _date(millis: Column) -> Column:
    return F.date_from_unix_date(_days(millis).cast("int"))


def _days(millis: Column) -> Column:
    # ``div`` cuts towards zero; a day later nothing that is printed here is negative.
    shift = -CUTOVER
    return F.call_function("div", millis + shift * MILLIS_PER_DAY, F.lit(MILLIS_PER_DAY)) - shift


def _of_day(millis: Column, unit: int) -> Column:
    return F.call_function("div", F.pmod(millis, F.lit(MILLIS_PER_DAY)), F.lit(unit))


def _numbers(numbers: Sequence[int]) -> Callable[[int], Iterator[str]]:
    return lambda count: (f"{number:0{count}}" for number in numbers)


def _months(count: int) -> Iterator[str]:
    if count < 3:
        return _numbers(range(1, 13))(count)
    return iter(MONTHS if count > 3 else [name[:3] for name in MONTHS])


def _weekdays(count: int) -> Iterator[str]:
    return iter(WEEKDAYS if count > 3 else [name[:3] for name in WEEKDAYS])


#: The texts of a field by its count, and which of them a moment has.
_TABLES: Final[dict[str, tuple[Callable[[int], Iterator[str]], Callable[[Column], Column]]]] = {
    "y": (_numbers(range(100)), lambda millis: F.year(_date(millis)) % 100),
    "M": (_months, lambda millis: F.month(_date(millis)) - 1),
    "L": (_months, lambda millis: F.month(_date(millis)) - 1),
    "d": (_numbers(range(1, 32)), lambda millis: F.dayofmonth(_date(millis)) - 1),
    "E": (_weekdays, lambda millis: F.pmod(_days(millis) + 4, F.lit(7))),
    "u": (_numbers(range(1, 8)), lambda millis: F.pmod(_days(millis) + 3, F.lit(7))),
    "a": (lambda count: iter(("AM", "PM")), lambda millis: _of_day(millis, 12 * 3_600_000)),
    "H": (_numbers(range(24)), lambda millis: _of_day(millis, 3_600_000)),
    "k": (_numbers([24, *range(1, 24)]), lambda millis: _of_day(millis, 3_600_000)),
    "K": (_numbers([*range(12)] * 2), lambda millis: _of_day(millis, 3_600_000)),
    "h": (_numbers([12, *range(1, 12)] * 2), lambda millis: _of_day(millis, 3_600_000)),
    "m": (_numbers(range(60)), lambda millis: _of_day(millis, 60_000) % 60),
    "s": (_numbers(range(60)), lambda millis: _of_day(millis, 1_000) % 60),
}


# ------------------------------------------------------------------------------------------------------------- reading
def read_usual(tokens: Sequence[Token], text: Column) -> Column | None:
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
    days = F.unix_date(date.try_cast("date")).cast("bigint")
    return F.when(days >= CUTOVER, days)
