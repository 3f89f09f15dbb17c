"""Dates, times and timestamps as text: the three ISO patterns of headers, as leniently as Java reads them, and Java's
``Date.toString``.

Java's ``SimpleDateFormat`` lets fields roll over (``2019-13-45``), stops when the pattern ends (``2019-08-2x``) and
uses the Julian calendar before 15 October 1582. Everything here is in UTC and in milliseconds since 1970.

Owning thread: none; pure functions.
"""

from __future__ import annotations

import re
from typing import Final

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
    """Milliseconds of ``yyyy-MM-dd``; None when it is something else.

    >>> parse_date("1970-01-02"), parse_date("1970-13-01") == parse_date("1971-01-01"), parse_date("soon")
    (86400000, True, None)
    """
    match = _DATE.match(text)
    if match is None:
        return None
    year, month, day = map(int, match.groups())
    return _days(year, month, day) * MILLIS_PER_DAY


def parse_time(text: str) -> int | None:
    """Milliseconds of ``HH:mm:ss.SSS'Z'``; None when it is something else.

    >>> parse_time("14:34:54.346Z")
    52494346
    """
    match = _TIME.match(text)
    return None if match is None else _clock(*map(int, match.groups()))


def parse_timestamp(text: str) -> int | None:
    """Milliseconds of ``yyyy-MM-dd'T'HH:mm:ss.SSS'Z'``; None when it is something else.

    >>> parse_timestamp("2019-08-23T14:34:54.346Z")
    1566570894346
    """
    match = _TIMESTAMP.match(text)
    if match is None:
        return None
    year, month, day, *clock = map(int, match.groups())
    return _days(year, month, day) * MILLIS_PER_DAY + _clock(*clock)


def format_millis(millis: int) -> str:
    """A moment as text, in the pattern its value asks for: below one day a time, whole days a date, else a timestamp.

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
    # The year is that of its era: 1 BC and 1 AD are both 1.
    return f"{_WEEKDAYS[(days + 3) % 7]} {_MONTHS[month - 1]} {day:02} {clock} UTC {year if year > 0 else 1 - year}"


def _clock(hour: int, minute: int, second: int, milli: int) -> int:
    return ((hour * 60 + minute) * 60 + second) * 1000 + milli


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date whose month and day may be out of range."""
    extra_years, month_index = divmod(month - 1, 12)
    year += extra_years
    gregorian = _gregorian_month(year, month_index) + day - 1
    return gregorian if gregorian >= CUTOVER else _julian_month(year, month_index) + day - 1


def _month_days(month_index: int) -> int:
    """Days from 1 March to the first of a month, which counts from March."""
    return (153 * month_index + 2) // 5


def _gregorian_month(year: int, month_index: int) -> int:
    march_year, march_month = (year, month_index - 2) if month_index >= 2 else (year - 1, month_index + 10)
    leap_days = march_year // 4 - march_year // 100 + march_year // 400
    return march_year * 365 + leap_days + _month_days(march_month) - 719_468


def _julian_month(year: int, month_index: int) -> int:
    march_year, march_month = (year, month_index - 2) if month_index >= 2 else (year - 1, month_index + 10)
    return march_year * 365 + march_year // 4 + _month_days(march_month) - 719_470


def civil(days: int) -> tuple[int, int, int]:
    """Year (0 is 1 BC), month and day of a number of days since 1970; before 15 October 1582 in the Julian calendar."""
    gregorian = days >= CUTOVER
    # Years here begin on the first of March, so that a leap day is the last of its year.
    era, day = divmod(days + 719_468, 146_097) if gregorian else divmod(days + 719_470, 1_461)
    century = day // 36_524 - day // 146_096 if gregorian else 0
    of_era = (day - day // 1_460 + century) // 365
    of_year = day - (of_era * 365 + of_era // 4 - (of_era // 100 if gregorian else 0))
    march_month = (of_year * 5 + 2) // 153
    month = march_month + 3 if march_month < 10 else march_month - 9
    return era * (400 if gregorian else 4) + of_era + (month <= 2), month, of_year - _month_days(march_month) + 1
