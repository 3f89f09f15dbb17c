"""Many large requests at once: the memory of a real worker stays bounded, and who asks for little is answered."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from testkit.processes.worker_process import WorkerProcess

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(200)]

_CALLS = 40
_BODY_BYTES = 7_000_000
#: So much more than before at any moment; the bodies together are 280 MB, and took 800 MB once they were read.
_MOST_MB = 400
_PREVIEW = "/connector-plugins/FileStreamSink/preview"
CONFIG = {"connector.class": "FileStreamSink", "topics": "t", "file": "/nowhere/out"}


def body(size: int) -> bytes:
    """A request for a preview of a record of so many bytes."""
    return json.dumps({"config": CONFIG, "records": [{"topic": "t", "value": "x" * size}]}).encode()


def post(port: int, data: bytes) -> tuple[int, str]:
    """Status and message of a preview."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
    try:
        connection.request("POST", _PREVIEW, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except ConnectionError:
        # The answer comes before all was sent, and the connection ends with it.
        return 0, ""
    finally:
        connection.close()


def peak_mb(pid: int) -> float:
    """The most memory that a process has had since that was reset."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def test_forty_previews_of_seven_megabytes_at_once_take_bounded_memory(shared_worker: WorkerProcess) -> None:
    worker = shared_worker
    # The process of previews is there, and so are the modules that the worker needs for one.
    assert post(worker.port, body(10))[0] == 200
    Path(f"/proc/{worker.pid}/clear_refs").write_text("5", encoding="ascii")
    before, data = peak_mb(worker.pid), body(_BODY_BYTES)
    found: list[tuple[int, str]] = []
    callers = [
        threading.Thread(target=lambda: found.append(post(worker.port, data)), name=f"caller-{number}")
        for number in range(_CALLS)
    ]
    for one in callers:
        one.start()
    began = time.monotonic()
    assert worker.ask("GET", "/connectors", timeout_s=60)[0] == 200
    assert time.monotonic() - began < 20
    for one in callers:
        one.join(120)
    statuses = Counter(status for status, _ in found)
    grown = peak_mb(worker.pid) - before
    assert sum(statuses.values()) == _CALLS
    assert statuses.keys() <= {0, 200, 503}
    assert statuses[503] > 0
    assert statuses[200] > 0
    assert all("bytes together; try again a little later" in text for status, text in found if status == 503)
    assert grown < _MOST_MB
    # What was held is given back.
    assert post(worker.port, data)[0] == 200
