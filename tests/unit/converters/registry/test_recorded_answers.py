"""Schemas, payloads and values of Confluent's own converters, as they were recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from differential.registry import answer_here, differences
from differential.registry_cases import RegistryCases
from differential.registry_readings import readings, with_the_latest

pytestmark = pytest.mark.usefixtures("protoc_here")
RECORDED = Path(__file__).parents[3] / "data" / "registry" / "answers.jsonl"
#: So many cases are one test.
CHUNK = 40


def chunks() -> Iterator[list[dict[str, Any]]]:
    lines = RECORDED.read_text("ascii").splitlines()
    for start in range(0, len(lines), CHUNK):
        yield [json.loads(line) for line in lines[start : start + CHUNK]]


@pytest.mark.parametrize("entries", list(chunks()), ids=lambda entries: entries[0]["case"]["format"])
def test_what_confluents_converters_answered_is_answered_here(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        case, java = entry["case"], entry["java"]
        here = answer_here(case, java)

        assert list(differences(case, here, java)) == []
        assert here.get("text") == entry.get("registered")


def test_a_difference_is_seen() -> None:
    (entry,) = [one for one in next(chunks()) if "theirs" in one["case"]][:1]
    other = {**entry["java"]["theirs"], "value": "other"}

    assert list(differences(entry["case"], answer_here(entry["case"]), {"theirs": other}))


def test_cases_are_made_again_by_their_seed_and_cross_kinds_and_settings() -> None:
    for kind in ("AVRO", "PROTOBUF"):
        made = [RegistryCases(7, kind) for _ in range(2)]
        cases = [[one.case() for _ in range(60)] for one in made]

        assert cases[0] == cases[1]
        every = json.dumps(cases[0])
        for word in ("struct", "array", "map", "int8", "float32", "Decimal", "Timestamp", "Enum", "Union", "optional"):
            assert f"{word}" in every
        assert len({json.dumps(case["config"], sort_keys=True) for case in cases[0]}) > 20
    assert {case["format"] for case in (*readings(), *with_the_latest())} == {"AVRO", "PROTOBUF"}
