"""The requests of the hostile suite have the status that Java's worker gave, or a difference that a page names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from differential.hostile_cases import CASES, Answer, Case, ask, prepare
from differential.rest_fuzz import own_worker

ROOT = Path(__file__).parents[3]
#: What a Java worker answered, by the names of the cases: ``python -m differential.hostile`` writes it.
JAVA: dict[str, dict[str, Any]] = {
    one["case"]: one
    for one in map(json.loads, (ROOT / "tests/data/rest/hostile_java.jsonl").read_text(encoding="utf-8").splitlines())
}
#: Between workers a standalone one has nothing to say.
OF_A_GROUP = ("signature", "algorithm")


def faults(case: Case, answer: Answer) -> list[str]:
    """What is wrong with our answer to a request."""
    told = f"{case.name}: {answer.status} {answer.message}"
    java = JAVA.get(case.name)
    found = []
    wanted = case.status if case.status is not None else java and java["status"]
    if answer.status != wanted:
        found.append(f"{told}: {wanted} is wanted")
    if answer.status == 500:
        found.append(f"{told}: no request is an error of the worker")
    if answer.shows:
        found.append(f"{told}: a secret is shown")
    if case.says not in answer.text:
        found.append(f"{told}: nothing of {case.says}")
    if java is not None and not case.row and set(java.get("wrong", ())) != set(answer.wrong):
        found.append(f"{told}: wrong are {answer.wrong}, for Java {java.get('wrong')}")
    return found


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with own_worker() as (url, _):
        yield int(url.rpartition(":")[2])


ASKED = [case for case in CASES if case.user == "admin" and not any(word in case.name for word in OF_A_GROUP)]


@pytest.mark.parametrize("case", ASKED, ids=[case.name for case in ASKED])
def test_a_request_has_the_answer_that_it_should_have(case: Case, port: int) -> None:
    prepare(port)
    assert faults(case, ask(port, case)) == []


def test_java_has_answered_each_request_that_means_something_to_it() -> None:
    assert JAVA.keys() == {case.name for case in CASES if case.java}
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_difference_is_one_and_its_page_has_it() -> None:
    rows = [line for line in (ROOT / "docs/compatibility.md").read_text(encoding="utf-8").splitlines() if "|" in line]
    for case in CASES:
        java = JAVA.get(case.name)
        if java is None:
            assert not case.row, f"{case.name}: Java was not asked"
            continue
        differs = java["shows"] or case.status not in (None, java["status"])
        assert bool(case.row) is bool(differs) or case.path.endswith("/validate"), f"{case.name}: {case.row}, {java}"
        assert not case.row or any(row.startswith(f"| {case.row}") for row in rows), f"no row: {case.row}"
