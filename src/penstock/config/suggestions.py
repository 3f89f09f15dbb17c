"""The name that was probably meant by another one, looked for within limits.

Main functions: `nearest`; `candidates`, for other measures of likeness. Names come from whoever sends a request, and
comparing two takes time that grows with the product of their lengths, so that long names and many candidates are left
out. Pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

#: A longer name is no misspelt one.
LONGEST: Final = 200
MOST_CANDIDATES: Final = 500


def candidates(name: str, known: Iterable[str]) -> list[str]:
    """The known names that a name is compared with.

    Returns:
        At most `MOST_CANDIDATES`, none longer than `LONGEST`; empty where the name itself is longer.

    >>> candidates("a" * 201, ["a"]), candidates("a", ["b", "b" * 201])
    ([], ['b'])
    """
    if len(name) > LONGEST:
        return []
    return list(islice((one for one in known if len(one) <= LONGEST), MOST_CANDIDATES))


def nearest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """The known name that is most like another.

    Args:
        name: The name that is not known.
        known: The names to choose from.
        cutoff: How alike the two must be: 1 for equal, 0 for nothing in common.

    >>> nearest("compresion.type", ["compression.type", "acks"], 0.8)
    'compression.type'
    >>> nearest("x" * 10_000, ["x" * 10_000], 0.8)
    """
    return next(iter(get_close_matches(name, candidates(name, known), n=1, cutoff=cutoff)), None)
