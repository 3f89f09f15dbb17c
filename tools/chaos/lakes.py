"""Kills at random while a topic goes into files and tables on an object store.

Main type: `LakeChaos` (`bin/chaos --connectors lakes`). Two ``FileSink``s write a topic into a bucket, one into files
of each partition and one with a manifest, and two ``TableSink``s into a Delta and an Iceberg table. Workers, their
JVMs, the broker and the object store are killed, and connections to the store are cut wherever their bytes are. At the
end each prefix and each table equals the topic, row by row.

Thread: the test's; a thread of its own sends records.
"""

from __future__ import annotations

import io
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import confluent_kafka as ck
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from testkit.brokers.cutting_proxy import CuttingProxy
from testkit.processes.s3_server import KEY_ID, REGION, SECRET, S3Server
from testkit.processes.worker_group import WorkerGroup

from penstock.broker import EmbeddedBroker
from penstock.worker.task.engine import STAYS_FAILED
from tools.chaos.kills import Kill, strike

#: Longest that everything may take to run again, and to deliver all that there is, after the last kill.
MENDED_S: Final = 240.0
PARTITIONS: Final = 3
TOPIC: Final = "lake-events"
VICTIMS: Final = ("worker", "JVM", "broker", "object store", "object store's connections")
#: The shortest and the longest time between two kills, in seconds.
PAUSE_S: Final = (3, 12)
_LOOK_S: Final = 1.0
_TEXT: Final = "x" * 60

#: The rows of a topic, a prefix or a table, each with how often: partition, offset, id and text.
Rows = Counter[tuple[int, int, int, str]]


class LakeChaos:
    """Runs kills against workers and an object store of its own.

    Args:
        directory: For all files.
        broker: A running broker that only this run uses.
        program: That of an object store which keeps its objects when it is killed; None: moto's server, of which
            connections are cut and refused instead.
        workers: How many there are.
        say: Gets a line for each thing that happens.
    """

    def __init__(
        self,
        directory: Path,
        broker: EmbeddedBroker,
        program: str | None = None,
        workers: int = 2,
        say: Callable[[str], None] = print,
    ) -> None:
        self._directory, self._broker, self._say = directory, broker, say
        self._group = WorkerGroup(
            directory, broker.bootstrap_servers, {"offset.flush.interval.ms": "1000"}, size=workers
        )
        self._store = S3Server(directory / "store", program)
        self._proxy = CuttingProxy(self._store.port)
        self._chance = random.Random(0)
        self._came: Counter[str] = Counter()
        self._began = 0.0

    def run(self, kills: list[Kill]) -> None:
        """Starts all, lets the kills come, and compares.

        Raises:
            AssertionError: A row is missing, twice or another one; something does not run again by itself.
        """
        with ExitStack() as opened:
            opened.enter_context(self._store)
            opened.enter_context(self._proxy)
            admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
            opened.callback(self._group.close)
            for worker in self._group.workers:
                worker.spark_on_demand = all(kill.whom != "JVM" for kill in kills)
            self._group.start()
            with _Sender(self._broker.bootstrap_servers):
                for name, config in self._connectors().items():
                    self._group.create(name, config)
                self._group.settled(timeout_s=MENDED_S)
                self._await(lambda: all(map(len, self._found().values())), lambda: "rows flow everywhere")
                self._began = time.monotonic()
                for kill in kills:
                    threading.Event().wait(max(0.0, kill.at_s - self._now()))
                    self._strike(kill)
                mended = time.monotonic()
                self._group.settled(timeout_s=MENDED_S)
                self._tell(f"all runs again after {time.monotonic() - mended:.1f} s")
            self._check()
            self._group.settled(timeout_s=MENDED_S)
            self._tell(", ".join(f"{count} x {whom} killed" for whom, count in sorted(self._came.items())))
            self._group.stop()

    # ---------------------------------------------------------------- the connectors
    def _connectors(self) -> dict[str, dict[str, str]]:
        base = {
            "topics": TOPIC,
            "tasks.max": "2",
            "store.url": f"http://127.0.0.1:{self._proxy.port}",
            "s3.region": REGION,
            "aws.access.key.id": KEY_ID,
            "aws.secret.access.key": SECRET,
            "metadata.columns": "partition,offset",
            "retry.backoff.ms": "300",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "consumer.override.auto.offset.reset": "earliest",
            "consumer.override.session.timeout.ms": "8000",
        }
        files = {**base, "connector.class": "FileSink", "flush.size": "150", "rotate.schedule.interval.ms": "1500"}
        tables = {
            **base,
            "connector.class": "TableSink",
            "auto.create": "true",
            "tables": "events",
            "commit.interval.ms": "1000",
        }
        return {
            "files": {**files, "url": "s3://lake/files"},
            "manifest": {
                **files,
                "url": "s3://lake/manifest",
                "layout": "manifest",
                "partitioner.class": "field",
                "partition.field.name": "kind",
            },
            "delta": {**tables, "url": "s3://lake/delta"}
            # The other store's conditional writes do not hold between writers at the same moment.
            | ({"tasks.max": "1"} if self._store.program else {}),
            "iceberg": {**tables, "table.format": "iceberg", "url": "s3://lake/iceberg"}
            | {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": self._catalog},
        }

    @property
    def _catalog(self) -> str:
        return f"sqlite:///{self._directory.absolute()}/catalog.db"

    # ---------------------------------------------------------------- kills
    def _strike(self, kill: Kill) -> None:
        self._tell(f"{kill.whom} killed" + (f", back after {kill.lasts_s:.1f} s" if "'" not in kill.whom else ""))
        self._came[kill.whom] += 1
        store = (self._end_store, self._start_store)
        strike(
            kill,
            self._group,
            self._broker,
            {"object store": store, "object store's connections": (self._cut,)},
        )

    def _cut(self) -> None:
        self._proxy.cut_open()
        for _ in range(6):
            self._proxy.cut_next(sent=self._chance.randrange(100, 20_000))
            self._proxy.cut_next(received=self._chance.randrange(1, 2_000))

    def _end_store(self) -> None:
        if self._store.program is None:
            self._proxy.__exit__()
        else:
            self._store.kill()

    def _start_store(self) -> None:
        if self._store.program is None:
            self._proxy.__enter__()
        else:
            self._store.start()

    # ---------------------------------------------------------------- what must hold
    def _check(self) -> None:
        """Waits until all rows are where they are to be, and compares them."""
        topic = self._sent()
        self._await(
            lambda: not any(topic - rows for rows in self._found().values()),
            lambda: str({name: sum((topic - rows).values()) for name, rows in self._found().items()}) + " are lacking",
        )
        for name, rows in self._found().items():
            more = rows - topic
            assert not more, f"{name} has {sum(more.values())} rows more than the topic: {more.most_common(3)}"
        if self._store.program is None:  # The other one cannot list them.
            with closing(self._store.client()) as client:
                assert "Uploads" not in client.list_multipart_uploads(Bucket=self._store.bucket)
        # A worker that is killed soon after a failure would hide it.
        failed = [line for one in self._group.workers for line in one.text().splitlines() if STAYS_FAILED in line]
        assert not failed, f"tasks have failed: {failed}"
        self._tell(f"{sum(topic.values())} records, {len(topic)} of them different: each is once in each of four")

    def _sent(self) -> Rows:
        """All that the topic has."""
        servers, found = self._broker.bootstrap_servers, Rows()
        with closing(
            ck.Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.partition.eof": True})
        ) as consumer:
            consumer.assign([ck.TopicPartition(TOPIC, one, ck.OFFSET_BEGINNING) for one in range(PARTITIONS)])
            ended = 0
            while ended < PARTITIONS:
                message = consumer.poll(30)
                assert message is not None, f"{TOPIC} cannot be read"
                if (error := message.error()) is not None:
                    assert error.code() == ck.KafkaError._PARTITION_EOF, error
                    ended += 1
                    continue
                value = json.loads(message.value() or b"")["payload"]
                found[message.partition() or 0, message.offset() or 0, value["id"], value["text"]] += 1
        return found

    def _found(self) -> dict[str, Rows]:
        """The rows that readers of each prefix and table find."""
        return {
            "files": _of_files(self._store.objects("files/topics/")),
            "manifest": self._of_manifests(),
            "delta": self._of_delta(),
            "iceberg": self._of_iceberg(),
        }

    def _of_manifests(self) -> Rows:
        objects = self._store.objects("manifest/topics/")
        named = [
            one["file"]
            for key, data in objects.items()
            if "/_manifests/" in key
            for one in json.loads(data).get("files", ())
        ]
        return _of_files({key: data for key in named if (data := objects.get(f"manifest/{key}")) is not None})

    def _of_delta(self) -> Rows:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        options = {
            "AWS_ENDPOINT_URL": self._store.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        try:
            return _rows(DeltaTable("s3://lake/delta/events", storage_options=options).to_pyarrow_table())
        except TableNotFoundError:
            return Rows()

    def _of_iceberg(self) -> Rows:
        from pyiceberg.catalog import load_catalog

        s3 = {
            "s3.endpoint": self._store.url,
            "s3.region": REGION,
            "s3.access-key-id": KEY_ID,
            "s3.secret-access-key": SECRET,
        }
        with load_catalog("iceberg", type="sql", uri=self._catalog, warehouse="s3://lake/iceberg", **s3) as catalog:
            if not catalog.table_exists("default.events"):
                return Rows()
            return _rows(catalog.load_table("default.events").scan().to_arrow())

    def _await(self, holds: Callable[[], bool], lacking: Callable[[], str]) -> None:
        pause = threading.Event()
        self._group.wait_while(
            lambda: "" if holds() or pause.wait(_LOOK_S) else lacking(), "all is delivered", MENDED_S
        )

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _tell(self, text: str) -> None:
        self._say(f"{self._now():7.1f} s  {text}")


class _Sender:
    """Sends records until it ends, whatever becomes of the broker."""

    def __init__(self, servers: str) -> None:
        self._producer = ck.Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "message.timeout.ms": 300_000}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-sender")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(300) == 0

    def _run(self) -> None:
        kinds = {"id": "int64", "kind": "string", "text": "string"}
        schema = {"type": "struct", "fields": [{"field": name, "type": kind} for name, kind in kinds.items()]}
        sent = 0
        while not self._stopping.wait(0.1):
            for number in range(sent, sent + 20):
                payload = {"id": number, "kind": "abc"[number // PARTITIONS % 3], "text": f"{number} {_TEXT}"}
                value = json.dumps({"schema": schema, "payload": payload}).encode()
                self._producer.produce(TOPIC, value, str(number).encode(), partition=number % PARTITIONS)
            sent += 20
            self._producer.poll(0)


def _of_files(objects: dict[str, bytes]) -> Rows:
    found = Rows()
    for data in objects.values():
        found += _rows(pq.ParquetFile(io.BytesIO(data)).read())
    return found


def _rows(table: Any) -> Rows:
    columns = (table.column(name).to_pylist() for name in ("kafka_partition", "kafka_offset", "id", "text"))
    return Rows(zip(*columns, strict=True))
