"""``docs/invariants.md`` and the code agree: who upholds what, and which tests show it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src/penstock"
PAGE = (ROOT / "docs/invariants.md").read_text(encoding="utf-8")
SECTIONS = {int(number): text for number, text in re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", PAGE, re.M | re.S)}
CITED = re.compile(r"\bInvariant (\d+)\b")
FILES = {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}


def names_in(text: str) -> set[str]:
    """Classes, functions and constants of a module, methods as ``Class.method``."""
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
            found.update(
                f"{node.name}.{child.name}"
                for child in node.body
                if isinstance(node, ast.ClassDef) and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            # An abbreviation of the page: a method of the class named just before.
            found.update(name.rpartition(".")[2] for name in list(found) if name.startswith(f"{node.name}."))
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return found


def upheld_by(number: int) -> list[tuple[str, str]]:
    """The files that a section names, each with the text about it."""
    section = SECTIONS[number].partition("**Upheld by**")[2].partition("**")[0]
    return re.findall(r"^- `([a-z_/]+\.py)`(.*?)(?=^- |\Z)", section, re.M | re.S)


def test_the_numbers_of_the_page_count_up_from_one() -> None:
    assert list(SECTIONS) == list(range(1, len(SECTIONS) + 1))


def test_every_citation_is_of_an_invariant_that_exists() -> None:
    cited = {(name, int(number)) for name, text in FILES.items() for number in CITED.findall(text)}

    assert {(name, number) for name, number in cited if number not in SECTIONS} == set()


def test_every_citation_is_on_the_page() -> None:
    cited = {(name, int(number)) for name, text in FILES.items() for number in CITED.findall(text)}

    assert cited - {(name, number) for number in SECTIONS for name, _ in upheld_by(number)} == set()


@pytest.mark.parametrize("number", SECTIONS)
def test_whoever_upholds_an_invariant_cites_it(number: int) -> None:
    files = [name for name, _ in upheld_by(number)]

    assert files
    assert [name for name in files if str(number) not in CITED.findall(FILES.get(name, ""))] == []


@pytest.mark.parametrize("number", SECTIONS)
def test_the_names_on_the_page_exist(number: int) -> None:
    for file, text in upheld_by(number):
        # What stands before the colon, or begins a sentence about another part of the file.
        named = re.findall(r"(?:^|[.,] |and )`([A-Za-z_.]+)`(?=[,:]| and)", text.replace("\n ", " "))

        assert [name for name in named if name not in names_in(FILES[file])] == [], file


def test_the_tests_on_the_page_exist() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
    }

    assert {name for name in re.findall(r"`(test_\w+)`", PAGE) if name not in defined} == set()
