"""The leader is stopped in order while records flow; a worker whose sink moves is in ``test_sinks``."""

from __future__ import annotations

from pathlib import Path

import pytest
from testkit.processes.file_flow import Feeder
from testkit.processes.worker_group import WorkerGroup

from penstock.kafka.consumer.sampler import read_values

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]


def test_every_line_comes_once_though_the_leader_is_stopped_and_comes_back(
    awake_group: WorkerGroup, tmp_path: Path
) -> None:
    group, source, sink = awake_group, tmp_path / "in", tmp_path / "out"
    with Feeder(source, lines_at_once=25):
        group.create("s57-in", {"connector.class": "FileStreamSource", "file": str(source), "topic": "s57"})
        group.create("s57-out", {"connector.class": "FileStreamSink", "file": str(sink), "topics": "s57"})
        group.wait(lambda: sink.exists() and sink.stat().st_size > 1000, "lines come")
        worker = group.leader()
        assert worker.end() == 0, worker.text()[-4000:]
        group.wait_while(group.apart, "the others are one group", 60)
        group.start()
        group.settled()
    wanted = source.read_bytes().splitlines()
    group.wait(lambda: sink.stat().st_size >= source.stat().st_size, "every line came", 60)
    assert sink.read_bytes().splitlines() == wanted
    assert read_values(group.bootstrap_servers, "s57", len(wanted), 60) == wanted
