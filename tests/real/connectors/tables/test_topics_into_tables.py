"""Topics of a broker through a real worker into Delta and Iceberg tables and into files, in a directory and on S3."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from testkit.processes.worker_process import WorkerProcess
from tests.real.connectors.files import conftest as stores
from tests.real.connectors.files import test_topics_into_files as files

from penstock.broker import EmbeddedBroker
from penstock.kafka.consumer.sampler import read_values

pytestmark = [pytest.mark.broker, pytest.mark.java, pytest.mark.slow]

JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "consumer.override.auto.offset.reset": "earliest",
    "errors.retry.timeout": "-1",
}
S3 = {"aws.access.key.id": "id", "aws.secret.access.key": "secret"}
KEYS = 50


@pytest.fixture
def s3(free_port: int) -> Iterator[stores.S3]:
    """Moto's S3 server with two buckets."""
    made = stores.S3(free_port)
    made.client.create_bucket(Bucket="lake")
    yield made
    made.client.close()
    made.stop()


def make_topic(broker: EmbeddedBroker, name: str) -> str:
    """A topic of three partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 3, 1)]).values():
        future.result(30)
    return name


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return make_topic(broker, f"events_{uuid.uuid4().hex[:8]}")


def send(broker: EmbeddedBroker, topic: str, numbers: range) -> None:
    """Sends a change of a key for each number: each key's are in one partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in numbers:
        key = number % KEYS
        value = {"id": number, "key": key, "kind": "abc"[number % 3], "more": {"text": f"text {number}"}}
        producer.produce(topic, json.dumps(value).encode(), json.dumps({"key": key}).encode(), partition=key % 3)
    assert producer.flush(30) == 0


@pytest.mark.timeout(600)
def test_workers_that_are_killed_leave_each_record_once_in_tables_and_files_of_each_kind(
    tmp_path: Path, broker: EmbeddedBroker, s3: stores.S3, topic: str
) -> None:
    store, lines = s3.url, f"lines-{topic}"
    session = {"consumer.session.timeout.ms": "600000", "consumer.max.poll.interval.ms": "600000"}
    worker = WorkerProcess(
        tmp_path / "worker", broker.bootstrap_servers, {"offset.flush.interval.ms": "700", **session}
    )
    make_topic(broker, lines)
    ours = {**JSON, "connector.class": "TableSink", "topics": topic, "auto.create": "true", "auto.evolve": "true",
            "commit.interval.ms": "300"}  # fmt: skip
    java = {
        **JSON,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": topic,
        "tasks.max": "2",
        "iceberg.tables": "db.events",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.default-partition-by": "kind, bucket(id, 2)",
        "iceberg.control.commit.interval-ms": "300",
        "iceberg.control.topic": "control-iceberg",
        "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "iceberg.catalog.uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "iceberg.catalog.warehouse": "s3://lake/iceberg",
        "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "iceberg.catalog.s3.endpoint": store,
        "iceberg.catalog.s3.access-key-id": "id",
        "iceberg.catalog.s3.secret-access-key": "secret",
        "iceberg.catalog.s3.region": "us-east-1",
    }
    connectors: dict[str, dict[str, str]] = {
        "delta": {
            **ours,
            **S3,
            "url": "s3://lake/delta",
            "store.url": store,
            "partition.by": "kind",
            "tasks.max": "2",
            "tables.commit": "connector",
            "commit.wait.ms": "50",
        },
        "iceberg": java,
        "delta-keys": {**ours, "url": str(tmp_path / "keyed"), "write.mode": "upsert"},
        "iceberg-keys": {**ours, "table.format": "iceberg", "url": str(tmp_path / "keyed"), "write.mode": "upsert"},
        "bucket": {
            **files.JAVA,
            **files.JSON,
            "topics": lines,
            "store.url": store,
            # Moto's buckets are those of all tests of this process.
            "topics.dir": "killed",
            "flush.size": "50",
            "rotate.schedule.interval.ms": "900",
        },
        "directory": {
            **files.JSON,
            "connector.class": "FileSink",
            "topics": lines,
            "url": f"file://{tmp_path}/files",
            "partitioner.class": "hourly",
            "flush.size": "70",
            "rotate.interval.ms": "500",
        },
    }
    for name, settings in connectors.items():
        worker.add(name, {"name": name, **settings})

    def catalog(**properties: str) -> Any:
        return load_catalog("iceberg", type="sql", **properties)

    def delta() -> list[dict[str, Any]]:
        options = {"AWS_ENDPOINT_URL": store, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
                   "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}  # fmt: skip
        try:  # `is_deltatable` would keep the lock that the server in this process needs.
            table = DeltaTable(f"s3://lake/delta/{topic}", storage_options=options)
        except TableNotFoundError:
            return []
        rows: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
        return rows

    def iceberg(identifier: str, **properties: str) -> list[dict[str, Any]]:
        with catalog(**properties) as there:
            if not there.table_exists(identifier):
                return []
            rows: list[dict[str, Any]] = there.load_table(identifier).scan().to_arrow().to_pylist()
            return rows

    def on_s3() -> list[dict[str, Any]]:
        where = {one.removeprefix("iceberg.catalog."): value for one, value in java.items() if ".s3." in one}
        return iceberg("db.events", uri=f"sqlite:///{tmp_path}/catalog.db", **where)

    def keyed() -> list[list[dict[str, Any]]]:
        there, table = tmp_path / "keyed", tmp_path / "keyed" / topic
        found = DeltaTable(str(table)).to_pyarrow_table().to_pylist() if table.exists() else []
        uri = f"sqlite:///{there}/catalog.db"
        if not (there / "catalog.db").exists():
            return [found, []]
        return [found, iceberg(f"default.{topic}", uri=uri, warehouse=f"file://{there}")]

    def in_bucket() -> list[int]:
        return files.ids(s3.objects(f"killed/{lines}/"))

    def in_directory() -> list[int]:
        return files.ids(files.in_directory(tmp_path / "files" / "topics"))

    chance, count = random.Random(), 0
    try:
        for _ in range(2):
            worker.start()
            worker.wait_running(*connectors)
            for _ in range(5):
                send(broker, topic, range(count, count + 200))
                files.send(broker, lines, range(count, count + 200))
                count += 200
                threading.Event().wait(chance.uniform(0, 0.7))
            worker.end(signal.SIGKILL)
        worker.start()
        worker.wait_running(*connectors)
        send(broker, topic, range(count, count + 100))
        files.send(broker, lines, range(count, count + 100))
        count += 100
        worker.wait(lambda: len(delta()) >= count, "all are in the Delta table", 90)
        worker.wait(lambda: len(on_s3()) >= count, "all are in the Iceberg table", 90)
        newest = sorted(range(count - KEYS, count))
        worker.wait(lambda: all(sorted(row["id"] for row in one) == newest for one in keyed()), "all keys are new", 90)
        worker.wait(lambda: len(in_bucket()) >= count, "all are in the bucket", 90)
        worker.wait(lambda: len(in_directory()) >= count, "all are in the directory", 90)
        assert worker.end() == 0
    finally:
        worker.close()
    for rows in (delta(), on_s3()):
        assert sorted(row["id"] for row in rows) == list(range(count))
        assert all(row["more"] == {"text": f"text {row['id']}"} for row in rows)
    for rows in keyed():
        assert sorted(row["id"] for row in rows) == newest
    assert in_bucket() == in_directory() == list(range(count))
    assert {key.split("/")[2] for key in s3.objects(f"killed/{lines}/")} == {"kind=a", "kind=b", "kind=c"}
    assert "Uploads" not in s3.client.list_multipart_uploads(Bucket="archive")


@pytest.mark.timeout(300)
def test_a_catalog_that_is_away_is_seen_and_what_it_gets_once_it_is_back_is_read_again(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path, topic: str
) -> None:
    name, lake = f"away-{topic}", tmp_path / "lake"
    settings = {
        **JSON,
        "name": name,
        "connector.class": "TableSink",
        "topics": topic,
        "table.format": "iceberg",
        "url": str(lake),
        "auto.create": "true",
        "write.mode": "append",
        "commit.interval.ms": "300",
        "retry.backoff.ms": "300",
        "errors.tolerance": "all",
    }
    status, answer = shared_worker.ask("PUT", f"/connectors/{name}/config", settings)
    assert status == 201, answer
    shared_worker.wait_running(name)

    def ids() -> list[int]:
        with load_catalog(
            "iceberg", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}"
        ) as there:
            if not there.table_exists(f"default.{topic}"):
                return []
            return sorted(there.load_table(f"default.{topic}").scan().to_arrow()["id"].to_pylist())

    def explained() -> str:
        return json.dumps(shared_worker.ask("GET", f"/connectors/{name}/explain")[1])

    send(broker, topic, range(10))
    shared_worker.wait(lambda: (lake / "catalog.db").exists() and len(ids()) == 10, "the first records are there", 60)
    with closing(sqlite3.connect(lake / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        send(broker, topic, range(10, 20))
        shared_worker.wait(lambda: "sink_retry" in explained(), "the retry is seen", 90)
        assert "database is locked" in explained()
        other.execute("ROLLBACK")
    shared_worker.wait(lambda: len(ids()) == 20, "all are there", 90)
    assert ids() == list(range(20))
    back = {
        **JSON,
        "name": f"back-{topic}",
        "connector.class": "TableSource",
        "table.format": "iceberg",
        "url": str(lake),
        "tables": topic,
        "topic.prefix": "back-",
        "key.columns": "id",
        "poll.interval.ms": "300",
        "batch.max.rows": "7",
    }
    status, answer = shared_worker.ask("PUT", f"/connectors/back-{topic}/config", back)
    assert status == 201, answer
    send(broker, topic, range(20, 25))
    values = read_values(broker.bootstrap_servers, f"back-{topic}", 25, 90)
    assert sorted(json.loads(one or b"{}")["id"] for one in values) == list(range(25))
    part = {"kafka_topic": topic, "kafka_partition": 0, "start_offset": 0, "end_offset": 2}
    assert shared_worker.ask("POST", f"/connectors/{name}/backfill", {"offsets": [part]})[0] == 202
    shared_worker.wait(lambda: len(ids()) == 27, "two rows are added once more", 60)
    send(broker, topic, range(25, 28))
    shared_worker.wait(lambda: len(ids()) == 30, "the connector goes on", 60)
    assert ids() == sorted([*range(28), 0, 3])
    assert shared_worker.ask("DELETE", f"/connectors/back-{topic}")[0] == 204
    assert shared_worker.ask("DELETE", f"/connectors/{name}")[0] == 204
