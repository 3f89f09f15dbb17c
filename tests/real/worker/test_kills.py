"""A worker with a file source and a file sink is killed again and again: no line is lost, and no JVM is left behind.

By default it is killed at the named points of the data path. PENSTOCK_KILLS=20 makes as many kills at random moments
before, as a release has to survive (some five minutes). Kills while the offsets' file is written are those of
``tests/unit/stores/test_offset_file.py``.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.processes.file_flow import Feeder, FileFlow
from testkit.processes.worker_process import wait_gone

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3600)]

RANDOM_KILLS = int(os.environ.get("PENSTOCK_KILLS", "0"))
POINTS = (
    "after-ack-before-offsets",
    "sink.after_put",
    "sink.closed",
)
SECONDS_TO_LIVE = 1.5
#: Of the sink's members. Longer than a busy machine needs for Spark and all else that a worker begins with: a worker
#: must not wait until the one that was killed has lost its place.
SESSION_S = 600


@pytest.fixture
def flow(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[FileFlow]:
    """A worker, not started."""
    session = str(SESSION_S * 1000)
    settings = {"consumer.session.timeout.ms": session, "consumer.max.poll.interval.ms": session}
    made = FileFlow(tmp_path, broker.bootstrap_servers, settings, endable=True)
    yield made
    made.worker.close()


def test_kills_lose_no_line_and_no_worker_waits_for_the_session_of_the_one_before(
    flow: FileFlow, capsys: pytest.CaptureFixture[str]
) -> None:
    worker, chance = flow.worker, random.Random()

    def start() -> int:
        """Starts the worker, in which lines flow long before the session of the member before has ended."""
        began = time.monotonic()
        flow.start()
        worker.wait_running(flow.sink_name)
        assert time.monotonic() - began < SESSION_S / 2
        jvm = worker.jvm()
        assert jvm is not None
        return jvm

    with Feeder(flow.source):
        for _ in range(RANDOM_KILLS):
            jvm = start()
            threading.Event().wait(chance.uniform(0, SECONDS_TO_LIVE))
            assert worker.end(signal.SIGKILL) == -signal.SIGKILL, worker.text()[-4000:]
            assert wait_gone([jvm], 10) == [], "the JVM must not outlive its worker"
        for point in POINTS:
            jvm = start()
            worker.end_at(point)
            # The last two are passed when the worker is told to stop.
            ended = worker.end() if point.startswith("sink.clos") else worker.wait_ended(30)
            assert ended == -signal.SIGKILL, f"{point}: {worker.text()[-4000:]}"
            assert wait_gone([jvm], 10) == [], "the JVM must not outlive its worker"
    worker.start()
    wanted = flow.wait_all(timeout_s=300)
    assert worker.end() == 0

    sunk = flow.sunk()
    sent = flow.sent()
    assert set(sent) == wanted
    assert set(sunk) == wanted, "only whole lines, and all of them"
    assert "Traceback" not in worker.text()
    with capsys.disabled():
        print(
            f"\n{RANDOM_KILLS} random kills and {len(POINTS)} at named points: {len(wanted)} lines, none lost; "
            f"{len(sent) - len(wanted)} sent again, {len(sunk) - len(wanted)} too many in the sink's file"
        )
