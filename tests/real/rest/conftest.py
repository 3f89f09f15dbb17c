"""The shared worker, when Spark is up: what is timed here must not wait for that."""

from __future__ import annotations

import pytest
from testkit.processes.worker_process import WorkerProcess


@pytest.fixture
def awake_worker(shared_worker: WorkerProcess) -> WorkerProcess:
    """A running worker whose first batch is not held up."""
    shared_worker.wait(lambda: "Spark session 1 is up" in shared_worker.text(), "Spark is up", 180)
    return shared_worker
