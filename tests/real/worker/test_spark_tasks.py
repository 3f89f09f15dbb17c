"""Tasks that use Spark themselves, in a worker: what they return is delivered, also when the JVM is killed."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.connectors.spark_tasks import ROWS
from testkit.processes.worker_process import WorkerProcess

from penstock.api import TopicPartition
from penstock.broker import EmbeddedBroker
from penstock.errors import KafkaException
from penstock.kafka.admin import TopicAdmin
from penstock.kafka.consumer.sampler import read_values

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[3] / "examples"
LONG = {"value.converter": "org.apache.kafka.connect.converters.LongConverter"}
COUNT = 6 * ROWS
#: From a session that is up to tasks that run. How long a session takes to start depends on the machine alone.
BACK_S = 30.0
SESSION_S = 180.0
#: A source's form of frames, and whether a user's transform follows.
SOURCES = {"function": False, "dataframe": False, "kept": False, "function-records": True, "dataframe-records": True}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedBroker) -> Iterator[WorkerProcess]:
    """A worker of this module: its Spark session is lost."""
    directory = tmp_path_factory.mktemp("spark-tasks")
    made = WorkerProcess(directory, broker.bootstrap_servers, {"plugin.path": str(EXAMPLES), **LONG})
    made.spark_on_demand = False
    made.start()
    try:
        made.wait(lambda: made.get("/connectors") == (200, []), "it answers")
        yield made
        assert made.end() == 0
    finally:
        made.close()


class Topic:
    """A topic of numbers."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.name = f"spark-{uuid.uuid4().hex[:8]}"
        self._servers = broker.bootstrap_servers

    def count(self) -> int:
        partition = TopicPartition(self.name, 0)
        admin = TopicAdmin({"bootstrap.servers": self._servers}, name="the test")
        try:
            return admin.end_offsets([partition])[partition] if admin.topic_exists(self.name) else 0
        except KafkaException:
            return 0  # it has no leader yet
        finally:
            admin.close()

    def numbers(self) -> list[int]:
        return [
            int.from_bytes(value or b"", "big") for value in read_values(self._servers, self.name, self.count(), 60)
        ]


def test_a_query_of_a_source_is_delivered(worker: WorkerProcess, broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    config = {"connector.class": "squares_source.SquaresSource", "topic": topic.name, "count": "100003"}
    create(worker, "squares", config)
    worker.wait(lambda: topic.count() == 100_003, "all squares", 180)

    assert topic.numbers() == [number * number for number in range(100_003)]
    assert worker.states("squares") == ["RUNNING", "RUNNING"]
    assert worker.ask("DELETE", "/connectors/squares")[0] == 204


def test_tasks_that_use_spark_themselves_go_on_when_its_jvm_is_killed(
    worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow, sunk, filled = tmp_path / "slow", tmp_path / "sunk.txt", Topic(broker)
    topics = {name: Topic(broker) for name in SOURCES}
    rows = {"connector.class": "testkit.connectors.spark_tasks:RowsSource", "slow": str(slow), "count": str(COUNT)}
    create(worker, "fill", rows | {"topic": filled.name, "form": "function", "slow": str(tmp_path / "never")})
    worker.wait(lambda: filled.count() == COUNT, "the sink's topic is filled", 180)

    slow.touch()
    sink = {"connector.class": "testkit.connectors.spark_tasks:RowsSink", "topics": filled.name, "file": str(sunk)}
    create(worker, "sink", sink | {"slow": str(slow)})
    for name, by_records in SOURCES.items():
        config = rows | {"topic": topics[name].name, "form": name.partition("-")[0]}
        if by_records:
            config |= {"transforms": "same", "transforms.same.type": "testkit.connectors.spark_tasks:Same"}
        create(worker, name, config)
    worker.wait(lambda: all(in_spark(worker, name) for name in SOURCES), "each source has a job", 120)
    worker.wait(sunk.with_suffix(".putting").exists, "put has begun", 120)
    jvm = worker.jvm()
    assert jvm is not None

    slow.unlink()
    os.kill(jvm, signal.SIGKILL)
    killed = time.monotonic()
    seen: set[str] = set()

    def all_run() -> bool:
        states = [state for name in ("sink", *SOURCES) for state in worker.states(name)]
        seen.update(states)
        return set(states) == {"RUNNING"}

    def all_there() -> bool:
        all_run()
        return all(topic.count() >= COUNT for topic in topics.values()) and lines(sunk) >= COUNT

    def session_is_back() -> bool:
        all_run()
        return "Spark session 2 is up" in worker.text()

    worker.wait(session_is_back, "there is another session", SESSION_S)
    worker.wait(all_run, "all tasks run again", BACK_S)
    took_s = time.monotonic() - killed
    worker.wait(all_there, "all records", 120)
    assert all_run()
    assert seen <= {"RUNNING", "RESTARTING"}
    for name, topic in topics.items():
        # What was lost had not been sent, so nothing comes twice.
        assert topic.numbers() == list(range(COUNT)), name
    assert [int(line) for line in sunk.read_text().splitlines()] == list(range(COUNT))
    assert "Traceback" not in worker.text()
    assert worker.text().count("it is started again where its committed offsets end") == 3
    assert worker.text().count("the Spark session was lost during put") == 1
    with capsys.disabled():
        print(f"\nall tasks run {took_s:.0f} s after the kill")


def create(worker: WorkerProcess, name: str, config: dict[str, str]) -> None:
    status, body = worker.ask("POST", "/connectors", {"name": name, "config": config})
    assert status == 201, body


def in_spark(worker: WorkerProcess, name: str) -> bool:
    """Whether Spark works on a batch of the connector's task."""
    status, body = worker.get(f"/connectors/{name}/explain")
    return status == 200 and isinstance(body, dict) and body["tasks"][0]["waiting_for"]["reason"] == "spark"


def lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0
