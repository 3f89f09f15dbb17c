"""A distributed worker whose Spark session is on a cluster of Spark: a master and a worker of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from penstock.broker import EmbeddedBroker, free_port
from penstock.kafka.topic_sampler import read_values
from penstock.pipeline.spark.class_archive import archive_option
from penstock.testing.spark_settings import QUICK_START
from penstock.testing.worker_group import WorkerGroup

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
#: The JVM's first compiler alone: no process of Spark runs for long here. The classes are those of any session.
QUICKLY = f"{QUICK_START['spark.driver.extraJavaOptions']} {archive_option()}".replace('"', "").rstrip()
SHOUT = """
from penstock.api import Transformation
from penstock.config import ConfigDef


class Shout(Transformation):
    def config(self):
        return ConfigDef()

    def apply(self, record):
        return record.new_record(value=record.value.upper())
"""


@contextmanager
def started(directory: Path, name: str, said: str, *arguments: str) -> Iterator[Path]:
    """A process of Spark, once it has said something; its log."""
    log = directory / f"{name}.log"
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_WORKER_DIR": str(directory / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICKLY,
    }
    with log.open("wb") as out:
        # Its executors are in its group, and end with it.
        process = subprocess.Popen(
            [str(SPARK_CLASS), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=directory,
            process_group=0,
        )
    try:
        deadline, pause = time.monotonic() + 60, threading.Event()
        while said not in log.read_text(encoding="utf-8", errors="replace"):
            text = log.read_text(encoding="utf-8", errors="replace")[-3000:]
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
            pause.wait(0.1)
        yield log
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


@pytest.fixture
def spark_master(tmp_path: Path) -> Iterator[str]:
    """The address of a Spark master with one worker of two cores."""
    port, here = free_port(), ("--host", "127.0.0.1", "--webui-port", "0")
    directory = tmp_path / "spark"
    directory.mkdir()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        master = ("master.Master", "--port", str(port), *here)
        running.enter_context(started(directory, "master", "New state: ALIVE", *master))
        worker = ("worker.Worker", "--cores", "2", "--memory", "1g", *here, url)
        running.enter_context(started(directory, "worker", "Successfully registered with master", *worker))
        yield url


def test_a_source_and_a_sink_run_and_a_transform_in_python_too(
    broker: EmbeddedBroker, spark_master: str, tmp_path: Path
) -> None:
    settings = {
        "spark.master": spark_master,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICKLY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
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
