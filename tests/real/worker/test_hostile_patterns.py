"""Connectors whose patterns would hold Spark's JVM for ever, in a running worker."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, cast

import pytest
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker
from penstock.kafka.consumer.sampler import read_values

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

#: RE2 runs the first; the other is left to the engine with a limit.
LINEAR = "(.*a){20}b"
HOSTILE = "(?=a)(a|aa)+b"
LINES = 20_000


def create(worker: WorkerProcess, topic: str, regex: str, file: Path) -> str:
    name = f"hostile-{uuid.uuid4().hex[:8]}"
    config = {
        "connector.class": "FileStreamSource",
        "file": str(file),
        "topic": topic,
        "transforms": "route",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": regex,
        "transforms.route.replacement": "x",
    }
    status, answer = worker.ask("POST", "/connectors", {"name": name, "config": config})
    assert status == 201, answer
    return name


def test_a_pattern_holds_neither_its_task_nor_others(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    file = tmp_path / "in.txt"
    file.write_text("".join(f"line {number}\n" for number in range(LINES)))
    topic = f"{'a' * 60}-{uuid.uuid4().hex[:8]}"

    failing = create(shared_worker, topic, HOSTILE, file)
    flowing = create(shared_worker, topic, LINEAR, file)

    def task(name: str) -> dict[str, Any]:
        status = cast("dict[str, list[dict[str, Any]]]", shared_worker.get(f"/connectors/{name}/status")[1])
        return (status["tasks"] or [{"state": "none"}])[0]

    shared_worker.wait(lambda: task(failing)["state"] == "FAILED", "the task fails", 120)
    assert HOSTILE in task(failing)["trace"]
    assert topic[:60] in task(failing)["trace"]
    assert len(read_values(broker.bootstrap_servers, topic, LINES, 120)) == LINES
    assert task(flowing)["state"] == "RUNNING"
    for name in (failing, flowing):
        assert shared_worker.ask("DELETE", f"/connectors/{name}")[0] == 204
