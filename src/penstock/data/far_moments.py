"""Dates, times and timestamps that Python's classes cannot hold: ``FarDate``, ``FarTime``, ``FarTimestamp``.

Connect's range is wider than Python's, which ends with the years 1 and 9999. Each value is an int, the number that
Connect stores, so code for numbers works with it; its class names the type when there is no schema.

Owning thread: none; values are immutable.
"""

from __future__ import annotations

from typing import Final

MILLIS_PER_DAY: Final = 86_400_000


class FarMoment(int):
    """A date, time or timestamp outside Python's range: the stored number, as an int with a type.

    Source: Penstock's own; Java uses java.util.Date for all.
    """

    __slots__ = ()

    @property
    def millis(self) -> int:
        """Milliseconds since 1970, or of the day."""
        return int(self)

    def __str__(self) -> str:
        return int.__repr__(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


class FarDate(FarMoment):
    """A Date outside the years 1 to 9999: days since 1970-01-01.

    >>> FarDate(2_932_897), FarDate(2_932_897) == 2_932_897
    (FarDate(2932897), True)

    Source: Penstock's own; in Java a java.util.Date.
    """

    __slots__ = ()

    @property
    def millis(self) -> int:
        """See ``FarMoment``."""
        return int(self) * MILLIS_PER_DAY


class FarTime(FarMoment):
    """A Time, in milliseconds, that Python cannot represent. The only valid one is 24:00, the end of the day.

    Source: Penstock's own; in Java a java.util.Date.
    """

    __slots__ = ()


class FarTimestamp(FarMoment):
    """A Timestamp outside the years 1 to 9999: milliseconds since 1970-01-01T00:00Z.

    Source: Penstock's own; in Java a java.util.Date.
    """

    __slots__ = ()
