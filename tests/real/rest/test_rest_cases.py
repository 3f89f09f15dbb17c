"""What Java Kafka Connect answered over REST, asked of a worker of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from testkit.processes.worker_process import WorkerProcess
from tests.real.rest.exchanges import check, play

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_the_recorded_exchanges_with_java_are_the_same_here(awake_worker: WorkerProcess, tmp_path: Path) -> None:
    check(play(awake_worker, tmp_path))
