"""Plays what Java Kafka Connect was asked and answered over REST against workers of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testkit.processes.worker_process import WorkerProcess

_DATA = Path(__file__).parents[2] / "data" / "rest"
_TIMEOUT_S = 580


def play(workers: Sequence[WorkerProcess], directory: Path) -> list[str]:
    """Plays all exchanges against each worker, side by side.

    Args:
        workers: A standalone one, or some that share a group; then each also takes requests that another one serves.
        directory: For the files of connectors.

    Returns:
        What was found for each worker: its last line has the numbers.
    """
    urls = [f"http://127.0.0.1:{worker.port}" for worker in workers]
    cases = _DATA / "rest_visible.json"
    assert len(json.loads(cases.read_text())["scenarios"]) > 30
    playing = []
    for number, url in enumerate(urls):
        files = directory / f"worker-{number}"
        files.mkdir()
        mode = ["--mode=standalone"]
        if len(urls) > 1:
            mode = ["--mode=distributed", f"--base2={urls[(number + 1) % len(urls)]}"]
        command = [sys.executable, str(_DATA / "rest_cases"), url, str(cases), *mode, f"--dir={files}"]
        playing.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        return [one.communicate(timeout=_TIMEOUT_S)[0] for one in playing]
    finally:
        for one in playing:
            one.kill()
            one.wait()


def check(found: str) -> None:
    """Fails where an exchange was another one, or was left out."""
    last = found.splitlines()[-1]
    assert "0 failed" in last, found[-6000:]
