"""Requests to any worker of a group: who serves them, and what all of them answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from testkit.connectors.journal_source import Probes
from testkit.processes.worker_group import WorkerGroup

from penstock.kafka.consumer.sampler import read_values

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]


def test_connectors_are_created_read_and_deleted_through_each_worker(group: WorkerGroup, probes: Probes) -> None:
    names = [f"s12-{number}" for number in range(3)]
    for name, worker in zip(names, group.workers, strict=True):
        group.create(name, probes.config(2), worker=worker)
        again = group.ask("POST", "/connectors", {"name": name, "config": probes.config()}, worker=group.followers()[0])
        assert (again[0], again[1]["message"]) == (409, f"Connector {name} already exists")
    group.settled()
    for name in names:
        for path in ("", "/config", "/tasks", "/status", "/tasks/1/status"):
            answers = [worker.get(f"/connectors/{name}{path}") for worker in group.workers]
            assert answers[0][0] == 200
            assert answers[1:] == answers[:1] * 2
    for name, worker in zip(names, reversed(group.workers), strict=True):
        assert group.ask("DELETE", f"/connectors/{name}", worker=worker) == (204, None)
        assert group.ask("DELETE", f"/connectors/{name}", worker=worker)[0] == 404
    group.wait(lambda: not group.known(), "every worker has forgotten them")
    # A connector is stopped once for each that was started, wherever it was.
    for unit in (*names, *(f"{name}-{task}" for name in names for task in range(2))):
        assert probes.count(unit, "start") == probes.count(unit, "stop") > 0


def test_another_file_is_read_after_a_change_through_a_follower(group: WorkerGroup, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("a\nb\n")
    second.write_text("c\n")
    config = {"connector.class": "FileStreamSource", "file": str(first), "topic": "s14", "tasks.max": "1"}
    group.create("s14", config, worker=group.followers()[0])
    assert read_values(group.bootstrap_servers, "s14", 2, 60) == [b"a", b"b"]
    generation = group.at_rest()
    group.put("s14", {**config, "file": str(second)}, worker=group.followers()[1])
    assert read_values(group.bootstrap_servers, "s14", 3, 60) == [b"a", b"b", b"c"]
    assert group.settled() == generation


def test_a_patch_through_a_follower_changes_what_it_names(group: WorkerGroup, probes: Probes) -> None:
    group.create("s15", probes.config(1, count="0", topic="before"))
    patch = {"tasks.max": "2", "topic": None, "consumer.override.client.id": "added"}
    status, answer = group.ask("PATCH", "/connectors/s15/config", patch, worker=group.followers()[0])
    assert status == 200
    wanted = {**probes.config(2, count="0"), "name": "s15", "consumer.override.client.id": "added"}
    assert answer["config"] == wanted
    group.wait_states("s15", "RUNNING", "RUNNING", "RUNNING")
    assert [worker.get("/connectors/s15/config")[1] for worker in group.workers] == [wanted] * 3
    assert group.ask("PATCH", "/connectors/s15-none/config", patch, worker=group.followers()[1])[0] == 404


def test_a_sink_whose_group_is_that_of_the_workers_is_refused(group: WorkerGroup) -> None:
    config = {"connector.class": "FileStreamSink", "topics": "s28", "file": "/dev/null", "tasks.max": "1"}
    own = {**config, "consumer.override.group.id": group.name}
    status, answer = group.ask("POST", "/connectors", {"name": "s28", "config": own}, worker=group.followers()[0])
    assert status == 400
    assert group.name in answer["message"]
    assert "consumer.override.group.id" in answer["message"]
    status, found = group.ask("PUT", "/connector-plugins/FileStreamSink/config/validate", {"name": "s28", **own})
    wrong = {one["value"]["name"] for one in found["configs"] if one["value"]["errors"]}
    assert (status, wrong) == (200, {"consumer.override.group.id"})
