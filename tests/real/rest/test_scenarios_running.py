"""Scenarios of the reference that need a running worker: connector files, plugins, and records that wait in a pause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker
from penstock.kafka.consumer.sampler import read_values

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]


def file_source(path: Path, topic: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSource", "file": str(path), "topic": topic, "tasks.max": "1"}


def test_connector_files_that_are_json_are_created_in_their_initial_state_whatever_was_stored(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    worker = WorkerProcess(tmp_path / "worker", broker.bootstrap_servers)
    source = file_source(tmp_path / "none", "scenario-7")
    given = {
        "plain.json": {"name": "plain", **source},
        "stopped.json": {"name": "stopped", "config": source, "initial_state": "STOPPED"},
        "paused.json": {"name": "paused", "config": source, "initial_state": "PAUSED"},
    }
    for name, body in given.items():
        path = tmp_path / name
        path.write_text(json.dumps(body))
        worker.arguments.append(str(path))
    # As an earlier version left it, which stored connectors of the command line too.
    stored = {"plain": {"target": "STOPPED", "secrets": [], "config": {**source, "topic": "old", "name": "plain"}}}
    (tmp_path / "worker/offsets.connectors.json").write_text(json.dumps({"format": 1, "connectors": stored}))
    try:
        worker.start()
        expected = {"plain": ["RUNNING", "RUNNING"], "stopped": ["STOPPED"], "paused": ["PAUSED"]}
        worker.wait(lambda: {name: worker.states(name) for name in expected} == expected, f"they are {expected}")
        for name in ("plain", "stopped"):
            assert worker.get(f"/connectors/{name}/config")[1] == {"name": name, **source}
        file = tmp_path / "plain.json"
        assert f"Connector plain of the file {file} takes the place of the one kept in" in worker.text()
        assert worker.get("/connectors/stopped/tasks")[1] == []
        assert worker.end() == 0
    finally:
        worker.close()


def test_an_offset_changed_with_the_keys_of_its_partition_in_another_order_is_where_the_task_goes_on(
    shared_worker: WorkerProcess, broker: EmbeddedBroker
) -> None:
    worker, offsets = shared_worker, "/connectors/once/offsets"
    committed = {"offsets": [{"partition": {"table": "t1", "db": "x"}, "offset": {"n": 5}}]}
    changed = {"offsets": [{"partition": {"db": "x", "table": "t1"}, "offset": {"n": 2}}]}
    config = {"connector.class": "testkit.connectors.two_keys:OnceSource", "topic": "two-keys"}
    assert worker.ask("POST", "/connectors", {"name": "once", "config": config})[0] == 201
    worker.wait(lambda: worker.get(offsets)[1] == committed, "its offset is committed", 120)
    assert worker.ask("PUT", "/connectors/once/stop")[0] == 204
    assert worker.ask("PATCH", offsets, changed)[0] == 200
    assert worker.get(offsets)[1] == changed
    assert worker.ask("PUT", "/connectors/once/resume")[0] == 202
    assert read_values(broker.bootstrap_servers, "two-keys", 2, 60) == [b"after None", b"after {'n': 2}"]
    worker.wait(lambda: worker.get(offsets)[1] == committed, "its offset is one", 60)
    assert worker.ask("DELETE", "/connectors/once")[0] == 204


def test_the_plugins_are_listed_with_and_without_those_that_are_no_connectors(
    shared_worker: WorkerProcess,
) -> None:
    def listed(query: str) -> set[tuple[str, str]]:
        found = cast("list[dict[str, Any]]", shared_worker.get(f"/connector-plugins{query}")[1])
        return {(plugin["class"].rpartition(".")[2], plugin["type"]) for plugin in found}

    connectors, everything = listed(""), listed("?connectorsOnly=false")
    assert {("FileStreamSourceConnector", "source"), ("FileStreamSinkConnector", "sink")} <= connectors
    assert {kind for _, kind in connectors} == {"source", "sink"}
    assert connectors < everything
    assert {"converter", "header_converter", "transformation", "predicate"} <= {kind for _, kind in everything}


def test_nothing_moves_in_a_pause_and_all_of_it_afterwards(awake_worker: WorkerProcess, tmp_path: Path) -> None:
    lines, out = tmp_path / "in.txt", tmp_path / "out.txt"
    lines.write_text("before\n")
    sink = {"connector.class": "FileStreamSink", "topics": "scenario-36", "file": str(out), "tasks.max": "1"}
    both = {"source-36": file_source(lines, "scenario-36"), "sink-36": sink}

    def written() -> list[str]:
        return out.read_text().splitlines() if out.exists() else []

    try:
        for name, config in both.items():
            assert awake_worker.ask("POST", "/connectors", {"name": name, "config": config})[0] == 201
        awake_worker.wait(lambda: written() == ["before"], "the first line has arrived", 90)
        for name in both:
            assert awake_worker.ask("PUT", f"/connectors/{name}/pause")[0] == 202
        awake_worker.wait(lambda: all(awake_worker.states(name) == ["PAUSED"] * 2 for name in both), "both rest")
        before = awake_worker.metric("source_record_poll_total", "source-36")
        with lines.open("a") as more:
            more.write("while it rests\nand another\n")
        # A connector made after the lines were written moves as many through the same worker: time enough to see these.
        other, other_out = tmp_path / "other.txt", tmp_path / "other-out.txt"
        other.write_text("1\n2\n")
        third = {"other-36": file_source(other, "other-36")}
        third["other-sink-36"] = {**sink, "topics": "other-36", "file": str(other_out)}
        for name, config in third.items():
            assert awake_worker.ask("POST", "/connectors", {"name": name, "config": config})[0] == 201
        awake_worker.wait(lambda: other_out.exists() and other_out.read_text() == "1\n2\n", "the other has moved", 60)
        assert written() == ["before"]
        assert awake_worker.metric("source_record_poll_total", "source-36") == before
        for name in both:
            assert awake_worker.ask("PUT", f"/connectors/{name}/resume")[0] == 202
        awake_worker.wait(lambda: written() == ["before", "while it rests", "and another"], "all has moved", 60)
    finally:
        for name in (*both, "other-36", "other-sink-36"):
            awake_worker.ask("DELETE", f"/connectors/{name}")
