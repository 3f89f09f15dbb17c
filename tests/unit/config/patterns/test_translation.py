"""Java's regular expressions, against what Java 17 recorded for the same patterns and texts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.config.patterns.translation import compile_java
from penstock.errors import ConfigException

RECORDED = json.loads((Path(__file__).parents[3] / "data" / "config" / "java_regex.json").read_text(encoding="utf-8"))
VALID = [row for row in RECORDED["patterns"] if "error" not in row]
REFUSED = [row for row in RECORDED["patterns"] if "error" in row]


def _name(row: dict[str, Any]) -> str:
    return json.dumps(row["pattern"])


@pytest.mark.parametrize("row", VALID, ids=_name)
def test_a_pattern_matches_and_finds_what_java_does(row: dict[str, Any]) -> None:
    compiled = compile_java(row["pattern"])
    texts = RECORDED["texts"]
    matches = [index for index, text in enumerate(texts) if compiled.matches(text)]
    found = {str(i): [match.start(), match.end()] for i, text in enumerate(texts) if (match := compiled.find(text))}
    assert matches == row["matches"]
    assert found == row["found"]


@pytest.mark.parametrize("row", REFUSED, ids=_name)
def test_a_pattern_is_refused_with_javas_message(row: dict[str, Any]) -> None:
    with pytest.raises(ConfigException) as refused:
        compile_java(row["pattern"], name="topics.regex")
    expected = f"Invalid value {row['pattern']} for configuration topics.regex: Invalid regex: {row['error']}"
    assert str(refused.value) == expected


@pytest.mark.parametrize("pattern", [r"\G", r"\X", r"(?U)\w", r"\p{IsLatin}", "(?<=a*)b", r"\b{g}"])
def test_what_python_cannot_do_is_refused_and_not_read_as_something_else(pattern: str) -> None:
    with pytest.raises(ConfigException, match="for configuration regex: Invalid regex: "):
        compile_java(pattern)


def test_a_wrong_pattern_is_reported_with_its_setting_and_position() -> None:
    with pytest.raises(ConfigException) as refused:
        compile_java("ab[c", name="include")
    assert str(refused.value) == (
        "Invalid value ab[c for configuration include: Invalid regex: Unclosed character class near index 3\nab[c\n   ^"
    )


@pytest.mark.parametrize("pattern", ["x{99999999999}", "x{2147483648}", "x{2147483648,}", "x{0,99999999999}"])
def test_a_count_that_java_has_no_room_for_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigException, match="Illegal repetition range near index"):
        compile_java(pattern, name="regex")


def test_a_count_that_java_has_room_for_is_taken() -> None:
    assert compile_java("x{0,2147483647}").pattern == "x{0,2147483647}"


@pytest.mark.parametrize(
    "pattern", ["a" * 400_000, r"\p{L}" * 100_000, "(" * 100_000, r"(?:\b)" * 50_000, "[" * 90_000]
)
def test_a_pattern_that_would_take_minutes_to_compile_is_refused_in_time(pattern: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ConfigException, match=r"Not supported here: (a pattern that takes more|maximum recursion)"):
        compile_java(pattern, name="regex")
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("pattern", ["x{2147483647}", "(?:x{1000}){1000}", "(((x{99}){99}){99}){99}"])
def test_a_pattern_that_would_take_all_memory_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigException, match="Not supported here: repetitions that ask for more than 100000"):
        compile_java(pattern, name="regex")
