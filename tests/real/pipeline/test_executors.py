"""A session that shares a cluster and whose executors go: a standalone cluster whose master and worker are killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

#: Another worker's session, with the number of cores that it has by itself, until it is killed.
OTHER = """
    import json, sys
    from penstock.pipeline.spark.session import SparkRuntime

    runtime = SparkRuntime(json.loads(sys.argv[1]))
    runtime.start()
    query = lambda session: session.range(100).selectExpr("sum(id)").collect()[0][0]
    print(runtime.run(query), runtime.parallelism, flush=True)
    sys.stdin.read()
"""

#: In a process of its own: PySpark has one session for a process, and this one is on a cluster.
SCRIPT = """
    import json, logging, subprocess, sys
    from pathlib import Path
    from penstock.pipeline.spark.session import SparkRuntime
    from penstock.telemetry.waits import standstill_of
    from testkit.waiting import await_true
    from testkit.processes.spark_cluster import SparkCluster
    from testkit.spark_settings import QUICK_START
    from penstock.threads import in_thread

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    WAIT_S, failures = 120.0, []


    def job():
        query = lambda session: session.range(100).selectExpr("sum(id)").collect()[0][0]
        return in_thread("job", lambda: runtime.run(query))


    with SparkCluster(Path(sys.argv[1]), cores=4) as cluster:
        settings = {**cluster.settings, **QUICK_START}
        runtime = SparkRuntime(settings, executors_timeout_s=6.0, on_failure=failures.append)
        runtime.start()
        print("up:", job().result(WAIT_S), runtime.generation, runtime.trouble)
        with subprocess.Popen(
            [sys.executable, "-c", sys.argv[2], json.dumps(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as other:
            # It would wait for ever if the first one had taken all cores.
            print("shared:", other.stdout.readline().strip(), runtime.parallelism)
            other.kill()
        print("without the other:", job().result(WAIT_S), runtime.generation)

        # It knows nothing of the application any more, and has its executors ended.
        cluster.master.kill()
        cluster.master.start()
        await_true(lambda: runtime.generation == 2, timeout_s=WAIT_S)
        print("master anew:", job().result(WAIT_S), runtime.generation, runtime.trouble)

        cluster.worker.kill()
        waiting = job()
        await_true(lambda: standstill_of("Spark") is not None and "No workers" in runtime.trouble, timeout_s=WAIT_S)
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


def test_two_sessions_share_a_cluster_and_work_goes_on_without_the_other_its_master_and_its_workers(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "spark"), textwrap.dedent(OTHER)],
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["up: 4950 1 None", "shared: 4950 2 2"]
    assert lines[2:4] == ["without the other: 4950 1", "master anew: 4950 2 None"]
    assert lines[4].startswith("told: spark_executors Spark at spark://127.0.0.1:")
    assert " has had no executor any more since 20" in lines[4]
    assert "this worker waits for cores of the cluster. No workers are registered with the master" in lines[4]
    assert "(the last executor was removed: " in lines[4]
    assert lines[5:] == ["waits: True", "workers again: 4950", "failures: []"]
    assert "penstock.spark.executors.timeout.ms" in done.stderr
    # For the master and for the workers; a busy machine may have no executor for a while at the beginning, too.
    assert done.stderr.count("Batches wait; a session without executors is replaced") >= 2
