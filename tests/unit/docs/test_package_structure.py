"""The page of packages lists each package, two levels deep, and a place to begin that exists."""

from __future__ import annotations

import re

from tests.unit.docs.packages import PACKAGES, defines, file_of
from tests.unit.docs.pages import ROOT

PAGE = (ROOT / "docs/package-structure.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([\w.]+)` \| [^|]+ \| (?:`(\w+)` in `(\w+)`)? ?\|$", PAGE, re.MULTILINE)


def test_the_page_lists_the_packages_that_there_are_two_levels_deep() -> None:
    packages = [name.removeprefix("penstock.") for name in PACKAGES if 1 <= name.count(".") <= 2]

    assert [row[0] for row in ROWS] == packages


def test_the_places_to_begin_exist() -> None:
    places = [(f"penstock.{package}.{module}", name) for package, name, module in ROWS if name]

    assert places
    assert [(module, name) for module, name in places if file_of(module) is None or not defines(module, name)] == []
