"""What a worker needs breaks under it: Spark cannot start; the broker stops answering.

Its JVM is killed in ``test_spark_tasks``, killed and frozen under a group in ``tests/real/chaos`` and under jobs in
``tests/real/pipeline/test_session.py``, and out of memory in ``tests/real/hostile/test_large_messages.py``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.brokers.embedded import freeze, thaw
from testkit.processes.file_flow import FileFlow
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

ALL_RUN = ["RUNNING", "RUNNING"]
#: Half of them are sent before the broker stops answering; the others would be more than what may be added.
LINES = 350_000
STALL_S = float(os.environ.get("PENSTOCK_STALL_SECONDS", "10"))


@pytest.fixture
def flow(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[FileFlow]:
    """A worker, not started."""
    made = FileFlow(tmp_path, broker.bootstrap_servers)
    yield made
    made.worker.close()


def test_tasks_that_wait_for_data_fail_too_when_spark_cannot_start(tmp_path: Path, broker: EmbeddedBroker) -> None:
    worker = WorkerProcess(tmp_path, broker.bootstrap_servers, {"spark.master": "local[0]"})
    worker.spark_on_demand = False
    topic = f"no-spark-{os.getpid()}"
    source = {"name": "waits", "connector.class": "FileStreamSource", "file": str(tmp_path / "none"), "topic": topic}
    sink = {"name": "idle", "connector.class": "FileStreamSink", "file": str(tmp_path / "out"), "topics": topic}
    worker.add("source.properties", source)
    worker.add("sink.properties", sink)
    worker.start()
    try:
        for name in ("waits", "idle"):
            worker.wait(lambda name=name: worker.states(name) == ["RUNNING", "FAILED"], f"{name} fails", 120)  # type: ignore[misc]
            assert "the Spark session cannot start: Spark refused to start" in worker.trace(name)
        # A restart tries again.
        asked = worker.text().count("Spark session start, attempt")
        assert worker.ask("POST", "/connectors/idle/tasks/0/restart")[0] == 204
        worker.wait(lambda: worker.text().count("Spark session start, attempt") > asked, "Spark is tried again", 60)
        worker.wait(lambda: worker.states("idle") == ["RUNNING", "FAILED"], "it fails again", 60)
        assert worker.end() == 0
    finally:
        worker.close()


def test_a_stalled_producer_costs_no_memory_and_goes_on_afterwards(
    flow: FileFlow, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = flow.worker
    worker.spark_on_demand = True
    del worker.arguments[2:]  # the sink is of no interest here
    line = b"a line of some hundred bytes, as a log has them, with a number to find it by, and more of it: " * 4
    with flow.source.open("wb") as out:
        for first in range(0, LINES, 10_000):
            out.write(b"".join(b"%s%09d\n" % (line, n) for n in range(first, first + 10_000)))
    worker.start()
    worker.wait_running(flow.source_name)
    # Memory grows for a while after the start, whatever the broker does: what counts is the most that a flow takes.
    flowing = 0

    def under_way() -> bool:
        nonlocal flowing
        flowing = max(flowing, worker.resident_kb())
        return flow.sent_count() > LINES // 2

    worker.wait(under_way, "most lines", timeout_s=300)
    freeze(broker)
    try:
        deadline, highest = time.monotonic() + STALL_S, flowing
        while time.monotonic() < deadline:
            threading.Event().wait(0.25)
            highest = max(highest, worker.resident_kb())
    finally:
        thaw(broker)
    assert worker.states(flow.source_name) == ALL_RUN
    worker.wait(lambda: flow.sent_count() >= LINES, "every line arrives", timeout_s=300)
    added = (highest - flowing) / 1024
    with capsys.disabled():
        print(f"\n{STALL_S:.0f} s without a broker: {added:+.0f} MiB to the {flowing / 1024:.0f} MiB of the flow")
    assert worker.end() == 0
    assert flow.sent_count() == LINES, "nothing lost, nothing twice"
    # The producer holds 32 MiB of lines, and a batch of each thread comes on top.
    assert added < 64
