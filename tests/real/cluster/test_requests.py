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


def test_the_list_has_the_parts_that_are_asked_for(group: WorkerGroup, probes: Probes) -> None:
    group.create("s13-a", probes.config(2))
    group.create("s13-b", probes.config(1))
    group.settled()
    for worker in group.workers:
        for asked, parts in (("status", {"status"}), ("info", {"info"}), ("status&expand=info", {"status", "info"})):
            status, found = group.ask("GET", f"/connectors?expand={asked}", worker=worker)
            assert status == 200
            assert {name: view.keys() for name, view in found.items()} == {"s13-a": parts, "s13-b": parts}
        assert found["s13-a"]["status"] == worker.get("/connectors/s13-a/status")[1]
        assert found["s13-a"]["info"] == worker.get("/connectors/s13-a")[1]


def test_another_file_is_read_after_a_change_through_a_follower(awake_group: WorkerGroup, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("a\nb\n")
    second.write_text("c\n")
    config = {"connector.class": "FileStreamSource", "file": str(first), "topic": "s14", "tasks.max": "1"}
    awake_group.create("s14", config, worker=awake_group.followers()[0])
    assert read_values(awake_group.bootstrap_servers, "s14", 2, 60) == [b"a", b"b"]
    generation = awake_group.at_rest()
    awake_group.put("s14", {**config, "file": str(second)}, worker=awake_group.followers()[1])
    assert read_values(awake_group.bootstrap_servers, "s14", 3, 60) == [b"a", b"b", b"c"]
    assert awake_group.settled() == generation


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


def test_scenarios_16_and_17_a_connector_created_paused_has_no_tasks_until_it_is_resumed(
    group: WorkerGroup, probes: Probes
) -> None:
    for number, state in enumerate(("PAUSED", "STOPPED")):
        body = {"name": f"s16-{number}", "config": probes.config(3), "initial_state": state}
        assert group.ask("POST", "/connectors", body, worker=group.followers()[number])[0] == 201
        group.wait_states(f"s16-{number}", state)
    assert [call.call for call in probes.calls() if call.call == "task_configs"] == []
    group.bring_to("s16-0", "resume", worker=group.followers()[0])
    group.wait_states("s16-0", "RUNNING", "RUNNING", "RUNNING", "RUNNING")
    group.delete("s16-0", "s16-1")
    assert probes.count("s16-0", "start") == 1


def test_the_status_has_as_many_tasks_as_there_are(group: WorkerGroup, probes: Probes) -> None:
    group.create("s18", probes.config(3))
    group.wait_states("s18", *["RUNNING"] * 4)
    for tasks in (4, 3):
        group.put("s18", probes.config(tasks), worker=group.followers()[0])
        group.wait_states("s18", *["RUNNING"] * (tasks + 1))
        group.settled()
    assert [len(worker.states("s18")) for worker in group.workers] == [4, 4, 4]


def test_too_many_tasks_fail_the_connector_and_leave_running_tasks_where_they_are(
    group: WorkerGroup, probes: Probes
) -> None:
    group.create("s19", probes.config(2))
    group.settled()
    before = {unit: group.where()[unit] for unit in ("s19-0", "s19-1")}
    probes.order("s19", "tasks", "5")
    status, answer = group.ask("POST", "/connectors/s19/restart", worker=group.followers()[0])
    assert status == 500
    assert "tasks.max" in answer["message"]
    group.wait_states("s19", "FAILED", "RUNNING", "RUNNING")
    assert "tasks.max" in group.workers[0].get("/connectors/s19/status")[1]["connector"]["trace"]  # type: ignore[index]
    assert {unit: group.where()[unit] for unit in before} == before
    assert [probes.count(unit, "stop") for unit in before] == [0, 0]
    group.put("s19", probes.config(2, tasks_max_enforce="false"), worker=group.followers()[1])
    group.wait_states("s19", *["RUNNING"] * 6)


def test_scenarios_20_43_and_45_what_is_not_there_is_404_on_every_worker(group: WorkerGroup, probes: Probes) -> None:
    group.create("s20", probes.config(1))
    group.settled()
    for worker in group.workers:
        for query in ("", "?includeTasks=true", "?includeTasks=true&onlyFailed=true"):
            answer = group.ask("POST", f"/connectors/nobody/restart{query}", worker=worker)
            assert (answer[0], answer[1]["message"]) == (404, "Unknown connector: nobody")
        answer = group.ask("POST", "/connectors/s20/tasks/5/restart", worker=worker)
        assert (answer[0], answer[1]["message"]) == (404, "Unknown task: s20-5")
    group.delete("s20")
    for worker in group.workers:
        for path in ("", "/config", "/status", "/tasks"):
            assert worker.get(f"/connectors/s20{path}")[0] == 404
        assert worker.ask("DELETE", "/connectors/s20")[0] == 404


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
