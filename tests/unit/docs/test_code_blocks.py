"""Code in the documentation: programs are those in ``examples/`` or run here; settings are checked by the worker."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.docs.pages import PAGES, ROOT, blocks
from tools.reference.blocks import Block
from tools.reference.consoles import commands
from tools.reference.examples import converter_examples, transform_examples

from penstock.config import parse_properties
from penstock.kafka.settings.client import refused_for_all
from penstock.kafka.settings.table import ClientKind
from penstock.plugins import Plugins
from penstock.settings import DistributedSettings, StandaloneSettings, WorkerSettings
from penstock.validation.settings import worker_warnings
from penstock.validation.validator import ConnectorValidator

BLOCKS = [block for page in PAGES for block in blocks(page)]


def marked(mark: str) -> list[Block]:
    return [block for block in BLOCKS if block.mark is not None and block.mark.startswith(mark)]


def test_every_program_and_file_of_settings_is_marked_and_so_checked() -> None:
    run = {one.config + "\n" for one in transform_examples()} | {one.config + "\n" for one in converter_examples()}
    examples = [block for block in marked("example") if block.text in run]
    by_commands = [*marked("file: "), *marked("more of: ")]
    settings = [*marked("connector settings"), *marked("worker settings"), *marked("distributed worker settings")]
    checked = {*marked("from: "), *marked("run"), *settings, *by_commands, *examples}

    assert [str(block) for block in BLOCKS if block.language in ("python", "properties") and block not in checked] == []


def test_every_command_is_run_or_says_why_not() -> None:
    consoles = [block for block in BLOCKS if block.language == "console"]
    kinds = ("background: ", "not run: ")

    assert [str(one) for one in consoles if one.mark is not None and not one.mark.startswith(kinds)] == []
    assert all(commands(block.text) for block in consoles)


@pytest.mark.parametrize("block", marked("from: "), ids=str)
def test_a_program_is_part_of_its_example(block: Block) -> None:
    assert block.mark is not None
    example = ROOT / block.mark.removeprefix("from: ")

    assert block.text in example.read_text(encoding="utf-8")


@pytest.mark.parametrize("block", marked("run"), ids=str)
def test_a_program_runs(block: Block) -> None:
    assert any(isinstance(node, ast.Assert) for node in ast.parse(block.text).body), "it shows nothing"

    # As a file would be: without what this module imports from the future.
    program = compile(block.text, str(block), "exec", dont_inherit=True)
    exec(program, {"__name__": "__main__"})


@pytest.mark.parametrize("block", marked("connector settings"), ids=str)
def test_settings_of_a_connector_are_valid(block: Block) -> None:
    config: Mapping[str, str] = parse_properties(block.text)

    assert ConnectorValidator(Plugins())(config, config).warnings == ()


@pytest.mark.parametrize(
    ("block", "mode"),
    [
        *((block, StandaloneSettings) for block in marked("worker settings")),
        *((block, DistributedSettings) for block in marked("distributed worker settings")),
    ],
    ids=str,
)
def test_settings_of_a_worker_are_valid(block: Block, mode: type[WorkerSettings]) -> None:
    raw = parse_properties(block.text)

    mode.parse(raw)
    faults = [fault for kind in ClientKind for fault in refused_for_all(kind, raw)]
    # The files are the reader's.
    assert [fault for fault in faults if not fault.value.startswith("/etc/penstock/")] == []
    assert worker_warnings(raw, Plugins()) == []


@pytest.mark.parametrize(
    "example", [*transform_examples(), *converter_examples()], ids=lambda one: f"{one.of}: {one.title}"
)
def test_no_setting_of_an_example_is_told_as_unread(example: Any) -> None:
    config = {"name": "a", "connector.class": "FileStreamSource", "topic": "t", **parse_properties(example.config)}

    assert ConnectorValidator(Plugins()).infos(config, config).warnings == ()


def test_every_example_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    programs = sorted(path.name for path in (ROOT / "examples").glob("*.py"))

    assert [name for name in programs if f"examples/{name}" not in text] == []


def test_every_example_has_tests() -> None:
    programs = {path.stem for path in (ROOT / "examples").glob("*.py")}
    tests = [*(ROOT / "tests/unit/examples").glob("test_*.py"), *(ROOT / "tests/real").rglob("test_*_examples.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in tests)

    assert {name for name in programs if f"from examples.{name} import" not in text} == set()
