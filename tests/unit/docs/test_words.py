"""Phrases that make a text hard to read become rarer: in the source, on the pages and in the README."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from itertools import accumulate

import pytest
from tests.unit.docs.packages import SOURCE, text_of
from tests.unit.docs.pages import ROOT

#: A pattern for text in lower case, the number of its places today, and the words to use instead. A pattern begins with
#: literal characters, at the start of a word, so that the search takes milliseconds.
PHRASES = [
    ('"""(?:what|whether|how|who|whoever|where|why|when)\\b', 1, "a verb in the third person, a noun or 'True if'"),
    ("#: (?:what|whether|how|who|whoever|where)\\b", 3, "a noun: the quantity with its unit, the set, 'True if'"),
    ("nobody\\b", 11, "what happens, then the exception"),
    ("nowhere\\b", 5, "what happens, then the exception"),
    ("whoever\\b", 6, "the caller, user or class by name"),
    ("no matter\\b", 0, "what decides it"),
    ("under way\\b", 1, "in progress, in flight, running"),
    ("so many\\b", 4, "a number, 'at most' or 'this many'"),
    ("told\\b", 284, "a subject that calls, reports or logs"),
    ("becomes? of\\b", 8, "the outcome by name"),
    ("those (?:that|who|which)\\b", 26, "the noun again"),
    ("behind\\b", 125, "after, or 'lags' for a consumer"),
    ("beside\\b", 225, "next to, in addition to, at the same time as"),
    ("alone\\b", 132, "only, by itself"),
    ("given? up\\b", 0, "a subject that stops, fails or abandons"),
    ("as much as\\b", 2, "at most, the same as"),
    ("dealt\\b", 37, "assigned, handled"),
    ("out of what\\b", 0, "from and the noun"),
    ("from (?:here|there|then|now|\\w+ \\w+) on\\b", 3, "after, starting at"),
    ("stands? still\\b", 3, "stuck, waits"),
]
#: A change may take away a few before the number has to follow.
SLACK = 8


@pytest.mark.parametrize(("phrase", "most", "instead"), PHRASES, ids=[phrase for phrase, *_ in PHRASES])
def test_a_hard_phrase_becomes_rarer(phrase: str, most: int, instead: str) -> None:
    places = places_of(phrase)

    assert len(places) <= most, f"{len(places)} places, at most {most}; write {instead}:\n" + "\n".join(places)
    assert len(places) >= most - SLACK, f"lower the number of {phrase!r} from {most} to {len(places)}"


def places_of(phrase: str) -> list[str]:
    """The lines that have a phrase, as ``path:line: text``."""
    text, starts, names = texts()
    lines = []
    for match in re.finditer(phrase, text):
        if text[match.start() - 1].isalnum():
            continue
        file = bisect_right(starts, match.start()) - 1
        number = text.count("\n", starts[file], match.start()) + 1
        begin, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
        lines.append(f"{names[file]}:{number}: {text[begin:end].strip()}")
    return lines


@cache
def texts() -> tuple[str, list[int], list[str]]:
    """All texts as one in lower case, where each begins, and its path."""
    paths = [*(SOURCE / "penstock").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    parts = [text_of(path).lower() for path in sorted(paths)]
    starts = [0, *accumulate(map(len, parts))]
    return "".join(parts), starts[:-1], [str(path.relative_to(ROOT)) for path in sorted(paths)]
