"""Suggestions for misspelt names, within limits of time.

Main functions: `nearest`; `candidates`, for other measures of similarity. Names come from requests, and comparing two
names takes time proportional to the product of their lengths, so long names and surplus candidates are left out. Pure
functions; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

#: A longer name is not a misspelling.
LONGEST: Final = 200
MOST_CANDIDATES: Final = 500


def candidates(name: str, known: Iterable[str]) -> list[str]:
    """Selects the known names to compare a name with.

    Returns:
        At most `MOST_CANDIDATES`, none longer than `LONGEST`; empty if the name itself is longer.

    >>> candidates("a" * 201, ["a"]), candidates("a", ["b", "b" * 201])
    ([], ['b'])
    """
    if len(name) > LONGEST:
        return []
    return list(islice((one for one in known if len(one) <= LONGEST), MOST_CANDIDATES))


def nearest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """The known name that is most similar to a given one.

    Args:
        name: The unknown name.
        known: The names to choose from.
        cutoff: The minimum similarity: 1 for equal, 0 for nothing in common.

    >>> nearest("compresion.type", ["compression.type", "acks"], 0.8)
    'compression.type'
    >>> nearest("x" * 10_000, ["x" * 10_000], 0.8)
    """
    return next(iter(get_close_matches(name, candidates(name, known), n=1, cutoff=cutoff)), None)
