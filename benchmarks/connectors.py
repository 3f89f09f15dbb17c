"""The command behind `bin/bench connectors`: tables of PostgreSQL into a topic, and a topic into a table.

A topic into its mirror is in `benchmarks.mirror`, topics into files and tables are in `benchmarks.lakes`.
(a) One worker reads a table of 12 columns into a topic, beside Debezium's connector in Java Kafka Connect, and beside
`COPY .. TO STDOUT` of psql into a file; and one makes as many orders, which is what is left without a database.
(b) Four tasks upsert messages of 1 KB of a topic of 8 partitions into a table, beside one session that loads the same
rows by COPY and INSERT .. ON CONFLICT, and beside statements of one row. Each row is counted at the end. CPU seconds
are those of all processes of a worker, and of all of the server.

Main types: `Outcome`, `Load`. Thread: the main thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psycopg
import pyarrow as pa

from benchmarks.lakes import lakes
from benchmarks.mirror import mirrored
from benchmarks.processes import TICKS, WorkerProcess, cpu_seconds, process_tree
from benchmarks.runs import Contestant, follow, numbers, start_worker, topic_counter
from benchmarks.workloads import Environment, Message, fill_topic
from penstock.broker import EmbeddedBroker
from penstock.broker.postgresql import PostgreSql

#: What is to be reached: rates over Debezium's and COPY's, over one session's and over statements of one row.
OVER_DEBEZIUM, OF_COPY, OF_SESSION, OVER_ROWS = 3.0, 0.5, 0.6, 10.0
MEMORY_MIB: Final = 1.2 * 1024
DEBEZIUM: Final = "io.debezium:debezium-connector-postgres:3.6.3.Final"
_TABLE: Final = """
CREATE TABLE bench (id bigint PRIMARY KEY, customer text NOT NULL, email varchar(80), amount numeric(12,2) NOT NULL,
    quantity int NOT NULL, rating real, score double precision, paid boolean NOT NULL, day date,
    made timestamptz NOT NULL, note text, code uuid NOT NULL);
"""
_ROWS: Final = """
INSERT INTO bench SELECT n, 'customer ' || n % 10000, 'c' || n || '@example.com', (n % 100000) / 100.0, n % 50,
    CASE WHEN n % 7 > 0 THEN n % 5 END, n * 0.001, n % 2 = 0, date '2020-01-01' + n % 2000,
    timestamptz '2020-01-01' + n * interval '1 s', CASE WHEN n % 3 > 0 THEN repeat('note ', n % 8) END,
    md5(n::text)::uuid FROM generate_series({first}, {last}) n;
"""
_TARGET: Final = "CREATE TABLE {name} (id bigint PRIMARY KEY, name text, amount double precision, at bigint, pad text)"
_KEY: Final = " PRIMARY KEY"
_PARTITIONS, _TASKS = 8, 4
_PAD: Final = "x" * 500
#: The rows that are written one by one: each takes as long as the first.
_SINGLE: Final = 5_000
_WORKER: Final = {f"{one}.converter": "org.apache.kafka.connect.storage.StringConverter" for one in ("key", "value")}
#: Both sides as JSON without schemas.
_JSON: Final = {
    f"{part}.converter{rest}": value
    for part in ("key", "value")
    for rest, value in (("", "org.apache.kafka.connect.json.JsonConverter"), (".schemas.enable", "false"))
}
#: Longest that a worker may take to start, beside other work.
_START_S: Final = 180.0
#: The rows of a COPY of the session, as many as a frame of the sink has.
_AT_ONCE: Final = 50_000


@dataclass(frozen=True)
class Load:
    """How much is moved.

    Attributes:
        rows: Of the table of (a).
        messages: Of the topic of (b).
        timeout_s: For each run.
    """

    rows: int
    messages: int
    timeout_s: float


@dataclass(frozen=True)
class Outcome:
    """What a run used.

    Attributes:
        name: For the table.
        rows: How many it moved.
        seconds: From the first to the last record, or of the whole command.
        worker_s: CPU seconds of the worker's processes, or of the client.
        server_s: CPU seconds of PostgreSQL's processes.
        broker_s: CPU seconds of the broker.
        peak_mib: Memory of the worker's processes.
    """

    name: str
    rows: int
    seconds: float
    worker_s: float
    server_s: float
    broker_s: float = 0.0
    peak_mib: float = 0.0

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.rows / max(self.seconds, 0.001)

    def __str__(self) -> str:
        each = 1e6 / self.rows
        return (
            f"  {self.name:34} {self.rate:10,.0f} records/s  CPU a record: {self.worker_s * each:6.1f} us, PostgreSQL "
            f"{self.server_s * each:6.1f} us, broker {self.broker_s * each:5.1f} us  peak {self.peak_mib:6,.0f} MiB"
        )


class Bench:
    """The runs, over one broker and one PostgreSQL.

    Args:
        environment: The broker and files.
        broker: The same broker, whose CPU time is measured.
        server: A running server.
        load: How much is moved.
    """

    def __init__(self, environment: Environment, broker: EmbeddedBroker, server: PostgreSql, load: Load) -> None:
        self._environment, self._broker, self._server, self._load = environment, broker, server, load

    # ------------------------------------------------------------------ (a) a table into a topic
    def make_table(self) -> None:
        """Makes the table and its rows."""
        self._server.execute(_TABLE)
        for first in range(1, self._load.rows + 1, 500_000):
            last = min(first + 499_999, self._load.rows)
            self._server.execute(_ROWS.format(first=first, last=last))
        # In the foreground, so that no run has the work of autovacuum.
        with self._session() as session:
            session.autocommit = True
            session.execute("VACUUM (ANALYZE) bench")

    def copy(self) -> Outcome:
        """psql's COPY of the table into a file."""
        target = self._environment.directory / "copy.txt"
        with self._using() as used, target.open("wb") as out:
            command = ["-h", "127.0.0.1", "-p", str(self._server.port), "-U", "postgres", "-X", "-q", "-c"]
            began = time.monotonic()
            done = subprocess.run(
                [str(self._server._binaries / "psql"), *command, "COPY bench TO STDOUT"], stdout=out, check=True
            )
            assert done.returncode == 0
            seconds = time.monotonic() - began
        target.unlink()
        # The time of psql itself is that of children that have ended.
        return Outcome("psql: COPY bench TO STDOUT > file", self._load.rows, seconds, used.children, used.server)

    def snapshot(self, contestant: Contestant) -> Outcome:
        """One worker reads the table into a topic."""
        is_java = contestant.kind == "java"
        number = next(numbers)
        topic = f"bench{number}.public.bench" if is_java else f"bench{number}-bench"
        self._environment.create_topic(topic)
        here = {
            "connector.class": "JdbcSource",
            "connection.url": self._server.jdbc_url,
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.include.list": "bench",
            "topic.prefix": f"bench{number}-",
        }
        there = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": "postgres",
            "database.password": "none",
            "database.dbname": "postgres",
            "table.include.list": "public.bench",
            "topic.prefix": f"bench{number}",
            "plugin.name": "pgoutput",
            "slot.name": f"bench{number}",
            "snapshot.mode": "initial_only",
        }
        connector = {"name": f"bench{number}", "tasks.max": "1", **_JSON, **(there if is_java else here)}
        plugins = (DEBEZIUM,) if is_java else ()
        name = "Debezium in Java Connect" if is_java else "JdbcSource"
        try:
            return self._run(
                name, contestant, [connector], topic_counter(self._environment, topic), self._load.rows, plugins
            )
        finally:
            self._environment.delete_topic(topic)

    # ------------------------------------------------------------------ records that are made
    def datagen(self) -> Outcome:
        """One worker makes orders and writes them into a topic."""
        topic = f"bench{next(numbers)}-orders"
        self._environment.create_topic(topic)
        connector = {
            "name": topic,
            "connector.class": "Datagen",
            "tasks.max": "1",
            "quickstart": "orders",
            "kafka.topic": topic,
            "max.interval": "0",
            "iterations": str(self._load.rows),
            **_JSON,
        }
        count = topic_counter(self._environment, topic)
        try:
            return self._run("Datagen, orders", Contestant("penstock"), [connector], count, self._load.rows)
        finally:
            self._environment.delete_topic(topic)

    # ------------------------------------------------------------------ (b) a topic into a table
    def fill_topic(self) -> str:
        """A topic with JSON of 1 KB with a schema."""

        def messages(count: int) -> Iterator[Message]:
            fields = [("id", "int64"), ("name", "string"), ("amount", "double"), ("at", "int64"), ("pad", "string")]
            schema = {"type": "struct", "fields": [{"field": one, "type": kind} for one, kind in fields]}
            head = b'{"schema":' + json.dumps(schema).encode() + b',"payload":'
            for number in range(count):
                yield None, head + json.dumps(_row(number)).encode() + b"}"

        topic = f"bench-rows-{next(numbers)}"
        self._environment.create_topic(topic, _PARTITIONS)
        fill_topic(self._environment.bootstrap_servers, topic, messages(self._load.messages), in_turn=_PARTITIONS)
        return topic

    def upsert(self, topic: str) -> Outcome:
        """Four tasks of the sink write the topic into a table."""
        table = f"sink_{next(numbers)}"
        self._server.execute(_TARGET.format(name=table))
        connector = {
            "name": table,
            "connector.class": "JdbcSink",
            "tasks.max": str(_TASKS),
            "connection.url": self._server.jdbc_url,
            "topics": topic,
            "table.name.format": table,
            "insert.mode": "upsert",
            "pk.mode": "record_value",
            "pk.fields": "id",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "true",
        }

        with self._session() as session:
            session.autocommit = True

            total = self._load.messages
            # Sessions tell the statistics of rows when they have written for a second, or been idle for ten: whether
            # the first row is there, and the last one of each partition, is looked up.
            ends = min(_PARTITIONS, total)
            # One by one: without statistics the server would read a third of a range from the whole table.
            last_ids = ", ".join(map(str, range(total - ends, total)))
            look = (
                f"SELECT (SELECT count(*) FROM {table} WHERE id IN ({last_ids})), EXISTS (SELECT FROM {table})::int, "
                f"(SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = '{table}')"
            ).encode()

            def count() -> int:
                last, first, told = (int(str(one or 0)) for one in session.execute(look).fetchone() or ())
                return total if last == ends else min(total - 1, max(told, first))

            made = self._run("JdbcSink, 4 tasks", Contestant("penstock"), [connector], count, total)
            counted = session.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
            assert counted == (self._load.messages,), counted
        return made

    def session(self) -> Outcome:
        """One session loads the same rows by COPY and INSERT .. ON CONFLICT, ready as Arrow."""
        import adbc_driver_postgresql.dbapi as driver

        table = f"session_{next(numbers)}"
        self._server.execute(_TARGET.format(name=table))
        rows = pa.Table.from_pylist([_row(number) for number in range(self._load.messages)])
        # Measured as long as the session is there: what it has used is seen a while after its end.
        with driver.connect(self._uri) as connection, connection.cursor() as cursor, self._using() as used:
            # Without a key: nothing is looked for in it.
            loaded = _TARGET.format(name="pg_temp.loaded").replace("CREATE", "CREATE TEMPORARY")
            cursor.execute(loaded.replace(_KEY, ""))
            began, before = time.monotonic(), time.process_time()
            for first in range(0, rows.num_rows, _AT_ONCE):
                cursor.adbc_ingest("loaded", rows.slice(first, _AT_ONCE), mode="append", temporary=True)
                cursor.execute(
                    f"INSERT INTO {table} SELECT * FROM pg_temp.loaded ON CONFLICT (id) DO UPDATE SET "
                    "name = excluded.name, amount = excluded.amount, at = excluded.at, pad = excluded.pad"
                )
                cursor.execute("TRUNCATE pg_temp.loaded")
                connection.commit()
            seconds, own = time.monotonic() - began, time.process_time() - before
        return Outcome("one session: COPY, INSERT ON CONFLICT", rows.num_rows, seconds, own, used.server)

    def single_rows(self) -> Outcome:
        """One session runs a statement a row, and commits every 3,000."""
        table, count = f"single_{next(numbers)}", min(_SINGLE, self._load.messages)
        self._server.execute(_TARGET.format(name=table))
        statement = (
            f"INSERT INTO {table} VALUES (%(id)s, %(name)s, %(amount)s, %(at)s, %(pad)s) ON CONFLICT (id) DO UPDATE "
            "SET name = excluded.name, amount = excluded.amount, at = excluded.at, pad = excluded.pad"
        ).encode()
        with self._session() as session, self._using() as used:
            began, before = time.monotonic(), time.process_time()
            for number in range(count):
                session.execute(statement, _row(number))
                if number % 3000 == 2999:
                    session.commit()
            session.commit()
            seconds, own = time.monotonic() - began, time.process_time() - before
        return Outcome("one session: statements of one row", count, seconds, own, used.server)

    # ------------------------------------------------------------------ measuring
    def _run(
        self,
        name: str,
        contestant: Contestant,
        connectors: Sequence[dict[str, str]],
        count: Callable[[], int],
        total: int,
        plugins: Sequence[str] = (),
    ) -> Outcome:
        worker: WorkerProcess = start_worker(contestant, self._environment, dict(_WORKER), java_plugins=plugins)
        try:
            worker.await_rest(_START_S)
            worker.await_health(_START_S)
            with self._using() as used:
                for connector in connectors:
                    worker.post("/connectors", {"name": connector["name"], "config": connector})
                samples, _ = follow(worker, count, total, self._load.timeout_s)
            worker.usage.stop()
            arrived = count()
            if arrived != total:
                raise RuntimeError(f"{name}: {arrived} records arrived of {total}; see {worker.log}")
            first = next(moment for moment, seen in samples if seen > 0)
            before = max((moment for moment, seen in samples if seen == 0), default=first)
            return Outcome(
                name,
                total,
                samples[-1][0] - before,
                worker.usage.cpu_seconds,
                used.server,
                used.broker,
                worker.usage.peak_bytes / 2**20,
            )
        finally:
            worker.stop()

    @contextmanager
    def _using(self) -> Iterator[_Used]:
        """Measures the CPU seconds of server and broker."""
        used = _Used()
        before = self._spent()
        try:
            yield used
        finally:
            after = self._spent()
            used.server, used.broker, used.children = (one - other for one, other in zip(after, before, strict=True))

    def _spent(self) -> tuple[float, float, float]:
        """CPU seconds of server, broker, and of programs that this process has run."""
        own = os.times()
        postmaster = self._server.process_id or 0
        server = _ended_seconds(postmaster) + sum(cpu_seconds(pid) for pid in process_tree(postmaster))
        return server, cpu_seconds(self._broker.pid or 0), own.children_user + own.children_system

    @property
    def _uri(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._server.port}/postgres"

    def _session(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self._uri)


def _ended_seconds(pid: int) -> float:
    """User and system time of the children of a process that have ended: sessions of PostgreSQL are its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / TICKS


@dataclass
class _Used:
    server: float = 0.0
    broker: float = 0.0
    children: float = 0.0


def _row(number: int) -> dict[str, object]:
    name, at = f"customer {number % 10_000}", 1_700_000_000_000 + number
    return {"id": number, "name": name, "amount": number / 8, "at": at, "pad": f"{number:020d}{_PAD}"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and runs; the exit code is 1 if one of the aims was missed.

    Raises:
        RuntimeError: A run failed, or not all of its records arrived.
    """
    parser = argparse.ArgumentParser(prog="bin/bench connectors", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table that is read (1 million)")
    parser.add_argument("--messages", type=int, default=500_000, help="messages that are written (500,000)")
    parser.add_argument("--only", choices=["snapshot", "sink", "mirror", "lakes"], help="one of the four")
    parser.add_argument("--records", type=int, default=4_000_000, help="records of 100 B that are mirrored (4 million)")
    parser.add_argument(
        "--no-java", action="store_true", help="without Debezium, MirrorMaker 2 and the sink of Iceberg"
    )
    parser.add_argument("--timeout", type=float, default=600, help="seconds that a run may take")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    load = Load(options.rows, options.messages, options.timeout)
    print(
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; {load.rows:,} rows, {load.messages:,} messages"
    )
    missed: list[str] = []
    outcomes: list[Outcome] = []

    def ran(outcome: Outcome) -> Outcome:
        outcomes.append(outcome)
        print(outcome, flush=True)
        return outcome

    def reaches(what: str, ratio: float, aim: float) -> None:
        print(f"  {what}: {ratio:.2f} (aim {aim})", flush=True)
        if ratio < aim:
            missed.append(what)

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        if options.only in (None, "mirror"):
            missed += mirrored(Path(scratch), options.records, load.timeout_s, java=not options.no_java)
        if options.only in (None, "lakes"):
            missed += lakes(Path(scratch), load.messages, load.timeout_s, java=not options.no_java)
        if options.only in ("mirror", "lakes"):
            return 1 if missed else 0
        directory = Path(scratch)
        with EmbeddedBroker(directory / "kafka", heap="1g") as broker, PostgreSql(directory / "pg") as server:
            server.execute("SELECT 1")
            with psycopg.connect(f"postgresql://postgres@127.0.0.1:{server.port}/postgres", autocommit=True) as session:
                # Debezium needs it, so all have it.
                session.execute("ALTER SYSTEM SET wal_level = logical")
            server.stop()
            server.start()
            bench = Bench(Environment(broker.bootstrap_servers, directory, load.rows, "default"), broker, server, load)
            if options.only != "sink":
                print("table into a topic")
                bench.make_table()
                copied = ran(bench.copy())
                here = ran(bench.snapshot(Contestant("penstock")))
                reaches("of COPY", here.rate / copied.rate, OF_COPY)
                reaches("memory, times under 1.2 GiB", MEMORY_MIB / here.peak_mib, 1.0)
                ran(bench.datagen())
                if not options.no_java:
                    reaches("of Debezium", here.rate / ran(bench.snapshot(Contestant("java"))).rate, OVER_DEBEZIUM)
            if options.only != "snapshot":
                print("topic into a table")
                topic = bench.fill_topic()
                session_rate, single = ran(bench.session()).rate, ran(bench.single_rows()).rate
                written = ran(bench.upsert(topic))
                reaches("of one session", written.rate / session_rate, OF_SESSION)
                reaches("of statements of one row", written.rate / single, OVER_ROWS)
    if options.json:
        options.json.write_text(json.dumps([{**asdict(one), "rate": one.rate} for one in outcomes], indent=2))
    print(f"load average {os.getloadavg()[0]:.1f}" + (f"; missed: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0
