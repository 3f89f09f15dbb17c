"""Every package says what lives in it; what it names exists, and the walk for newcomers can be walked by that alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.docs.packages import PACKAGES, defines, docstring, faults, file_of, placed, tokens
from tests.unit.docs.pages import ROOT

WALK = (ROOT / "docs/finding-your-way.md").read_text(encoding="utf-8")
QUESTIONS = re.findall(r"^## ([^\n]+\?)\n(.*?)(?=^## |\Z)", WALK, re.M | re.S)
WAYS = re.findall(r"^- `penstock\.([\w.]+)` → `(\w+)` → `(\w+)`", WALK, re.M)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_lives_there_and_names_what_exists(package: str) -> None:
    text = docstring(package)

    assert len([line for line in text.splitlines() if line.strip()]) >= 3
    assert faults(package, text) == []


@pytest.mark.parametrize("package", [package for package in PACKAGES if package.count(".") == 1])
def test_a_package_says_what_lives_elsewhere(package: str) -> None:
    others = [token for token in tokens(docstring(package)) if token.startswith("penstock.")]

    assert [other for other in others if not other.startswith(f"{package}.")], (
        "where is what a reader may look for here?"
    )


def test_a_docstring_that_names_what_is_not_there_is_found() -> None:
    text = "Start from ``Herder`` (``herder``), ``Nobody`` (``loop``), ``nowhere``; see ``penstock.worker.missing``."

    assert placed(text) == [("Herder", "herder"), ("Nobody", "loop")]
    assert faults("penstock.herder", text) == [
        "penstock.herder.loop has no Nobody",
        "penstock.herder has no nowhere",
        "there is no penstock.worker.missing",
    ]


def test_the_page_names_ten_things_to_find_and_a_way_to_each() -> None:
    assert len(QUESTIONS) == 10
    assert [question for question, text in QUESTIONS if not text.strip().startswith("- `penstock.")] == []
    assert len(re.findall("^- ", WALK, re.M)) == len(WAYS)


@pytest.mark.parametrize(("package", "module", "name"), WAYS, ids=[".".join(way) for way in WAYS])
def test_a_way_can_be_walked_by_package_docstrings_alone(package: str, module: str, name: str) -> None:
    parts = ["penstock", *package.split("."), module]
    for depth in range(1, len(parts)):
        here, there = ".".join(parts[:depth]), parts[depth]
        assert there in tokens(docstring(here)), f"the docstring of {here} does not name {there}"

    assert file_of(".".join(parts)) is not None
    assert defines(".".join(parts), name)
    assert (name, module) in placed(docstring(".".join(parts[:-1]))), f"the docstring does not name {name}"


DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))


def test_the_index_of_decisions_has_each_page() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")

    assert sorted(re.findall(r"^\| \[.+?\]\((.+?)\)", index, re.M)) == sorted(
        page.name for page in DECISIONS if page.name != "README.md"
    )


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_the_modules_that_a_decision_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:tests/)?[a-z_]+(?:/[a-z_]+)*/[a-z_]+\.py)`", page.read_text(encoding="utf-8"))

    assert [
        name for name in named if not (ROOT / name).is_file() and not (ROOT / "src/penstock" / name).is_file()
    ] == []


@pytest.mark.parametrize("page", [page for page in DECISIONS if page.name != "README.md"], ids=lambda page: page.stem)
def test_a_decision_says_what_why_what_else_and_what_would_change_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert re.findall(r"^\*\*(.+?)\.\*\*", text, re.M) == [
        "Decided",
        "Why",
        "What else there was",
        "What it costs",
        "What would change it",
    ]
    assert 10 <= len([line for line in text.splitlines() if line.strip()]) <= 25
