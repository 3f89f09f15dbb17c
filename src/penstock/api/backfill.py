"""Backfills of sources: a range of what a source has read, read once more beside the connector that runs.

Main types: ``BackfillSpan``, the range that was asked for; ``BackfillPart``, a piece of work that a source has planned
for it. ``SourceTask.plan_backfill`` makes the one of the other, ``SourceTask.backfill`` reads it. Values; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BadRequestException


@dataclass(frozen=True, slots=True)
class BackfillSpan:
    """The range of a backfill: of times, or of positions.

    Attributes:
        start_ms: Rows that are not older than this time, in milliseconds since 1970; None where it goes by positions.
        end_ms: And older than this one; there wherever ``start_ms`` is.
        first: The first position, a text or a whole number; None where it goes by times.
        end: The position behind the last one.
        of: The name of the table, file or whatever the source calls a part of itself; None: all of them.

    Source: Penstock's own.
    """

    start_ms: int | None = None
    end_ms: int | None = None
    first: str | int | None = None
    end: str | int | None = None
    of: str | None = None

    def times(self, advice: str) -> tuple[int, int]:
        """The first time and the one behind the last, in milliseconds since 1970.

        Args:
            advice: What to do where there are none: the end of a sentence.

        Raises:
            BadRequestException: It goes by positions.
        """
        if self.start_ms is None or self.end_ms is None:
            raise BadRequestException(f"The range is one of positions, {self.first} to {self.end}: {advice}")
        return self.start_ms, self.end_ms

    def positions(self, advice: str) -> tuple[str | int, str | int]:
        """The first position and the one behind the last.

        Args:
            advice: What to do where there are none: the end of a sentence.

        Raises:
            BadRequestException: It goes by times.
        """
        if self.first is None or self.end is None:
            raise BadRequestException(f"The range is one of times: {advice}")
        return self.first, self.end

    def numbers(self, advice: str) -> tuple[int, int]:
        """The positions as whole numbers.

        Args:
            advice: What to do where they are none: the end of a sentence.

        Raises:
            BadRequestException: It goes by times, one of them is no whole number, or the second is not the greater one.

        >>> BackfillSpan(first="7", end=9).numbers("give whole numbers")
        (7, 9)
        """
        found = self.positions(advice)
        try:
            first, end = (int(one) for one in found)
        except ValueError:
            raise BadRequestException(
                f"The range is {found[0]} to {found[1]}, of which one is no number: {advice}"
            ) from None
        if not first < end:
            raise BadRequestException(f"The range {first} to {end} has nothing in it: its end is behind the last one")
        return first, end


@dataclass(frozen=True, slots=True)
class BackfillPart:
    """A piece of a backfill, read by one task from its start to its end.

    Attributes:
        partition: The source partition of its records, a map of primitives.
        reads: The range in the source's own words, of which JSON can be made: shown to whoever asks, and all that
            ``backfill`` is told of it.
        rows: How many rows these are, or at most are; None where that is not known without reading them.

    Source: Penstock's own.
    """

    partition: Mapping[str, Any]
    reads: Mapping[str, Any]
    rows: int | None = None

    def to_json(self) -> dict[str, object]:
        """The shape used by REST."""
        return {"partition": dict(self.partition), **self.reads, "rows": self.rows}
