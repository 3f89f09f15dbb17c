"""The time limit of patterns on a machine that is busy, inside of the process and beside it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.config.java_pattern import compile_java
from penstock.errors import PatternTimeoutException

pytestmark = pytest.mark.slow

#: RE2 runs neither.
HARMLESS = r"(?<name>[a-z]+)-(?!x)([0-9]+)(?:-eu)?"
HOSTILE = "(?=a)(a|aa)+b"
#: Busy until its input ends, which it does with this process at the latest.
SPIN = """
import sys, threading
threading.Thread(target=sys.stdin.read).start()
while threading.active_count() > 1:
    pass
"""


@pytest.fixture
def busy() -> Iterator[None]:
    """More threads that work without Python's lock than there are cores, and as many processes as cores."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            hashlib.sha256(bytes(5_000_000)).digest()

    cores = os.cpu_count() or 1
    threads = [threading.Thread(target=work, name=f"busy-{number}") for number in range(cores + 2)]
    processes = [subprocess.Popen([sys.executable, "-c", SPIN], stdin=subprocess.PIPE) for _ in range(cores)]
    for thread in threads:
        thread.start()
    yield
    ended.set()
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("busy")
def test_a_harmless_pattern_never_fails_on_a_busy_machine() -> None:
    pattern = compile_java(HARMLESS)
    end = time.monotonic() + 1.5
    searches = 0
    while time.monotonic() < end:
        assert pattern.matches(f"orders-{searches}-eu")
        assert pattern.find(f"orders-x{searches}") is None
        searches += 2
    assert searches > 50


@pytest.mark.usefixtures("busy")
def test_a_hostile_pattern_ends_on_a_busy_machine() -> None:
    pattern = compile_java(HOSTILE)
    took: list[float] = []
    for number in range(3):
        begun = time.thread_time()
        with pytest.raises(PatternTimeoutException):
            pattern.matches("a" * (60 + number))
        took.append(time.thread_time() - begun)
    # Of its own time: how long that takes on the clock is for others to say.
    assert max(took) < 0.3
