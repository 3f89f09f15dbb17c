"""The part of `bin/bench connectors` about files and tables: a topic into Parquet, Delta and Iceberg, and Parquet back.

Four tasks write a topic of 8 partitions, JSON of 0.9 KB with a schema and without, into a directory. The limit is
PyArrow, which reads the same bytes and writes Parquet in one process; Iceberg's own sink in Java Connect writes the
same topic into a table of a Hadoop catalog. Then one task reads rows of 230 bytes of Parquet files into a topic. All
rows are counted. Each worker does it twice, and the second time counts: CPU seconds are those
of all its processes since the connector was made.

Main function: `lakes`. Thread: the main thread.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from benchmarks.runs import Contestant, follow, numbers, start_worker, topic_counter
from benchmarks.workloads import Environment, fill_topic
from penstock.broker import EmbeddedBroker

#: What is to be reached: CPU of the sink over PyArrow's, and rows a second from Parquet into a topic.
OVER_PYARROW, ROWS_A_SECOND = 2.2, 100_000.0
#: The rate of the table sink over that of Iceberg's own.
OVER_JAVA: Final = 2.0
_ICEBERG: Final = "1.10.1"
#: Iceberg's sink, its format of files, and Hadoop's client for its catalog in a directory.
_JAVA_SINK: Final = (
    f"org.apache.iceberg:iceberg-kafka-connect:{_ICEBERG}",
    f"org.apache.iceberg:iceberg-parquet:{_ICEBERG}",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
)
_PARTITIONS, _TASKS = 8, 4
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_WORKER: Final = {"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": _JSON}
_START_S: Final = 180.0
#: The settings of a connector, and what it has moved.
Made: TypeAlias = "tuple[dict[str, str], Callable[[], int]]"
_KINDS: Final = {"id": "int64", "name": "string", "amount": "double", "at": "int64", "pad": "string"}
_SCHEMA: Final = {"type": "struct", "fields": [{"field": name, "type": kind} for name, kind in _KINDS.items()]}


def lakes(directory: Path, records: int, timeout_s: float, *, java: bool = True) -> list[str]:
    """Runs all, and prints what they used; what was missed.

    Args:
        directory: For files.
        records: How many messages; from Parquet twice as many rows.
        timeout_s: How long a run may take.
        java: False: without Iceberg's own sink.
    """
    print("a topic into files and tables, and files into a topic", flush=True)
    missed = []
    with EmbeddedBroker(directory / "lakes", heap="1g") as broker:
        environment = Environment(broker.bootstrap_servers, directory, records, "default")
        for with_schema in (True, False):
            values = [_value(number, with_schema) for number in range(records)]
            topic = _filled(environment, values)
            what = "JSON with a schema" if with_schema else "JSON without"
            limit = _pyarrow(values, directory / f"pyarrow-{with_schema}.parquet")
            print(f"  PyArrow, {what:38} CPU a record: {limit * 1e6:6.2f} us", flush=True)
            used, _ = _sink(environment, "FileSink", topic, what, with_schema, timeout_s)
            print(f"  over PyArrow: {used / limit:.2f} (aim at most {OVER_PYARROW})", flush=True)
            if used / limit > OVER_PYARROW:
                missed.append(f"topic into Parquet, {what}")
            if with_schema:
                _sink(environment, "delta", topic, what, with_schema, timeout_s)
                cpu, rate = _sink(environment, "iceberg", topic, what, with_schema, timeout_s)
                if java:
                    java_cpu, java_rate = _sink(environment, "java", topic, what, with_schema, timeout_s)
                    print(
                        f"  rate over Java's {rate / java_rate:.2f} (aim {OVER_JAVA}), CPU {cpu / java_cpu:.2f}",
                        flush=True,
                    )
                    if rate / java_rate < OVER_JAVA:
                        missed.append("rate into Iceberg over that of its own sink")
            environment.delete_topic(topic)
        rate = _source(environment, 2 * records, timeout_s)
        if rate < ROWS_A_SECOND:
            missed.append("Parquet into a topic")
    return missed


def _row(number: int) -> dict[str, object]:
    pad = f"{number:020d}" + "x" * 480
    return {"id": number, "name": f"customer {number % 10_000}", "amount": number / 8, "at": 1 << 40, "pad": pad}


def _value(number: int, with_schema: bool) -> bytes:
    row = _row(number)
    if with_schema:
        return json.dumps({"schema": _SCHEMA, "payload": row}, separators=(",", ":")).encode()
    return json.dumps({**row, "more": "y" * 300}, separators=(",", ":")).encode()


def _filled(environment: Environment, values: list[bytes]) -> str:
    topic = f"bench-lake-{next(numbers)}"
    environment.create_topic(topic, _PARTITIONS)
    fill_topic(environment.bootstrap_servers, topic, ((None, value) for value in values), in_turn=_PARTITIONS)
    return topic


def _pyarrow(values: list[bytes], target: Path) -> float:
    """CPU seconds of PyArrow for each record, its threads with it."""
    began = time.process_time()
    for first in range(0, len(values), 100_000):
        table = pyarrow.json.read_json(io.BytesIO(b"\n".join(values[first : first + 100_000])))
        if "payload" in table.column_names:
            table = pa.Table.from_struct_array(table.column("payload"))
        pq.write_table(table, f"{target}-{first}", compression="snappy")
    return (time.process_time() - began) / len(values)


def _sink(
    environment: Environment, kind: str, topic: str, what: str, with_schema: bool, timeout_s: float
) -> tuple[float, float]:
    """CPU seconds of a worker for each record of a topic that a sink writes, and records a second."""
    table = {
        "connector.class": "TableSink",
        "table.format": kind,
        "table.name.format": "bench.rows",
        "auto.create": "true",
        "commit.interval.ms": "2000",
    }
    files = {"connector.class": "FileSink", "flush.size": "50000", "rotate.schedule.interval.ms": "2000"}
    java = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "iceberg.tables": "bench.rows",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.catalog.type": "hadoop",
        "iceberg.control.commit.interval-ms": "2000",
        "iceberg.kafka.bootstrap.servers": environment.bootstrap_servers,
    }
    settings = {"FileSink": files, "java": java}.get(kind, table)
    connector = {
        "topics": topic,
        "tasks.max": str(_TASKS),
        "value.converter": _JSON,
        "value.converter.schemas.enable": str(with_schema).lower(),
        **settings,
    }
    label = {"FileSink": "FileSink, Parquet", "java": "Iceberg's sink in Java"}.get(kind, f"TableSink, {kind}")

    def made() -> Made:
        name = f"bench{next(numbers)}"
        place = environment.directory / name
        if kind != "java":
            return {"name": name, "url": str(place), **connector}, _counter(kind, place)
        environment.create_topic(f"{name}-control", 1)
        own = {"iceberg.catalog.warehouse": f"file://{place}", "iceberg.control.topic": f"{name}-control"}
        return {"name": name, **own, **connector}, _counter(kind, place)

    return _run(environment, f"{label}, {what}", made, environment.records, timeout_s, java=kind == "java")


def _counter(kind: str, place: Path) -> Callable[[], int]:
    known: dict[Path, int] = {}

    def files() -> int:
        for one in place.glob("topics/*/*/*.parquet"):
            if one not in known:
                known[one] = pq.read_metadata(one).num_rows
        return sum(known.values())

    def delta() -> int:
        from deltalake import DeltaTable

        path = place / "bench.rows"
        return int(DeltaTable(str(path)).count()) if DeltaTable.is_deltatable(str(path)) else 0

    def iceberg() -> int:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError
        from sqlalchemy.exc import OperationalError

        if not (place / "catalog.db").exists():
            return 0
        try:
            with load_catalog(
                "iceberg", type="sql", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}"
            ) as catalog:
                snapshot = catalog.load_table("bench.rows").current_snapshot()
        except (NoSuchTableError, OperationalError):  # The worker makes the catalog at this moment.
            return 0
        return int(snapshot.summary["total-records"] or 0) if snapshot and snapshot.summary else 0

    def java() -> int:
        metadata = place / "bench/rows/metadata"
        try:
            version = (metadata / "version-hint.text").read_text().strip()
            said = json.loads((metadata / f"v{version}.metadata.json").read_text())
        except (FileNotFoundError, ValueError):
            return 0
        newest = said.get("current-snapshot-id")
        return sum(
            int(one["summary"]["total-records"]) for one in said.get("snapshots", ()) if one["snapshot-id"] == newest
        )

    return {"FileSink": files, "delta": delta, "iceberg": iceberg, "java": java}[kind]


def _source(environment: Environment, rows: int, timeout_s: float) -> float:
    """Rows a second from Parquet into a topic."""
    place = environment.directory / f"bench{next(numbers)}"
    place.mkdir()
    for first in range(0, rows, 250_000):
        ids = range(first, min(first + 250_000, rows))
        columns = {
            "id": pa.array(ids, pa.int64()),
            "name": [f"customer {one % 10_000}" for one in ids],
            "amount": pa.array(ids, pa.float64()),
            "pad": [f"{one:020d}" + "x" * 140 for one in ids],
        }
        pq.write_table(pa.table(columns), place / f"{first:010d}.parquet")
    connector = {
        "connector.class": "FileSource",
        "tasks.max": "1",
        "url": str(place),
        "value.converter": _JSON,
        "value.converter.schemas.enable": "false",
    }

    def made() -> Made:
        name = f"bench{next(numbers)}"
        environment.create_topic(name, 1)
        return {"name": name, "topic": name, **connector}, topic_counter(environment, name)

    return _run(environment, "FileSource, Parquet into a topic", made, rows, timeout_s)[1]


def _run(
    environment: Environment,
    label: str,
    made: Callable[[], Made],
    total: int,
    timeout_s: float,
    *,
    java: bool = False,
) -> tuple[float, float]:
    """CPU seconds of the worker for each record, and records a second, when it does the same a second time."""
    contestant, plugins = (Contestant("java"), _JAVA_SINK) if java else (Contestant("penstock"), ())
    worker = start_worker(contestant, environment, dict(_WORKER), java_plugins=plugins)
    try:
        worker.await_rest(_START_S)
        worker.await_health(_START_S)
        for _ in range(2):
            connector, count = made()
            started = worker.usage.cpu_seconds_now()
            worker.post("/connectors", {"name": connector["name"], "config": connector})
            samples, _busy = follow(worker, count, total, timeout_s)
        worker.usage.stop()
        if (arrived := count()) != total:
            raise RuntimeError(f"{label}: {arrived} records arrived of {total}; see {worker.log}")
        first = next(moment for moment, seen in samples if seen > 0)
        begun = max((moment for moment, seen in samples if seen == 0), default=first)
        used = (worker.usage.cpu_seconds - started) / total
        rate = total / max(0.001, samples[-1][0] - begun)
        print(
            f"  {label:47} CPU a record: {used * 1e6:6.2f} us  {rate:10,.0f} records/s  "
            f"peak {worker.usage.peak_bytes / 2**20:6,.0f} MiB",
            flush=True,
        )
        return used, rate
    finally:
        worker.stop()
