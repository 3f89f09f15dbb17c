"""``docs/compatibility.md`` has every deviation on purpose."""

from __future__ import annotations

from conformance.vectors.deviations import load_deviations
from tests.unit.docs.pages import ROOT

PAGE = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")


def test_every_deviation_is_on_the_page_by_its_name() -> None:
    behaviours = {rule.behaviour for rule in load_deviations()}

    assert behaviours
    assert {name for name in behaviours if f"`{name}`" not in PAGE} == set()
