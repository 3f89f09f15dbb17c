"""``docs/architecture.md`` and the pages beside it name what there is: layers, threads, modules."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator

import pytest
from tests.unit.docs.pages import ROOT

SOURCE = ROOT / "src/penstock"
DOCS = ROOT / "docs"
PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")

#: What makes a thread.
MAKERS = ("OwnedThread", "Thread", "in_thread", "off_loop", "on_thread")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def thread_names() -> Iterator[str]:
    """What threads of the worker are called, as far as it does not depend on a value."""
    for path in SOURCE.rglob("*.py"):
        if "testing" in path.parts or "cli/quickstart" in str(path):
            continue
        text = path.read_text(encoding="utf-8")
        # Most modules only say which thread they belong to, and need not be parsed.
        if not any(f"{maker}(" in text for maker in MAKERS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in MAKERS:
                for part in [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "name")]:
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value
                    elif isinstance(part, ast.JoinedStr) and isinstance(part.values[0], ast.Constant):
                        yield str(part.values[0].value)


def test_the_table_of_threads_has_every_thread() -> None:
    table = (DOCS / "threads.md").read_text(encoding="utf-8")

    missing = {name for name in thread_names() if f"`{name}" not in table}

    assert missing == set(), "add a row to the table of docs/threads.md"


def test_the_table_of_layers_is_that_of_the_import_linter() -> None:
    contract = configparser.ConfigParser()
    contract.read(ROOT / ".importlinter")
    layers = contract["importlinter:contract:layers"]["layers"].split("\n")
    expected = [{part.strip() for part in layer.split("|")} for layer in layers if layer.strip()]
    table = re.findall(r"^\| `.*$", section("Packages and layers"), re.M)
    rows = [set(re.findall(r"`(\w+)`", row.split("|")[1])) for row in table]

    assert rows == [*expected, {"testing"}]


def test_the_page_can_be_read_in_one_go() -> None:
    assert len(PAGE.splitlines()) <= 155, "details belong to the docstring of their package, or to a page of their own"


@pytest.mark.parametrize("page", ["architecture.md", "around-spark.md", "finding-your-way.md", "threads.md"])
def test_the_modules_on_a_page_exist(page: str) -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", (DOCS / page).read_text(encoding="utf-8"))

    assert named
    assert [name for name in named if not (SOURCE / name).is_file()] == []
