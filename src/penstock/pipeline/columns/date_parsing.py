"""Text as moments: lenient ``SimpleDateFormat.parse`` in UTC and en_US.

A pattern becomes one regular expression with a group for each field, and arithmetic over the groups. The fields that
determine the date depend only on the pattern (Java's rule is "the latest ones set"), so they are chosen once.

Source: java.text.SimpleDateFormat.parse and subParse, java.text.CalendarBuilder,
java.util.GregorianCalendar.computeTime.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.data.text import CUTOVER, MILLIS_PER_DAY
from penstock.pipeline.columns.expressions import apart
from penstock.pipeline.columns.java_dates import (
    COLUMNS,
    ISO_ZONES,
    MONTHS,
    PLAIN,
    WEEKDAYS,
    Arithmetic,
    Named,
    PatternToken,
    Value,
    compile_pattern,
    quoted,
    sunday_before,
    zone_expression,
    zone_minutes,
    zone_minutes_column,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


_BLANKS: Final = "[ \\t]*+"
_NUMBER: Final = f"{_BLANKS}(-?[0-9]++(?:E-?[0-9]++)?+)"
_ERAS: Final = ("Before Christ", "Anno Domini", "BC", "AD")
_TEXTS: Final = {
    "M": (*MONTHS, *(name[:3] for name in MONTHS)),
    "E": (*WEEKDAYS, *(name[:3] for name in WEEKDAYS)),
    "a": ("AM", "PM"),
    "G": _ERAS,
}
_STARTS: Final = {
    "M": "".join(name[:3].lower() for name in MONTHS),
    "E": "".join(name[:3].lower() for name in WEEKDAYS),
}
_INT_MAX: Final = 2**31 - 1


def text_kind(token: PatternToken) -> str:
    """Returns the table of words that a field is read by; empty for numbers."""
    if token.letter in "ML":
        return "M" if token.count > 2 else ""
    return token.letter if token.letter in "EaG" else ""


def group_pattern(token: PatternToken, following: PatternToken | None) -> str:
    """The regular expression of a field, with one group; the same for Java and Python."""
    kind = text_kind(token)
    if kind:
        words = sorted(set(_TEXTS[kind]), key=len, reverse=True)
        return "((?i:" + "|".join(words) + "))"
    if token.letter in "zZ":
        return f"{_BLANKS}({zone_expression()})"
    if token.letter == "X":
        return f"{_BLANKS}({ISO_ZONES[token.count]})"
    if following is None or not following.letter or text_kind(following) or following.letter in "zZX":
        return _NUMBER
    return _window(token.count)


def _window(width: int) -> str:
    """A number with this many characters, leading blanks included: the next number follows without a separator."""
    choices = []
    for blanks in range(width):
        room = width - blanks
        forms = [f"[0-9]{{1,{room}}}"] if room == 1 else [f"-[0-9]{{1,{room - 1}}}", f"[0-9]{{1,{room}}}"]
        choices += [f"[ \\t]{{{blanks}}}{form}" for form in forms]
    return f"(?=(?s:.{{{width}}}))((?>{'|'.join(choices)}))"


# ------------------------------------------------------------------------------------------------- numbers of the texts
def is_two_digit_year(text: Value) -> Value:
    """True if the text of a year is two digits."""
    if isinstance(text, str):
        stripped = text.strip(" \t")
        return len(stripped) == 2 and stripped.isdigit()
    trimmed = F.trim(text, F.lit(" \t"))
    return (F.length(trimmed) == 2) & ~trimmed.startswith("-")


def value_of_text(token: PatternToken, text: str) -> int:
    """The number a text stands for, as Java's fields count."""
    kind = text_kind(token)
    low = text.lower()
    if kind in _STARTS:
        return _STARTS[kind].index(low[:3]) // 3 + (kind == "E")
    if kind:
        return int((low[0] in "pa" and kind == "G" and low[0] == "a") or low[0] == "p")
    if token.letter in "zZX":
        return zone_minutes(text)
    adjusted: int = _adjusted(PLAIN, token, _int32(text.strip(" \t")))
    return adjusted


def _int32(text: str) -> int:
    """Java's ``Number.intValue`` of a parsed number: wraps within 64 bits, and stops at the limits beyond."""
    mantissa, _, exponent = text.partition("E")
    number = _shifted(int(mantissa), int(exponent or 0))
    if -(2**63) <= number < 2**63:
        return (number + 2**31) % 2**32 - 2**31
    return _INT_MAX if number > 0 else -_INT_MAX - 1


def _shifted(number: int, places: int) -> int:
    # What is beyond int64 is all the same.
    return number * 10 ** min(places, 64) if places >= 0 else _cut(number, min(-places, 5_000))


def _cut(number: int, places: int) -> int:
    whole = abs(number) // int(f"1{'0' * places}")
    return -whole if number < 0 else whole


def _adjusted(math: Arithmetic, token: PatternToken, number: Value) -> Value:
    match token.letter:
        case "M" | "L":
            return number - 1
        case "k":
            return math.choose(number == 24, math.number(0), number)
        case "h":
            return math.choose(number == 12, math.number(0), number)
        case "u":
            other = math.choose((number >= 1) & (number <= 6), number + 1, number)
            return math.choose(number == 7, math.number(1), other)
        case _:
            return number


def value_of_column(token: PatternToken, text: Column) -> Column:
    """The same for columns (``bigint``); null for an empty text."""
    kind = text_kind(token)
    if kind in _STARTS:
        found = F.call_function("locate", F.lower(F.substring(text, 1, 3)), F.lit(_STARTS[kind]))
        index = F.call_function("div", found.cast("bigint") - 1, F.lit(3)) + (1 if kind == "E" else 0)
        return F.when(F.length(text) > 0, index)
    if kind:
        first = F.lower(F.substring(text, 1, 1))
        return F.when(F.length(text) > 0, (first == ("p" if kind == "a" else "a")).cast("bigint"))
    if token.letter in "zZX":
        return F.when(F.length(text) > 0, apart(text, zone_minutes_column))
    adjusted: Column = _adjusted(COLUMNS, token, _int32_column(F.trim(text, F.lit(" \t"))))
    return adjusted


def _int32_column(text: Column) -> Column:
    number = text.try_cast("bigint")
    wrapped = F.shiftright(F.shiftleft(number, 32), 32)
    # Too long for int64, or with an exponent. (Java wraps the few of these that would fit into int64.)
    double = text.try_cast("double")
    far = F.when(double.isNotNull(), F.greatest(F.least(double, F.lit(float(_INT_MAX))), F.lit(float(-_INT_MAX - 1))))
    return F.coalesce(wrapped, far.cast("bigint"))


# -------------------------------------------------------------------------------------------------- what they amount to
_SAME_FIELD: Final = {"L": "M", "Z": "z", "X": "z", "k": "H", "h": "K", "u": "E"}


@dataclass(frozen=True)
class DateFields:
    """The fields that are set: their numbers, and when each was set (from 1)."""

    values: Named
    stamps: dict[str, int]
    math: Arithmetic

    @classmethod
    def of(cls, tokens: Sequence[PatternToken], known: Named, math: Arithmetic) -> DateFields:
        """The fields of tokens whose numbers are called f0, f1 and so on; of two the later one counts."""
        values: dict[str, Value] = {}
        stamps: dict[str, int] = {}
        for index, token in enumerate(tokens):
            name = _SAME_FIELD.get(token.letter, token.letter)
            values[name] = known[f"f{index}"]
            stamps[name] = index + 1
        return cls(values, stamps, math)

    def a_century_later(self) -> DateFields:
        """The same with the year a hundred years on."""
        return replace(self, values={**self.values, **{n: self.values[n] + 100 for n in "yY" if n in self.values}})

    def stamp(self, *names: str) -> int:
        """Returns when the last of some fields was set; 0 unless all of them are."""
        found = [self.stamps.get(name, 0) for name in names]
        return max(found) if all(found) else 0

    def get(self, name: str, default: int) -> Value:
        """The number of a field."""
        return self.values[name] if name in self.values else self.math.number(default)

    def clock(self) -> Value:
        """Milliseconds from the time fields and the time zone."""
        halves = max(self.stamp("K", "a"), 0)
        of_day = self.stamps.get("H", 0)
        if not halves and not of_day:
            halves = max(self.stamps.get("K", 0), self.stamps.get("a", 0))
        hours = self.get("H", 0) if of_day >= halves else self.get("K", 0) + self.get("a", 0) * 12
        minutes = hours * 60 + self.get("m", 0) - self.get("z", 0)
        return (minutes * 60 + self.get("s", 0)) * 1000 + self.get("S", 0)


def day_of(math: Arithmetic, fields: DateFields) -> Value:
    """The day, in days since 1970."""
    if fields.stamps.get("Y", 0) > fields.stamps.get("y", 0):
        return _week_date(math, fields)
    year = fields.get("y", 1970)
    if "G" in fields.values:
        before_christ = fields.values["G"] == 0
        year = math.choose(before_christ, year * -1 + 1, year)
    place = _place(fields)

    def days(gregorian: bool) -> Value:
        return place(math, fields, year, gregorian)

    def chosen(made: Named) -> Value:
        # Years before the change of calendars are Julian, however far the other fields lead.
        new = made["new"]
        if isinstance(new, int):
            return new if year >= 1582 and new >= CUTOVER else days(False)
        return math.choose((year >= 1582) & (new >= CUTOVER), new, days(False))

    return math.let({"new": days(True)}, chosen)


_Place = Callable[[Arithmetic, DateFields, Value, bool], Value]


def _place(fields: DateFields) -> _Place:
    """Returns the fields that determine the day: the fields that were set last."""
    stamps = fields.stamps
    of_month, weekday = stamps.get("d", 0), stamps.get("E", 0)
    week_of_month, in_month = fields.stamp("W", "E"), fields.stamp("F", "E")
    of_year, week_of_year = stamps.get("D", 0), fields.stamp("w", "E")
    best = max(of_month, week_of_month, in_month, of_year, week_of_year)
    if not best:
        week_of_month = stamps.get("W", 0)
        in_month = max(stamps.get("F", 0), weekday)
        week_of_year = stamps.get("w", 0)
        best = max(week_of_month, in_month, week_of_year)
        if not best:
            return _by_day
    if best == of_month:
        return _by_day
    if best == week_of_month and stamps.get("W", 0) >= stamps.get("w", 0):
        if week_of_month == in_month and stamps.get("W", 0) < stamps.get("F", 0):
            return _by_weekday_in_month
        return _by_week_of_month
    if best == in_month and stamps.get("F", 0) >= stamps.get("w", 0):
        return _by_weekday_in_month
    return _by_day_of_year if best == of_year else _by_week_of_year


def _month(math: Arithmetic, fields: DateFields, year: Value, gregorian: bool) -> Value:
    return math.first_of_month(year, fields.get("M", 0) + year * 0, gregorian=gregorian)


def _by_day(math: Arithmetic, fields: DateFields, year: Value, gregorian: bool) -> Value:
    return _month(math, fields, year, gregorian) + fields.get("d", 1) - 1


def _by_day_of_year(math: Arithmetic, fields: DateFields, year: Value, gregorian: bool) -> Value:
    return math.first_of_month(year, year * 0, gregorian=gregorian) + fields.get("D", 1) - 1


def _on_or_before(math: Arithmetic, day: Value, weekday: Value) -> Value:
    """The last such weekday (Sunday is 1) up to a day."""
    return day - math.mod(day + 5 - weekday, 7)


def _by_week_of_month(math: Arithmetic, fields: DateFields, year: Value, gregorian: bool) -> Value:
    first = sunday_before(math, _month(math, fields, year, gregorian))
    if "E" in fields.values:
        first = _on_or_before(math, first + 6, fields.values["E"])
    return first + (fields.get("W", 1) - 1) * 7


def _by_weekday_in_month(math: Arithmetic, fields: DateFields, year: Value, gregorian: bool) -> Value:
    first = _month(math, fields, year, gregorian)
    weekday, count = fields.get("E", 1), fields.get("F", 1)
    forward = _on_or_before(math, first + count * 7 - 1, weekday)
    if "F" not in fields.values:
        return forward
    month = fields.get("M", 0)
    length = math.first_of_month(year, month + 1 + year * 0, gregorian=gregorian) - first
    backward = _on_or_before(math, first + length + (count + 1) * 7 - 1, weekday)
    return math.choose(count >= 0, forward, backward)


def _by_week_of_year(math: Arithmetic, fields: DateFields, year: Value, gregorian: bool) -> Value:
    first = sunday_before(math, math.first_of_month(year, year * 0, gregorian=gregorian))
    if "E" in fields.values:
        weekday = fields.values["E"]
        first = math.choose(weekday == 1, first, _on_or_before(math, first + 6, weekday))
    return first + (fields.get("w", 1) - 1) * 7


def _week_date(math: Arithmetic, fields: DateFields) -> Value:
    """A day by year of weeks, week and weekday; weekdays beyond the seven move the week."""
    year, week, weekday = fields.values["Y"], fields.get("w", 1), fields.get("E", 1)
    new_year = math.first_of_month(year, year * 0, gregorian=True)
    old = math.first_of_month(year, year * 0, gregorian=False)
    start = sunday_before(math, math.choose(new_year >= CUTOVER, new_year, old))
    if "E" not in fields.values:
        return start + (week - 1) * 7
    high, low = weekday >= 8, weekday <= 0
    index = math.choose(high, math.mod(weekday - 1, 7) + 1, math.choose(low, math.mod(weekday + 6, 7) + 1, weekday))
    moved = math.choose(high, math.div(weekday - 1, 7), math.choose(low, math.div(weekday - 1, 7), weekday * 0))
    # Java counts such numbers as those of ISO, which begins with Monday.
    iso = math.choose(index == 7, index * 0 + 1, index + 1)
    day = math.choose(high | low, iso, index)
    return start + (week + moved - 1) * 7 + day - 1


# ------------------------------------------------------------------------------------------------------ usual patterns
#: Widths at which text has one meaning only.
_WIDTHS: Final = {"y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "S": 3}
_UNITS: Final = {"H": 3_600_000, "m": 60_000, "s": 1_000, "S": 1}
_CUTOVER_TEXT: Final = "1582-10-15"
_ISO_DATE: Final = "yyyy-MM-dd"
#: The values of fields that a pattern lacks.
_LACKING: Final = {"y": "1970", "M": "01", "d": "01"}


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
    if not at.keys() & _LACKING.keys():
        return F.lit(0).cast("bigint")
    found = template.find(_ISO_DATE)
    if found >= 0 and [at.get(letter, -1) - found for letter in _LACKING] == [0, 5, 8]:
        date = F.substring(text, found + 1, len(_ISO_DATE))
    else:
        pieces = [_piece(text, at, letter) if letter in at else F.lit(start) for letter, start in _LACKING.items()]
        date = F.concat_ws("-", *pieces)
    # All have one width, so that texts compare as dates do.
    return F.when(date >= _CUTOVER_TEXT, F.unix_date(date.try_cast("date")).cast("bigint"))


_SEPARATOR: Final = "\x01"
#: The number of years before now at which the window of two-digit years begins.
CENTURY: Final = 80


@dataclass(frozen=True)
class DateParser:
    """Reads text by a pattern.

    Attributes:
        century_start: Where the hundred years begin that two-digit years stand for: milliseconds since 1970.
    """

    pattern: str
    century_start: int = 0
    century_year: int = 1970

    @cached_property
    def _tokens(self) -> tuple[PatternToken, ...]:
        return compile_pattern(self.pattern)

    @cached_property
    def _fields(self) -> tuple[PatternToken, ...]:
        return tuple(token for token in self._tokens if token.letter)

    @cached_property
    def _expression(self) -> str:
        parts: list[str] = []
        for index, token in enumerate(self._tokens):
            following = self._tokens[index + 1] if index + 1 < len(self._tokens) else None
            parts.append(group_pattern(token, following) if token.letter else quoted(token.text))
        return "".join(parts)

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._expression)

    # ------------------------------------------------------------------ one value
    def parse(self, text: str) -> int | None:
        """The moment in milliseconds since 1970; None where the text does not fit the pattern.

        >>> DateParser("yyyy-MM-dd").parse("2017-13-45"), DateParser("HH:mm").parse("soon")
        (1518566400000, None)
        """
        match = self._compiled.match(_ascii_digits(text))
        if match is None:
            return None
        raw = {
            f"f{index}": value_of_text(token, group)
            for index, (token, group) in enumerate(zip(self._fields, match.groups(), strict=True))
        }
        short = {index: is_two_digit_year(group) for index, group in enumerate(match.groups())}
        result: int = self._moment(PLAIN, raw, short)
        return result

    # ------------------------------------------------------------------ columns
    def column(self, text: Column) -> Column:
        """The moment of each text; null where it does not fit the pattern. ``text`` is used several times."""
        if not self._fields:
            fits = text.startswith("".join(token.text for token in self._tokens))
            return F.when(fits, F.lit(0).cast("bigint"))
        usual = read_usual(self._tokens, text)
        if usual is None:
            return apart(text, self._lenient)
        return F.coalesce(usual, F.when(text.isNotNull(), apart(text, self._lenient)))

    def _lenient(self, text: Column) -> Column:
        plain = F.octet_length(text) == F.length(text)
        digits = F.when(plain, text).otherwise(apart(text, ascii_digits_column))
        groups = "".join(f"{_SEPARATOR}${index + 1}" for index in range(len(self._fields)))
        # Where the pattern does not fit, the second branch leaves every group empty.
        taken = F.regexp_replace(digits, f"(?s)^(?:{self._expression}.*|.*)$", groups)

        def moment(parts: Column) -> Column:
            texts = {f"f{index}": F.get(parts, F.lit(index + 1)) for index in range(len(self._fields))}
            values = {
                f"f{index}": value_of_column(token, texts[f"f{index}"]) for index, token in enumerate(self._fields)
            }
            short = {index: is_two_digit_year(texts[f"f{index}"]) for index in range(len(self._fields))}
            result: Column = self._moment(COLUMNS, values, short)
            return result

        return apart(F.split(taken, _SEPARATOR), moment)

    # ------------------------------------------------------------------ both
    def _moment(self, math: Arithmetic, raw: Named, short: dict[int, Value]) -> Value:
        """The moment of the fields' numbers; ``short`` says which of the texts are two digits."""
        values = dict(raw)
        ambiguous: Value | None = None
        for index, token in enumerate(self._fields):
            if token.letter in "yY" and token.count <= 2:
                # Two digits are a year of the hundred that begin with century_start.
                start = self.century_year % 100
                year = values[f"f{index}"]
                base = year + (self.century_year - start)
                full = math.choose(year < start, base + 100, base)
                doubtful = short[index] & (year == start)
                ambiguous = doubtful if ambiguous is None else ambiguous | doubtful
                values[f"f{index}"] = math.choose(short[index], full, year)
        if ambiguous is not None:
            values["ambiguous"] = ambiguous
        return math.let(values, lambda known: self._resolved(math, known, ambiguous is not None))

    def _resolved(self, math: Arithmetic, known: Named, doubtful: bool) -> Value:
        fields = DateFields.of(self._fields, known, math)
        moment = self._sum(math, fields)
        if not doubtful:
            return moment
        later = self._sum(math, fields.a_century_later())
        return math.choose(known["ambiguous"] & (moment < self.century_start), later, moment)

    def _sum(self, math: Arithmetic, fields: DateFields) -> Value:
        clock = fields.clock()
        days = day_of(math, fields)
        return math.moment(days, clock)


def _ascii_digits(text: str) -> str:
    if text.isascii():
        return text
    return "".join(str(int(char)) if char.isdecimal() and not char.isascii() else char for char in text)


_DECIMALS: Final = "".join(chr(code) for code in range(0x80, 0x10000) if chr(code).isdecimal())


def ascii_digits_column(text: Column) -> Column:
    """Text with every decimal digit of Unicode as the one of ASCII."""
    return F.translate(text, _DECIMALS, "".join(str(int(char)) for char in _DECIMALS))
