"""Java's ``SimpleDateFormat`` (lenient, UTC, en_US): patterns, calendar arithmetic, and moments as text.

Java's calendar is the Julian one before 15 October 1582, has no limits that matter, and lets every field roll over; so
neither Spark's nor Python's date functions will do outside of a narrow range. The arithmetic is written once, for
Python integers and for columns (``date_parsing`` has the way back). Usual patterns have short expressions, which take
a tenth of the time. A name of a time zone stands for one offset, the one its zone has now; Java looks up what the zone
had at that time.

Source: java.text.SimpleDateFormat (compile, format, subParseZoneString, subParseNumericZone),
java.text.DateFormatSymbols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import functions as F

from penstock.data.text import CUTOVER, MILLIS_PER_DAY, civil
from penstock.pipeline.columns.expressions import apart

if TYPE_CHECKING:
    from pyspark.sql import Column

    from penstock.pipeline.plan.step import NameColumn


_HOURS: Final = "(?:[01][0-9]|2[0-3])"
_MINUTES: Final = "[0-5][0-9]"
ISO_ZONES: Final = {1: f"Z|[+-]{_HOURS}", 2: f"Z|[+-]{_HOURS}{_MINUTES}", 3: f"Z|[+-]{_HOURS}:{_MINUTES}"}
_OFFSET: Final = re.compile(r"(?i)^(?:GMT)?([+-])([0-9]{1,2}):?([0-9]{2})?$")


@lru_cache(maxsize=1)
def zone_names() -> dict[str, int]:
    """Names, in the order in which they are tried, with their minutes ahead of UTC."""
    text = resources.files(__package__).joinpath("zones.txt").read_text("utf-8")
    rows = (line.rpartition("=") for line in text.splitlines() if line and not line.startswith("#"))
    return {name.lower(): int(minutes) for name, _, minutes in rows}


@lru_cache(maxsize=1)
def zone_expression() -> str:
    """The regular expression of ``z`` and ``Z``, for Java and Python."""
    names = "|".join(re.sub(r"([^A-Za-z0-9 ])", r"\\\1", name) for name in zone_names())
    short = f"(?:{_HOURS}|[0-9](?=:)):{_MINUTES}"
    return f"(?>[+-]{_HOURS}{_MINUTES}|(?i:GMT)(?:(?![+-])|[+-]{short})|(?i:(?!GMT)(?:{names})))"


def zone_minutes(text: str) -> int:
    """Minutes ahead of UTC."""
    found = _OFFSET.match(text)
    if found is None:
        return zone_names().get(text.lower(), 0)
    sign, hours, minutes = found.groups()
    ahead = int(hours) * 60 + int(minutes or 0)
    return -ahead if sign == "-" else ahead


def zone_minutes_column(text: Column) -> Column:
    """The same for a column (``bigint``)."""
    digits = F.regexp_extract(text, "(?i)^(?:GMT)?[+-]([0-9:]+)$", 1)
    plain = F.replace(digits, F.lit(":"), F.lit(""))
    # One or two digits are only hours, three or four have minutes.
    full = F.when(F.length(plain) <= 2, F.concat(plain, F.lit("00"))).otherwise(plain)
    number = full.try_cast("bigint")
    ahead = F.call_function("div", number, F.lit(100)) * 60 + number % 100
    negative = F.contains(text, F.lit("-"))
    # One literal: a map of hundreds of them would be looked at by every rule of the optimizer.
    names = ";".join(f"{name}={minutes}" for name, minutes in zone_names().items())
    known = F.str_to_map(F.lit(names), F.lit(";"), F.lit("="))
    named = F.coalesce(F.try_element_at(known, F.lower(text)).try_cast("bigint"), F.lit(0).cast("bigint"))
    return F.when(F.length(digits) == 0, named).when(negative, -ahead).otherwise(ahead)


MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def constant_text(token: PatternToken) -> str | None:
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


LETTERS: Final = frozenset("GyMdkHmsSEDFwWahKzZYuXL")


class DatePatternError(ValueError):
    """A pattern that Java refuses, with Java's text."""

    java_name: ClassVar[str] = "java.lang.IllegalArgumentException"


@dataclass(frozen=True, slots=True)
class PatternToken:
    """A field (``letter``, as often as ``count``) or, without a letter, ``text`` that stands for itself."""

    letter: str = ""
    count: int = 0
    text: str = ""


#: A regular expression that is several times as long is made of a pattern, and Spark plans each of its fields.
_LONGEST: Final = 1_000


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> tuple[PatternToken, ...]:
    """The parts of a pattern.

    Raises:
        DatePatternError: a letter that means nothing, a quote without end, an impossible ``X``; too many letters.

    >>> [token.letter * token.count or token.text for token in compile_pattern("yyyy-MM'T'''HH")]
    ['yyyy', '-', 'MM', "T'", 'HH']
    """
    if len(pattern) > _LONGEST:
        raise DatePatternError(f"A pattern has {_LONGEST} characters at most, and this one has {len(pattern)}")
    tokens: list[PatternToken] = []
    at, quoted = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            if pattern[at + 1 : at + 2] == "'":
                _add_text(tokens, "'")
                at += 2
                continue
            quoted = not quoted
            if quoted:
                # Parts of one letter on both sides of a quoted text are two fields.
                tokens.append(PatternToken())
        elif quoted or not (char.isascii() and char.isalpha()):
            _add_text(tokens, char)
        elif char not in LETTERS:
            raise DatePatternError(f"Illegal pattern character '{char}'")
        elif tokens and tokens[-1].letter == char:
            tokens[-1] = PatternToken(char, tokens[-1].count + 1)
        else:
            tokens.append(PatternToken(char, 1))
        at += 1
    if quoted:
        raise DatePatternError("Unterminated quote")
    for token in tokens:
        if token.letter == "X" and token.count > 3:
            raise DatePatternError(f"invalid ISO 8601 format: length={token.count}")
    return tuple(token for token in tokens if token.letter or token.text)


def _add_text(tokens: list[PatternToken], text: str) -> None:
    if tokens and not tokens[-1].letter:
        tokens[-1] = PatternToken(text=tokens[-1].text + text)
    else:
        tokens.append(PatternToken(text=text))


def quoted(text: str) -> str:
    """Text that stands for itself, in Java's and in Python's expressions."""
    return "".join(char if char.isalnum() or ord(char) > 127 else f"\\x{ord(char):02x}" for char in text)


#: 1 March 2000, where a cycle of 400 years begins, and 1 March 1904, where one of four years does.
_CYCLE_START: Final = 11_017
_OLD_CYCLE_START: Final = -24_047
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
    """Arithmetic on columns; numbers are ``bigint``.

    Columns never raise: divisors are constants, and what may overflow uses Spark's ``try_`` forms.
    """

    def number(self, value: int) -> Value:
        return F.lit(value).cast("bigint")

    def div(self, number: Value, divisor: int) -> Value:
        n = F.lit(divisor)
        return F.call_function("div", number, n) - F.when(number % n < 0, F.lit(1)).otherwise(F.lit(0))

    def part(self, number: Value, divisor: int) -> Value:
        return F.call_function("div", number, F.lit(divisor))

    def mod(self, number: Value, divisor: int) -> Value:
        return F.pmod(number, F.lit(divisor))

    def civil(self, days: Value, body: Callable[[Named], Value]) -> Value:
        """See ``PythonArithmetic``. Spark is asked about the same day of a cycle that it knows."""
        # Both calendars repeat: Spark is asked about the same day of a cycle it knows, and years are added.
        old = days < CUTOVER
        cycle = F.when(old, F.lit(1_461)).otherwise(F.lit(146_097)).cast("bigint")
        start = F.when(old, F.lit(-719_470)).otherwise(F.lit(_CYCLE_START)).cast("bigint")
        shifted = days - start
        same = F.date_from_unix_date(
            (F.pmod(shifted, cycle) + F.when(old, _OLD_CYCLE_START).otherwise(_CYCLE_START)).cast("int")
        )
        cycles = F.call_function("div", shifted - F.pmod(shifted, cycle), cycle)
        years = F.when(old, cycles * 4 - 1904).otherwise(cycles * 400)

        def parts(known: Named) -> Value:
            same = known["date"]
            year = F.year(same) + known["years"]
            return self.let({"year": year, "month": F.month(same) - 1, "day": F.dayofmonth(same)}, body)

        return self.let({"date": same, "years": years}, parts)

    def first_of_month(self, year: Value, month: Value, *, gregorian: bool) -> Value:
        # The years from 1970 on begin a cycle in both calendars, which were 13 days apart then.
        months = (year - 1970) * 12 + month
        size, days, apart = (4_800, 146_097, 0) if gregorian else (48, 1_461, 13)
        within = F.add_months(F.lit(_EPOCH), F.pmod(months, F.lit(size)).cast("int"))
        return F.unix_date(within).cast("bigint") + self.div(months, size) * days + apart

    def choose(self, condition: Value, yes: Value, no: Value) -> Value:
        return F.when(condition, yes).otherwise(no)

    def let(self, values: Named, body: Callable[[Named], Value]) -> Value:
        """See ``PythonArithmetic``. The values are one struct."""
        struct = F.struct(*[F.lit(value).alias(name) for name, value in values.items()])
        return apart(struct, lambda made: body({name: made.getField(name) for name in values}))

    def digits(self, number: Value, width: int) -> Value:
        text = number.cast("string")
        if width <= 1:
            return text
        return F.lpad(text, F.greatest(F.length(text), F.lit(width)), F.lit("0"))

    def signed(self, number: Value, width: int) -> Value:
        digits = self.digits(F.abs(number), width)
        return F.when(number < 0, F.concat(F.lit("-"), digits)).otherwise(digits)

    def pick(self, texts: Sequence[str], index: Value) -> Value:
        return F.get(F.array(*[F.lit(text) for text in texts]), index.cast("int"))

    def join(self, texts: Sequence[Value]) -> Value:
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
_TABLE_ENDS: Final = "\x1f"


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


def _literal(text: str) -> list[Column]:
    return [F.lit(text)] if text else []


def _printed(token: PatternToken, before: str, moment: Moment) -> list[Column]:
    """A field, preceded by the text before it."""
    letter, count = token.letter, token.count
    if letter == "y" and count != 2:
        year = F.year(moment.date).cast("string")
        padded = F.concat(F.lit("0" * (count - 4)), year) if count > 4 else year
        far = F.format_string(f"%0{count}d", _far_year(moment))
        return [*_literal(before), F.when(_is_near(moment.millis), padded).when(moment.millis.isNotNull(), far)]
    if letter == "S":
        digits = (F.pmod(moment.millis, F.lit(1_000)) + 1_000).cast("string")
        return [*_literal(before + "0" * (count - 3)), F.substring(digits, 2, 3)]
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


def _number_texts(numbers: Sequence[int]) -> Callable[[int], Iterator[str]]:
    return lambda count: (f"{number:0{count}}" for number in numbers)


def _months(count: int) -> Iterator[str]:
    if count < 3:
        return _number_texts(range(1, 13))(count)
    return iter(MONTHS if count > 3 else [name[:3] for name in MONTHS])


def _weekdays(count: int) -> Iterator[str]:
    return iter(WEEKDAYS if count > 3 else [name[:3] for name in WEEKDAYS])


#: The texts of a field by its count, and which of them a moment has.
_TABLES: Final[dict[str, tuple[Callable[[int], Iterator[str]], Callable[[Moment], Column]]]] = {
    "y": (_number_texts(range(100)), _short_year),
    "M": (_months, lambda moment: F.month(moment.date) - 1),
    "L": (_months, lambda moment: F.month(moment.date) - 1),
    "d": (_number_texts(range(1, 32)), lambda moment: F.dayofmonth(moment.date) - 1),
    "E": (_weekdays, lambda moment: _weekday(moment, 4)),
    "u": (_number_texts(range(1, 8)), lambda moment: _weekday(moment, 3)),
    "a": (lambda count: iter(("AM", "PM")), lambda moment: _of_day(moment, 12 * 3_600_000)),
    "H": (_number_texts(range(24)), lambda moment: _of_day(moment, 3_600_000)),
    "k": (_number_texts([24, *range(1, 24)]), lambda moment: _of_day(moment, 3_600_000)),
    "K": (_number_texts([*range(12)] * 2), lambda moment: _of_day(moment, 3_600_000)),
    "h": (_number_texts([12, *range(1, 12)] * 2), lambda moment: _of_day(moment, 3_600_000)),
    "m": (_number_texts(range(60)), lambda moment: _of_day(moment, 60_000) % 60),
    "s": (_number_texts(range(60)), lambda moment: _of_day(moment, 1_000) % 60),
}


def print_millis(tokens: Sequence[PatternToken], millis: int) -> str:
    """The text of a moment, in milliseconds since 1970.

    >>> from penstock.pipeline.columns.java_dates import compile_pattern
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
            form, places = numbers
            return form % tuple([fields[place] for place in places])
    text = _text(PLAIN, tokens, millis)
    assert isinstance(text, str)
    return text


@lru_cache(maxsize=512)
def _numbers(tokens: tuple[PatternToken, ...]) -> tuple[str, tuple[int, ...]] | None:
    """The format of a pattern that consists only of numbers, as most do, and the field of each; else None."""
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
    return form, tuple(places)


def print_column(tokens: Sequence[PatternToken], millis: Column, keep: NameColumn | None = None) -> Column:
    """The text of each moment.

    Args:
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
