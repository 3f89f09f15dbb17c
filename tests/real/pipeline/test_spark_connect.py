"""Spark Connect: the same code on a session of a server, which may go away and come back.

PySpark decides by the process between its classic and its remote API, so what is remote runs in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.vectors.model import load_vectors
from testkit.processes.connect_server import ConnectServer
from testkit.processes.worker_process import WorkerProcess
from tests.real.hostile.test_sql import ATTACKS
from tests.real.pipeline.test_plans import chosen

from penstock.broker import EmbeddedBroker
from penstock.kafka.consumer.sampler import read_values

pytestmark = [pytest.mark.java, pytest.mark.slow]

VECTORS = Path(__file__).parents[2] / "data" / "vectors"
#: One of each kind: a session on a server differs in how columns get there and back, not in what they say.
CLASSES = ["JsonConverter", "SimpleHeaderConverter", "InsertField$Value", "TopicNameMatches"]
#: About so many vectors of a configuration.
EACH = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server for all tests; the last one kills it."""
    with ConnectServer(tmp_path_factory.mktemp("connect")) as one:
        yield one


@pytest.mark.timeout(1200)
def test_recorded_behaviour_of_the_built_classes_holds_on_spark_connect(server: ConnectServer, tmp_path: Path) -> None:
    recorded = [vector for path in sorted(VECTORS.glob("*.jsonl")) for vector in load_vectors(path)]
    of_setup: dict[tuple[str, ...], list[str]] = {}
    for vector in [vector for name in CLASSES for vector in chosen([one for one in recorded if one.cls == name])]:
        of_setup.setdefault(vector.setup, []).append(vector.id)
    # A few of each, from all of them.
    some = {one for ids in of_setup.values() for one in ids[:: max(1, len(ids) // EACH)]}
    lines = [line for path in sorted(VECTORS.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    file = tmp_path / "some.jsonl"
    file.write_text("\n".join(line for line in lines if json.loads(line)["id"] in some), "utf-8")
    command = [sys.executable, "-m", "conformance.vectors", str(file)]
    command += ["--shuffled", "--rows", "200", "--remote", server.url]

    done = subprocess.run(command, capture_output=True, text=True, timeout=1150, check=False)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed, failed = (int(part.split()[0]) for part in done.stdout.splitlines()[-1].split(", "))
    assert passed > 80
    assert failed == 0


@pytest.mark.broker
@pytest.mark.timeout(600)
def test_a_worker_with_spark_remote_moves_a_file_to_a_file(
    server: ConnectServer, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    lines = [f"line {number}" for number in range(3_000)]
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text("".join(f"{line}\n" for line in lines))
    json = "org.apache.kafka.connect.json.JsonConverter"
    worker = WorkerProcess(
        tmp_path / "worker",
        broker.bootstrap_servers,
        {"spark.remote": server.url, "value.converter": json, "value.converter.schemas.enable": "false"},
    )
    worker.spark_on_demand = False
    worker.add(
        "source.properties",
        {
            "name": "remote-source",
            "connector.class": "FileStreamSource",
            "file": str(source),
            "topic": "spark-remote",
            "transforms": "hoist",
            "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.hoist.field": "line",
        },
    )
    worker.add(
        "sink.properties",
        {"name": "remote-sink", "connector.class": "FileStreamSink", "file": str(sink), "topics": "spark-remote"},
    )
    try:
        worker.start()
        worker.wait(lambda: sink.exists() and sink.read_text().count("\n") >= len(lines), "the sink's file", 300)
        assert worker.jvm() is None
        assert worker.end() == 0
    finally:
        worker.close()
    assert sink.read_text().splitlines() == [f"{{line={line}}}" for line in lines]
    values = read_values(broker.bootstrap_servers, "spark-remote", len(lines), 30)
    assert values[0] == b'{"line":"line 0"}'


@pytest.mark.timeout(600)
def test_stateless_transforms_run_on_the_server(server: ConnectServer) -> None:
    script = textwrap.dedent("""
        import sys
        from collections import Counter
        from tests.real.pipeline import test_stateless as cases
        from penstock.pipeline.batch import groups
        from penstock.pipeline.spark.session import SparkRuntime
        from penstock.pipeline.batch.source.path import SourcePipeline

        runtime = SparkRuntime({"spark.remote": sys.argv[1]})
        counted = Counter()

        def run():
            pipeline = SourcePipeline(runtime, cases.spec(cases.chain()), moved=counted.update)
            return pipeline.run(cases.structs())

        there = run()
        print(counted[groups.Why.STATELESS] > 0)
        groups.MIN_SPREAD_ROWS = 10**9
        cases.assert_same(there, run())
        print("the same")
        runtime.stop()
    """)

    done = subprocess.run(
        [sys.executable, "-c", script, server.url],
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
        cwd=Path(__file__).parents[3],
    )

    assert done.stdout.split("\n")[:2] == ["True", "the same"], done.stdout + done.stderr[-4000:]


@pytest.mark.timeout(600)
def test_the_fence_of_sql_holds_on_the_server(server: ConnectServer) -> None:
    script = textwrap.dedent("""
        import sys
        from penstock.errors import ConfigException, DataException
        from penstock.pipeline.spark.session import SparkRuntime
        from testkit.doubles.chains import Chain, configured, record, sent, stages
        from penstock.transforms.sql.transform import Sql

        runtime = SparkRuntime({"spark.remote": sys.argv[1]})
        session = runtime.session(120)
        session.sql("DECLARE OR REPLACE VARIABLE hidden STRING DEFAULT 'secret'")
        print("files", session.conf.get("spark.sql.runSQLOnFiles"))
        for text in ATTACKS:
            try:
                configured(Sql(), {"select": f"{text} as x"})
                print("taken", text)
            except ConfigException as error:
                print("refused" if "no expression over" in str(error) else str(error))
        for text in [*ATTACKS, "hidden", "n::int + 1"]:
            transform = Sql()
            transform._select = f"{text} as x"
            batch = Chain(runtime, stages(transform)).source([record({"n": 1})])
            print([str(error.message)[:20] for error in batch.errors.values()], sent(batch))
        runtime.stop()
    """)
    command = [sys.executable, "-c", f"ATTACKS = {ATTACKS!r}\n{script}", server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-3000:]
    assert lines[0] == "files false"
    assert lines[1 : 1 + len(ATTACKS)] == ["refused"] * len(ATTACKS)
    assert lines[1 + len(ATTACKS) : -2] == ["['It is no expression '] []"] * len(ATTACKS)
    assert "secret" not in lines[-2]
    assert lines[-1] == """[] [b'{"x":2}']"""


@pytest.mark.timeout(900)
def test_a_job_survives_a_server_that_is_killed_and_comes_back(server: ConnectServer, tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        import pyarrow as pa
        from penstock.pipeline.spark.session import SparkRuntime

        rows = pa.table({"a": list(range(20))})
        runtime = SparkRuntime({"spark.remote": sys.argv[1]})
        add = lambda session: session.createDataFrame(rows).selectExpr("a + 1 as b").toArrow()["b"].to_pylist()
        slow = "sum(length(sha2(cast(id as string), 512))) as s"
        print(runtime.run(add) == list(range(1, 21)), runtime.generation, flush=True)
        try:
            runtime.run(lambda session: session.range(1).select("nowhere").toArrow())
        except Exception as error:
            print("UNRESOLVED_COLUMN" in str(error), runtime.generation, flush=True)

        tries = []

        def long(session):
            tries.append(80_000 if tries else 8_000_000)
            print("at work", flush=True)
            return session.range(tries[-1]).selectExpr(slow).toArrow()["s"].to_pylist()

        print(runtime.run(long), runtime.generation, flush=True)
        print(runtime.run(add) == list(range(1, 21)), flush=True)
        runtime.stop()
    """)
    # The last one that needs the server of all: it does not come back for others.
    process = subprocess.Popen(
        [sys.executable, "-c", script, server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said: list[str] = []
    at_work = threading.Event()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.strip())
            if said[-1] == "at work":
                at_work.set()

    listener = threading.Thread(target=listen, name="listener")
    listener.start()
    try:
        assert at_work.wait(200), said
        server.kill()
        with ConnectServer(tmp_path / "again", port=server.port):
            process.wait(300)
    finally:
        process.kill()
        listener.join(10)
        _, problems = process.communicate()
    assert process.returncode == 0, problems[-3000:]
    assert said[:2] == ["True 1", "True 1"]
    assert said[2:] == ["at work", "at work", f"[{80_000 * 128}] 2", "True"]
