"""Signals to a worker as systemd, `timeout`, containers and terminals send them: to more processes than the worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.processes.file_flow import FileFlow
from testkit.processes.worker_process import WorkerProcess, children, wait_gone

from penstock.broker import EmbeddedBroker
from penstock.stores.offset_file import FileOffsetStore
from penstock.stores.offsets import OffsetReader

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

LINES = 50_000

HOLDER = """
import re
from pathlib import Path

from penstock.api import SourceConnector, SourceTask
from penstock.config import ConfigDef


class HolderTask(SourceTask):
    def start(self, props):
        self.directory = Path(props["directory"])

    def poll(self):
        self.context.stopping.wait(0.05)
        if (self.directory / "hold").exists():
            (self.directory / "held").touch()
            re.search("(a+)+b", "a" * 80)

    def stop(self): ...


class Holder(SourceConnector):
    def start(self, props):
        self.props = dict(props)

    def task_class(self):
        return HolderTask

    def task_configs(self, max_tasks):
        return [self.props]

    def stop(self): ...

    def config(self):
        return ConfigDef()
"""


@pytest.fixture
def flow(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[FileFlow]:
    """A worker, not started."""
    made = FileFlow(tmp_path, broker.bootstrap_servers, {"offset.flush.interval.ms": "60000"})
    yield made
    made.worker.close()


def burst(number: int) -> bytes:
    """Many lines, none of which is in another burst."""
    return b"".join(b"line %08d of burst %d\n" % (line, number) for line in range(LINES))


def family(worker: WorkerProcess) -> list[int]:
    """All processes that the worker has started."""
    found = children(worker.pid)
    for pid in found:
        found += children(pid)
    return found


def committed(flow: FileFlow) -> int:
    """How far the source's offsets say that its file is read."""
    store = FileOffsetStore(str(flow.worker.directory / "offsets"))
    store.start()
    try:
        found = OffsetReader(store, flow.source_name).offset({"filename": str(flow.source)})
    finally:
        store.stop()
    return int(str((found or {"position": 0})["position"]))


def test_a_signal_to_the_whole_group_or_to_every_process_is_a_clean_stop(flow: FileFlow) -> None:
    worker = flow.worker
    with flow.source.open("ab", buffering=0) as out:
        # A terminal and `timeout` signal the process group; systemd each process, in any order.
        runs = ((signal.SIGINT, False), (signal.SIGTERM, True))
        for run, (number, each) in enumerate(runs):
            out.write(b"the first of run %d\n" % run)
            flow.start()
            seen, before = len(worker.text()), flow.sink.stat().st_size
            out.write(burst(run))
            flow.wait_growth(before)
            processes = family(worker)
            began = time.monotonic()
            assert worker.end(number, others=processes if each else ()) == 0
            took = time.monotonic() - began
            text = worker.text()[seen:]
            assert f"Stopping: {number.name} received" in text
            for bad in ("abandoned", "ERROR", "WARNING", "Spark session start"):
                assert bad not in text, text[-4000:]
            assert took < 20
            assert wait_gone(processes, 10) == []
            # What was sent is committed, and the next run goes on behind it: nothing is sent twice, nothing left out.
            assert flow.sent() == flow.source.read_bytes()[: committed(flow)].decode().splitlines()


def test_a_second_signal_ends_a_worker_whose_interpreter_a_task_holds(flow: FileFlow) -> None:
    worker = flow.worker
    (worker.directory / "holder.py").write_text(HOLDER)
    worker.add("holder.properties", {"name": "holder", "connector.class": "holder.Holder", "directory": "."})
    del worker.arguments[1:3]  # the flow is of no interest here
    worker.start()
    worker.wait_running("holder")
    worker.wait(lambda: worker.jvm() is not None, "there is more than one process")
    processes = family(worker)
    (worker.directory / "hold").touch()
    worker.wait((worker.directory / "held").exists, "the interpreter is held")
    os.killpg(worker.pid, signal.SIGTERM)
    # Nobody answers; one signal is not enough.
    assert worker.ask("GET", "/health", timeout_s=1) == (0, None)
    began = time.monotonic()
    os.killpg(worker.pid, signal.SIGTERM)
    assert worker.wait_ended(10) == -signal.SIGKILL
    assert time.monotonic() - began < 1
    assert wait_gone(processes, 10) == []
    assert "The worker does not react to signals: it is killed" in worker.text()
