"""`GET /metrics` of a worker that carries records: lag, starts, and what a plugin adds."""

from __future__ import annotations

import urllib.request
import uuid
from pathlib import Path

import pytest
from testkit.processes.worker_process import WorkerProcess

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

STARTS = "kafka_connect_worker_task_startup_success_total "


def shown(worker: WorkerProcess, *parts: str) -> list[str]:
    """The samples whose lines have all these parts."""
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    return [line for line in lines if not line.startswith("#") and all(part in line for part in parts)]


def test_lag_starts_and_metrics_of_a_plugin_are_shown_and_go(shared_worker: WorkerProcess, tmp_path: Path) -> None:
    worker, topic = shared_worker, f"metrics-{uuid.uuid4().hex[:8]}"
    source, sink, hold = f"{topic}-source", f"{topic}-sink", tmp_path / "hold"
    lines, journal = tmp_path / "lines", tmp_path / "journal"
    lines.write_text("a\nb\nc\n")
    hold.touch()
    [before] = shown(worker, STARTS)
    journaling = {"connector.class": "testkit.connectors.journal_sink.JournalSink", "journal": str(journal)}
    for name, config in (
        (source, {"connector.class": "FileStreamSource", "file": str(lines), "topic": topic}),
        (sink, {**journaling, "topics": topic, "hold": str(hold)}),
    ):
        status, body = worker.ask("POST", "/connectors", {"name": name, "config": config})
        assert status == 201, body
    lag = f'kafka_connect_sink_task_sink_record_lag{{connector="{sink}",task="0",topic="{topic}",partition="0"}}'
    largest = f'kafka_connect_sink_task_sink_record_lag_max{{connector="{sink}",task="0"}}'
    own = f'kafka_connect_plugins_journal_records_total{{connector="{sink}",journal="journal",task="0"}}'
    try:
        worker.wait(lambda: shown(worker, lag) == [f"{lag} 3"], "the lag of what put has not taken", 200)
        with lines.open("a") as file:
            file.write("d\ne\n")
        worker.wait(lambda: shown(worker, lag) == [f"{lag} 5"], "the lag grows while put is at work")
        assert shown(worker, largest) == [f"{largest} 5"]
        assert shown(worker, STARTS) == [f"{STARTS}{int(before.split()[1]) + 2}"]
        assert shown(worker, own) == [f"{own} 0"]

        hold.unlink()
        worker.wait(lambda: shown(worker, lag) == [f"{lag} 0"], "the lag is made up")
        assert shown(worker, own) == [f"{own} 5"]

        assert worker.ask("POST", f"/connectors/{sink}/tasks/0/restart")[0] == 204
        worker.wait(lambda: shown(worker, own) == [f"{own} 0"], "the metric of the new instance")
    finally:
        hold.unlink(missing_ok=True)
        for name in (source, sink):
            worker.ask("DELETE", f"/connectors/{name}")
    worker.wait(lambda: shown(worker, f'connector="{sink}"') == [], "nothing is left of the sink", 30)
