"""Files into topics of a real broker: each row once however often a task is killed, and a topic from its archive."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from testkit.doubles.exactly_once import WAIT_S, SourceProcess, visible, worker_settings
from testkit.processes.worker_process import WorkerProcess
from testkit.waiting import await_true
from tests.real.connectors.files.conftest import S3

from penstock.broker import EmbeddedBroker
from penstock.worker.source.exactly_once import COMMIT_ANSWERED, OFFSETS_SENT, RECORDS_SENT, TRANSACTION_BEGUN

pytestmark = [pytest.mark.broker, pytest.mark.slow]

#: Where a task is killed, one point after another.
POINTS = (TRANSACTION_BEGUN, RECORDS_SENT, OFFSETS_SENT, COMMIT_ANSWERED)


def records(servers: str, topic: str, count: int) -> dict[int, list[tuple[Any, ...]]]:
    """All that a topic has, by partition."""
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": uuid.uuid4().hex})
    found: dict[int, list[tuple[Any, ...]]] = {}
    try:
        consumer.assign([ck.TopicPartition(topic, one, ck.OFFSET_BEGINNING) for one in range(3)])
        for message in consumer.consume(count, timeout=WAIT_S):
            assert message.error() is None, message.error()
            row = (message.key(), message.value(), message.headers(), message.timestamp()[1])
            found.setdefault(message.partition() or 0, []).append(row)
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(300)
def test_a_task_that_is_killed_at_any_point_brings_each_line_of_all_files_once_in_order(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, files = f"lines-{uuid.uuid4().hex[:8]}", tmp_path / "files"
    files.mkdir()
    lines: list[str] = []

    def add(name: str) -> None:
        new = [f"{name} {number}" for number in range(300)]
        (files / f"{name}.txt").write_text("\n".join(new))
        lines.extend(new)

    config = {
        "name": topic,
        "topic": topic,
        "connector.class": "FileSource",
        "url": str(files),
        "finished.path": str(tmp_path / "done"),
        "file.minimum.age.ms": "0",
        "task.id": "0",
        "task.count": "1",
    }
    (tmp_path / "task").mkdir()
    process = SourceProcess(
        tmp_path / "task",
        worker_settings(broker.bootstrap_servers),
        config,
        "penstock.connectors.files.source.task:FileSourceTask",
    )
    try:
        for number, point in enumerate(POINTS):
            add(f"a{number}")
            process.end_at(point)
            process.start()
            process.wait_killed()
        add("b")
        process.start()
        await_true(
            lambda: len(visible(broker.bootstrap_servers, topic)) >= len(lines), lambda: process.text()[-3000:], WAIT_S
        )
        await_true(lambda: not list(files.iterdir()), lambda: process.text()[-3000:], WAIT_S)
    finally:
        process.close()
    assert visible(broker.bootstrap_servers, topic) == lines
    assert {one.name for one in (tmp_path / "done").iterdir()} == {"a0.txt", "a1.txt", "a2.txt", "a3.txt", "b.txt"}


@pytest.mark.java
@pytest.mark.timeout(300)
def test_a_topic_that_was_archived_in_a_bucket_comes_back_record_by_record(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, s3: S3, topic: str
) -> None:
    servers, count = broker.bootstrap_servers, 60
    kinds = {"id": "int64", "kind": "string"}
    fields = [{"type": kind, "optional": False, "field": name} for name, kind in kinds.items()]
    schema = {"type": "struct", "fields": fields, "optional": False}
    producer = ck.Producer({"bootstrap.servers": servers})
    for number in range(count):
        value = {"schema": schema, "payload": {"id": number, "kind": f"k{number}"}}
        producer.produce(
            topic,
            json.dumps(value, separators=(",", ":")).encode(),
            f"key {number}".encode(),
            partition=number % 3,
            headers={"h": bytes([number])},
            timestamp=1_700_000_000_000 + number,
        )
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": servers})
    copies = [NewTopic(f"{copy}_{topic}", 3, 1) for copy in ("copy", "commits")]
    for future in admin.create_topics(copies).values():
        future.result(30)
    common = {
        "s3.bucket.name": "archive",
        "store.url": s3.url,
        "s3.region": "us-east-1",
        "aws.access.key.id": "id",
        "aws.secret.access.key": "secret",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "tasks.max": "2",
    }
    archive = {
        **common,
        "connector.class": "FileSink",
        "topics": topic,
        "flush.size": "7",
        "rotate.schedule.interval.ms": "900",
        "metadata.columns": "key,headers,timestamp",
        "consumer.override.auto.offset.reset": "earliest",
    }
    beside = {"store.kafka.keys": "true", "store.kafka.headers": "true", "metadata.columns": "timestamp,partition"}
    commits = {**archive, **beside, "layout": "manifest", "topics.dir": "commits"}
    restore = {
        **common,
        "connector.class": "io.confluent.connect.s3.source.S3SourceConnector",
        "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
        "mode": "RESTORE_BACKUP",
        "file.minimum.age.ms": "0",
        "transforms": "copy",
        "transforms.copy.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.copy.regex": "(.*)",
        "transforms.copy.replacement": "copy_$1",
    }
    connectors = {
        f"archive-{topic}": archive,
        f"restore-{topic}": restore,
        f"commits-{topic}": commits,
        f"recommit-{topic}": {**restore, "topics.dir": "commits", "transforms.copy.replacement": "commits_$1"},
    }

    for name, settings in connectors.items():
        status, answer = shared_worker.ask("PUT", f"/connectors/{name}/config", {"name": name, **settings})
        assert status in (200, 201), answer
    before, after, committed = (records(servers, one, count) for one in (topic, f"copy_{topic}", f"commits_{topic}"))
    for name in connectors:
        assert shared_worker.ask("DELETE", f"/connectors/{name}")[0] == 204

    assert sum(map(len, after.values())) == count, shared_worker.text()[-4000:]
    assert after == before
    assert committed == before
