"""One connector's large or poisoned messages, in a worker whose other connectors go on."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ClientTopic  # type: ignore[attr-defined]
from testkit.connectors.exploding import TRIGGER
from testkit.processes.worker_process import WorkerProcess

from penstock.api import SourceFrame
from penstock.broker import EmbeddedBroker
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import STRING_SCHEMA
from penstock.pipeline.batch.batches import PipelineSpec
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.worker.source.batcher import parts_of_frame
from penstock.worker.task.bounded_queue import BatchLimits

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

WAIT_S = 180.0
MB = 1024 * 1024
LOST = "The Spark JVM "


@pytest.fixture(scope="module")
def worker(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """A worker of this module: its Spark sessions are lost."""
    made = WorkerProcess(tmp_path_factory.mktemp("worker"), broker.bootstrap_servers)
    made.spark_on_demand = False
    made.start(piped=True)
    try:
        made.wait(lambda: "Spark session 1 is up" in made.text(), "Spark is up", WAIT_S)
        yield made
        assert made.end() == 0
    finally:
        made.close()


class Topic:
    """A topic, and what is written to it."""

    def __init__(self, broker: EmbeddedBroker, partitions: int = 1) -> None:
        self.name = f"large-{uuid.uuid4().hex[:8]}"
        self._servers = broker.bootstrap_servers
        self._files = Path(broker.data_dir)
        self.partitions = partitions
        admin = AdminClient({"bootstrap.servers": self._servers})
        for future in admin.create_topics([ClientTopic(self.name, partitions, 1)]).values():
            future.result(60)

    def write(self, values: Sequence[bytes], codec: str = "zstd") -> None:
        """Each message is a batch of its own."""
        producer = ck.Producer(
            {"bootstrap.servers": self._servers, "compression.type": codec, "message.max.bytes": 300 * MB}
        )
        for number, value in enumerate(values):
            producer.produce(self.name, value, partition=number % self.partitions)
            assert producer.flush(60) == 0

    def damage(self, number: int) -> None:
        """Turns bits of a batch of the first partition, on the broker's disk."""
        (path,) = self._files.glob(f"**/{self.name}-0/*.log")
        log, start = path.read_bytes(), 0
        for _ in range(number):
            start += int.from_bytes(log[start + 8 : start + 12], "big") + 12
        with path.open("r+b") as file:
            file.seek(start + 65)
            file.write(bytes(255 - byte for byte in log[start + 65 : start + 70]))

    def letters(self, count: int) -> list[dict[str, str | int | None]]:
        """So many messages of it, with their headers."""
        reader = ck.Consumer(
            {"bootstrap.servers": self._servers, "group.id": self.name, "auto.offset.reset": "earliest"}
        )
        reader.subscribe([self.name])
        found: list[dict[str, str | int | None]] = []
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            message = reader.poll(1.0)
            if message is not None and message.error() is None:
                value = message.value()
                headers: Any = message.headers() or ()
                told = {name.removeprefix("__connect.errors."): text.decode() for name, text in headers}
                found.append({**told, "size": None if value is None else len(value)})
        reader.close()
        return found


def sink(worker: WorkerProcess, topic: Topic, file: Path, **more: str) -> str:
    """Starts a file sink of default settings, and more; its name."""
    name = f"sink-{topic.name}"
    config = {"connector.class": "FileStreamSink", "topics": topic.name, "file": str(file)}
    status, body = worker.ask("PUT", f"/connectors/{name}/config", config | more)
    assert status == 201, body
    return name


def tolerant(letters: Topic) -> dict[str, str]:
    return {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": letters.name,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def test_messages_that_unpack_to_many_times_the_memory_of_spark_cost_no_session(
    worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, file = Topic(broker, 4), tmp_path / "out"
    lost = worker.text().count(f"ERROR {LOST}")
    topic.write([bytes(14 * MB)] * 24)
    name = sink(worker, topic, file, **{"tasks.max": "4"})
    worker.wait(lambda: size(file) == 24 * (14 * MB + 1), "all lines", WAIT_S)
    assert worker.states(name) == ["RUNNING"] * 5
    assert worker.text().count(f"ERROR {LOST}") == lost
    assert worker.ask("DELETE", f"/connectors/{name}")[0] == 204


def test_a_text_of_a_hundred_megabytes_is_written_and_a_damaged_one_is_a_dead_letter(
    worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, letters, file = Topic(broker), Topic(broker), tmp_path / "out"
    topic.write([b"first", bytes(100 * MB), b"damaged" * 20, b"last"])
    topic.damage(2)
    name = sink(worker, topic, file, **tolerant(letters))
    worker.wait(lambda: size(file) == 6 + 100 * MB + 1 + 5, "all lines", 60)
    (letter,) = letters.letters(1)
    assert (letter["topic"], letter["partition"], letter["offset"]) == (topic.name, "0", "2")
    assert (letter["stage"], letter["size"]) == ("KAFKA_CONSUME", None)
    assert worker.states(name) == ["RUNNING", "RUNNING"]
    assert worker.ask("DELETE", f"/connectors/{name}")[0] == 204


def test_without_tolerance_a_damaged_batch_fails_the_task_behind_what_came_before(
    worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, file = Topic(broker), tmp_path / "out"
    topic.write([b"first", b"damaged" * 20, b"last"])
    topic.damage(1)
    name = sink(worker, topic, file)
    worker.wait(lambda: worker.states(name) == ["RUNNING", "FAILED"], "the task fails", 60)
    assert f"topic {topic.name}, partition 0 at offset 1 cannot be read" in worker.trace(name)
    assert file.read_text() == "first\n"
    assert worker.ask("DELETE", f"/connectors/{name}")[0] == 204


def test_a_record_that_ends_any_session_is_a_dead_letter_and_others_lose_one_session(
    worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    calm, calm_file = Topic(broker), tmp_path / "calm"
    other = sink(worker, calm, calm_file)
    topic, letters, file = Topic(broker), Topic(broker), tmp_path / "out"
    values = [f"v{number}-".encode() for number in range(20)]
    values[7] = f"{TRIGGER}-7".encode()
    topic.write(values, "none")
    lost, ended = worker.text().count(f"ERROR {LOST}"), threading.Event()

    def feed() -> None:
        number = 0
        while not ended.wait(0.5):
            calm.write([b"%d" % number])
            number += 1

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        # Its plan has worked then: it is not suspected of what the other one does.
        worker.wait(lambda: size(calm_file) > 0, "the calm one works", 60)
        transform = {"transforms": "x", "transforms.x.type": "testkit.connectors.exploding.ExplodingValue"}
        name = sink(worker, topic, file, **transform, **tolerant(letters))
        worker.wait(lambda: "A separate Spark session starts" in worker.text(), "the batch is tried apart", WAIT_S)
        before = size(calm_file)
        worker.wait(lambda: size(calm_file) > before, "the other one goes on", 60)
        apart = size(file)
        # Each line has the length of an array and its end beside the value.
        all_but_one = sum(len(value) + 2 for value in values) - len(values[7]) - 2
        worker.wait(lambda: size(file) == all_but_one, "the others", WAIT_S)
    finally:
        ended.set()
        feeding.join()
    assert apart == 0, "the other one went on before"
    (letter,) = letters.letters(1)
    assert (letter["offset"], letter["stage"], letter["size"]) == ("7", "TRANSFORMATION", len(values[7]))
    assert "the Spark JVM ran out of memory (spark.driver.memory is 700m)" in str(letter["exception.message"])
    assert worker.text().count(f"ERROR {LOST}") == lost + 1
    for one in (name, other):
        assert worker.ask("DELETE", f"/connectors/{one}")[0] == 204


def test_a_source_frame_of_200_megabytes_costs_no_session(spark_runtime: SparkRuntime) -> None:
    key, value, headers = StringConverter(), StringConverter(), SimpleHeaderConverter()
    key.configure({}, True)
    value.configure({}, False)
    headers.configure({})
    spec = PipelineSpec(key, value, headers)
    pipeline = SourcePipeline(spark_runtime, spec)
    spark_runtime.session(WAIT_S)
    before = spark_runtime.jvm_pid
    table = pa.table({"value": ["x" * MB] * 200})
    frame = SourceFrame(table, "t", STRING_SCHEMA, {"file": "f"}, {"position": 200})
    parts = parts_of_frame(frame, BatchLimits())
    assert len(parts) > 10
    assert sum(pipeline.run(part).table.num_rows for part in parts) == 200
    # As a whole it goes in parts, too.
    made = pipeline.run(frame).table
    assert made.column("value").to_pylist() == [b"x" * MB] * 200
    assert spark_runtime.jvm_pid == before
