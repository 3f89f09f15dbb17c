"""Distributed workers whose sources deliver exactly once: from the worker's file to what readers see, over REST."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka as ck
import pytest
from testkit.doubles.exactly_once import WAIT_S, visible
from testkit.processes.worker_group import WorkerGroup
from testkit.waiting import await_true

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

SUPPORT = "exactly.once.source.support"
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


class Lines:
    """A file source of a group."""

    def __init__(self, group: WorkerGroup, directory: Path, name: str, **own: str) -> None:
        self.group, self.name, self.servers = group, name, group.bootstrap_servers
        self.path = directory / f"{name}.txt"
        self.path.touch()
        self.config = {
            "connector.class": FILE_SOURCE,
            "tasks.max": "1",
            "file": str(self.path),
            "topic": f"{group.name}-{name}",
            "exactly.once.support": "required",
            **{key.replace("_", "."): text for key, text in own.items()},
        }
        self.servers = self.config.get("producer.override.bootstrap.servers", self.servers)

    def create(self) -> Lines:
        self.group.create(self.name, self.config)
        self.group.wait_states(self.name, "RUNNING", "RUNNING", timeout_s=120)
        return self

    def write(self, *lines: str) -> None:
        with self.path.open("a") as out:
            out.writelines(f"{line}\n" for line in lines)

    def seen(self) -> list[str]:
        return visible(self.servers, self.config["topic"])

    def wait_seen(self, *wanted: str) -> None:
        await_true(lambda: self.seen() == list(wanted), lambda: f"{self.seen()}\n{self.group.logs()}", WAIT_S)

    def stop(self) -> None:
        self.group.bring_to(self.name, "stop")
        self.group.wait_states(self.name, "STOPPED")

    def resume(self) -> None:
        self.group.bring_to(self.name, "resume")
        self.group.wait_states(self.name, "RUNNING", "RUNNING")

    def offsets(self) -> object:
        status, body = self.group.ask("GET", f"/connectors/{self.name}/offsets")
        assert status == 200, body
        return [entry["offset"]["position"] for entry in body["offsets"]]

    def alter(self, position: int) -> None:
        changed = {"partition": {"filename": str(self.path)}, "offset": {"position": position}}
        answer = self.group.ask("PATCH", f"/connectors/{self.name}/offsets", {"offsets": [changed]})
        assert answer == (200, {"message": MESSAGE.format("altered")}), answer

    def reset(self) -> None:
        answer = self.group.ask("DELETE", f"/connectors/{self.name}/offsets")
        assert answer == (200, {"message": MESSAGE.format("reset")}), answer

    def records(self, topic: str) -> list[Written]:
        """What a topic of offsets says of this connector."""
        start = f'["{self.name}",'.encode()
        return [one for one in everything(self.servers, topic) if one.key.startswith(start)]


@dataclass(frozen=True)
class Written:
    """A record. Behind the last one of a transaction is a marker, which has an offset, too."""

    key: bytes
    value: bytes | None
    at_ms: int
    has_marker: bool


MESSAGE = "The offsets for this connector have been {} successfully"
SIZE = "kafka_connect_source_task_transaction_size_max"


def everything(servers: str, topic: str) -> list[Written]:
    """All committed records of a topic."""
    found: list[ck.Message] = []
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.partition.eof": True})
    try:
        partitions = [
            ck.TopicPartition(topic, number, ck.OFFSET_BEGINNING)
            for number in consumer.list_topics(topic, WAIT_S).topics[topic].partitions
        ]
        consumer.assign(partitions)
        ends = {one.partition: consumer.get_watermark_offsets(one, WAIT_S)[1] for one in partitions}
        left = len(partitions)
        while left:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{topic} cannot be read"
            if (error := message.error()) is None:
                found.append(message)
            else:
                assert error.code() == ck.KafkaError._PARTITION_EOF, error
                left -= 1
    finally:
        consumer.close()
    places = {(one.partition(), one.offset()) for one in found}

    def has_marker(partition: int, offset: int) -> bool:
        return (partition, offset + 1) not in places and offset + 1 < ends[partition]

    return [
        Written(one.key() or b"", one.value(), one.timestamp()[1], has_marker(one.partition() or 0, one.offset() or 0))
        for one in found
    ]


@pytest.fixture(scope="module")
def group(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerGroup]:
    directory = tmp_path_factory.mktemp("enabled")
    with WorkerGroup(directory, broker.bootstrap_servers, {SUPPORT: "enabled"}, size=1) as made:
        yield made


@pytest.mark.parametrize("boundary", ["poll", "interval"])
def test_lines_are_seen_once_with_their_offsets_and_the_sizes_of_transactions_are_measured(
    group: WorkerGroup, tmp_path: Path, boundary: str
) -> None:
    lines = Lines(group, tmp_path, f"by-{boundary}", transaction_boundary=boundary).create()
    lines.write("one", "two")
    lines.wait_seen("one", "two")
    worker = group.workers[0]
    answer = worker.ask("POST", f"/connectors/{lines.name}/restart?includeTasks=true")
    assert answer[0] == 202, answer
    lines.write("three")
    lines.wait_seen("one", "two", "three")
    group.wait_states(lines.name, "RUNNING", "RUNNING")
    assert lines.offsets() == [14]
    size = worker.metric(SIZE, lines.name)
    assert size is not None
    assert 1 <= size <= 2
    group.delete(lines.name)


def test_a_connector_that_does_not_define_transactions_is_refused_that_boundary(
    group: WorkerGroup, tmp_path: Path
) -> None:
    lines = Lines(group, tmp_path, "own-boundary", transaction_boundary="connector")
    status, body = group.ask("POST", "/connectors", {"name": lines.name, "config": lines.config})
    assert status == 400
    assert "connector-defined transaction boundaries" in body["message"]


def test_offsets_are_altered_and_reset_in_transactions_of_the_connectors_own(
    group: WorkerGroup, tmp_path: Path
) -> None:
    own = f"{group.name}-own"
    lines = Lines(group, tmp_path, "changed-0", offsets_storage_topic=own).create()
    lines.write("one", "two")
    lines.wait_seen("one", "two")
    status, body = group.ask("DELETE", f"/connectors/{lines.name}/offsets")
    assert (status, "STOPPED" in body["message"]) == (400, True), body

    lines.stop()
    lines.alter(4)
    assert lines.offsets() == [4]
    lines.resume()
    lines.wait_seen("one", "two", "two")

    lines.stop()
    lines.reset()
    assert lines.offsets() == []
    shared = lines.records(f"{group.name}-offset")[-1]
    last = lines.records(own)[-1]
    # The shared topic comes first: an offset that is left there counts again when the own topic has none.
    assert (shared.value, last.value) == (None, None)
    assert shared.at_ms <= last.at_ms
    assert (shared.has_marker, last.has_marker) == (False, True)
    lines.resume()
    lines.wait_seen("one", "two", "two", "one", "two")
    group.delete(lines.name)


def test_records_offsets_and_their_changes_go_to_the_cluster_that_producers_are_sent_to(
    group: WorkerGroup, tmp_path: Path
) -> None:
    with EmbeddedBroker(tmp_path / "other") as other:
        servers = other.bootstrap_servers
        lines = Lines(group, tmp_path, "elsewhere", producer_override_bootstrap_servers=servers).create()
        lines.write("one", "two")
        lines.wait_seen("one", "two")
        assert visible(group.bootstrap_servers, lines.config["topic"]) == []
        lines.stop()
        lines.alter(4)
        changed = lines.records(f"{group.name}-offset")[-1]
        assert (changed.value, changed.has_marker) == (b'{"position":4}', True)
        lines.resume()
        lines.wait_seen("one", "two", "two")
        group.delete(lines.name)


def test_a_worker_is_prepared_turned_over_and_turned_back_without_a_line_lost_or_doubled(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    with WorkerGroup(tmp_path, broker.bootstrap_servers, {SUPPORT: "preparing"}, size=1) as group:
        worker = group.workers[0]
        lines = Lines(group, tmp_path, "turned")
        status, body = group.ask("POST", "/connectors", {"name": lines.name, "config": lines.config})
        assert (status, "exactly-once source support enabled" in body["message"]) == (400, True), body
        del lines.config["exactly.once.support"]
        lines.create()
        lines.write("one", "two")
        lines.wait_seen("one", "two")
        assert worker.metric(SIZE, lines.name) is None
        # The leader writes the config topic in transactions already.
        topic = f"{group.name}-config"
        assert any(one.has_marker for one in everything(broker.bootstrap_servers, topic))
        await_true(lambda: lines.offsets() == [8], timeout_s=WAIT_S)

        group.stop()
        worker.change({SUPPORT: "enabled"})
        group.start()
        group.wait_states(lines.name, "RUNNING", "RUNNING", timeout_s=120)
        lines.write("three")
        lines.wait_seen("one", "two", "three")
        assert worker.metric(SIZE, lines.name) == 1
        group.put(lines.name, {**lines.config, "exactly.once.support": "required"})
        group.wait_states(lines.name, "RUNNING", "RUNNING")

        # And back: it goes on behind the last record that was committed.
        group.put(lines.name, lines.config)
        group.stop()
        worker.change({SUPPORT: "disabled"})
        group.start()
        group.wait_states(lines.name, "RUNNING", "RUNNING", timeout_s=120)
        lines.write("four")
        lines.wait_seen("one", "two", "three", "four")
        assert worker.metric(SIZE, lines.name) is None
