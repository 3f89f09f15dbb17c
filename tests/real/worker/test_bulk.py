"""Bulk runs on a standalone cluster of Spark: what executors write, whatever is killed, and what is refused."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from testkit.processes.spark_cluster import SparkCluster
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 4_000
JSON = "org.apache.kafka.connect.json.JsonConverter"
MARKED = {"transforms": "marked", "transforms.marked.type": "testkit.connectors.bulk_tasks:Marked"}
TABLES = {
    "connector__class": "TableSink",
    "tables__bulk": "true",
    "bulk__range__rows": "1000",
    "commit__interval__ms": "300",
    "auto__create": "true",
}
#: Spark sleeps in each row.
SLOWLY = "if(reflect('java.lang.Thread', 'sleep', 4L) IS NULL, NULL, 'slow')"
Message = tuple[object, bytes | None, bytes | None, tuple[object, ...], tuple[int, int]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A Spark master with one worker of two cores."""
    with SparkCluster(tmp_path_factory.mktemp("bulk") / "spark", cores=2) as made:
        yield made


@pytest.fixture(scope="module")
def worker(
    broker: EmbeddedBroker, cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    """A worker on two executors of one core each."""
    settings = {**cluster.settings, "spark.executor.cores": "1", "spark.executor.memory": "460m"}
    # A process that is killed is tried once more; what fails for good has failed soon.
    settings["spark.task.maxFailures"] = "2"
    directory = tmp_path_factory.mktemp("bulk-worker")
    made = WorkerProcess(directory, broker.bootstrap_servers, {**settings, "value.converter": JSON}, endable=True)
    made.spark_on_demand = False
    made.start()
    try:
        made.wait(lambda: "Spark session 1 is up" in made.text(), "Spark is up", 300)
        yield made
        assert made.end() == 0, made.text()[-4000:]
    finally:
        made.close()


class Load:
    """A connector that loads orders into a topic of its own."""

    def __init__(self, worker: WorkerProcess, broker: EmbeddedBroker, **own: str) -> None:
        self.worker, self._servers = worker, broker.bootstrap_servers
        self.name = f"load-{uuid.uuid4().hex[:8]}"
        self.config = {
            "connector.class": "testkit.connectors.bulk_tasks:OrdersSource",
            "topic": self.name,
            "count": str(COUNT),
            "value.converter": JSON,
            "value.converter.schemas.enable": "false",
            "topic.creation.default.partitions": "3",
            "topic.creation.default.replication.factor": "1",
            # The orders are of years ago: Kafka would delete the first of them after some minutes.
            "topic.creation.default.retention.ms": "-1",
            **{name.replace("__", "."): text for name, text in own.items()},
        }

    def create(self, more: Mapping[str, str] | None = None) -> Load:
        answer = self.worker.ask("POST", "/connectors", {"name": self.name, "config": self.config | dict(more or {})})
        assert answer[0] == 201, answer
        return self

    def end_at(self, point: str) -> None:
        (self.worker.directory / "end-at").write_text(point)

    def offsets(self) -> object:
        body = self.worker.get(f"/connectors/{self.name}/offsets")[1]
        assert isinstance(body, dict)
        return body.get("offsets")

    def done(self) -> Load:
        def settled() -> bool:
            return bool(self.offsets()) or "FAILED" in self.worker.states(self.name)

        self.worker.wait(settled, f"{self.name} is loaded", 120)
        assert self.worker.states(self.name) == ["RUNNING", "RUNNING"], self.worker.trace(self.name)
        assert self.offsets() == [{"partition": {"shop": "orders"}, "offset": {"next": COUNT}}]
        return self

    def await_half(self) -> str:
        """Waits until some partitions of Spark are done; the text of the progress."""
        told: list[str] = []

        def half() -> bool:
            status: Any = self.worker.get(f"/connectors/{self.name}/status")[1]
            progress = status["tasks"][0].get("progress") if status["tasks"] else None
            if progress:
                told.append(progress["text"])
            return progress is not None and progress["done"] >= 2

        self.worker.wait(half, "some partitions are done", 120)
        return told[-1]

    def failed(self) -> str:
        self.worker.wait(lambda: "FAILED" in self.worker.states(self.name), f"{self.name} fails", 150)
        assert not self.offsets()
        return self.worker.trace(self.name)

    def messages(self, topic: str = "") -> list[Message]:
        """What readers of committed messages see, by partition; each in order."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self.name,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        topic = topic or self.name
        left = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([ck.TopicPartition(topic, number, 0) for number in left])
        found: list[Message] = []
        while left:
            for one in consumer.consume(5_000, 1.0):
                if one.error() is not None:
                    left.discard(one.partition())
                else:
                    headers = tuple(one.headers() or ())
                    found.append((one.partition(), one.key(), one.value(), headers, one.timestamp()))
        consumer.close()
        return found

    def ids(self) -> Counter[int]:
        return Counter(int(re.findall(rb'"id":(\d+)', value or b"")[0]) for _, _, value, _, _ in self.messages())

    def delete(self) -> None:
        self.worker.ask("DELETE", f"/connectors/{self.name}")


ONCE = Counter(range(COUNT))


@pytest.mark.parametrize(
    "chain",
    [
        {
            "value.converter.schemas.enable": "true",
            "transforms": "mask,cast,route",
            "transforms.mask.type": "MaskField$Value",
            "transforms.mask.fields": "note",
            "transforms.cast.type": "Cast$Key",
            "transforms.cast.spec": "string",
            "transforms.route.type": "RegexRouter",
            "transforms.route.regex": "(.*)",
            "transforms.route.replacement": "$1",
        },
        MARKED,
    ],
    ids=["plan", "stateless"],
)
def test_executors_write_what_the_worker_would(
    worker: WorkerProcess, broker: EmbeddedBroker, chain: Mapping[str, str]
) -> None:
    bulk, stream = Load(worker, broker, form="bulk"), Load(worker, broker, form="stream")
    for one in (bulk, stream):
        one.create(chain).done()
    written = sorted(bulk.messages(), key=repr)
    assert len(written) == COUNT
    assert written == sorted(stream.messages(), key=repr)
    for one in (bulk, stream):
        one.delete()


def test_lines_flow_through_executors_and_a_transform_in_the_worker(
    worker: WorkerProcess, broker: EmbeddedBroker, cluster: SparkCluster, tmp_path: Path
) -> None:
    name, source, sink = f"lines-{uuid.uuid4().hex[:8]}", tmp_path / "source.txt", tmp_path / "sink.txt"
    lines = [f"line {number}" for number in range(500)]
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def done_by_executors() -> int:
        logs = cluster.directory.glob("work/app-*/*/stderr")
        return sum(one.read_text(encoding="utf-8", errors="replace").count("Running task") for one in logs)

    before = done_by_executors()
    text = {"value.converter": "org.apache.kafka.connect.storage.StringConverter", "tasks.max": "1"}
    flow = {
        f"{name}-in": {
            "connector.class": "FileStreamSource",
            "file": str(source),
            "topic": name,
            # Two on the executors, one in the worker.
            "transforms": "wrap,unwrap,counted",
            "transforms.wrap.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.wrap.field": "text",
            "transforms.unwrap.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
            "transforms.unwrap.field": "text",
            "transforms.counted.type": "testkit.connectors.bulk_tasks:Counted",
        },
        f"{name}-out": {"connector.class": "FileStreamSink", "file": str(sink), "topics": name},
    }
    for one, config in flow.items():
        answer = worker.ask("POST", "/connectors", {"name": one, "config": config | text})
        assert answer[0] == 201, answer
    worker.wait(lambda: sink.exists() and sink.read_text().count("\n") >= len(lines), "all lines arrive", 150)
    assert sink.read_text(encoding="utf-8").splitlines() == lines
    found = Load(worker, broker).messages(name)
    assert [value for _, _, value, _, _ in found] == [line.encode() for line in lines]
    assert {headers for *_, headers, _ in found} == {(("marked", b"yes"),)}
    assert done_by_executors() > before
    for one in flow:
        worker.ask("DELETE", f"/connectors/{one}")


@pytest.mark.parametrize("point", ["after-commit-1", "executor:before-commit-0"])
def test_whatever_is_killed_at_a_commit_each_record_counts_once(
    worker: WorkerProcess, broker: EmbeddedBroker, point: str
) -> None:
    load = Load(worker, broker)
    load.end_at(point)
    load.create().done()
    assert not (worker.directory / "end-at").exists(), "it was killed"
    assert load.ids() == ONCE
    load.delete()


def test_a_run_that_is_paused_goes_on_where_it_was_and_begins_anew_after_a_reset(
    worker: WorkerProcess, broker: EmbeddedBroker
) -> None:
    load = Load(worker, broker, query=SLOWLY, partitions="8").create()
    told = load.await_half()
    assert re.match(rf"run 'orders-0-{COUNT}': [\d,]+ records, [\d.]+ MB, [\d,]+/s, some \d+ s left", told)
    worker.ask("PUT", f"/connectors/{load.name}/pause")
    worker.wait(lambda: worker.states(load.name) == ["PAUSED", "PAUSED"], "it is paused", 30)
    assert not load.offsets()
    paused = load.ids()
    assert 0 < len(paused) < COUNT
    worker.ask("PUT", f"/connectors/{load.name}/resume")
    worker.wait(lambda: len(load.ids()) > len(paused), "it goes on", 60)
    worker.ask("PUT", f"/connectors/{load.name}/stop")
    worker.wait(lambda: worker.states(load.name) == ["STOPPED"], "it is stopped", 30)
    before = load.ids()
    assert set(before.values()) == {1}
    assert len(before) < COUNT
    answer = worker.ask("DELETE", f"/connectors/{load.name}/offsets")
    assert answer[0] == 200, answer
    worker.ask("PUT", f"/connectors/{load.name}/resume")
    load.done()
    assert load.ids() == ONCE + before
    load.delete()


def test_failed_rows_end_the_run_or_are_counted(worker: WorkerProcess, broker: EmbeddedBroker) -> None:
    refused = {**MARKED, "transforms.marked.refuse": "customer 77"}
    strict = Load(worker, broker).create(refused)
    trace = strict.failed()
    assert "Tolerance exceeded in error handler" in trace
    assert "ValueError: no customer 77 here" in trace
    assert "Spark partition" in trace

    tolerant = Load(worker, broker, errors__tolerance="all").create(refused).done()
    assert tolerant.ids() == Counter(one for one in range(COUNT) if one % 1000 != 77)
    assert worker.metric("kafka_connect_task_error_total_records_skipped", tolerant.name) == COUNT / 1000
    assert worker.metric("kafka_connect_source_task_source_record_write_total", tolerant.name) == COUNT - COUNT / 1000
    for one in (strict, tolerant):
        one.delete()


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"transforms": "own", "transforms.own.type": "testkit.connectors.bulk_tasks:Counted"}, "stateless = True"),
        ({"query": "no_such_column"}, "no_such_column"),
        ({"query": "if(id = 5, raise_error('that row'), 'x')"}, "that row"),
    ],
    ids=["transform", "analysis", "row"],
)
def test_what_executors_cannot_do_is_refused_with_the_reason(
    worker: WorkerProcess, broker: EmbeddedBroker, own: Mapping[str, str], told: str
) -> None:
    load = Load(worker, broker).create(own)
    assert told in load.failed()
    load.delete()


class Lake:
    """A connector whose executors write a topic as Parquet files."""

    def __init__(self, worker: WorkerProcess, topic: str, **own: str) -> None:
        self.worker, self.name = worker, f"lake-{uuid.uuid4().hex[:8]}"
        self.path = worker.directory / self.name
        self.config = {
            "connector.class": "SparkSink",
            "topics": topic,
            "spark.bulk": "true",
            "spark.format": "parquet",
            "spark.path": str(self.path),
            "frame.min.rows": "700",
            "frame.max.wait.ms": "1",
            "value.converter": JSON,
            "value.converter.schemas.enable": "false",
            "consumer.override.auto.offset.reset": "earliest",
            **{name.replace("__", "."): text for name, text in own.items()},
        }

    def create(self) -> Lake:
        answer = self.worker.ask("POST", "/connectors", {"name": self.name, "config": self.config})
        assert answer[0] == 201, answer
        return self

    def ids(self) -> Counter[int]:
        found = pq.read_table(self.path, columns=["id"]) if self.path.exists() else None
        return Counter([] if found is None else found.column("id").to_pylist())

    def committed(self) -> int:
        body: Any = self.worker.get(f"/connectors/{self.name}/offsets")[1]
        return sum(one["offset"]["kafka_offset"] for one in body.get("offsets", []))

    def done(self, offsets: int) -> Lake:
        def settled() -> bool:
            return self.committed() >= offsets or "FAILED" in self.worker.states(self.name)

        self.worker.wait(settled, f"{self.name} is written", 120)
        assert self.worker.states(self.name) == ["RUNNING", "RUNNING"], self.worker.trace(self.name)
        return self

    def delete(self) -> None:
        self.worker.ask("DELETE", f"/connectors/{self.name}")


def test_executors_write_ranges_of_a_topic_once_whatever_is_killed(
    worker: WorkerProcess, broker: EmbeddedBroker
) -> None:
    load = Load(worker, broker, form="stream").create(MARKED).done()
    offsets = broker_ends(broker, load.name)
    lake = Lake(worker, load.name)
    (worker.directory / "end-at").write_text("executor:after-write-1")
    lake.create().done(offsets)
    assert not (worker.directory / "end-at").exists(), "it was killed"
    assert lake.ids() == ONCE
    assert worker.metric("kafka_connect_sink_task_sink_record_read_total", lake.name) == COUNT
    # What is gone from the group comes again, and replaces its files.
    worker.ask("PUT", f"/connectors/{lake.name}/stop")
    worker.wait(lambda: worker.states(lake.name) == ["STOPPED"], "it is stopped", 30)
    assert worker.ask("DELETE", f"/connectors/{lake.name}/offsets")[0] == 200
    worker.ask("PUT", f"/connectors/{lake.name}/resume")
    lake.done(offsets)
    assert lake.ids() == ONCE
    assert not list(lake.path.glob("_penstock/*/*.parquet"))
    tables = [Lake(worker, load.name, **TABLES, table__format=kind) for kind in ("delta", "iceberg")]
    (worker.directory / "end-at").write_text("executor:after-write-1")
    for one in tables:
        one.config["url"] = str(one.path)
        one.create()
    for one in tables:
        one.done(offsets)
    assert not (worker.directory / "end-at").exists(), "it was killed"
    rows = [DeltaTable(str(tables[0].path / load.name)).to_pyarrow_table()]
    there = f"sqlite:///{tables[1].path}/catalog.db"
    with load_catalog("iceberg", type="sql", uri=there, warehouse=f"file://{tables[1].path}") as catalog:
        rows.append(catalog.load_table(f"default.{load.name}").scan().to_arrow())
    assert [Counter(one.column("id").to_pylist()) for one in rows] == [ONCE, ONCE]
    back = Load(worker, broker)
    back.config |= {
        "connector.class": "SparkSource",
        "spark.bulk": "true",
        "mode": "bulk",
        "spark.format": "parquet",
        "spark.path": str(lake.path),
        "key.columns": "id",
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
    }
    back.create()
    worker.wait(lambda: bool(back.offsets()) or "FAILED" in worker.states(back.name), "the files are loaded", 120)
    assert back.ids() == ONCE, worker.trace(back.name)
    assert {(key, value[:20]) for _, key, value, _, _ in back.messages() if value and b'"id":77,' in value} == {
        (b'{"id":77}', b'{"id":77,"customer":')
    }
    refusing = Lake(
        worker,
        load.name,
        **MARKED,
        transforms__marked__refuse="customer 77",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=f"{lake.name}-dead",
        errors__deadletterqueue__topic__replication__factor="1",
        errors__deadletterqueue__context__headers__enable="true",
    )
    refusing.create().done(offsets)
    assert refusing.ids() == Counter(one for one in range(COUNT) if one % 1000 != 77)
    dead = load.messages(f"{lake.name}-dead")
    assert sorted(re.findall(rb'"id":(\d+)', value or b"")[0] for _, _, value, _, _ in dead) == [
        b"1077",
        b"2077",
        b"3077",
        b"77",
    ]
    assert all(("__connect.errors.topic", load.name.encode()) in headers for *_, headers, _ in dead)
    skipped = worker.metric("kafka_connect_task_error_total_records_skipped", refusing.name)
    letters = worker.metric("kafka_connect_task_error_deadletterqueue_produce_requests", refusing.name)
    assert (skipped, letters) == (4, 4)
    for one in (refusing, *tables, lake):
        one.delete()
    back.delete()
    load.delete()


def broker_ends(broker: EmbeddedBroker, topic: str) -> int:
    """The sum of the offsets behind the last messages."""
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "ends"})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    found = [consumer.get_watermark_offsets(ck.TopicPartition(topic, one), timeout=10)[1] for one in partitions]
    consumer.close()
    return sum(found)


def test_a_worker_that_is_killed_goes_on_behind_its_markers_and_in_its_stream(
    worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    load = Load(worker, broker, query=SLOWLY, partitions="8").create()
    stream = Load(worker, broker)
    stream.config = {
        **{name: text for name, text in stream.config.items() if name.startswith(("topic", "value"))},
        "connector.class": "SparkSource",
        "mode": "stream",
        "spark.format": "json",
        "spark.path": str(tmp_path / "in"),
        "spark.schema": "id bigint",
        "spark.option.maxFilesPerTrigger": "1",
        "spark.checkpoint.path": str(tmp_path / "state"),
        "poll.interval.ms": "10000",
    }
    (tmp_path / "in").mkdir()
    for number in range(3):
        lines = "".join(f'{{"id": {number * 100 + row}}}\n' for row in range(100))
        (tmp_path / "in" / f"{number}.json").write_text(lines)
    for one in (load, stream):
        (path := Path(worker.directory) / f"{one.name}.properties").write_text(
            "".join(f"{name}={text}\n" for name, text in {**one.config, "name": one.name}.items())
        )
        worker.arguments.append(str(path))
    stream.create()
    begun = tmp_path / "state" / stream.name / "checkpoint" / "offsets" / "0"
    worker.wait(lambda: begun.exists() and len(load.ids()) >= COUNT / 4, "some partitions are done", 120)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait_ended()
    worker.start()
    worker.wait(
        lambda: worker.text().count(" continues: ") > 0 and load.name in str(worker.get("/connectors")[1]), "on", 180
    )
    load.done()
    assert load.ids() == ONCE
    worker.wait(lambda: len(stream.ids()) == 300, "all files are in Kafka", 120)
    found = stream.ids()
    # At least once: a batch that was not committed comes again as a whole, and nothing is missing.
    for file in range(3):
        assert {found[file * 100 + row] for row in range(100)} in ({1}, {2})
