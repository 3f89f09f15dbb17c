"""The repository stands alone: it names no place, machine or service of those who work on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOP = [
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"),
    *("pyproject.toml", ".importlinter", ".gitignore", ".ci"),
]
TREES = [
    *("src", "tests", "testkit", "conformance", "tools", "docs", "examples", "config", "deploy"),
    *("benchmarks", "differential", "bin"),
]
#: Documents of librdkafka and Parquet, and a page of an example.
ELSEWHERE = {"CONFIGURATION.md", "VariantEncoding.md", "a.md"}
SKIPPED = {"__pycache__", ".pytest_cache"}
# Recorded answers of Java Connect hold whatever text the recording was made with.
RECORDED = ROOT / "tests/data"
# Put together here, so that this file does not find itself.
HOMES = re.compile("/(?:" + "|".join(("home", "root", "Users", "work", "mnt")) + r")/\w")
HOSTS = ("pypi" + r"\.org", "python" + "hosted", "repo1" + r"\.maven", "repo" + r"\.maven\.apache")
REGISTRIES = re.compile("|".join(HOSTS))
OUTSIDE = re.compile(r"\.\./" + "shared" + r"\b")


def texts() -> Iterator[tuple[Path, str]]:
    for top in [*TOP, *TREES]:
        path = ROOT / top
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and not SKIPPED & set(file.parts) and RECORDED not in file.parents:
                try:
                    yield file, file.read_text(encoding="utf-8")
                except UnicodeDecodeError:
                    continue


@pytest.mark.parametrize(
    ("what", "pattern"), [("a home or work folder", HOMES), ("a registry", REGISTRIES), ("a neighbour", OUTSIDE)]
)
def test_no_file_names(what: str, pattern: re.Pattern[str]) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file, text in texts()
        for number, line in enumerate(text.split("\n"), start=1)
        if pattern.search(line)
    ]

    assert found == [], what


def test_a_document_that_the_code_names_is_in_the_repository() -> None:
    folders = ("src", "testkit", "conformance", "tools", "benchmarks", "differential")
    code = [
        (file, text) for file, text in texts() if file.relative_to(ROOT).parts[0] in folders and file.suffix == ".py"
    ]
    named = {(file, name) for file, text in code for name in re.findall(r"(?<![\w{/.-])([\w/-]+\.md)\b", text)}
    missing = {
        f"{file.relative_to(ROOT)}: {name}"
        for file, name in named
        if name not in ELSEWHERE and not any((place / name).is_file() for place in (ROOT / "docs", *file.parents))
    }

    assert len(named) > 20
    assert missing == set()


def test_the_search_reads_the_repository() -> None:
    names = {str(file.relative_to(ROOT)) for file, _ in texts()}

    assert {"README.md", "src/penstock/api/source.py", "bin/test", "config/connect-standalone.properties"} <= names
