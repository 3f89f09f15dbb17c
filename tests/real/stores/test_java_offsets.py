"""Java Kafka Connect and this project read each other's offsets files."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as ck
import pytest
from testkit.waiting import await_true

from penstock.broker import CONNECT_COORDINATES, EmbeddedBroker, free_port, resolve_jars
from penstock.broker.jars import find_java
from penstock.stores.offset_file import FileOffsetStore

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@contextmanager
def java_worker(directory: Path, servers: str, offsets: Path, connector: dict[str, str]) -> Iterator[None]:
    """A standalone worker of Kafka Connect 4.3 with one connector, stopped in order at the end."""
    worker = {
        "bootstrap.servers": servers,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.storage.file.filename": str(offsets),
        "offset.flush.interval.ms": "200",
        "listeners": f"http://127.0.0.1:{free_port()}",
        "plugin.discovery": "service_load",
    }
    for name, settings in (("worker", worker), ("connector", connector)):
        lines = [f"{key}={text}\n" for key, text in settings.items()]
        (directory / f"{name}.properties").write_text("".join(lines), encoding="utf-8")
    class_path = os.pathsep.join(map(str, resolve_jars(CONNECT_COORDINATES)))
    with (directory / "java.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path),
                *("org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties", "connector.properties"),
            ],
            cwd=directory,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def values(servers: str, topic: str, count: int) -> list[str]:
    """The first values of a topic's one partition, and a little later what came in surplus."""
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    try:
        messages = consumer.consume(count, timeout=60)
        messages += consumer.consume(10, timeout=1)
    finally:
        consumer.close()
    return [(message.value() or b"").decode() for message in messages]


def test_java_goes_on_from_our_file_and_we_read_what_java_writes(tmp_path: Path, broker: EmbeddedBroker) -> None:
    topic = f"java-offsets-{uuid.uuid4().hex[:8]}"
    source = tmp_path / "lines.txt"
    source.write_text("old one\nold two\nnew\n", encoding="utf-8")
    key = f'["lines",{{"filename":"{source}"}}]'.encode()
    other = b'["other",{"filename":"elsewhere"}]'
    offsets = tmp_path / "connect.offsets"
    store = FileOffsetStore(offsets)
    store.start()
    store.set({key: b'{"position":16}', other: b'{"position":5}'})
    store.stop()
    connector = {
        "name": "lines",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(source),
        "topic": topic,
    }

    def position() -> bytes | None:
        reader = FileOffsetStore(tmp_path / "copy.offsets")
        (tmp_path / "copy.offsets").write_bytes(offsets.read_bytes())
        reader.start()
        try:
            return reader.get([key])[key]
        finally:
            reader.stop()

    with java_worker(tmp_path, broker.bootstrap_servers, offsets, connector):
        seen = values(broker.bootstrap_servers, topic, 1)
    log = (tmp_path / "java.log").read_text(encoding="utf-8", errors="replace")

    assert seen == ["new"], log
    await_true(lambda: position() == b'{"position":20}', lambda: log, 10)
    store.start()
    assert store.entries() == {key: b'{"position":20}', other: b'{"position":5}'}
    store.stop()
