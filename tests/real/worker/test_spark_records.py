"""`penstock_spark_records_total` equals the records that were moved."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest

from penstock.broker import EmbeddedBroker
from penstock.testing.worker_process import WorkerProcess

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

SAMPLE = re.compile(r'^penstock_spark_records_total\{connector="([^"]*)"\} (\d+)$', re.MULTILINE)
LINES = 12_345
MORE = 7


def counted(worker: WorkerProcess) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=30) as reply:
        text = reply.read().decode()
    return {connector: int(count) for connector, count in SAMPLE.findall(text)}


def lines_of(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.parametrize("bypass", ["columns", "never"])
def test_the_metric_equals_the_lines_of_the_files(bypass: str, broker: EmbeddedBroker, tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text("".join(f"line {number}\n" for number in range(LINES)))
    names = [f"counted-source-{bypass}", f"counted-sink-{bypass}"]
    json = "org.apache.kafka.connect.json.JsonConverter"
    settings = {"value.converter": json, "value.converter.schemas.enable": "true", "penstock.spark.bypass": bypass}
    worker = WorkerProcess(tmp_path / "worker", broker.bootstrap_servers, settings)
    topic = {"topic": f"counted-{bypass}", "topics": f"counted-{bypass}"}
    hoist = "org.apache.kafka.connect.transforms.HoistField$Value"
    chain = {"transforms": "hoist", "transforms.hoist.type": hoist, "transforms.hoist.field": "line"}
    for name, kind, path in ((names[0], "FileStreamSource", source), (names[1], "FileStreamSink", sink)):
        used = {"topic" if path is source else "topics": topic["topic"]}
        more = chain if path is source else {}
        worker.add(f"{name}.properties", {"name": name, "connector.class": kind, "file": str(path), **used, **more})
    try:
        worker.start()
        worker.wait(lambda: lines_of(sink) == LINES, "all lines", 200)
        assert counted(worker) == dict.fromkeys(names, LINES)

        status, _ = worker.ask("POST", f"/connectors/{names[0]}/tasks/0/restart")
        assert status == 204
        with source.open("a") as file:
            file.writelines(f"more {number}\n" for number in range(MORE))
        worker.wait(lambda: lines_of(sink) == LINES + MORE, "the lines after a restart", 100)
        assert counted(worker) == dict.fromkeys(names, LINES + MORE)

        assert worker.ask("DELETE", f"/connectors/{names[0]}")[0] == 204
        worker.wait(lambda: names[0] not in counted(worker), "the metric of a deleted connector goes", 30)
        assert counted(worker) == {names[1]: LINES + MORE}
        assert worker.end() == 0
    finally:
        worker.close()
    assert sink.read_text().splitlines()[:2] == ["Struct{line=line 0}", "Struct{line=line 1}"]
