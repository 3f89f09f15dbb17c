"""The size of a pattern after its counted repetitions are expanded, as the engine that compiles it expands them.

Main function: `written_out`. ``(?:(?:a{1000}){1000}){1000}`` is short, but to compile it would take the engine hours
and all memory, in one call during which no other thread can run. Pure; any thread.
"""

from __future__ import annotations

import re
from typing import Final

#: Patterns of this size compile in some tenths of a second. Java's engine counts instead of expanding.
LARGEST: Final = 200_000

_PIECE: Final = re.compile(
    r"""
      \\.                                     # an escaped character, or the beginning of a longer escape
    | \[\^?\]?(?:\\.|[^\]\\])*\]              # a set
    | \[.*                                    # one that does not end
    | \{(?P<least>\d+)(?:,\d*)?\}             # a repetition
    | (?P<open>\() | (?P<close>\)) | (?P<either>\|)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def written_out(pattern: str) -> int:
    """The size of a pattern in Python's syntax: the number of its characters and sets, each counted as often as it has
    to repeat.

    >>> written_out("ab{3}"), written_out("(?:a[b-z]){10}"), written_out(r"(?:(?:a{9}){9}){9}\\{5}")
    (4, 60, 1092)
    """
    sizes, last = [0], [0]
    for piece in _PIECE.finditer(pattern):
        if piece["open"]:
            sizes.append(0)
            last.append(0)
        elif piece["close"] and len(sizes) > 1:
            inside = sizes.pop() + 2
            last.pop()
            sizes[-1] += inside
            last[-1] = inside
        elif piece["least"] is not None:
            # After a possessive or lazy sign it repeats the quantified part; the size does not shrink.
            more = last[-1] * (max(1, int(piece["least"][:10])) - 1)
            sizes[-1] += more
            last[-1] += more
        else:
            sizes[-1] += 1
            last[-1] = 1
    return sum(sizes)
