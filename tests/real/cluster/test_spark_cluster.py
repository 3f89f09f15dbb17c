"""A distributed worker whose Spark session is on a cluster of Spark: a master and a worker of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.processes.spark_cluster import SparkCluster
from testkit.processes.worker_group import WorkerGroup

from penstock.broker import EmbeddedBroker
from penstock.kafka.consumer.sampler import read_values

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

SHOUT = """
from penstock.api import Transformation
from penstock.config import ConfigDef


class Shout(Transformation):
    def config(self):
        return ConfigDef()

    def apply(self, record):
        return record.new_record(value=record.value.upper())
"""


@pytest.fixture
def spark_master(tmp_path: Path) -> Iterator[SparkCluster]:
    """A Spark master with one worker of two cores."""
    with SparkCluster(tmp_path / "spark") as cluster:
        yield cluster


def test_a_source_and_a_sink_run_and_a_transform_in_python_too(
    broker: EmbeddedBroker, spark_master: SparkCluster, tmp_path: Path
) -> None:
    settings = {
        **spark_master.settings,
        "plugin.path": str(tmp_path / "plugins"),
    }
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "shout.py").write_text(SHOUT, encoding="utf-8")
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    lines = [f"line {number}" for number in range(500)]
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with WorkerGroup(tmp_path / "workers", broker.bootstrap_servers, settings, size=1) as group:
        topic = group.name
        file = "org.apache.kafka.connect.file.FileStream"
        group.create(
            "source",
            {
                "connector.class": f"{file}SourceConnector",
                "file": str(source),
                "topic": topic,
                # One on the executors, one in the worker.
                "transforms": "wrap,unwrap,shout",
                "transforms.wrap.type": "org.apache.kafka.connect.transforms.HoistField$Value",
                "transforms.wrap.field": "text",
                "transforms.unwrap.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
                "transforms.unwrap.field": "text",
                "transforms.shout.type": "shout:Shout",
            },
        )
        group.create(
            "sink", {"connector.class": f"{file}SinkConnector", "file": str(sink), "topics": topic, "tasks.max": "1"}
        )
        loud = [line.upper() for line in lines]

        def arrived() -> list[str]:
            return sink.read_text(encoding="utf-8").splitlines() if sink.exists() else []

        group.wait(lambda: len(arrived()) >= len(lines), "all lines arrive", 150)

        assert arrived() == loud
        assert read_values(broker.bootstrap_servers, topic, len(lines), 30) == [line.encode() for line in loud]
        # The work was done there.
        executors = list((tmp_path / "spark" / "work").glob("app-*/*/stderr"))
        assert executors
        assert any("Running task" in one.read_text(encoding="utf-8", errors="replace") for one in executors)
        group.stop()
