"""Topics of a real broker through a real worker into files of a directory and of an S3 server.

Workers that are killed meanwhile are those of ``tests/real/connectors/tables/test_topics_into_tables.py``.
"""

from __future__ import annotations

import io
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from testkit.processes.worker_process import WorkerProcess
from tests.real.connectors.files.conftest import S3

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.java, pytest.mark.slow]

#: An S3 sink of the Java connector, as its users have it.
JAVA = {
    "connector.class": "io.confluent.connect.s3.S3SinkConnector",
    "storage.class": "io.confluent.connect.s3.storage.S3Storage",
    "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
    "partitioner.class": "io.confluent.connect.storage.partitioner.FieldPartitioner",
    "partition.field.name": "kind",
    "s3.bucket.name": "archive",
    "s3.region": "us-east-1",
    "aws.access.key.id": "id",
    "aws.secret.access.key": "secret",
    "schema.compatibility": "NONE",
    "tasks.max": "3",
}
JSON = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "consumer.override.metadata.max.age.ms": "500",
    "consumer.override.auto.offset.reset": "earliest",
}
SCHEMA = {
    "type": "struct",
    "fields": [{"field": "id", "type": "int64"}, {"field": "kind", "type": "string"}],
}


def send(broker: EmbeddedBroker, topic: str, numbers: range, *, schema: bool = True, partitions: int = 3) -> None:
    """Sends a record for each number."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in numbers:
        payload = {"id": number, "kind": "abc"[number // partitions % 3]}
        value = {"schema": SCHEMA, "payload": payload} if schema else payload
        producer.produce(topic, json.dumps(value).encode(), partition=number % partitions)
    assert producer.flush(30) == 0


def ids(files: dict[str, bytes]) -> list[int]:
    return sorted(one for data in files.values() for one in pq.read_table(io.BytesIO(data)).column("id").to_pylist())


def avro_rows(data: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(data)))


def in_directory(root: Path) -> dict[str, bytes]:
    return {str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*") if one.is_file()}


def create(worker: WorkerProcess, settings: dict[str, str]) -> None:
    status, answer = worker.ask("PUT", f"/connectors/{settings['name']}/config", settings)
    assert status in (200, 201), answer


def delete(worker: WorkerProcess, name: str) -> None:
    assert worker.ask("DELETE", f"/connectors/{name}")[0] == 204


def committed(worker: WorkerProcess, name: str) -> int:
    """The sum of what a sink has committed, over all partitions."""
    status, body = worker.get(f"/connectors/{name}/offsets")
    assert status == 200
    assert isinstance(body, dict)
    return sum(one["offset"]["kafka_offset"] for one in body["offsets"])


@pytest.mark.timeout(400)
def test_an_archiver_of_three_tasks_reads_nothing_twice_whatever_makes_it_commit(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path, topic: str
) -> None:
    """KIP-275's example: Avro files of so many records, and what is open is closed before partitions go."""
    name = f"archiver-{topic}"
    settings = {
        **JSON,
        "name": name,
        "connector.class": "FileSink",
        "topics": topic,
        "tasks.max": "3",
        "url": str(tmp_path / "files"),
        "format.class": "avro",
        "flush.size": "100",
        "rotate.schedule.interval.ms": "-1",
    }
    root, sent = tmp_path / "files" / "topics", 0

    def archived() -> list[tuple[str, list[int]]]:
        files = sorted(in_directory(root).items())
        return [(name, [row["id"] for row in avro_rows(data)]) for name, data in files]

    def rows() -> int:
        return sum(len(one) for _, one in archived())

    def more(count: int, partitions: int = 3) -> None:
        nonlocal sent
        send(broker, topic, range(sent, sent + count), partitions=partitions)
        sent += count

    def read() -> int:
        """How many records the tasks that run have read."""
        put = "kafka_connect_sink_task_sink_record_send_total"
        found = [shared_worker.metric(put, name, task) for task in range(3)]
        return int(sum(one or 0 for one in found))

    create(shared_worker, settings)
    shared_worker.wait_running(name)
    # 1. Files are full.
    more(600)
    shared_worker.wait(lambda: rows() == 600, "full files are there", 60)
    # Where tasks joined the group later than others, files were closed for them.
    assert max(len(one) for _, one in archived()) == 100
    # 2. The connector is stopped, and resumed.
    more(90)
    shared_worker.wait(lambda: read() == 690, "all are read", 60)
    assert shared_worker.ask("PUT", f"/connectors/{name}/stop")[0] in (202, 204)
    shared_worker.wait(lambda: rows() == 690 and committed(shared_worker, name) == 690, "open files are closed", 60)
    assert shared_worker.ask("PUT", f"/connectors/{name}/resume")[0] in (202, 204)
    shared_worker.wait_running(name)
    # 3. The tasks are restarted.
    more(60)
    shared_worker.wait(lambda: read() == 60, "what is new is read, and nothing else", 60)
    assert shared_worker.ask("POST", f"/connectors/{name}/restart?includeTasks=true")[0] in (202, 204)
    shared_worker.wait(lambda: rows() == 750, "open files are closed", 60)
    # 4. The topic gets more partitions, so that partitions move.
    shared_worker.wait_running(name)
    more(30)
    shared_worker.wait(lambda: read() == 30, "what is new is read, and nothing else", 60)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(30)
    shared_worker.wait(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 6, "brokers know them")
    more(60, partitions=6)
    # 5. The settings change.
    shared_worker.wait(lambda: read() == 90, "the new partitions are read", 60)
    create(shared_worker, {**settings, "rotate.schedule.interval.ms": "500"})
    shared_worker.wait(lambda: rows() == sent and committed(shared_worker, name) == sent, "all are archived", 60)
    assert sorted(one for _, ids in archived() for one in ids) == list(range(sent))
    assert shared_worker.ask("DELETE", f"/connectors/{name}")[0] == 204


@pytest.mark.timeout(300)
def test_the_last_record_of_a_quiet_topic_is_in_its_file_in_time(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path, topic: str
) -> None:
    name = f"quiet-{topic}"
    settings = {
        **JSON,
        "name": name,
        "connector.class": "FileSink",
        "topics": topic,
        "url": str(tmp_path / "files"),
        "rotate.schedule.interval.ms": "2000",
    }
    root = tmp_path / "files" / "topics"
    create(shared_worker, settings)
    send(broker, topic, range(3))
    shared_worker.wait(lambda: ids(in_directory(root)) == [0, 1, 2], "the first records are there", 60)
    took = []
    for number in range(3, 6):
        began = time.time()
        send(broker, topic, range(number, number + 1))
        shared_worker.wait(lambda: number in ids(in_directory(root)), "the record is in its file", 30)  # noqa: B023
        took.append(time.time() - began)
    # A busy machine may make one of them late.
    assert min(took) < 3, took
    assert sorted(took)[1] < 3, took
    delete(shared_worker, name)


class Unavailable(BaseHTTPRequestHandler):
    """An object store that answers 503."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is logged."""


@pytest.mark.timeout(300)
def test_a_store_that_answers_503_is_seen_in_explain_and_gets_everything_once_it_is_back(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, s3: S3, topic: str
) -> None:
    name = f"away-{topic}"
    settings = {
        **JAVA,
        **JSON,
        "name": name,
        "topics": topic,
        "store.url": s3.url,
        "flush.size": "10",
        "tasks.max": "1",
        "s3.part.retries": "0",
        "retry.backoff.ms": "300",
        "rotate.schedule.interval.ms": "1000",
    }
    create(shared_worker, settings)
    shared_worker.wait_running(name)
    send(broker, topic, range(3))
    shared_worker.wait(lambda: ids(s3.objects(f"topics/{topic}/")) == [0, 1, 2], "the store works", 60)
    s3.stop()
    away = ThreadingHTTPServer(("127.0.0.1", s3.port), Unavailable)
    thread = threading.Thread(target=away.serve_forever)
    thread.start()
    try:
        send(broker, topic, range(3, 300))

        def explained() -> bool:
            return "503" in json.dumps(shared_worker.get(f"/connectors/{name}/explain")[1])

        shared_worker.wait(explained, "explain says that the store is away", 60)
        assert shared_worker.states(name) == ["RUNNING", "RUNNING"]
    finally:
        away.shutdown()
        thread.join()
        away.server_close()
    s3.start()
    shared_worker.wait(lambda: len(ids(s3.objects(f"topics/{topic}/"))) >= 300, "everything is there", 60)
    assert ids(s3.objects(f"topics/{topic}/")) == list(range(300))
    delete(shared_worker, name)


def test_what_keeps_a_configuration_from_working_is_said_when_it_is_made(
    shared_worker: WorkerProcess, s3: S3, free_port: int, tmp_path: Path
) -> None:
    def refused(**changes: str) -> str:
        changed = {name.replace("_", "."): value for name, value in changes.items()}
        settings = {**JAVA, **JSON, "name": "wrong", "topics": "t", "flush.size": "1", "store.url": s3.url, **changed}
        status, answer = shared_worker.ask("PUT", "/connectors/wrong/config", settings, timeout_s=60)
        assert status == 400, answer
        return json.dumps(answer)

    assert "There is no bucket for s3://nowhere" in refused(s3_bucket_name="nowhere")
    assert "hive.integration is not there" in refused(hive_integration="true").replace(": is", " is")
    assert "register the directory" in refused(hive_integration="true")
    assert "partition.field.name" in refused(partition_field_name="")
    assert "write one of parquet, json" in refused(format_class="io.confluent.connect.s3.format.xml.XmlFormat")
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused(url=f"{tmp_path}/file/below", connector_class="FileSink")
