"""Kills at random while rows go from a table of PostgreSQL over a topic into two tables.

Main types: `TableChaos` (`bin/chaos --connectors`), `Kill`; main function: `plan`, which kills a seed makes. A
``JdbcSource`` reads a table that changes. One ``JdbcSink`` keeps a copy of it by upserts and deletes, and one inserts
each record into a log. At the end the copy equals the table row by row, and each record of the topic is in the log:
once if all deliver exactly once (``exactly.once.source.support``, ``offsets.in.target``), else at least once.

Thread: the test's; the table's changes have threads of their own.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from testkit.doubles.exactly_once import visible
from testkit.processes.worker_group import WorkerGroup

from penstock.broker import EmbeddedBroker
from penstock.broker.postgresql import PostgreSql
from tools.chaos.kills import Kill, strike
from tools.chaos.tables import ERASED, TABLE, Changer

#: Longest that everything may take to run again, and to deliver all that there is, after the last kill.
MENDED_S: Final = 180.0
PARTITIONS: Final = 3
COPY, LOG = "chaos_copy", "chaos_log"
TOPIC: Final = f"tables-{TABLE}"
_LOOK_S: Final = 0.5
_COLUMNS: Final = "id, version, name, amount::float8, note, date_trunc('milliseconds', changed)"


VICTIMS: Final = ("worker", "JVM", "broker", "PostgreSQL", "PostgreSQL's connections")
#: The shortest and the longest time between two kills, in seconds.
PAUSE_S: Final = (3, 12)


class TableChaos:
    """Runs kills against workers and a database of its own.

    Args:
        directory: For all files.
        broker: A running broker that only this run uses.
        exactly_once: True if all deliver exactly once.
        workers: How many there are.
        say: Gets a line for each thing that happens.
    """

    def __init__(
        self,
        directory: Path,
        broker: EmbeddedBroker,
        exactly_once: bool,
        workers: int = 2,
        say: Callable[[str], None] = print,
    ) -> None:
        self._broker, self._exactly_once, self._say = broker, exactly_once, say
        support = "enabled" if exactly_once else "disabled"
        settings = {"exactly.once.source.support": support, "offset.flush.interval.ms": "1000"}
        self._group = WorkerGroup(directory, broker.bootstrap_servers, settings, size=workers)
        self._database = PostgreSql(directory / "postgresql")
        self._came: Counter[str] = Counter()
        self._began = 0.0

    def run(self, kills: list[Kill]) -> None:
        """Starts all, lets the kills come, and compares the tables.

        Raises:
            AssertionError: A row is missing, twice or another one; something does not run again by itself.
        """
        with ExitStack() as opened:
            opened.enter_context(self._database)
            opened.callback(self._group.close)
            for worker in self._group.workers:
                worker.spark_on_demand = all(kill.whom != "JVM" for kill in kills)
            self._group.start()
            with Changer(self._database):
                source, *sinks = self._connectors().items()
                self._group.create(*source)
                # The sinks' consumers would make the topic, with one partition.
                self._group.wait(self._has_topic, "the topic is there", MENDED_S)
                for sink in sinks:
                    self._group.create(*sink)
                self._group.settled(timeout_s=MENDED_S)
                self._group.wait(lambda: self._count(COPY) > 0 and self._count(LOG) > 0, "rows flow", MENDED_S)
                self._began = time.monotonic()
                for kill in kills:
                    threading.Event().wait(max(0.0, kill.at_s - self._now()))
                    self._kill(kill)
                mended = time.monotonic()
                self._group.settled(timeout_s=MENDED_S)
                self._tell(f"all runs again after {time.monotonic() - mended:.1f} s")
            self._check()
            self._group.settled(timeout_s=MENDED_S)
            self._tell(", ".join(f"{count} x {whom} killed" for whom, count in sorted(self._came.items())))
            self._group.stop()

    # ---------------------------------------------------------------- the connectors
    def _connectors(self) -> dict[str, dict[str, str]]:
        converters = {f"{one}.converter": "org.apache.kafka.connect.json.JsonConverter" for one in ("key", "value")}
        base = {"connection.url": self._database.jdbc_url, **converters}
        sink = {
            **base,
            "connector.class": "JdbcSink",
            "topics": TOPIC,
            "tasks.max": "2",
            "auto.create": "true",
            "offsets.in.target": str(self._exactly_once).lower(),
            "connection.attempts": "1000",
            "connection.backoff.ms": "200",
            "max.retries": "-1",
            "retry.backoff.ms": "200",
            "consumer.override.isolation.level": "read_committed",
        }
        upsert = {"insert.mode": "upsert", "pk.mode": "record_key", "delete.enabled": "true"}
        gone = {"transforms": "gone", "transforms.gone.type": "tools.chaos.tables:Gone"}
        source = {
            **base,
            "connector.class": "JdbcSource",
            "mode": "timestamp+incrementing",
            "timestamp.column.name": "changed",
            "incrementing.column.name": "id",
            "table.include.list": TABLE,
            "topic.prefix": "tables-",
            "poll.interval.ms": "100",
            "batch.max.rows": "50",
            "topic.creation.default.partitions": str(PARTITIONS),
            "topic.creation.default.replication.factor": "1",
        }
        return {
            "from-table": source,
            "to-copy": {**sink, **upsert, **gone, "table.name.format": COPY},
            "to-log": {**sink, "table.name.format": LOG},
        }

    # ---------------------------------------------------------------- kills
    def _kill(self, kill: Kill) -> None:
        self._tell(f"{kill.whom} killed" + (f", back after {kill.lasts_s:.1f} s" if "'" not in kill.whom else ""))
        self._came[kill.whom] += 1
        server = (self._database.kill, self._database.start)
        strike(kill, self._group, self._broker, {"PostgreSQL": server, "PostgreSQL's connections": (self._cut,)})

    def _cut(self) -> None:
        self._database.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
            "backend_type = 'client backend'"
        )

    # ---------------------------------------------------------------- what must hold
    def _check(self) -> None:
        """Waits until all rows are where they are to be, and compares them."""
        left = f"(SELECT id FROM {ERASED})"
        wanted = f"SELECT {_COLUMNS} FROM {TABLE} WHERE NOT gone"
        # The copy has times without a zone, in UTC.
        columns = _COLUMNS.replace("changed)", "changed AT TIME ZONE 'UTC')")
        copy = f"SELECT {columns} FROM {COPY} WHERE id NOT IN {left}"
        unlike = f"SELECT count(*) FROM (({wanted} EXCEPT {copy}) UNION ALL ({copy} EXCEPT {wanted})) different"
        self._await(lambda: self._one(unlike) == 0, lambda: f"{self._one(unlike)} rows of the copy are others")
        twice = self._one(f"SELECT count(*) - count(DISTINCT id) FROM {COPY}")
        assert twice == 0, f"{twice} rows of the copy are twice"
        topic = self._versions()
        newest = {
            tuple(map(int, one.split("|")))
            for one in self._database.execute(f"SELECT id, version FROM {TABLE}").split()
        }
        assert newest <= set(topic), f"{len(newest - set(topic))} rows are not in the topic"
        self._await(
            lambda: sum((topic - self._logged()).values()) == 0,
            lambda: f"{sum((topic - self._logged()).values())} records are not in the log",
        )
        doubled = sum(topic.values()) - len(topic)
        more = sum((self._logged() - topic).values())
        if self._exactly_once:
            assert doubled == 0, f"{doubled} records of the topic come twice: {topic.most_common(3)}"
            assert more == 0, f"{more} records are more often in the log than in the topic"
        self._tell(
            f"{self._count(TABLE)} rows, {self._count(ERASED)} erased, {sum(topic.values())} records: nothing lost; "
            f"{doubled} twice in the topic, {more} more in the log"
        )

    def _has_topic(self) -> bool:
        found = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers}).list_topics(timeout=10)
        return TOPIC in found.topics

    def _versions(self) -> Counter[tuple[int, ...]]:
        """The versions of rows that readers of the topic see, each with how often."""
        found: Counter[tuple[int, ...]] = Counter()
        for partition in range(PARTITIONS):
            for text in visible(self._broker.bootstrap_servers, TOPIC, partition=partition):
                value = json.loads(text)["payload"]
                found[value["id"], value["version"]] += 1
        return found

    def _logged(self) -> Counter[tuple[int, ...]]:
        printed = self._database.execute(f"SELECT id, version FROM {LOG}")
        return Counter(tuple(map(int, one.split("|"))) for one in printed.split())

    def _await(self, holds: Callable[[], bool], lacking: Callable[[], str]) -> None:
        pause = threading.Event()
        self._group.wait_while(
            lambda: "" if holds() or pause.wait(_LOOK_S) else lacking(), "all is delivered", MENDED_S
        )

    def _one(self, query: str) -> int:
        return int(self._database.execute(query))

    def _count(self, table: str) -> int:
        there = self._database.execute(f"SELECT to_regclass('{table}')").strip()
        return self._one(f"SELECT count(*) FROM {table}") if there else 0

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _tell(self, text: str) -> None:
        self._say(f"{self._now():7.1f} s  {text}")
