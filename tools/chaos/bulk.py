"""Kills at random while executors write bulk runs.

Main type: `BulkChaos` (`bin/chaos --bulk`). Five connectors load orders by runs of some thousand rows on a standalone
cluster of Spark, in a group of two workers. Executors, Spark workers, the workers' JVMs, the workers and the broker are
killed. At the end each order is in its topic once. A sixth has loaded files before, and is asked for a backfill of them
again and again until that has ended: then each of their rows is in its topic twice, once by the load and once by the
backfill, whose tries go on behind the markers of those before.

Thread: the test's.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from testkit.doubles.exactly_once import visible
from testkit.processes.spark_cluster import SparkCluster
from testkit.processes.worker_group import WorkerGroup
from testkit.processes.worker_process import children

from penstock.broker import EmbeddedBroker
from tools.chaos.kills import Kill, strike

#: Longest that everything may take after the last kill.
MENDED_S: Final = 300.0
LOADS: Final = 5
#: Rows of one run, and milliseconds that Spark sleeps in each.
ROWS: Final = 2_000
_SLOWLY: Final = "if(reflect('java.lang.Thread', 'sleep', 4L) IS NULL, NULL, 'slow')"
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_ID: Final = re.compile(r'"id":(\d+)')
#: The connector with a backfill, and how many rows its files have.
AGAIN: Final = "again"
AGAIN_ROWS: Final = 10_000

WORKERS: Final = 2
VICTIMS: Final = ("executor", "Spark worker", "JVM", "worker", "broker")
#: The shortest and the longest time between two kills, in seconds.
PAUSE_S: Final = (8, 20)


class BulkChaos:
    """Runs kills while five connectors load.

    Args:
        directory: For all files.
        broker: A running broker that only this run uses.
        minutes: How long the loads take at least.
    """

    def __init__(self, directory: Path, broker: EmbeddedBroker, minutes: float) -> None:
        self._broker = broker
        self._cluster = SparkCluster(directory / "spark", cores=4)
        settings = {
            **self._cluster.settings,
            "spark.executor.memory": "460m",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "1000",
            "value.converter": _JSON,
            "value.converter.schemas.enable": "false",
        }
        self._group = WorkerGroup(directory, broker.bootstrap_servers, settings, size=WORKERS)
        # Four cores work on five loads.
        self._count = ROWS * max(2, round(minutes * 60 * 4 / LOADS / (ROWS * 0.005)))
        self._came: Counter[str] = Counter()
        self._began = 0.0
        self._files = directory / "files"
        self._asked = 0

    def run(self, kills: list[Kill]) -> None:
        """Starts all, lets the kills come, and counts.

        Raises:
            AssertionError: An order is missing or twice; something does not run again by itself.
        """
        with ExitStack() as opened:
            opened.enter_context(self._cluster)
            opened.callback(self._group.close)
            self._group.start()
            names = [f"load-{number}" for number in range(LOADS)]
            for name in names:
                self._group.create(name, self._config(name))
            self._group.create(AGAIN, self._config_of_files())
            self._group.wait(lambda: len(self._ids(AGAIN)) == AGAIN_ROWS, "the files are loaded", MENDED_S)
            self._group.wait(lambda: any(self._ids(name) for name in names), "orders come", MENDED_S)
            self._began = time.monotonic()
            for kill in kills:
                threading.Event().wait(max(0.0, kill.at_s - self._now()))
                self._backfill_is_done()
                self._kill(kill)
            mended = time.monotonic()
            wanted = Counter(range(self._count))
            for name in names:
                self._group.wait(lambda name=name: len(self._ids(name)) == self._count, f"{name} is loaded", MENDED_S)  # type: ignore[misc]
                found = self._ids(name)
                twice = sum(found.values()) - len(found)
                assert found == wanted, f"{name}: {twice} orders come twice"
            self._group.wait(self._backfill_is_done, "the backfill has ended", MENDED_S)
            found, wanted = self._ids(AGAIN), Counter(dict.fromkeys(range(AGAIN_ROWS), 2))
            assert found == wanted, f"backfill: {sorted((found - wanted) + (wanted - found))[:5]} come otherwise"
            self._tell(f"the backfill was asked for {self._asked} times, and each row came once more")
            self._tell(f"all is loaded {time.monotonic() - mended:.1f} s after the last kill")
            self._group.settled(timeout_s=MENDED_S)
            self._tell(f"{LOADS} x {self._count} orders, each once: nothing lost, nothing doubled")
            self._tell(", ".join(f"{count} x {whom} killed" for whom, count in sorted(self._came.items())))
            self._group.stop()

    def _config(self, name: str) -> dict[str, str]:
        return {
            "connector.class": "testkit.connectors.bulk_tasks:OrdersSource",
            "topic": name,
            "count": str(self._count),
            "rows": str(ROWS),
            "partitions": "8",
            "query": _SLOWLY,
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            # The orders are of years ago: Kafka would delete the first of them after some minutes.
            "topic.creation.default.retention.ms": "-1",
        }

    def _config_of_files(self) -> dict[str, str]:
        self._files.mkdir()
        for number in range(4):
            rows = range(number * AGAIN_ROWS // 4, (number + 1) * AGAIN_ROWS // 4)
            (self._files / f"{number}.json").write_text("".join(f'{{"id": {one}}}\n' for one in rows))
        own = self._config(AGAIN)
        return {
            "connector.class": "SparkSource",
            "mode": "bulk",
            "spark.bulk": "true",
            "spark.format": "json",
            "spark.path": str(self._files),
            "spark.schema": "id bigint",
            "spark.query": f"SELECT id, {_SLOWLY} AS slow FROM {{source}}",
            "incrementing.column.name": "id",
            **{name: text for name, text in own.items() if name.startswith("topic")},
        }

    def _backfill_is_done(self) -> bool:
        """Asks how far the backfill is, and for it once more if it has failed, or was lost with its worker."""
        path = f"/connectors/{AGAIN}/backfill"
        for worker in self._group.present():
            with suppress(AssertionError, OSError):
                code, answer = self._group.ask("GET", path, worker=worker)
                state = answer.get("state") if code == 200 else None
                if state == "COMPLETED":
                    return True
                if code in (200, 404) and state != "RUNNING":
                    if set(self._ids(AGAIN).values()) == {2}:
                        # A worker that has ended since took along what it knew.
                        return True
                    code, _ = self._group.ask("POST", path, {"offsets": {"from": 0, "to": AGAIN_ROWS}}, worker=worker)
                    self._asked += code == 202
                return False
        return False

    def _kill(self, kill: Kill) -> None:
        self._tell(f"{kill.whom} killed")
        self._came[kill.whom] += 1
        spark = self._cluster.worker

        def end_executor() -> None:
            pids = [] if spark.pid is None else children(spark.pid)
            if pids:
                with suppress(ProcessLookupError):
                    os.kill(pids[kill.worker % len(pids)], signal.SIGKILL)

        others = {"executor": (end_executor,), "Spark worker": (spark.kill, spark.start)}
        strike(kill, self._group, self._broker, others)

    def _ids(self, name: str) -> Counter[int]:
        """The orders that readers of committed messages see, each with how often."""
        try:
            values = visible(self._broker.bootstrap_servers, name)
        except (AssertionError, KeyError):
            return Counter()
        return Counter(int(found[1]) for value in values if (found := _ID.search(value)) is not None)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _tell(self, text: str) -> None:
        print(f"{self._now():7.1f} s  {text}", flush=True)
