"""Random patterns, against what Java made of them; recorded by ``differential.patterns``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from differential.pattern_cases import PatternCases
from differential.patterns import answer_here, differences

_FILE = Path(__file__).parents[2] / "data" / "config" / "random_patterns.jsonl"
RECORDED = [json.loads(line) for line in _FILE.read_text("ascii").splitlines()]


def test_the_recording_has_what_it_is_to_show() -> None:
    here = [answer_here(one["case"]) for one in RECORDED]
    taken = [one for one, answer in zip(RECORDED, here, strict=True) if "refused" not in answer]
    texts = [text for one in taken for text in one["java"]["texts"]]

    assert len(taken) > 100
    assert sum(text["matches"] for text in texts) > 200
    assert sum(len(text["found"] or ()) > 2 for text in texts) > 50
    assert any("refused" in one["java"] for one in RECORDED)


@pytest.mark.parametrize("recorded", RECORDED, ids=range(len(RECORDED)))
def test_a_pattern_answers_as_java_does_or_is_refused(recorded: dict[str, Any]) -> None:
    assert differences(recorded["case"], answer_here(recorded["case"]), recorded["java"]) == []


def test_what_java_refuses_is_refused() -> None:
    assert all("refused" in answer_here(one["case"]) for one in RECORDED if "refused" in one["java"])


def test_a_seed_always_makes_the_same_cases() -> None:
    one, other = PatternCases(7), PatternCases(7)

    assert [one.case() for _ in range(20)] == [other.case() for _ in range(20)]
    assert PatternCases(8).case() != PatternCases(7).case()


@pytest.mark.parametrize(
    ("here", "told"),
    [
        ({"matches": True, "found_in": True, "found": ["", "a"], "replaced": "x"}, []),
        ({"matches": False, "found_in": True, "found": ["", "a"], "replaced": "x"}, ["matches for 'a'"]),
        ({"matches": True, "found_in": False, "found": None, "replaced": "a"}, ["found_in", "found", "replaced"]),
        ({"slow": True}, []),
    ],
    ids=["equal", "another answer", "three others", "slow"],
)
def test_another_answer_is_told(here: dict[str, Any], told: list[str]) -> None:
    case = {"pattern": "a", "texts": ["a"], "replacement": "x"}
    java = {"groups": 0, "texts": [{"matches": True, "found": ["", "a"], "replaced": "x"}]}

    found = differences(case, {"groups": 0, "texts": [here], "uncertain": []}, java)

    assert [one.startswith(begins) for one, begins in zip(found, told, strict=True)] == [True] * len(told)
    assert differences(case, {"refused": "why"}, java) == []
    assert differences(case, {"groups": 0, "texts": [here], "uncertain": []}, {"refused": "why"}) != []
