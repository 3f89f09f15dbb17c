"""What Java Kafka Connect answered over REST, asked of a worker of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.worker_process import WorkerProcess

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]

DATA = Path(__file__).parents[2] / "data" / "rest"
SCENARIOS = [scenario["id"] for scenario in json.loads((DATA / "rest_visible.json").read_text())["scenarios"]]


@pytest.mark.timeout(600)
def test_the_recorded_exchanges_with_java_are_the_same_here(awake_worker: WorkerProcess, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(DATA / "rest_cases"),
            f"http://127.0.0.1:{awake_worker.port}",
            str(DATA / "rest_visible.json"),
            "--mode=standalone",
            f"--dir={tmp_path}",
        ],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert len(SCENARIOS) > 30
    assert "0 failed" in done.stdout.splitlines()[-1], done.stdout[-6000:] + done.stderr
    assert done.returncode == 0
