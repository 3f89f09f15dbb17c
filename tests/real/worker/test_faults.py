"""What a worker needs breaks under it: its Spark JVM is frozen, or out of memory; the broker stops answering.

Its JVM is killed in ``test_spark_tasks``, and under a group in ``tests/real/chaos``.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.processes.file_flow import Feeder, FileFlow
from testkit.processes.worker_process import WorkerProcess, is_running, wait_gone

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

ALL_RUN = ["RUNNING", "RUNNING"]
#: Half of them are sent before the broker stops answering; the others would be more than what may be added.
LINES = 1_400_000
STALL_S = float(os.environ.get("PENSTOCK_STALL_SECONDS", "10"))


@pytest.fixture
def flow(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[FileFlow]:
    """A worker, not started."""
    made = FileFlow(tmp_path, broker.bootstrap_servers)
    yield made
    made.worker.close()


def test_a_jvm_that_is_frozen_or_out_of_memory_is_replaced_and_nothing_is_lost(
    flow: FileFlow, capsys: pytest.CaptureFixture[str]
) -> None:
    worker, trigger = flow.worker, flow.source.with_name("trigger")
    hog = {"name": f"{flow.topic}-hog", "connector.class": "testkit.connectors.heap_hog:HeapHog"}
    worker.add("hog.properties", hog | {"trigger": str(trigger)})
    back: dict[str, float] = {}

    def replaced(what: str, jvm: int) -> int:
        """Waits until lines flow through another JVM; its id."""
        began = time.monotonic()
        assert wait_gone([jvm], 60) == [], f"{what}: the old JVM is still there"
        before = flow.sink.stat().st_size
        found = flow.wait_growth(before)
        back[what] = time.monotonic() - began
        assert found != jvm
        # Nobody has restarted anything.
        for name in (flow.source_name, flow.sink_name, hog["name"]):
            assert worker.states(name) == ALL_RUN, what
        return found

    with Feeder(flow.source):
        jvm = flow.start()
        os.kill(jvm, signal.SIGSTOP)
        jvm = replaced("frozen", jvm)
        trigger.touch()
        jvm = replaced("out of memory", jvm)
    wanted = flow.wait_all()
    assert "has not answered for 10 s" in worker.text()
    assert worker.end() == 0
    assert not is_running(jvm)
    assert set(flow.sunk()) == wanted
    assert set(flow.sent()) == wanted
    assert "Traceback" not in worker.text()
    extra = flow.sent_count() - len(wanted), len(flow.sunk()) - len(wanted)
    assert extra == (0, 0), "jobs run again, records are not sent or put again"
    with capsys.disabled():
        print("\nlines flow again after", ", ".join(f"{what}: {seconds:.0f} s" for what, seconds in back.items()))


def test_tasks_that_wait_for_data_fail_too_when_spark_cannot_start(tmp_path: Path, broker: EmbeddedBroker) -> None:
    worker = WorkerProcess(tmp_path, broker.bootstrap_servers, {"spark.master": "local[0]"})
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
    del worker.arguments[2:]  # the sink is of no interest here
    line = b"a line of some hundred bytes, as a log has them, with a number to find it by: "
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
    broker.freeze()
    try:
        deadline, highest = time.monotonic() + STALL_S, flowing
        while time.monotonic() < deadline:
            threading.Event().wait(0.25)
            highest = max(highest, worker.resident_kb())
    finally:
        broker.thaw()
    assert worker.states(flow.source_name) == ALL_RUN
    worker.wait(lambda: flow.sent_count() >= LINES, "every line arrives", timeout_s=300)
    added = (highest - flowing) / 1024
    with capsys.disabled():
        print(f"\n{STALL_S:.0f} s without a broker: {added:+.0f} MiB to the {flowing / 1024:.0f} MiB of the flow")
    assert worker.end() == 0
    assert flow.sent_count() == LINES, "nothing lost, nothing twice"
    assert added < 50
