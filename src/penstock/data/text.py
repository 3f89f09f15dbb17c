"""Text forms of values, as Java prints and reads them, for structs, string converters, headers and error messages.

``to_java_text`` prints any Connect value, ``java_double`` and ``java_float`` numbers; ``json_string`` escapes a text as
Java's JSON writer does. ``parse_date``, ``parse_time`` and ``parse_timestamp`` read the three ISO patterns of headers,
``format_millis`` and ``java_date`` write dates and times.

Java's ``SimpleDateFormat`` lets fields roll over (``2019-13-45``), stops when the pattern ends (``2019-08-2x``) and
uses the Julian calendar before 15 October 1582. Moments are in UTC and in milliseconds since 1970.

Owning thread: none; pure functions.
"""

from __future__ import annotations

import decimal
import json
import math
import re
import struct as binary
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.data.logical import Date, FarMoment, Time, Timestamp
from penstock.data.schema import Schema, Type

if TYPE_CHECKING:
    from penstock.data.structs import Struct

MILLIS_PER_DAY: Final = 86_400_000

_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_NUMBER: Final = r"[ \t]*(-?\d+)"
_DATE_PATTERN: Final = f"{_NUMBER}-{_NUMBER}-{_NUMBER}"
_TIME_PATTERN: Final = rf"{_NUMBER}:{_NUMBER}:{_NUMBER}\.{_NUMBER}Z"
_DATE: Final = re.compile(_DATE_PATTERN)
_TIME: Final = re.compile(_TIME_PATTERN)
_TIMESTAMP: Final = re.compile(f"{_DATE_PATTERN}T{_TIME_PATTERN}")

#: The first day of the Gregorian calendar, 15 October 1582, in days since 1970.
CUTOVER: Final = -141_427


def parse_date(text: str) -> int | None:
    """Milliseconds of ``yyyy-MM-dd``; None if the text does not match.

    >>> parse_date("1970-01-02"), parse_date("1970-13-01") == parse_date("1971-01-01"), parse_date("soon")
    (86400000, True, None)
    """
    match = _DATE.match(text)
    if match is None:
        return None
    year, month, day = map(int, match.groups())
    return _days(year, month, day) * MILLIS_PER_DAY


def parse_time(text: str) -> int | None:
    """Milliseconds of ``HH:mm:ss.SSS'Z'``; None if the text does not match.

    >>> parse_time("14:34:54.346Z")
    52494346
    """
    match = _TIME.match(text)
    return None if match is None else _clock(*map(int, match.groups()))


def parse_timestamp(text: str) -> int | None:
    """Milliseconds of ``yyyy-MM-dd'T'HH:mm:ss.SSS'Z'``; None if the text does not match.

    >>> parse_timestamp("2019-08-23T14:34:54.346Z")
    1566570894346
    """
    match = _TIMESTAMP.match(text)
    if match is None:
        return None
    year, month, day, *clock = map(int, match.groups())
    return _days(year, month, day) * MILLIS_PER_DAY + _clock(*clock)


def format_millis(millis: int) -> str:
    """Prints a moment: below one day as a time, whole days as a date, otherwise as a timestamp.

    >>> format_millis(0), format_millis(-1), format_millis(86_400_000), format_millis(86_400_001)
    ('00:00:00.000Z', '23:59:59.999Z', '1970-01-02', '1970-01-02T00:00:00.001Z')
    """
    days, rest = divmod(millis, MILLIS_PER_DAY)
    seconds, milli = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    clock = f"{hour:02}:{minute:02}:{second:02}.{milli:03}Z"
    if millis < MILLIS_PER_DAY:
        return clock
    year, month, day = civil(days)
    return f"{year:04}-{month:02}-{day:02}" if rest == 0 else f"{year:04}-{month:02}-{day:02}T{clock}"


def java_date(millis: int) -> str:
    """A moment as ``java.util.Date.toString`` prints it in UTC.

    >>> java_date(0), java_date(-12_219_292_800_001)
    ('Thu Jan 01 00:00:00 UTC 1970', 'Thu Oct 04 23:59:59 UTC 1582')
    """
    days, rest = divmod(millis, MILLIS_PER_DAY)
    minutes, second = divmod(rest // 1000, 60)
    year, month, day = civil(days)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    # The year of its era: 1 BC and 1 AD are both 1.
    return f"{_WEEKDAYS[(days + 3) % 7]} {_MONTHS[month - 1]} {day:02} {clock} UTC {year if year > 0 else 1 - year}"


def _clock(hour: int, minute: int, second: int, milli: int) -> int:
    return ((hour * 60 + minute) * 60 + second) * 1000 + milli


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date whose month and day may be out of range."""
    extra_years, month_index = divmod(month - 1, 12)
    year += extra_years
    days = _month(year, month_index, gregorian=True) + day - 1
    return days if days >= CUTOVER else _month(year, month_index, gregorian=False) + day - 1


def _month_days(month_index: int) -> int:
    """Days from 1 March to the first day of a month; months count from March."""
    return (153 * month_index + 2) // 5


def _month(year: int, month_index: int, *, gregorian: bool) -> int:
    """Days from 1970 to the first day of a month."""
    march_year, march_month = (year, month_index - 2) if month_index >= 2 else (year - 1, month_index + 10)
    days = march_year * 365 + march_year // 4 + _month_days(march_month)
    return days - march_year // 100 + march_year // 400 - 719_468 if gregorian else days - 719_470


def civil(days: int) -> tuple[int, int, int]:
    """Year (0 is 1 BC), month and day of a day number since 1970; Julian calendar before 15 October 1582."""
    gregorian = days >= CUTOVER
    # Years begin on 1 March here, so that a leap day is the last day of its year.
    era, day = divmod(days + 719_468, 146_097) if gregorian else divmod(days + 719_470, 1_461)
    century = day // 36_524 - day // 146_096 if gregorian else 0
    of_era = (day - day // 1_460 + century) // 365
    of_year = day - (of_era * 365 + of_era // 4 - (of_era // 100 if gregorian else 0))
    march_month = (of_year * 5 + 2) // 153
    month = march_month + 3 if march_month < 10 else march_month - 9
    return era * (400 if gregorian else 4) + of_era + (month <= 2), month, of_year - _month_days(march_month) + 1


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPE: Final = re.compile(r"\\(?:u00[0-9a-f]{2}|.)")
#: Numbers between these bounds are printed without an exponent.
PLAIN_FROM, PLAIN_TO = 1e-3, 1e7
_TEXT: Final = frozenset((str,))
_BEYOND: Final = re.compile("[\U00010000-\U0010ffff]")


class Float32(float):
    """A schemaless FLOAT32, as Cast makes them: a float that prints like Java's ``Float``."""

    __slots__ = ()


def round_to_float32(value: float) -> float:
    """The float32 nearest to a float, infinite when it is out of range: Java's cast to ``float``.

    >>> round_to_float32(0.1), round_to_float32(1e39)
    (0.10000000149011612, inf)
    """
    try:
        return float(binary.unpack(">f", binary.pack(">f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def nearest_float32(value: int | decimal.Decimal) -> float:
    """The float32 nearest to an exact number, infinite when it is out of range.

    Rounding to a float64 first would round twice; that matters only if the float64 is halfway between two float32.
    """
    try:
        double = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    single = round_to_float32(double)
    if single == double or math.isinf(single):
        return single
    other = double + (double - single)
    if round_to_float32(other) != other:
        return single
    exact = decimal.Decimal(double).compare(decimal.Decimal(value))
    if exact == 0:
        return single
    return max(single, other) if exact < 0 else min(single, other)


def java_double(value: float) -> str:
    """A FLOAT64 as ``Double.toString`` of Java 19 and later prints it.

    >>> java_double(1.0), java_double(1e7), java_double(0.0001), java_double(-0.0), java_double(5e-324)
    ('1.0', '1.0E7', '1.0E-4', '-0.0', '4.9E-324')
    """
    # Without an exponent Python and Java print the same shortest digits.
    return repr(value) if PLAIN_FROM <= abs(value) < PLAIN_TO else _java_number(value, repr(value))


def java_float(value: float) -> str:
    """A FLOAT32 as ``Float.toString`` of Java 19 and later prints it: the shortest digits that give the same float32.

    >>> java_float(0.3), java_float(16777216.0), java_float(1.4e-45)
    ('0.3', '1.6777216E7', '1.4E-45')
    """
    value = round_to_float32(value)
    if not math.isfinite(value):
        return _java_number(value, "")
    texts = (f"{value:.{digits}e}" for digits in range(10))
    text = next(text for text in texts if round_to_float32(float(text)) == value)
    return _java_number(value, text)


def _java_number(value: float, shortest: str) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0.0"
    digits, point = _digits_and_point(shortest)
    if len(digits) == 1:
        # Java always prints at least two digits, so these are the nearest two.
        digits, point = _digits_and_point(f"{value:.1e}")
    if PLAIN_FROM <= abs(value) < PLAIN_TO:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _digits_and_point(text: str) -> tuple[str, int]:
    """The digits and the position of the point: the magnitude is 0.DIGITS * 10**point."""
    _, digits, exponent = decimal.Decimal(text).as_tuple()
    return "".join(map(str, digits)).rstrip("0"), len(digits) + cast("int", exponent)


def java_decimal(value: decimal.Decimal) -> str:
    """A Decimal as ``BigDecimal.toString`` prints it.

    >>> java_decimal(decimal.Decimal("12.30")), java_decimal(decimal.Decimal(1).scaleb(3))
    ('12.30', '1E+3')
    """
    # Python follows the same rule (the decimal arithmetic specification) but keeps the sign of zero.
    return str(value.copy_abs() if value.is_zero() else value)


def json_string(value: str) -> str:
    """A JSON string as Jackson escapes it: characters that are two in Java are escaped in upper-case hex, no other
    non-ASCII.

    >>> print(json_string("é\\n\\x1f\\U0001f600"))
    "é\\n\\u001F\\uD83D\\uDE00"
    """
    text = json.dumps(value, ensure_ascii=False)
    if "\\u00" in text:
        text = _ESCAPE.sub(lambda found: "\\u" + found[0][2:].upper() if found[0][1] == "u" else found[0], text)
    return _BEYOND.sub(_surrogates, text) if max(text) > "\uffff" else text


def _surrogates(found: re.Match[str]) -> str:
    high, low = divmod(ord(found[0]) - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}"


def to_java_text(value: object, schema: Schema | None = None) -> str:
    """A Connect value as Java's ``toString`` prints it.

    Args:
        value: The value.
        schema: Its schema, if any: distinguishes FLOAT32 from FLOAT64, and raw temporal numbers from integers.

    >>> to_java_text({"source": 1, "line": [1, None, True]}), to_java_text(b"a")
    ('{line=[1, null, true], source=1}', '[B@e8b7be43')
    """
    if schema is None and (text := _TEXTS.get(value.__class__)) is not None:
        return text(value)
    match value:
        case None:
            return "null"
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case FarMoment():
            return java_date(value.millis)
        case int():
            return _temporal_text(value, schema) if schema is not None and schema.name is not None else str(int(value))
        case float():
            single = value.__class__ is Float32 if schema is None else schema.type is Type.FLOAT32
            return java_float(value) if single else java_double(value)
        case decimal.Decimal():
            return java_decimal(value)
        case bytes() | bytearray() | memoryview():
            # Java prints an address here, which Python's bytes do not have.
            return f"[B@{zlib.crc32(value):x}"
        case list() | tuple():
            return _list_text(value, None if schema is None else schema._value_schema)
        case dict():
            if schema is None:
                return _map_text(value)
            keys, values = schema._key_schema, schema._value_schema
            return "{" + ", ".join(f"{to_java_text(k, keys)}={to_java_text(v, values)}" for k, v in value.items()) + "}"
        case datetime() | date() | time():
            return _date_text(value)
        case _:
            return _other_text(value)


def in_order(value: dict[Any, object]) -> Iterable[tuple[object, object]]:
    """The pairs of a schemaless map, which has no order of its own; sorted by key if all keys are texts."""
    return sorted(value.items(), key=lambda pair: _utf16(str(pair[0]))) if has_text_keys(value) else value.items()


def has_text_keys(value: Mapping[Any, object]) -> bool:
    """True if all keys of a map are strings."""
    return {*map(type, value)} <= _TEXT or all(isinstance(key, str) for key in value)


def _hash_map(value: dict[Any, object]) -> Iterable[tuple[object, object]]:
    if not has_text_keys(value):
        return value.items()
    return ((name, value[name]) for name in hash_map_order(tuple(value)))


def _map_text(value: dict[Any, object]) -> str:
    return "{" + ", ".join([f"{to_java_text(key)}={to_java_text(item)}" for key, item in _hash_map(value)]) + "}"


def _list_text(value: Sequence[object], items: Schema | None = None) -> str:
    return "[" + ", ".join([to_java_text(item, items) for item in value]) + "]"


@lru_cache(maxsize=1024)
def hash_map_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Sorts texts in the order in which a ``java.util.HashMap`` prints them as keys; schemaless maps are HashMaps in
    Java.

    Java prints keys of the same bucket in insertion order, which is not known here: they are sorted by their
    characters.

    >>> hash_map_order(("source", "line"))
    ('line', 'source')
    """
    return tuple(sorted(sorted(names, key=_utf16), key=bucket_of(len(names))))


def bucket_of(count: int) -> Callable[[str], int]:
    """Returns the bucket of a text in a ``java.util.HashMap`` or ``HashSet`` of this many texts."""
    size = 16
    while count > size * 3 // 4:
        size *= 2
    return lambda text: _bucket(text, size)


def _bucket(name: str, size: int) -> int:
    units = _utf16(name)
    number = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (31 * number + (high << 8) + low) & 0xFFFFFFFF
    return (number ^ (number >> 16)) & (size - 1)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _other_text(value: object) -> str:
    # Structs print themselves with this module, so it can import them only after both are loaded.
    from penstock.data.structs import Struct

    return "Struct{" + ",".join(_field_texts(value)) + "}" if isinstance(value, Struct) else str(value)


def _field_texts(value: Struct) -> Iterator[str]:
    for field in value.schema.fields:
        item = value.values[field.index]
        if item is not None:
            yield f"{field.name}={to_java_text(item, field.schema)}"


def _temporal_text(value: int, schema: Schema) -> str:
    """A raw number of days or milliseconds, printed as its java.util.Date."""
    if schema.name == Date.LOGICAL_NAME:
        return java_date(value * MILLIS_PER_DAY)
    return java_date(value) if schema.name in (Time.LOGICAL_NAME, Timestamp.LOGICAL_NAME) else str(int(value))


def _date_text(value: datetime | date | time) -> str:
    if isinstance(value, time):
        value = datetime.combine(_EPOCH.date(), value, tzinfo=UTC)
    elif not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return java_date((moment - _EPOCH) // timedelta(milliseconds=1))


#: The printers of the most frequent schemaless values, by exact class.
_TEXTS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: str,
    bool: lambda value: "true" if value else "false",
    int: str,
    float: java_double,
    dict: _map_text,
    list: _list_text,
    type(None): lambda value: "null",
}
