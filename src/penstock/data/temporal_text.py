"""Dates, times and timestamps as text in headers: the three ISO patterns, as leniently as Java reads them.

Java's ``SimpleDateFormat`` lets fields roll over (``2019-13-45``), stops when the pattern ends (``2019-08-2x``) and
uses the Julian calendar before 15 October 1582. Everything here is in UTC and in milliseconds since 1970.

Owning thread: none; pure functions.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["format_millis", "parse_date", "parse_time", "parse_timestamp"]

MILLIS_PER_DAY: Final = 86_400_000

_NUMBER: Final = r"[ \t]*(-?\d+)"
_DATE_PATTERN: Final = f"{_NUMBER}-{_NUMBER}-{_NUMBER}"
_TIME_PATTERN: Final = rf"{_NUMBER}:{_NUMBER}:{_NUMBER}\.{_NUMBER}Z"
_DATE: Final = re.compile(_DATE_PATTERN)
_TIME: Final = re.compile(_TIME_PATTERN)
_TIMESTAMP: Final = re.compile(f"{_DATE_PATTERN}T{_TIME_PATTERN}")

#: The first day of the Gregorian calendar, 15 October 1582, in days since 1970.
_CUTOVER: Final = -141_427


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
    year, month, day = _civil(days)
    return f"{year:04}-{month:02}-{day:02}" if rest == 0 else f"{year:04}-{month:02}-{day:02}T{clock}"


def _clock(hour: int, minute: int, second: int, milli: int) -> int:
    return ((hour * 60 + minute) * 60 + second) * 1000 + milli


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date whose month and day may be out of range."""
    extra_years, month_index = divmod(month - 1, 12)
    year += extra_years
    gregorian = _gregorian_month(year, month_index) + day - 1
    return gregorian if gregorian >= _CUTOVER else _julian_month(year, month_index) + day - 1


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


def _civil(days: int) -> tuple[int, int, int]:
    """The Gregorian date that many days after 1970; any year."""
    cycle, day_of_cycle = divmod(days + 719_468, 146_097)
    year_of_cycle = (day_of_cycle - day_of_cycle // 1460 + day_of_cycle // 36_524 - day_of_cycle // 146_096) // 365
    day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle // 4 - year_of_cycle // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - _month_days(march_month) + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    return cycle * 400 + year_of_cycle + (1 if month <= 2 else 0), month, day
