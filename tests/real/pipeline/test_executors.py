"""A session whose executors go: a standalone cluster of Spark whose master and worker are killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from penstock.testing.spark_cluster import SparkCluster

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

#: In a process of its own: PySpark has one session for a process, and this one is on a cluster.
SCRIPT = """
    import logging, sys
    from pathlib import Path
    from penstock.pipeline.spark.session import SparkRuntime
    from penstock.telemetry.standstills import standstill_of
    from penstock.testing.control_plane import await_true
    from penstock.testing.spark_cluster import SparkCluster
    from penstock.testing.spark_settings import QUICK_START
    from penstock.worker.threads import in_thread

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    WAIT_S, failures = 120.0, []


    def job():
        query = lambda session: session.range(100).selectExpr("sum(id)").collect()[0][0]
        return in_thread("job", lambda: runtime.run(query))


    with SparkCluster(Path(sys.argv[1]), cores=1) as cluster:
        runtime = SparkRuntime(
            {**cluster.settings, **QUICK_START}, executors_timeout_s=6.0, on_failure=failures.append
        )
        runtime.start()
        print("up:", job().result(WAIT_S), runtime.generation, runtime.trouble)

        # It knows nothing of the application any more, and has its executors ended.
        cluster.master.kill()
        cluster.master.start()
        await_true(lambda: runtime.generation == 2, timeout_s=WAIT_S)
        print("master anew:", job().result(WAIT_S), runtime.generation, runtime.trouble)

        cluster.worker.kill()
        waiting = job()
        await_true(lambda: standstill_of("Spark") is not None, timeout_s=WAIT_S)
        print("told:", standstill_of("Spark").reason, runtime.trouble)
        # The next session has none from the beginning, and waits.
        await_true(lambda: not runtime.up, timeout_s=WAIT_S)
        print("waits:", not waiting.done())
        cluster.worker.start()
        print("workers again:", waiting.result(WAIT_S))
        await_true(lambda: runtime.trouble is None and standstill_of("Spark") is None, timeout_s=WAIT_S)
        print("failures:", failures)
        runtime.stop()
"""


def test_work_goes_on_after_a_master_without_recovery_and_after_a_time_without_spark_workers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "spark")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["up: 4950 1 None", "master anew: 4950 2 None"]
    assert lines[2].startswith("told: spark_executors Spark at spark://127.0.0.1:")
    assert " has had no executor any more since 20" in lines[2]
    assert "this worker waits for cores of the cluster" in lines[2]
    assert lines[3:] == ["waits: True", "workers again: 4950", "failures: []"]
    assert "penstock.spark.executors.timeout.ms" in done.stderr
    assert done.stderr.count("Batches wait; a session without executors is replaced") == 2


#: A worker's session with the settings that it has by itself, until its input ends.
SHARING = """
    import sys
    from penstock.pipeline.spark.session import SparkRuntime
    from penstock.testing.spark_cluster import QUICKLY
    from penstock.testing.spark_settings import QUICK_START

    quickly = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": QUICKLY, **QUICK_START}
    runtime = SparkRuntime({"spark.master": sys.argv[1], **quickly})
    runtime.start()
    query = lambda session: session.range(100).selectExpr("sum(id)").collect()[0][0]
    print(runtime.run(query), runtime.parallelism, flush=True)
    sys.stdin.read()
    print(runtime.run(query), flush=True)
    runtime.stop()
"""


def test_two_workers_share_the_cores_of_a_cluster_and_one_goes_on_without_the_other(tmp_path: Path) -> None:
    with SparkCluster(tmp_path / "spark", cores=4) as cluster:
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(SHARING), cluster.url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        first, second = workers
        assert first.stdout is not None
        assert second.stdout is not None
        try:
            # The second one would wait for ever if the first one had taken all cores.
            assert [first.stdout.readline(), second.stdout.readline()] == ["4950 2\n", "4950 2\n"]
            first.kill()
            assert second.communicate("", timeout=60)[0] == "4950\n"
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()
