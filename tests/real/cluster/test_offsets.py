"""Source offsets, topics in use and log levels of a group: what one worker wrote or was told, all of them know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from testkit.connectors.journal_source import Probes
from testkit.doubles.exactly_once import visible
from testkit.processes.worker_group import WorkerGroup

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 150


def offsets(group: WorkerGroup, name: str) -> dict[str, int]:
    """The next number of each task, as every worker says; -1 while they say different things."""
    bodies: list[Any] = [worker.get(f"/connectors/{name}/offsets")[1] for worker in group.workers]
    found = [{one["partition"]["task"]: one["offset"]["next"] for one in body["offsets"]} for body in bodies]
    return {task: next_ if all(one.get(task) == next_ for one in found) else -1 for task, next_ in found[0].items()}


def test_a_connector_reads_what_tasks_on_other_workers_have_committed_and_its_requests_reach_them(
    group: WorkerGroup, probes: Probes
) -> None:
    group.create("k131", probes.config(3, count=str(COUNT), topic="k131"))
    group.wait_states("k131", *["RUNNING"] * 4)
    group.settled()
    where = group.where()
    assert len({where[f"k131-{task}"] for task in range(3)}) == 3
    group.wait(lambda: offsets(group, "k131") == {f"k131-{task}": COUNT for task in range(3)}, "all is committed")
    # KIP-131: what all tasks have committed, read by the connector on one of the workers.
    request = probes.request("k131", offsets=["k131-0", "k131-1", "k131-2", "nobody"])
    group.wait(lambda: not request.exists(), "it has read them")
    (read,) = [call for call in probes.calls("k131") if call.call == "offsets"]
    assert read.more["found"] == [{"next": COUNT}] * 3 + [None]
    # Tasks on other workers are restarted, and only these.
    before = [probes.count(f"k131-{task}", "start") for task in range(3)]
    request = probes.request("k131", restart=[0, 2])
    group.wait(
        lambda: probes.count("k131-0", "start") > before[0] and probes.count("k131-2", "start") > before[2], "both"
    )
    assert probes.count("k131-1", "start") == before[1]
    # A reconfiguration gives the workers more tasks.
    probes.order("k131", "tasks", "2")
    probes.request("k131", reconfigure=True)
    group.wait_states("k131", *["RUNNING"] * 3)
    group.settled()
    assert len(visible(group.bootstrap_servers, "k131")) == 3 * COUNT


def test_a_directory_source_follows_tasks_on_three_workers_until_each_file_is_finished(
    group: WorkerGroup, tmp_path: Path
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    wanted = [f"file {file}, line {line}" for file in range(6) for line in range(50)]
    for file in range(6):
        (inbox / f"{file}.txt").write_text("".join(f"{line}\n" for line in wanted[file * 50 : file * 50 + 50]))
    config = {
        "connector.class": "penstock.connectors.directory.DirectorySourceConnector",
        "directories": str(inbox),
        "topic": "inbox",
        "tasks.max": "3",
        "scan.interval.ms": "300",
        "idle.ms": "2000",
    }
    group.create("inbox", config, worker=group.followers()[0])
    seen: list[set[str]] = []

    def finished() -> bool:
        body: Any = group.workers[0].get("/connectors/inbox/status")[1]
        seen.append({task["worker_id"] for task in body.get("tasks", ()) if task["state"] == "RUNNING"})
        return len(seen[-1]) == 0 and any(seen)

    # A file is finished when the connector has seen, in what its tasks have committed, that all of it was read.
    group.wait(finished, "every file is finished", 120)
    assert max(map(len, seen)) == 3
    # A file that goes to another task may be read by both for a moment.
    before = visible(group.bootstrap_servers, "inbox")
    assert set(before) == set(wanted)
    with (inbox / "4.txt").open("a") as more:
        more.write("one more\n")
    group.wait(lambda: len(visible(group.bootstrap_servers, "inbox")) > len(before), "it is read on", 60)
    assert visible(group.bootstrap_servers, "inbox")[len(before) :] == ["one more"]


def test_scenarios_68_70_and_77_source_offsets_are_read_changed_and_reset_through_followers(
    group: WorkerGroup, probes: Probes
) -> None:
    body = {"name": "s68", "config": probes.config(2, count=str(COUNT), topic="s68"), "initial_state": "STOPPED"}
    assert group.ask("POST", "/connectors", body, worker=group.followers()[0])[0] == 201
    group.wait_states("s68", "STOPPED")

    def change(method: str, change: object = None) -> tuple[int, Any]:
        return group.ask(method, "/connectors/s68/offsets", change, worker=group.followers()[1])

    def to(number: int) -> dict[str, object]:
        return {"offsets": [{"partition": {"task": "s68-1"}, "offset": {"next": number}}]}

    # 77: set before its first start.
    assert change("PATCH", to(50))[0] == 200
    group.bring_to("s68", "resume", worker=group.followers()[0])
    group.wait_states("s68", *["RUNNING"] * 3)
    group.wait(lambda: offsets(group, "s68") == {"s68-0": COUNT, "s68-1": COUNT}, "all is committed")
    assert [call.more["number"] for call in probes.calls("s68-1") if call.call == "start"][-1] == 50
    # 70: not while it runs or rests; nor where there is none.
    assert change("DELETE")[0] == 400
    group.bring_to("s68", "pause", worker=group.followers()[0])
    group.wait_states("s68", *["PAUSED"] * 3)
    assert change("PATCH", to(1))[0] == 400
    assert group.ask("DELETE", "/connectors/nobody/offsets", worker=group.followers()[0])[0] == 404
    # 68: changed and reset.
    group.bring_to("s68", "stop", worker=group.followers()[0])
    group.wait_states("s68", "STOPPED")
    assert change("PATCH", to(100))[0] == 200
    assert offsets(group, "s68") == {"s68-0": COUNT, "s68-1": 100}
    assert change("DELETE")[0] == 200
    assert offsets(group, "s68") == {}
    group.bring_to("s68", "resume", worker=group.followers()[1])
    group.wait(lambda: offsets(group, "s68") == {"s68-0": COUNT, "s68-1": COUNT}, "all is committed again")
    values = visible(group.bootstrap_servers, "s68")
    assert (values.count("s68-0 7"), values.count("s68-1 7"), values.count("s68-1 70")) == (2, 1, 2)


def test_the_topics_of_tasks_on_all_workers_are_known_and_forgotten_on_each(group: WorkerGroup, probes: Probes) -> None:
    group.create("s95", probes.config(3, count="5", topic="s95"))

    def topics() -> list[Any]:
        return [worker.get("/connectors/s95/topics") for worker in group.workers]

    group.wait(lambda: topics() == [(200, {"s95": {"topics": ["s95"]}})] * 3, "all know it")
    # A task that sends once more would have it known again.
    group.wait(lambda: len(visible(group.bootstrap_servers, "s95")) == 15, "all is sent")
    assert group.ask("PUT", "/connectors/s95/topics/reset", worker=group.followers()[0])[0] == 202
    group.wait(lambda: topics() == [(200, {"s95": {"topics": []}})] * 3, "all have forgotten it")
    group.put("s95", probes.config(3, count="9", topic="s95"), worker=group.followers()[1])
    group.wait(lambda: topics() == [(200, {"s95": {"topics": ["s95"]}})] * 3, "all know it again")


def test_a_log_level_changes_on_one_worker_or_on_all(group: WorkerGroup) -> None:
    path = "/admin/loggers/penstock.s97"

    def levels() -> list[str | None]:
        answers: list[Any] = [worker.get(path) for worker in group.workers]
        return [body["level"] if status == 200 else None for status, body in answers]

    status, changed = group.ask("PUT", f"{path}?scope=worker", {"level": "WARN"}, worker=group.workers[1])
    assert (status, changed) == (200, ["penstock.s97"])
    assert levels()[1] == "WARN"
    assert "WARN" not in (levels()[0], levels()[2])
    assert group.ask("PUT", f"{path}?scope=cluster", {"level": "ERROR"}, worker=group.followers()[0]) == (204, None)
    group.wait(lambda: levels() == ["ERROR"] * 3, "all workers follow", 10)
    assert group.ask("PUT", f"{path}?scope=cluster", {"level": "LOUD"}, worker=group.followers()[0])[0] == 404
