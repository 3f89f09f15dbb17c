"""A worker process that tests of this directory share: a Spark session takes longer to start than most tests run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def shared_worker(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """A running worker with the plugins of `examples` and no connectors; mark its tests with `java` and `broker`."""
    examples = {"plugin.path": str(Path(__file__).parents[2] / "examples")}
    worker = WorkerProcess(tmp_path_factory.mktemp("worker"), broker.bootstrap_servers, examples)
    worker.spark_on_demand = False
    worker.start(piped=True)
    try:
        worker.wait(lambda: worker.get("/connectors") == (200, []), "it answers")
        # Here, and not in whatever test comes first.
        worker.wait(lambda: "Spark session 1 is up" in worker.text(), "Spark is up", timeout_s=300)
        yield worker
        assert worker.end() == 0, worker.text()[-4000:]
    finally:
        worker.close()
