"""Dates, times and timestamps that Python's classes cannot hold: ``FarDate``, ``FarTime``, ``FarTimestamp``.

Connect's range is wider than that of Python, which ends with the years 1 and 9999. Each is an int, the number that
carries it, so what works with numbers works with it; its class tells what it is where there is no schema to say so.

Owning thread: none; values are immutable.
"""

from __future__ import annotations

from typing import Final

MILLIS_PER_DAY: Final = 86_400_000


class FarMoment(int):
    """A date, time or timestamp that Python cannot name: the number that carries it, as an int with a type.

    Source: Penstock's own; in Java all are java.util.Date.
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
    """A Date outside of the years 1 to 9999: days since 1970-01-01.

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
    """A Time that is no time of the day: milliseconds. There is one that is valid, the end of the day.

    Source: Penstock's own; in Java a java.util.Date.
    """

    __slots__ = ()


class FarTimestamp(FarMoment):
    """A Timestamp outside of the years 1 to 9999: milliseconds since 1970-01-01T00:00Z.

    Source: Penstock's own; in Java a java.util.Date.
    """

    __slots__ = ()
