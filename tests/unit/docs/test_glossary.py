"""The glossary is in order, and the modules that it names exist."""

from __future__ import annotations

import re

from tests.unit.docs.pages import ROOT

ROWS = re.findall(
    r"^\| (.+?) \| .+? \| .+? \| `(.+?)` \|$", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.M
)


def test_each_term_has_a_module_that_exists() -> None:
    places = [ROOT / place if place.startswith("testkit") else ROOT / "src/penstock" / place for _, place in ROWS]

    assert len(ROWS) >= 40
    assert [str(place) for place in places if not place.exists()] == []


def test_terms_are_in_order_and_stand_once() -> None:
    terms = [term.casefold() for term, _ in ROWS]

    assert terms == sorted(set(terms))
