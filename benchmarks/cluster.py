"""What a bulk run costs beside the same rows through the worker: `bin/bench cluster`.

Orders of some 200 bytes of JSON (six columns and a key) go into a topic twice: as frames of a source, which the
worker's plan converts and the worker sends, and as a bulk run that executors write. Then the orders of the topic go
into a Delta table twice, by the sink and by executors. On a standalone cluster of two executors with one core each, and
with `local[2]`. Each form runs once before it is measured. Printed are records a second and microseconds of CPU a
record: of all processes but the broker, and of the worker's machine (worker and driver). On one machine the rates of a
cluster say little: all share its cores.

``--round-trip`` writes rows as Parquet, loads them into a topic, writes that into a Delta table, both by executors, and
compares both ends by a count and a checksum a column; it prints the memory of the worker and of its JVM at the
beginning, at the peak and at the end. ``--scaling`` loads rows with 1, 2, 4 and 8 executors each of which reads 20 MB a
second and no more: it sleeps, so that the cores of this machine do not count. A first run has the starts of executors
and of their Python processes in it; the second begins when each executor has done some work, and is what counts.
``--recovery`` kills the one executor of a run, its Spark worker, master and driver, and prints the seconds until rows
arrive in the topic again.

Thread: the main one.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import confluent_kafka as ck
import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from testkit.processes.spark_cluster import SparkCluster
from testkit.processes.worker_process import WorkerProcess, children

from benchmarks.processes import cpu_seconds, process_tree
from penstock.broker import EmbeddedBroker

#: Rows of one frame of the streaming form.
FRAME_ROWS: Final = 100_000
_JSON: Final = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
_WAIT_S: Final = 1800.0
#: What each executor of ``--scaling`` reads: rows of 10,000 bytes, 20 MB of them a second. Of one row in twenty each
#: sleeps for all of them, as the shortest sleep is a millisecond.
_ROW_BYTES: Final = 10_000
_BYTES_A_SECOND: Final = 20_000_000
_ROWS_A_SLEEP: Final = 20
EXECUTORS: Final = (1, 2, 4, 8)
#: Rows that ``--recovery`` does not come to the end of.
_ENDLESS: Final = 1_000_000
#: Runs that wait for the last executor to start.
_WARM_TURNS: Final = 20


def main(arguments: list[str]) -> int:
    """Measures, and prints; the exit code is 1 when the bulk form missed what it has to reach."""
    parser = argparse.ArgumentParser(prog="bin/bench cluster", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="records a run moves (1 million)")
    parser.add_argument("--only", choices=["cluster", "local"], help="one of the two")
    parser.add_argument(
        "--direction", choices=["source", "sink"], help="one of the two; a sink's topic is filled before"
    )
    parser.add_argument(
        "--round-trip", action="store_true", help="Parquet into a topic and into a Delta table, compared"
    )
    parser.add_argument("--scaling", action="store_true", help="1, 2, 4 and 8 executors of 20 MB a second each")
    parser.add_argument("--recovery", action="store_true", help="the time after which rows arrive again after a kill")
    options = parser.parse_args(arguments)
    if options.recovery:
        return recovery()
    if options.scaling:
        return scaling(options.records)
    if options.round_trip:
        return round_trip(options.records)
    ok = True
    forms = {"source": ("stream", "bulk"), "sink": ("sink stream", "sink bulk")}
    print("| session | form | records/s | us of CPU a record, all | of it on the worker's machine |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        directory = Path(scratch)
        with EmbeddedBroker(directory / "kafka", heap="1g") as broker:
            for session in [options.only] if options.only else ["cluster", "local"]:
                found = {}
                with _worker(directory, broker.bootstrap_servers, session) as (worker, roots):
                    if options.direction == "sink":
                        for name, records in (("warm", options.records // 5), ("measured", options.records)):
                            _load(worker, f"bulk-{name}", "bulk", records)
                    for direction, both in forms.items():
                        if options.direction not in (None, direction):
                            continue
                        for form in both:
                            measure = _run if direction == "source" else _drain
                            measure(worker, roots, form, "warm", options.records // 5)
                            found[form] = measure(worker, roots, form, "measured", options.records)
                            rate, all_us, own_us = found[form]
                            print(f"| {session} | {form} | {rate:,.0f} | {all_us:.1f} | {own_us:.2f} |", flush=True)
                        stream, bulk = (found[form] for form in both)
                        faster, cheaper = bulk[0] / stream[0], bulk[1] / stream[1]
                        print(f"| {session} | {both[1]} / {both[0]} | {faster:.2f} | {cheaper:.2f} | |", flush=True)
                        ok = ok and cheaper < 1.0
    return 0 if ok else 1


def round_trip(records: int) -> int:
    """Parquet into a topic and into a Delta table by executors; the exit code is 1 if the columns differ."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch, ExitStack() as stack:
        directory = Path(scratch)
        broker = stack.enter_context(EmbeddedBroker(directory / "kafka", heap="1g"))
        worker, roots = stack.enter_context(_worker(directory, broker.bootstrap_servers, "cluster"))
        source, target = directory / "rows", directory / "tables"
        _write_rows(source, records)
        memory = [_memory(worker.pid)]
        before, own_before, began = _cpu(roots), _cpu(roots[:1]), time.monotonic()
        _create(
            worker,
            "rows",
            {
                "connector.class": "SparkSource",
                "mode": "bulk",
                "spark.bulk": "true",
                "spark.format": "parquet",
                "spark.path": str(source),
                "topic": "rows",
                "topic.creation.default.partitions": "8",
                "topic.creation.default.replication.factor": "1",
                **_JSON,
                "value.converter.schemas.enable": "true",
            },
        )
        worker.wait(lambda: "done" in str(worker.get("/connectors/rows/offsets")[1]), "rows are loaded", _WAIT_S)
        _tell("Parquet -> topic", records, began, _cpu(roots) - before, _cpu(roots[:1]) - own_before)
        memory.append(_memory(worker.pid))
        before, own_before, began = _cpu(roots), _cpu(roots[:1]), time.monotonic()
        _create(worker, "table", {**_table(target), "topics": "rows", "value.converter.schemas.enable": "true"})
        worker.wait(lambda: _rows_of(target / "rows") >= records, "rows are in the table", _WAIT_S)
        _tell("topic -> Delta", records, began, _cpu(roots) - before, _cpu(roots[:1]) - own_before)
        memory.append(_memory(worker.pid))
        for name in ("worker", "its JVM"):
            at = ", ".join(f"{one[name][0]:,}" for one in memory)
            print(f"memory of {name}: {at} MiB before, between and after the runs; peak {memory[-1][name][1]:,} MiB")
        sums = [_checksums(ds.dataset(source)), _checksums(DeltaTable(str(target / "rows")).to_pyarrow_dataset())]
        for name, one in sums[0].items():
            print(f"| {name} | {one[0]:,} | {one[1]} | {'equal' if sums[1].get(name) == one else sums[1].get(name)} |")
        return 0 if sums[0] == sums[1] else 1


def scaling(records: int) -> int:
    """Loads rows with more and more executors; the exit code is 1 if one falls below 0.8 of linear."""
    seconds: dict[int, tuple[float, float]] = {}
    print("| executors | first run, s | of linear | second run, s | of linear |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        directory = Path(scratch)
        with EmbeddedBroker(directory / "kafka", heap="1g") as broker:
            for count in EXECUTORS:
                (directory / str(count)).mkdir()
                own = directory / str(count)
                with _worker(own, broker.bootstrap_servers, "cluster", count) as (worker, _):
                    first = _limited(worker, f"first-{count}", records)
                    for turn in range(_WARM_TURNS):
                        if _executors_at_work(own) >= count:
                            break
                        _limited(worker, f"warm-{count}-{turn}", max(EXECUTORS) * 1000)
                    seconds[count] = first, _limited(worker, f"second-{count}", records)
                linear = [seconds[EXECUTORS[0]][at] / count / seconds[count][at] for at in (0, 1)]
                print(
                    f"| {count} | {first:.1f} | {linear[0]:.2f} | {seconds[count][1]:.1f} | {linear[1]:.2f} |",
                    flush=True,
                )
    return 0 if all(seconds[1][1] / count / one[1] >= 0.8 for count, one in seconds.items()) else 1


def recovery() -> int:
    """Kills parts of a cluster under a run; the exit code is 1 if rows take longer than 60 s to arrive again."""
    found: dict[str, float] = {}
    print("| killed | seconds until rows arrive again |")
    print("| --- | --- |")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch, ExitStack() as stack:
        directory = Path(scratch)
        broker = stack.enter_context(EmbeddedBroker(directory / "kafka", heap="1g"))
        cluster = stack.enter_context(SparkCluster(directory / "spark", cores=1))
        own = {**cluster.settings, "spark.cores.max": "1", "spark.executor.memory": "460m"}
        worker = WorkerProcess(directory / "worker", broker.bootstrap_servers, own)
        worker.spark_on_demand = False
        worker.start()
        stack.callback(worker.close)
        worker.wait(lambda: "Spark session 1 is up" in worker.text(), "Spark is up", 300)
        slowly = "if(reflect('java.lang.Thread', 'sleep', 4L) IS NULL, NULL, 'slow')"
        config = {"topic": "rows", "count": str(_ENDLESS), "partitions": str(_ENDLESS // 100), "query": slowly, **_JSON}
        made = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}
        _create(worker, "rows", {"connector.class": "testkit.connectors.bulk_tasks:OrdersSource", **config, **made})
        client = ck.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "recovery"})
        stack.callback(client.close)

        def end_executor() -> None:
            for pid in children(cluster.worker.pid or 0):
                os.kill(pid, signal.SIGKILL)

        def end_driver() -> None:
            (jvm,) = [pid for pid in process_tree(worker.pid) if "java" in Path(f"/proc/{pid}/comm").read_text()]
            os.kill(jvm, signal.SIGKILL)

        for name, steps in {
            "executor": (end_executor,),
            "Spark worker, started again at once": (cluster.worker.kill, cluster.worker.start),
            "Spark worker, away for 20 s": (cluster.worker.kill, lambda: time.sleep(20.0), cluster.worker.start),
            "master, started again without recovery": (cluster.master.kill, cluster.master.start),
            "JVM of the driver": (end_driver,),
        }.items():
            _await_growth(client, _end(client))
            for step in steps:
                step()
            began = time.monotonic()
            # What was on its way when the kill came.
            time.sleep(1.0)
            _await_growth(client, _end(client))
            found[name] = time.monotonic() - began
            print(f"| {name} | {found[name]:.1f} |", flush=True)
        worker.ask("DELETE", "/connectors/rows")
    return 0 if max(found.values()) <= 60 else 1


def _end(client: ck.Consumer) -> int:
    """The offset after the last row in the topic; 0 as long as there is none."""
    try:
        return client.get_watermark_offsets(ck.TopicPartition("rows", 0), timeout=10)[1]
    except ck.KafkaException:
        return 0


def _await_growth(client: ck.Consumer, before: int) -> None:
    deadline = time.monotonic() + _WAIT_S
    while _end(client) <= before:
        if time.monotonic() > deadline:
            raise TimeoutError(f"No row has come after {before} for {_WAIT_S:.0f} s")
        time.sleep(0.2)


def _limited(worker: WorkerProcess, name: str, records: int) -> float:
    """Loads records at the rate of the executors' limit; the seconds that it takes."""
    sleep_ms = _ROWS_A_SLEEP * _ROW_BYTES * 1000 // _BYTES_A_SECOND
    limited = f"if(id % {_ROWS_A_SLEEP} = 0, reflect('java.lang.Thread', 'sleep', {sleep_ms}L), 'read')"
    began = time.monotonic()
    # A wave of partitions, however many executors there are.
    _load(worker, name, "bulk", records, query=limited, partitions=str(max(EXECUTORS)), rows=str(records))
    return time.monotonic() - began


def _executors_at_work(directory: Path) -> int:
    """The number of executors that have run a task, by their logs."""
    logs = (directory / "spark").rglob("stderr")
    return sum("Running task" in one.read_text(encoding="utf-8", errors="replace") for one in logs)


@contextmanager
def _worker(
    directory: Path, servers: str, session: str, executors: int = 2
) -> Iterator[tuple[WorkerProcess, list[int]]]:
    """A worker, and the processes whose trees are all of its Spark."""
    with ExitStack() as stack:
        settings: Mapping[str, str] = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": ""}
        roots = []
        if session == "cluster":
            cluster = stack.enter_context(SparkCluster(directory / "spark", executors, memory="8g"))
            settings = {
                **cluster.settings,
                "spark.cores.max": str(executors),
                "spark.executor.cores": "1",
                "spark.executor.memory": "460m",
                "spark.executor.extraJavaOptions": "",
                "spark.driver.extraJavaOptions": "",
            }
            assert cluster.worker.pid is not None
            roots.append(cluster.worker.pid)
        worker = WorkerProcess(directory / session, servers, settings)
        worker.spark_on_demand = False
        worker.start()
        stack.callback(worker.close)
        worker.wait(lambda: "Spark session 1 is up" in worker.text(), "Spark is up", 300)
        yield worker, [worker.pid, *roots]


def _run(worker: WorkerProcess, roots: list[int], form: str, name: str, records: int) -> tuple[float, float, float]:
    """Loads records into a topic; their rate, and microseconds of CPU of each: all, and worker and driver."""
    before, own_before, began = _cpu(roots), _cpu(roots[:1]), time.monotonic()
    _load(worker, f"{form}-{name}", form, records)
    seconds = time.monotonic() - began
    used, own = _cpu(roots) - before, _cpu(roots[:1]) - own_before
    return records / seconds, used / records * 1e6, own / records * 1e6


def _drain(worker: WorkerProcess, roots: list[int], form: str, name: str, records: int) -> tuple[float, float, float]:
    """Writes the topic of a load into a Delta table; as ``_run``."""
    directory = Path(worker.directory) / f"{form}-{name}".replace(" ", "-")
    config = {**_table(directory), "topics": f"bulk-{name}", "tables.bulk": str(form == "sink bulk").lower(), **_JSON}
    before, own_before, began = _cpu(roots), _cpu(roots[:1]), time.monotonic()
    _create(worker, directory.name, config)
    table = directory / f"bulk-{name}"
    worker.wait(lambda: _rows_of(table) >= records, f"{directory.name} is written", _WAIT_S)
    seconds = time.monotonic() - began
    used, own = _cpu(roots) - before, _cpu(roots[:1]) - own_before
    worker.ask("DELETE", f"/connectors/{directory.name}")
    return records / seconds, used / records * 1e6, own / records * 1e6


def _load(worker: WorkerProcess, name: str, form: str, records: int, **own: str) -> None:
    """Loads orders into a topic by a connector, which is deleted then."""
    config = {
        "connector.class": "testkit.connectors.bulk_tasks:OrdersSource",
        "topic": name,
        "count": str(records),
        "partitions": "8",
        "form": form,
        "rows": str(FRAME_ROWS if form == "stream" else records),
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "1",
        # The timestamps of orders are of years ago.
        "topic.creation.default.retention.ms": "-1",
        **_JSON,
        **own,
    }
    _create(worker, name, config)
    end = [{"partition": {"shop": "orders"}, "offset": {"next": records}}]
    worker.wait(lambda: worker.get(f"/connectors/{name}/offsets")[1] == {"offsets": end}, f"{name} is loaded", _WAIT_S)
    worker.ask("DELETE", f"/connectors/{name}")


def _create(worker: WorkerProcess, name: str, config: Mapping[str, str]) -> None:
    answer = worker.ask("POST", "/connectors", {"name": name, "config": dict(config)})
    if answer[0] != 201:
        raise RuntimeError(f"{answer}\n{worker.text()[-2000:]}")


def _table(directory: Path) -> dict[str, str]:
    """A sink into tables of Delta, whose executors write."""
    return {
        "connector.class": "TableSink",
        "table.format": "delta",
        "url": str(directory),
        "tables.bulk": "true",
        "commit.interval.ms": "1000",
        "auto.create": "true",
        "consumer.override.auto.offset.reset": "earliest",
        **_JSON,
    }


def _rows_of(table: Path) -> int:
    """The rows of a Delta table, by its log; 0 as long as there is none."""
    if not (table / "_delta_log").exists():
        return 0
    found = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True))
    return sum(found.column("num_records").to_pylist())


def _write_rows(directory: Path, records: int) -> None:
    """Rows of six columns as Parquet files of some hundred thousand."""
    directory.mkdir()
    with duckdb.connect() as database:
        for number, first in enumerate(range(0, records, 500_000)):
            made = database.sql(
                f"""SELECT id, 'customer ' || id % 1000 AS customer, id * 1.25::DOUBLE AS amount,
                'note ' || id || ' of "some" length' AS note, id % 7 = 0 AS gift,
                CASE WHEN id % 11 = 0 THEN NULL ELSE hash(id)::VARCHAR END AS mark
                FROM range({first}, {min(records, first + 500_000)}) AS rows(id)"""
            ).to_arrow_table()
            pq.write_table(made, directory / f"{number:04d}.parquet")


def _checksums(rows: ds.Dataset) -> dict[str, tuple[int, int]]:
    """For each column how many values there are, and the sum of their hashes, whatever their order."""
    with duckdb.connect() as database:
        database.register("rows", rows)
        names = [name for name in rows.schema.names if not name.startswith("__")]
        sums = ", ".join(f'count("{name}"), sum(hash("{name}"))' for name in names)
        (found,) = database.sql(f"SELECT {sums} FROM rows").fetchall()
    return {name: (int(found[2 * at]), int(found[2 * at + 1])) for at, name in enumerate(names)}


def _tell(what: str, records: int, began: float, used: float, own: float) -> None:
    rate = records / (time.monotonic() - began)
    print(
        f"{what}: {rate:,.0f}/s, {used / records * 1e6:.1f} us of CPU a row, {own / records * 1e6:.2f} of it on the "
        "worker's machine",
        flush=True,
    )


def _memory(pid: int) -> dict[str, tuple[int, int]]:
    """The resident memory of a worker and its JVM, now and at the peak, in MiB."""
    found = {}
    for one in process_tree(pid):
        lines = Path(f"/proc/{one}/status").read_text(encoding="utf-8").splitlines()
        about = dict(line.split(":", 1) for line in lines if ":" in line)
        if one == pid or about["Name"].strip() == "java":
            now, peak = (int(about[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM"))
            found["worker" if one == pid else "its JVM"] = now, peak
    return found


def _cpu(roots: list[int]) -> float:
    """CPU seconds of processes and their descendants, those that have ended included where they were waited for."""
    return sum(cpu_seconds(pid) for pid in {pid for root in roots for pid in process_tree(root)})
