"""connect-standalone as a process, with Spark and a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from testkit.spark_settings import QUICK_START
from testkit.waiting import await_true

from penstock.broker import EmbeddedBroker, free_port
from penstock.kafka.consumer.sampler import read_values

pytestmark = [pytest.mark.java, pytest.mark.slow]

JSON = "org.apache.kafka.connect.json.JsonConverter"
TRANSFORMS = {
    "transforms": "MakeMap, InsertSource",
    "transforms.MakeMap.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.MakeMap.field": "line",
    "transforms.InsertSource.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.InsertSource.static.field": "data_source",
    "transforms.InsertSource.static.value": "test-file-source",
}


class Process:
    """A worker in a directory of its own; its files are made here."""

    def __init__(self, directory: Path, bootstrap_servers: str) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.port = free_port()
        self.running: subprocess.Popen[bytes] | None = None
        self.arguments: list[str] = []
        self.add(
            "worker.properties",
            {
                "bootstrap.servers": bootstrap_servers,
                "key.converter": JSON,
                "value.converter": JSON,
                "key.converter.schemas.enable": "false",
                "value.converter.schemas.enable": "false",
                "offset.storage.file.filename": str(directory / "offsets"),
                "offset.flush.interval.ms": "500",
                "listeners": f"http://127.0.0.1:{self.port}",
                "config.providers": "file",
                "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
                **QUICK_START,
            },
        )

    def add(self, name: str, settings: Mapping[str, str]) -> None:
        """Writes a properties file and adds it to the command."""
        path = self.directory / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        self.arguments.append(str(path))

    def start(self) -> None:
        """Starts the worker."""
        command = [sys.executable, "-m", "penstock.cli.worker.standalone", *self.arguments]
        with self.log.open("ab") as out:
            self.running = subprocess.Popen(command, stdout=out, stderr=out, cwd=self.directory)

    def kept_waiting_s(self) -> float:
        """How long the worker's main thread could have run, and no core was free for it."""
        assert self.running is not None
        return int(Path(f"/proc/{self.running.pid}/schedstat").read_text().split()[1]) / 1e9

    def get(self, path: str) -> tuple[int, object]:
        """Status and body; status 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError:
            return 0, None

    def states(self, name: str) -> list[str]:
        """State of a connector, then those of its tasks."""
        status, body = self.get(f"/connectors/{name}/status")
        if status != 200 or not isinstance(body, dict):
            return []
        return [body["connector"]["state"], *(task["state"] for task in body["tasks"])]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signals the worker; its exit code."""
        assert self.running is not None
        self.running.send_signal(number)
        return self.running.wait(60)

    def close(self) -> None:
        """Ends what still runs."""
        if self.running is not None and self.running.poll() is None:
            self.running.kill()
            self.running.wait(10)


@pytest.fixture
def process(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[Process]:
    """A worker on the tests' broker, not started."""
    made = Process(tmp_path, broker.bootstrap_servers)
    yield made
    made.close()


def await_long(holds: Callable[[], bool], log: Path) -> None:
    """Waits for what needs Spark to be up; shows the end of the log when it does not come."""
    await_true(holds, lambda: log.read_text()[-3000:], timeout_s=90)


@pytest.mark.broker
def test_the_documentation_example(process: Process, broker: EmbeddedBroker) -> None:
    source, sink = process.directory / "test.txt", process.directory / "test.sink.txt"
    (process.directory / "topics.properties").write_text("plain=standalone-doc\n")
    reference = f"${{file:{process.directory}/topics.properties:plain}}"
    file_source = {"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(source)}
    process.add("plain.properties", {"name": "plain", **file_source, "topic": reference})
    process.add("made.properties", {"name": "made", **file_source, "topic": "standalone-doc-map", **TRANSFORMS})
    process.add(
        "sink.properties", {"name": "sink", "connector.class": "FileStreamSink", "file": str(sink), "topics": reference}
    )
    source.write_text("hello world\n")

    began = time.monotonic()
    process.start()
    await_long(lambda: process.get("/")[0] == 200, process.log)
    took = time.monotonic() - began - process.kept_waiting_s()
    assert took < 2, f"REST answers only after {took:.1f} s, without what other processes took of the machine"
    assert "Spark session 1 is up" not in process.log.read_text(), "REST must not wait for Spark"
    await_long(lambda: process.states("sink") == ["RUNNING", "RUNNING"], process.log)
    await_long(lambda: sink.exists() and sink.read_text() == "hello world\n", process.log)
    assert read_values(broker.bootstrap_servers, "standalone-doc", 1, 60) == [b'"hello world"']
    assert read_values(broker.bootstrap_servers, "standalone-doc-map", 1, 60) == [
        b'{"line":"hello world","data_source":"test-file-source"}'
    ]
    status, config = process.get("/connectors/plain/config")
    assert status == 200
    assert isinstance(config, dict)
    assert config["topic"] == reference
    # Workers that are started again: ``test_signals`` and ``test_kills``.
    assert process.end(signal.SIGINT) == 0
    assert "[plain|task-0] " in process.log.read_text()


@pytest.mark.java
@pytest.mark.broker
def test_a_bad_expression_in_a_connector_file_waits_for_spark_and_ends_the_worker_with_3(process: Process) -> None:
    settings = {"name": "bad", "connector.class": "FileStreamSink", "topics": "standalone-sql", "file": "out"}
    process.add(
        "bad.properties", settings | {"transforms": "s", "transforms.s.type": "Sql", "transforms.s.select": "f(a"}
    )
    process.start()
    assert process.running is not None
    assert process.running.wait(90) == 3
    assert "Invalid value f(a for configuration select: Spark cannot parse it" in process.log.read_text()


@pytest.mark.broker
def test_an_unknown_class_on_the_command_line_ends_the_worker_with_3(process: Process) -> None:
    process.add("bad.properties", {"name": "bad", "connector.class": "FileStreemSource"})
    process.start()
    assert process.running is not None
    assert process.running.wait(90) == 3
    assert "Did you mean FileStreamSource?" in process.log.read_text()
