"""The Spark JVM may be killed, frozen or run out of memory: jobs in flight run again on a new session."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pyarrow as pa
import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql import functions as F

from penstock.errors import SparkSessionLostException

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(180)]

ROWS = pa.table({"a": list(range(20))})
#: A job of so many rows is under way when something happens to it, and one of so few is soon done.
MANY, FEW = 400_000_000, 4_000_000


def increment(session):
    return session.createDataFrame(ROWS).selectExpr("a + 1 as b").toArrow()["b"].to_pylist()


def run_while(runtime, disturb):
    """Keeps a slow job running, disturbs the JVM under it, returns the job's result, which tells its second run."""
    started = threading.Event()
    outcome: dict[str, object] = {}

    def job(session):
        rows = FEW if started.is_set() else MANY
        started.set()
        return session.range(rows, numPartitions=2).selectExpr("sum(id % 7) as s").toArrow()["s"].to_pylist()

    thread = threading.Thread(target=lambda: outcome.update(result=runtime.run(job)))
    thread.start()
    assert started.wait(60)
    disturb()
    thread.join(120)
    assert not thread.is_alive()
    return outcome["result"]


def test_a_job_survives_a_killed_jvm_and_a_dataframe_is_not_run_on_another(spark_runtime):
    runtime = spark_runtime
    lost = runtime.session(60).range(3)
    # A session that shares the JVM dies with it, too.
    beside = lost.sparkSession.newSession().range(3)
    assert runtime.run_on(beside.sparkSession, beside.count) == 3
    before = runtime.generation
    killed = runtime.jvm_pid

    def kill():
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(SparkSessionLostException, match="with it the DataFrame that was made on it"):
            runtime.run_on(lost.sparkSession, lost.count)

    result = run_while(runtime, kill)
    assert result == [sum(number % 7 for number in range(FEW))]
    assert runtime.generation == before + 1
    assert runtime.jvm_pid != killed
    found = runtime.session(60).range(4)
    for frame in (lost, beside):
        with pytest.raises(SparkSessionLostException):
            runtime.run_on(frame.sparkSession, lambda: pytest.fail("it is not tried"))
    assert runtime.run_on(found.sparkSession, found.count) == 4
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        runtime.run_on(found.sparkSession, lambda: found.select("nowhere").toArrow())


def test_a_job_survives_a_frozen_jvm(spark_runtime):
    runtime = spark_runtime
    runtime.session(60)
    before = runtime.generation
    frozen = runtime.jvm_pid
    result = run_while(runtime, lambda: os.kill(frozen, signal.SIGSTOP))
    assert result == [sum(number % 7 for number in range(FEW))]
    assert runtime.generation == before + 1
    assert not os.path.exists(f"/proc/{frozen}/exe")


def test_a_failed_job_does_not_cost_the_session(spark_runtime):
    runtime = spark_runtime
    runtime.session(60)
    before = runtime.generation
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        runtime.run(lambda session: session.range(1).select("nowhere").toArrow())
    assert runtime.run(increment) == list(range(1, 21))
    assert runtime.generation == before


def test_a_job_has_no_class_looked_up_by_name(spark_runtime, monkeypatch):
    class_lookup = "r\nu\n"
    asked = []
    send = ClientServerConnection.send_command

    def note(connection, command):
        asked.append(command)
        return send(connection, command)

    def job(session):
        doubled = (F.col("a") * F.lit(2)).alias("b")
        return session.createDataFrame(ROWS).select(doubled, F.lit("x").alias("c")).toArrow()["b"].to_pylist()

    spark_runtime.run(job)
    monkeypatch.setattr(ClientServerConnection, "send_command", note)
    assert spark_runtime.run(job) == list(range(0, 40, 2))
    assert len(asked) > 10
    assert [command for command in asked if command.startswith(class_lookup)] == []


def run_python(script):
    """A process of its own: PySpark allows one session a process, and these tests end or spoil theirs."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_a_stopped_runtime_leaves_no_jvm_and_says_so():
    lines = run_python("""
        import os
        from penstock.pipeline.spark.session import SparkRuntime
        from testkit.spark_settings import QUICK_START
        runtime = SparkRuntime({**QUICK_START, "spark.master": "local[1]"})
        print(runtime.run(lambda session: session.range(3).count()))
        pid = runtime.jvm_pid
        runtime.stop()
        print(os.path.exists(f"/proc/{pid}/exe"))
        try:
            runtime.session()
        except Exception as error:
            print(type(error).__name__, error)
    """)
    assert lines[:3] == ["3", "False", "SparkStoppedException the worker is stopping"]


def test_a_job_whose_error_cannot_be_read_any_more_runs_again(spark_runtime):
    """The JVM dies between the failure of a job and the question for its message."""
    runtime = spark_runtime
    runtime.session(60)
    before = runtime.generation
    attempts = []

    class Unreadable(Exception):
        def __str__(self):
            raise ConnectionRefusedError("gone")

    def job(session):
        attempts.append(runtime.generation)
        if len(attempts) == 1:
            os.kill(runtime.jvm_pid, signal.SIGKILL)
            raise Unreadable from ConnectionRefusedError("gone")
        return session.range(3).count()

    assert runtime.run(job) == 3
    assert attempts == [before, before + 1]
