"""Rounds of groups and messages of their members, recorded from Java Kafka Connect 4.3 by ``differential.cluster``."""

import json
from collections import Counter
from pathlib import Path

import pytest
from differential.cluster import answer_here, comparable, units_json, units_of

from penstock.herder.cluster.connect_protocol import decode_assignment, decode_metadata

_FILE = Path(__file__).parents[3] / "data" / "cluster" / "rounds.jsonl"
RECORDED = [json.loads(line) for line in _FILE.read_text("ascii").splitlines()]
SCENARIOS = [one for one in RECORDED if "rounds" in one["case"]]
MESSAGES = [one for one in RECORDED if "rounds" not in one["case"]]


def test_the_recording_has_what_it_is_to_show():
    plans = [plan for one in SCENARIOS for plan in one["java"]["plans"]]
    assert len(SCENARIOS) == len(MESSAGES) == 40
    assert sum(bool(plan["assigned"]) for plan in plans) > 100
    assert sum(bool(plan["revoked"]) for plan in plans) > 50
    assert sum(plan["delay_ms"] > 0 for plan in plans) > 50
    assert set(Counter(one["case"]["version"] for one in MESSAGES)) == {0, 1, 2}


@pytest.mark.parametrize("recorded", SCENARIOS, ids=range(len(SCENARIOS)))
def test_a_leader_decides_as_java_does(recorded):
    assert comparable(answer_here(recorded["case"])) == comparable(recorded["java"])


@pytest.mark.parametrize("recorded", MESSAGES, ids=range(len(MESSAGES)))
def test_members_send_the_bytes_that_java_sends(recorded):
    assert answer_here(recorded["case"]) == recorded["java"]


@pytest.mark.parametrize("recorded", MESSAGES, ids=range(len(MESSAGES)))
def test_what_java_sends_is_understood(recorded):
    case, java = recorded["case"], recorded["java"]
    assignment = decode_assignment(bytes.fromhex(java["assignment"]))
    assert assignment.leader == case["leader"]
    assert assignment.config_offset == case["config_offset"]
    assert units_json(assignment.assigned) == units_json(units_of(case["assigned"]))
    assert units_json(assignment.revoked) == units_json(units_of(case["revoked"]))
    assert (assignment.delay_ms, assignment.error) == (case["delay_ms"], case["error"])
    metadata = decode_metadata(bytes.fromhex(java["metadata"]))
    assert (metadata.url, metadata.config_offset) == (case["url"], case["config_offset"])
    assert metadata.current == (None if case["idle"] or case["version"] == 0 else assignment)
