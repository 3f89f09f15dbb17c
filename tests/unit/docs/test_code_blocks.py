"""Code in the documentation: programs are those in ``examples/`` or run here; settings are checked by the worker."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import pytest
from tests.unit.docs.pages import PAGES, ROOT, Block, blocks

from penstock.config import parse_properties
from penstock.herder.validation import ConnectorValidator
from penstock.plugins import Plugins
from penstock.testing.reference.examples import converter_examples, transform_examples

BLOCKS = [block for page in PAGES for block in blocks(page)]


def marked(mark: str) -> list[Block]:
    return [block for block in BLOCKS if block.mark is not None and block.mark.startswith(mark)]


def test_every_program_is_marked_and_so_checked() -> None:
    run = {one.config + "\n" for one in transform_examples()} | {one.config + "\n" for one in converter_examples()}
    examples = [block for block in marked("example") if block.text in run]
    checked = {*marked("from: "), *marked("run"), *marked("connector settings"), *examples}

    assert [str(block) for block in BLOCKS if block.language in ("python", "properties") and block not in checked] == []


@pytest.mark.parametrize("block", marked("from: "), ids=str)
def test_a_program_is_part_of_its_example(block: Block) -> None:
    assert block.mark is not None
    example = ROOT / block.mark.removeprefix("from: ")

    assert block.text in example.read_text(encoding="utf-8")


@pytest.mark.parametrize("block", marked("run"), ids=str)
def test_a_program_runs(block: Block) -> None:
    assert any(isinstance(node, ast.Assert) for node in ast.parse(block.text).body), "it shows nothing"

    exec(compile(block.text, str(block), "exec"), {"__name__": "documentation"})


@pytest.mark.parametrize("block", marked("connector settings"), ids=str)
def test_settings_of_a_connector_are_valid(block: Block) -> None:
    config: Mapping[str, str] = parse_properties(block.text)

    ConnectorValidator(Plugins())(config, config)


def test_every_example_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    programs = sorted(path.name for path in (ROOT / "examples").glob("*.py"))

    assert [name for name in programs if f"examples/{name}" not in text] == []


def test_every_example_has_tests() -> None:
    programs = {path.stem for path in (ROOT / "examples").glob("*.py")}

    assert {f"test_{name}" for name in programs} <= {path.stem for path in (ROOT / "tests/unit/examples").glob("*.py")}
