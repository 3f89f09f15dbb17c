"""Secrets of connectors in what each worker of a group answers, whoever was asked to change them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from testkit.connectors.journal_source import Probes
from testkit.processes.worker_group import WorkerGroup

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]

MARK = "hush-5b2d90aa"
PATHS = ("", "/config", "/tasks", "/tasks-config", "/status", "/explain")


def told(group: WorkerGroup, name: str) -> list[str]:
    """What every worker answers about a connector."""
    asked = [f"/connectors/{name}{path}" for path in PATHS] + ["/connectors?expand=info&expand=status"]
    return [json.dumps(group.ask("GET", path, worker=worker)) for worker in group.workers for path in asked]


def test_a_secret_is_hidden_by_every_worker_and_stays_so_after_another_class(
    group: WorkerGroup, probes: Probes, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("")
    follower = group.followers()[0]
    config = {
        **probes.config(2),
        "stamp": MARK,
        "admin.override.sasl.password": MARK,
        "transforms.t.secret": MARK,
        "value.converter.basic.auth.user.info": f"me:{MARK}",
    }
    answers = [json.dumps(group.ask("POST", "/connectors", {"name": "kept", "config": config}, worker=follower))]
    assert "201" in answers[0]
    group.settled()
    answers += told(group, "kept")

    change = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in"), "topic": "kept", "tasks.max": "1"}
    answers.append(json.dumps(group.ask("PATCH", "/connectors/kept/config", change, worker=follower)))
    assert "200" in answers[-1]
    group.settled()
    answers += told(group, "kept")
    shown = group.ask("GET", "/connectors/kept/config", worker=follower)[1]
    assert shown["stamp"] == shown["transforms.t.secret"] == "[hidden]"
    answers.append(json.dumps(group.ask("PUT", "/connectors/kept/config", shown, worker=group.followers()[1])))
    answers += told(group, "kept")
    assert [answer for answer in answers if MARK in answer] == []

    # Back to the class that reads it: it has the value still, and the leader refuses what loads code.
    group.put("kept", {**shown, **probes.config(2), "stamp": "[hidden]"}, worker=follower)
    group.settled()
    assert [one.more.get("stamp") for one in probes.calls("kept") if one.call == "start"][-1] == MARK
    wrong = {**shown, "consumer.override.plugin.library.paths": "/tmp/evil.so"}
    status, answer = group.ask("PUT", "/connectors/kept/config", wrong, worker=follower)
    assert status == 400
    assert "whatever the policy" in answer["message"]
    assert MARK not in json.dumps(answer)
