"""The raw integers of Connect's temporal types <-> Python's dates and times.

Timestamp is milliseconds since 1970 (UTC), Time milliseconds of the day, Date days since 1970. What Python's classes
cannot hold becomes a ``FarMoment``; nothing is ever clipped.

Thread: pure functions, safe from any thread.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from penstock.data import FarDate, FarTime, FarTimestamp

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLIS_PER_DAY: Final = 86_400_000

_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRST_MILLIS: Final = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // _MILLISECOND
_LAST_MILLIS: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - EPOCH) // _MILLISECOND
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal()


def datetime_of_millis(millis: int) -> datetime | FarTimestamp:
    """Return the instant as an aware datetime (UTC), or a ``FarTimestamp`` outside of years 1 to 9999."""
    return EPOCH + timedelta(0, 0, 0, millis) if _FIRST_MILLIS <= millis <= _LAST_MILLIS else FarTimestamp(millis)


def time_of_millis(millis: int) -> time | FarTime:
    """Return the time of day, or a ``FarTime`` where it is outside of one day."""
    if not 0 <= millis < MILLIS_PER_DAY:
        return FarTime(millis)
    seconds, rest = divmod(millis, 1000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest * 1000)


def date_of_days(days: int) -> date | FarDate:
    """Return the date, or a ``FarDate`` outside of years 1 to 9999."""
    ordinal = days + _EPOCH_DAY
    return date.fromordinal(ordinal) if 0 < ordinal <= _LAST_DAY else FarDate(days)


def millis_of_datetime(value: datetime) -> int:
    """Return milliseconds since 1970, rounded down; a datetime without zone is taken as UTC."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (aware - EPOCH) // _MILLISECOND


def millis_of_time(value: time) -> int:
    """Return milliseconds of the day, rounded down."""
    return (value.hour * 3600 + value.minute * 60 + value.second) * 1000 + value.microsecond // 1000


def days_of_date(value: date) -> int:
    """Return days since 1970."""
    return value.toordinal() - _EPOCH_DAY
