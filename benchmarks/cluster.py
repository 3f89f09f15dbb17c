"""What a bulk run costs beside the same rows through the worker: `bin/bench cluster`.

Orders of some 200 bytes of JSON (four columns and a key) go into a topic twice: as frames of a source, which the
worker's plan converts and the worker sends, and as a bulk run that executors write. On a standalone cluster of two
executors with one core each, and with `local[2]`. Each form runs once before it is measured. Printed are records a
second and microseconds of CPU a record: of all processes but the broker, and of the worker's machine (worker and
driver). On one machine the rates of a cluster say little: all share its cores.

Thread: the main one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from testkit.processes.spark_cluster import SparkCluster
from testkit.processes.worker_process import WorkerProcess

from benchmarks.processes import cpu_seconds, process_tree
from penstock.broker import EmbeddedBroker

#: Rows of one frame of the streaming form.
FRAME_ROWS: Final = 100_000
_JSON: Final = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
_WAIT_S: Final = 600.0


def main(arguments: list[str]) -> int:
    """Measures, and prints; the exit code is 1 when the bulk form missed what it has to reach."""
    parser = argparse.ArgumentParser(prog="bin/bench cluster", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="records a run moves (1 million)")
    parser.add_argument("--only", choices=["cluster", "local"], help="one of the two")
    options = parser.parse_args(arguments)
    ok = True
    print("| session | form | records/s | us of CPU a record, all | of it on the worker's machine |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        directory = Path(scratch)
        with EmbeddedBroker(directory / "kafka", heap="1g") as broker:
            for session in [options.only] if options.only else ["cluster", "local"]:
                found = {}
                with _worker(directory, broker.bootstrap_servers, session) as (worker, roots):
                    for form in ("stream", "bulk"):
                        _run(worker, roots, form, "warm", options.records // 5)
                        found[form] = _run(worker, roots, form, "measured", options.records)
                        rate, all_us, own_us = found[form]
                        print(f"| {session} | {form} | {rate:,.0f} | {all_us:.1f} | {own_us:.2f} |", flush=True)
                faster, cheaper = found["bulk"][0] / found["stream"][0], found["bulk"][1] / found["stream"][1]
                print(f"| {session} | bulk / stream | {faster:.2f} | {cheaper:.2f} | |", flush=True)
                ok = ok and cheaper < 1.0
    return 0 if ok else 1


@contextmanager
def _worker(directory: Path, servers: str, session: str) -> Iterator[tuple[WorkerProcess, list[int]]]:
    """A worker, and the processes whose trees are all of its Spark."""
    with ExitStack() as stack:
        settings: Mapping[str, str] = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": ""}
        roots = []
        if session == "cluster":
            cluster = stack.enter_context(SparkCluster(directory / "spark", cores=2))
            settings = {
                **cluster.settings,
                "spark.executor.cores": "1",
                "spark.executor.memory": "460m",
                "spark.executor.extraJavaOptions": "",
                "spark.driver.extraJavaOptions": "",
            }
            assert cluster.worker.pid is not None
            roots.append(cluster.worker.pid)
        worker = WorkerProcess(directory / session, servers, settings)
        worker.start()
        stack.callback(worker.close)
        worker.wait(lambda: "Spark session 1 is up" in worker.text(), "Spark is up", 300)
        yield worker, [worker.pid, *roots]


def _run(worker: WorkerProcess, roots: list[int], form: str, name: str, records: int) -> tuple[float, float, float]:
    """Loads records into a topic; their rate, and microseconds of CPU of each: all, and worker and driver."""
    name = f"{form}-{name}"
    config = {
        "connector.class": "testkit.connectors.bulk_tasks:OrdersSource",
        "topic": name,
        "count": str(records),
        "partitions": "8",
        "form": form,
        "rows": str(FRAME_ROWS if form == "stream" else records),
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "1",
        **_JSON,
    }
    before, own_before, began = _cpu(roots), _cpu(roots[:1]), time.monotonic()
    answer = worker.ask("POST", "/connectors", {"name": name, "config": config})
    if answer[0] != 201:
        raise RuntimeError(f"{answer}\n{worker.text()[-2000:]}")
    end = [{"partition": {"shop": "orders"}, "offset": {"next": records}}]
    worker.wait(lambda: worker.get(f"/connectors/{name}/offsets")[1] == {"offsets": end}, f"{name} is loaded", _WAIT_S)
    seconds = time.monotonic() - began
    used, own = _cpu(roots) - before, _cpu(roots[:1]) - own_before
    worker.ask("DELETE", f"/connectors/{name}")
    return records / seconds, used / records * 1e6, own / records * 1e6


def _cpu(roots: list[int]) -> float:
    """CPU seconds of processes and their descendants, those that have ended included where they were waited for."""
    return sum(cpu_seconds(pid) for pid in {pid for root in roots for pid in process_tree(root)})
