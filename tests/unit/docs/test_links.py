"""Links of the documentation lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.docs.pages import PAGES, ROOT, anchors, without_code

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_or_heading(page: Path) -> None:
    broken = []
    for target in LINK.findall(without_code(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_stay_inside_of_the_repository(page: Path) -> None:
    local = [target.partition("#")[0] for target in LINK.findall(without_code(page)) if "://" not in target]

    assert [target for target in local if target and not (page.parent / target).resolve().is_relative_to(ROOT)] == []


def linked_from(page: Path) -> set[Path]:
    targets = {target.partition("#")[0] for target in LINK.findall(without_code(page)) if "://" not in target}
    return {(page.parent / target).resolve() for target in targets if target}


def test_the_readme_leads_to_every_page() -> None:
    found = {ROOT / "README.md"}
    # What users look for is one link away; what contributors do, behind CONTRIBUTING.md and the page of architecture.
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs/decisions/README.md"):
        assert page in found
        found |= linked_from(page)

    assert set(PAGES) - found == set()
