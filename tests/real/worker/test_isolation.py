"""Tasks in processes of their own that do harm, beside a flow that is isolated, too, and loses nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.processes.file_flow import Feeder, FileFlow
from testkit.processes.worker_process import WorkerProcess, is_running, wait_gone

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

ISOLATED = {"task.isolation": "process"}
ALL_RUN = ["RUNNING", "RUNNING"]
HARM = ("exit", "loop", "match", "leak")


@pytest.fixture
def flow(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[FileFlow]:
    """A worker, not started."""
    made = FileFlow(tmp_path, broker.bootstrap_servers, {"task.shutdown.graceful.timeout.ms": "2000"})
    made.worker.spark_on_demand = True
    yield made
    made.worker.close()


def test_tasks_that_do_harm_harm_themselves_alone(flow: FileFlow, tmp_path: Path) -> None:
    worker = flow.worker
    for name in ("source.properties", "sink.properties"):
        with (tmp_path / name).open("a") as file:
            file.write("task.isolation=process\n")
    for what in HARM:
        settings = {"name": what, "connector.class": "testkit.connectors.misbehaving:Misbehaving", "do": what}
        limit = {"task.isolation.memory.max.bytes": str(512 << 20)} if what == "leak" else {}
        waits = {"trigger": str(tmp_path / f"{what}.now")}
        worker.add(f"{what}.properties", settings | waits | ISOLATED | limit)
    with Feeder(flow.source):
        flow.start()
        worker.wait_running(*HARM)
        memory = worker.resident_kb()
        pids = {what: trigger(worker, tmp_path, what) for what in ("exit", "leak")}
        for what, said in (("exit", "exit status 3"), ("leak", "MemoryError")):
            worker.wait(lambda what=what: worker.states(what) == ["RUNNING", "FAILED"], f"{what} fails")  # type: ignore[misc]
            assert said in worker.trace(what)
        assert worker.get("/health")[0] == 200
        assert worker.ask("POST", "/connectors/exit/tasks/0/restart")[0] == 204
        worker.wait_running("exit")
        # Each of them takes a core from here on.
        pids |= {what: trigger(worker, tmp_path, what) for what in ("loop", "match")}
        flow.wait_growth(flow.sink.stat().st_size)
        for what in ("loop", "match"):
            assert worker.states(what) == ALL_RUN
            assert worker.ask("DELETE", f"/connectors/{what}")[0] == 204
        assert wait_gone(list(pids.values()), 30) == []
        assert worker.get("/health")[0] == 200
        assert worker.resident_kb() - memory < 300 * 1024
        for name in (flow.source_name, flow.sink_name):
            assert worker.states(name) == ALL_RUN
    wanted = flow.wait_all()
    assert worker.end() == 0
    assert sorted(flow.sunk()) == sorted(wanted), "nothing lost, nothing twice"
    assert flow.sent() == flow.source.read_text(encoding="utf-8").splitlines()


def test_the_processes_of_tasks_end_with_a_worker_that_is_killed(flow: FileFlow, tmp_path: Path) -> None:
    worker = flow.worker
    del worker.arguments[1:]
    settings = {"name": "match", "connector.class": "testkit.connectors.misbehaving:Misbehaving", "do": "match"}
    worker.add("match.properties", settings | {"trigger": str(tmp_path / "match.now")} | ISOLATED)
    worker.start()
    worker.wait_running("match")
    pid = trigger(worker, tmp_path, "match")
    assert is_running(pid)

    os.kill(worker.pid, 9)

    assert wait_gone([pid], 10) == []


def trigger(worker: WorkerProcess, directory: Path, what: str) -> int:
    """Has a task do its harm; the number of its process."""
    written = directory / f"{what}.pid"
    (directory / f"{what}.now").touch()
    worker.wait(lambda: written.exists() and bool(written.read_text()), f"{what} begins")
    return int(written.read_text())
