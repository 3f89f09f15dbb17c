"""Plays what Java Kafka Connect was asked and answered over REST against workers of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from testkit.processes.worker_process import WorkerProcess

_DATA = Path(__file__).parents[2] / "data" / "rest"
_TIMEOUT_S = 580


def play(worker: WorkerProcess, directory: Path, other: WorkerProcess | None = None) -> str:
    """Plays all exchanges against a worker.

    Args:
        worker: A standalone one, or one of a group.
        directory: For the files of connectors.
        other: Another worker of the group; it is asked for what has to be seen there, too.

    Returns:
        What was found: the last line has the numbers.
    """
    cases = _DATA / "rest_visible.json"
    assert len(json.loads(cases.read_text())["scenarios"]) > 30
    mode = ["--mode=standalone"]
    if other is not None:
        mode = ["--mode=distributed", f"--base2=http://127.0.0.1:{other.port}"]
    url = f"http://127.0.0.1:{worker.port}"
    command = [sys.executable, str(_DATA / "rest_cases"), url, str(cases), *mode, f"--dir={directory}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as playing:
        try:
            return playing.communicate(timeout=_TIMEOUT_S)[0]
        finally:
            playing.kill()


def check(found: str) -> None:
    """Fails where an exchange was another one, or was left out."""
    last = found.splitlines()[-1]
    assert "0 failed" in last, found[-6000:]
