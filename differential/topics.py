"""Records what a worker of Java Kafka Connect writes to its internal topics: ``python -m differential.topics FILE``.

A worker with exactly-once source takes a few connectors through their lives; then each record of its three topics
becomes a line of the file. It needs Java, and takes a minute.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import confluent_kafka as ck
from testkit.processes.java_worker import JavaWorker

from penstock.broker import EmbeddedBroker

TOPICS = {"config": "c-ref-configs", "offset": "c-ref-offsets", "status": "c-ref-status"}
SOURCE = {"connector.class": "FileStreamSource", "tasks.max": "1", "file": "in.txt", "topic": "c-ref-t1"}
SINK = {"connector.class": "FileStreamSink", "tasks.max": "2", "topics": "c-ref-t1", "file": "out.txt"}


def main() -> None:
    """Runs the worker and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m differential.topics", description=__doc__)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-topics-") as scratch,
        EmbeddedBroker(Path(scratch) / "kafka") as broker,
    ):
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "c-ref",
            "exactly.once.source.support": "enabled",
            **{f"{kind}.storage.topic": topic for kind, topic in TOPICS.items()},
            **{f"{kind}.storage.replication.factor": "1" for kind in TOPICS},
        }
        directory = Path(scratch) / "worker"
        directory.mkdir()
        (directory / "in.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
        with JavaWorker(directory, settings) as worker:
            _live(worker)
        lines = [json.dumps(one) for kind in TOPICS for one in _records(broker, kind)]
    options.file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} records in {options.file}")


def _live(worker: JavaWorker) -> None:
    """Takes connectors through their lives."""

    def do(method: str, path: str, body: object = None) -> None:
        status, answer = worker.ask(method, path, body)
        assert 200 <= status < 300, (method, path, status, answer)

    def await_states(name: str, *states: str) -> None:
        worker.wait(lambda: worker.states(name) == list(states), f"{name} is {states}")

    do("POST", "/connectors", {"name": "c-ref-src", "config": SOURCE})
    await_states("c-ref-src", "RUNNING", "RUNNING")
    odd = {"odd": 'é € \U0001d11e / " \\ \t \x01\x1f\x7f\u2028'}
    do("POST", "/connectors", {"name": "c-ref-sink", "config": {**SINK, **odd}})
    await_states("c-ref-sink", "RUNNING", "RUNNING", "RUNNING")
    worker.wait(
        lambda: (worker.directory / "out.txt").read_text(encoding="utf-8").count("\n") == 3, "lines in the sink"
    )
    do("PUT", "/connectors/c-ref-sink/pause")
    await_states("c-ref-sink", "PAUSED", "PAUSED", "PAUSED")
    do("PUT", "/connectors/c-ref-sink/resume")
    await_states("c-ref-sink", "RUNNING", "RUNNING", "RUNNING")
    do("PUT", "/connectors/c-ref-src/stop")
    await_states("c-ref-src", "STOPPED")
    offset = {"partition": {"filename": "in.txt"}, "offset": {"position": 4}}
    do("PATCH", "/connectors/c-ref-src/offsets", {"offsets": [offset]})
    do("PUT", "/connectors/c-ref-src/resume")
    await_states("c-ref-src", "RUNNING", "RUNNING")
    do("POST", "/connectors/c-ref-sink/restart?includeTasks=true&onlyFailed=false")
    do("PUT", "/admin/loggers/org.apache.kafka.connect.runtime.WorkerSinkTask?scope=cluster", {"level": "DEBUG"})
    do(
        "POST",
        "/connectors",
        {"name": "c-ref-bad", "config": {**SINK, "file": "no/such/file"}, "initial_state": "PAUSED"},
    )
    do("PUT", "/connectors/c-ref-bad/resume")
    await_states("c-ref-bad", "RUNNING", "FAILED", "FAILED")
    do("PUT", "/connectors/c-ref-bad/topics/reset")
    do("DELETE", "/connectors/c-ref-bad")
    do("PUT", "/connectors/c-ref-src/topics/reset")
    do("PUT", "/connectors/c-ref-src/stop")
    await_states("c-ref-src", "STOPPED")
    do("DELETE", "/connectors/c-ref-src/offsets")
    worker.wait(lambda: worker.states("c-ref-bad") == [], "c-ref-bad is gone")


def _records(broker: EmbeddedBroker, kind: str) -> list[dict[str, object]]:
    """The records of a topic, partition by partition."""
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "record", "enable.partition.eof": True}
    consumer = ck.Consumer(conf)
    try:
        partitions = consumer.list_topics(TOPICS[kind], timeout=20).topics[TOPICS[kind]].partitions
        consumer.assign([ck.TopicPartition(TOPICS[kind], number, 0) for number in partitions])
        unfinished, found = len(partitions), []
        while unfinished:
            message = consumer.poll(20)
            assert message is not None
            if message.error() is not None:
                unfinished -= 1
                continue
            found.append((message.partition(), message.offset(), message.key() or b"", message.value()))
    finally:
        consumer.close()
    return [
        {
            "topic": kind,
            "partition": partition,
            "offset": offset,
            "key": key.decode(),
            "value": None if value is None else value.decode(),
        }
        for partition, offset, key, value in sorted(found, key=lambda one: one[:2])
    ]


if __name__ == "__main__":
    main()
