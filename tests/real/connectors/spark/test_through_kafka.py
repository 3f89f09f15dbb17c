"""Files through the Spark source into a topic of a real broker, and through the Spark sink into files again."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.java, pytest.mark.slow]

JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def add(worker: WorkerProcess, name: str, config: dict[str, str]) -> None:
    status, body = worker.ask("POST", "/connectors", {"name": name, "config": config})
    assert status == 201, body


def ids(folder: Path) -> list[int]:
    found: list[int] = []
    # Spark moves a file out of a directory that begins with an underscore when it is whole.
    for file in folder.glob("day=*/*.parquet"):
        found += pq.read_table(file, partitioning=None).column("id").to_pylist()
    return sorted(found)


def test_files_come_through_a_topic_into_files_and_a_bad_message_is_skipped(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    worker, run = shared_worker, uuid.uuid4().hex[:8]
    source_dir, target = tmp_path / "in", tmp_path / "out"
    source_dir.mkdir()
    pq.write_table(pa.table({"id": range(1000), "day": ["mon"] * 1000}), source_dir / "a.parquet")
    source = {
        **JSON,
        "connector.class": "SparkSource",
        "topic": f"spark-{run}",
        "spark.format": "parquet",
        "spark.path": str(source_dir),
        "mode": "files",
        "key.columns": "id",
        "files.settle.ms": "0",
        "poll.interval.ms": "200",
    }
    sink = {
        **JSON,
        "connector.class": "SparkSink",
        "topics": f"spark-{run}",
        "spark.format": "parquet",
        "spark.path": str(target),
        "spark.schema": "id int, day string",
        "partition.columns": "day",
        "frame.min.rows": "100000",
        "frame.max.wait.ms": "500",
        "errors.tolerance": "all",
        "consumer.override.auto.offset.reset": "earliest",
    }
    add(worker, f"source-{run}", source)
    add(worker, f"sink-{run}", sink)
    worker.wait(lambda: ids(target) == list(range(1000)), "the rows are in files", 120)

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(f"spark-{run}", b'{"id": "no number", "day": "tue"}')
    producer.produce(f"spark-{run}", b'{"id": 1000, "day": "tue"}')
    producer.flush()
    pq.write_table(pa.table({"id": [1001], "day": ["wed"]}), source_dir / "b.parquet")
    worker.wait(lambda: ids(target) == list(range(1002)), "later rows are in files, but for the bad one", 60)

    assert sorted(one.name for one in target.iterdir() if one.is_dir()) == ["day=mon", "day=tue", "day=wed"]
    assert worker.states(f"source-{run}") == worker.states(f"sink-{run}") == ["RUNNING", "RUNNING"]
    answers: list[Any] = [
        worker.ask("PUT", "/connector-plugins/SparkSink/config/validate", {**sink, "name": "x", "mode": "upsert"})[1],
        worker.get(f"/connectors/source-{run}/offsets")[1],
    ]
    faults = {one["value"]["name"]: one["value"]["errors"] for one in answers[0]["configs"] if one["value"]["errors"]}
    assert set(faults) == {"key.columns", "mode"}
    assert answers[1]["offsets"][0]["partition"] == {"mode": "files", "source": str(source_dir)}
    for name in (f"source-{run}", f"sink-{run}"):
        assert worker.ask("DELETE", f"/connectors/{name}")[0] == 204
