"""`penstock_spark_records_total` equals the records that were moved."""

from __future__ import annotations

import re
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from testkit.processes.worker_process import WorkerProcess

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

SAMPLE = re.compile(r'^penstock_spark_records_total\{connector="([^"]*)",road="columns",why=""\} (\d+)$', re.MULTILINE)
LINES = 12_345
MORE = 7


def counted(worker: WorkerProcess, names: list[str]) -> dict[str, int]:
    """The metric of these connectors, as far as they have one."""
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=30) as reply:
        text = reply.read().decode()
    return {connector: int(count) for connector, count in SAMPLE.findall(text) if connector in names}


def lines_of(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def test_the_metric_equals_the_lines_of_the_files(shared_worker: WorkerProcess, tmp_path: Path) -> None:
    worker = shared_worker
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text("".join(f"line {number}\n" for number in range(LINES)))
    run = uuid.uuid4().hex[:8]
    names = [f"counted-source-{run}", f"counted-sink-{run}"]
    json = "org.apache.kafka.connect.json.JsonConverter"
    converter = {"value.converter": json, "value.converter.schemas.enable": "true"}
    hoist = "org.apache.kafka.connect.transforms.HoistField$Value"
    chain = {"transforms": "hoist", "transforms.hoist.type": hoist, "transforms.hoist.field": "line"}
    for name, config in (
        (names[0], {"connector.class": "FileStreamSource", "file": str(source), "topic": run, **chain}),
        (names[1], {"connector.class": "FileStreamSink", "file": str(sink), "topics": run}),
    ):
        status, body = worker.ask("POST", "/connectors", {"name": name, "config": {**config, **converter}})
        assert status == 201, body
    try:
        worker.wait(lambda: lines_of(sink) == LINES, "all lines", 200)
        assert counted(worker, names) == dict.fromkeys(names, LINES)
        for name in names:
            explained: Any = worker.get(f"/connectors/{name}/explain")[1]
            assert explained["roads"] == [{"road": "columns", "why": None, "records": LINES}]

        status, _ = worker.ask("POST", f"/connectors/{names[0]}/tasks/0/restart")
        assert status == 204
        with source.open("a") as file:
            file.writelines(f"more {number}\n" for number in range(MORE))
        worker.wait(lambda: lines_of(sink) == LINES + MORE, "the lines after a restart", 100)
        assert counted(worker, names) == dict.fromkeys(names, LINES + MORE)

        assert worker.ask("DELETE", f"/connectors/{names[0]}")[0] == 204
        worker.wait(lambda: names[0] not in counted(worker, names), "the metric of a deleted connector goes", 30)
        assert counted(worker, names) == {names[1]: LINES + MORE}
    finally:
        for name in names:
            worker.ask("DELETE", f"/connectors/{name}")
    assert sink.read_text().splitlines()[:2] == ["Struct{line=line 0}", "Struct{line=line 1}"]
