"""A frame sink that keeps its own offsets, behind a router, with tombstones and bad rows, on a broker."""

from __future__ import annotations

import json
import sqlite3
import uuid
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

ROWS = {"a": 1000, "b": 500}


def produce(servers: str, topic: str, rows: int, name: str) -> None:
    """Orders of a topic: every tenth one is deleted again, every hundredth costs nothing, which no order may."""
    producer = ck.Producer({"bootstrap.servers": servers})
    for number in range(rows):
        key = f"{name}{number // 10 * 10 if number % 10 == 9 else number}"
        order = {"customer": {"name": f"c{number}"}, "total": 0 if number % 100 == 50 else number + 0.25}
        value = None if number % 10 == 9 else json.dumps(order).encode()
        producer.produce(topic, value, key.encode(), headers=[("h", str(number).encode())])
    assert producer.flush(60) == 0


def letters(servers: str, topic: str, count: int) -> list[Any]:
    settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = ck.Consumer(settings)
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    found: list[Any] = []
    try:
        while len(found) < count and (some := consumer.consume(count - len(found), 30)):
            found += some
        assert not consumer.consume(1, 1), "there is more"
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_routed_rows_are_written_once_and_refused_ones_are_dead_letters_as_read(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path, isolation: str
) -> None:
    worker = shared_worker
    run = uuid.uuid4().hex[:8]
    database, name = tmp_path / "orders.db", f"orders-{run}"
    for which, rows in ROWS.items():
        produce(broker.bootstrap_servers, f"{which}-{run}", rows, which)
    queue = "errors.deadletterqueue"
    config = {
        "connector.class": "orders_sink.OrdersSink",
        "task.isolation": isolation,
        "topics": ",".join(f"{which}-{run}" for which in ROWS),
        "database": str(database),
        "optimize.seconds": "0.5",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "route",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": ".*",
        "transforms.route.replacement": "merged",
        "errors.tolerance": "all",
        f"{queue}.topic.name": f"letters-{run}",
        f"{queue}.topic.replication.factor": "1",
        f"{queue}.context.headers.enable": "true",
    }
    status, body = worker.ask("POST", "/connectors", {"name": name, "config": config})
    assert status == 201, str(body)

    def written() -> dict[str, int]:
        if not database.exists():
            return {}
        connection = sqlite3.connect(database)
        try:
            return dict(connection.execute("SELECT topic, next FROM places"))
        except sqlite3.OperationalError:
            return {}
        finally:
            connection.close()

    try:
        wanted = {f"{which}-{run}": rows for which, rows in ROWS.items()}
        worker.wait(lambda: written() == wanted, "all orders are there", 120)
        bad = [(which, number) for which, rows in ROWS.items() for number in range(50, rows, 100)]
        found = letters(broker.bootstrap_servers, f"letters-{run}", len(bad))
    finally:
        worker.ask("DELETE", f"/connectors/{name}")

    connection = sqlite3.connect(database)
    keys = {key for (key,) in connection.execute("SELECT id FROM orders")}
    connection.close()
    there = {
        f"{which}{number}"
        for which, rows in ROWS.items()
        for number in range(rows)
        if number % 10 not in (0, 9) or (number % 10 == 0 and number + 9 >= rows)
    }
    assert keys == there
    seen = set()
    for letter in found:
        headers = dict(letter.headers())
        topic, offset = headers["__connect.errors.topic"].decode(), int(headers["__connect.errors.offset"])
        which = topic.split("-")[0]
        seen.add((which, offset))
        assert topic == f"{which}-{run}"
        assert headers["__connect.errors.partition"] == b"0"
        assert headers["__connect.errors.exception.class.name"] == b"sqlite3.IntegrityError"
        assert headers["h"] == str(offset).encode()
        assert letter.key() == f"{which}{offset}".encode()
        assert json.loads(letter.value()) == {"customer": {"name": f"c{offset}"}, "total": 0}
    assert seen == set(bad)
