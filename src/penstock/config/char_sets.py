"""Sets of characters, as ranges of code points.

Main type: ``CharSet``, a value. Thread: immutable, usable from any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

LAST_POINT = 0x10FFFF


@dataclass(frozen=True, slots=True)
class CharSet:
    """A set of characters; ``of`` makes one.

    Attributes:
        ranges: First and last code point of each range, in order; there is a gap between any two.

    >>> (CharSet.of((97, 122)) - CharSet.of((120, 120))).ranges
    ((97, 119), (121, 122))
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> CharSet:
        """The set of some ranges, in any order."""
        joined: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return cls(tuple(joined))

    @classmethod
    def containing(cls, points: Iterable[int]) -> CharSet:
        """The set of some code points."""
        return cls.of(*((point, point) for point in points))

    @classmethod
    def from_text(cls, chars: str) -> CharSet:
        """The set of some characters."""
        return cls.containing(map(ord, chars))

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet.of(*self.ranges, *other.ranges)

    def __and__(self, other: CharSet) -> CharSet:
        return ~(~self | ~other)

    def __sub__(self, other: CharSet) -> CharSet:
        return ~(~self | other)

    def __invert__(self) -> CharSet:
        around = [(-1, -1), *self.ranges, (LAST_POINT + 1, LAST_POINT + 1)]
        gaps = ((before[1] + 1, behind[0] - 1) for before, behind in pairwise(around))
        return CharSet(tuple((first, last) for first, last in gaps if first <= last))

    def __contains__(self, point: int) -> bool:
        return any(first <= point <= last for first, last in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    @property
    def only(self) -> int | None:
        """The one code point that is in it; None where there are none, or more."""
        return self.ranges[0][0] if len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1] else None

    def expression(self, escaped: Callable[[int], str]) -> str:
        r"""A regular expression for one character of the set, which is not empty.

        Args:
            escaped: How the engine writes a code point.

        >>> CharSet.of((97, 99), (46, 46)).expression(lambda point: f"\\x{point:02x}")
        '[\\x2ea-c]'
        """

        def shown(point: int) -> str:
            return chr(point) if point < 128 and chr(point).isalnum() else escaped(point)

        if self.only is not None:
            return shown(self.only)
        parts = [shown(first) if first == last else f"{shown(first)}-{shown(last)}" for first, last in self.ranges]
        return f"[{''.join(parts)}]"


ALL = CharSet.of((0, LAST_POINT))
NONE = CharSet()
