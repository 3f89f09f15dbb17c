"""What ``explain`` names of connectors that stand still, on a running worker and a real broker."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]


def waiting_for(worker: WorkerProcess, name: str) -> dict[str, Any]:
    """What the first task of a connector waits for; nothing while it has none."""
    found: Any = worker.get(f"/connectors/{name}/explain")[1]
    return dict(found["tasks"][0]["waiting_for"]) if found and found.get("tasks") else {}


def waits(worker: WorkerProcess, name: str, reason: str, cause: str) -> bool:
    found = waiting_for(worker, name)
    return found.get("reason") == reason and cause in found.get("cause", "")


def test_explain_names_the_cause(awake_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path) -> None:
    worker = awake_worker
    plain = {"value.converter": "org.apache.kafka.connect.storage.StringConverter", "tasks.max": "1"}
    source = {**plain, "connector.class": "FileStreamSource"}
    sink = {**plain, "connector.class": "FileStreamSink", "file": str(tmp_path / "out")}
    given = {
        "explain-file": {**source, "file": str(tmp_path / "in"), "topic": "explain-t"},
        "explain-topic": {
            **sink,
            "topics": "explain-gone",
            "consumer.override.allow.auto.create.topics": "false",
        },
        "explain-regex": {**sink, "topics.regex": "explain-never-.*"},
        "explain-fails": {**sink, "topics": "explain-gone", "file": str(tmp_path / "no" / "out")},
        "explain-broker": {
            **source,
            "file": str(tmp_path / "there"),
            "topic": "explain-t",
            "producer.override.bootstrap.servers": "127.0.0.1:1",
        },
    }
    (tmp_path / "there").write_text("a line\n")
    expected = {
        "explain-file": ("input_missing", f"the file {tmp_path / 'in'} does not exist"),
        "explain-topic": ("topic_missing", "the topic explain-gone does not exist"),
        "explain-regex": ("topic_missing", "no topic that this worker may see matches topics.regex=explain-never-.*"),
        "explain-fails": ("failed", f"Couldn't find or create file '{tmp_path / 'no' / 'out'}'"),
        "explain-broker": ("broker", "127.0.0.1:1"),
    }
    try:
        for name, config in given.items():
            assert worker.ask("POST", "/connectors", {"name": name, "config": config})[0] == 201
        for name, (reason, cause) in expected.items():
            worker.wait(partial(waits, worker, name, reason, cause), f"{name}: {reason}, {cause}")
            assert cause in waiting_for(worker, name)["text"]
        status: Any = worker.get("/connectors/explain-fails/status")[1]
        trace = status["tasks"][0]["trace"]
        assert trace.startswith("org.apache.kafka.connect.errors.ConnectException: Couldn't find or create file")
        assert "penstock/worker/" not in trace
    finally:
        for name in given:
            worker.ask("DELETE", f"/connectors/{name}")


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_task_that_asks_again_and_one_that_waits_for_data_say_so(
    awake_worker: WorkerProcess, tmp_path: Path, isolation: str
) -> None:
    worker = awake_worker
    source = {"connector.class": "testkit.connectors.misbehaving:Misbehaving", "tasks.max": "1"}
    own = {**source, "task.isolation": isolation}
    given = {
        f"asks-{isolation}": {
            **own,
            "do": "retry",
            "trigger": str(tmp_path / "poll"),
            "source.retry.delay.max.ms": "500",
        },
        f"starts-{isolation}": {**own, "do": "retry start", "trigger": str(tmp_path / "start")},
        f"idle-{isolation}": {**own, "do": "none", "trigger": str(tmp_path / "never")},
    }
    asks, starts, idle = given
    try:
        for name, config in given.items():
            assert worker.ask("POST", "/connectors", {"name": name, "config": config})[0] == 201
        worker.wait(partial(waits, worker, asks, "source_retry", "RetriableException: poll is away"), "poll asks again")
        worker.wait(partial(waits, worker, starts, "source_retry", "start is away"), "start asks again")
        worker.wait(partial(waits, worker, idle, "no_data", ""), "an idle source has no data")
        status: Any = worker.get(f"/connectors/{asks}/status")[1]
        task = status["tasks"][0]
        assert (task["state"], task["waiting_for"]["reason"]) == ("RUNNING", "source_retry")
        status = worker.get(f"/connectors/{starts}/status")[1]
        assert status["tasks"][0]["state"] != "RUNNING"
        health: Any = worker.get("/health")
        assert health[0] == 200
        assert f"task {asks}-0 (source_retry since " in health[1]["message"]
        (tmp_path / "poll").touch()
        (tmp_path / "start").touch()
        for name in (asks, starts):
            worker.wait(partial(waits, worker, name, "no_data", ""), f"{name} goes on")
            status = worker.get(f"/connectors/{name}/status")[1]
            assert status["tasks"][0]["state"] == "RUNNING"
            assert "waiting_for" not in status["tasks"][0]
    finally:
        for name in given:
            worker.ask("DELETE", f"/connectors/{name}")
