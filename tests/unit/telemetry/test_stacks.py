"""Stacks of threads that run meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from penstock.telemetry.stacks import MOST_FRAMES, stacks

#: Threads that enter and leave generators, one within the other, while their stacks are taken.
BUSY = """
import sys, threading, time
from contextlib import contextmanager
from penstock.telemetry.stacks import stacks

sys.setswitchinterval(1e-6)

@contextmanager
def around():
    yield from inside(3)

def inside(depth):
    if depth:
        yield from inside(depth - 1)
    else:
        time.sleep(0)
        yield

def work():
    while True:
        with around():
            time.sleep(0)

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
until = time.monotonic() + 1
while time.monotonic() < until:
    for one in stacks().values():
        assert all(file and line and function for file, line, function in one), one
print("taken", flush=True)
"""


def inner(depth: int, there: threading.Event, end: threading.Event) -> None:
    if depth:
        inner(depth - 1, there, end)
    else:
        there.set()
        end.wait()


@pytest.mark.parametrize("depth", [0, 5, MOST_FRAMES * 2])
def test_the_stack_of_a_thread_is_what_it_stands_in(depth: int) -> None:
    there, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=inner, args=(depth, there, end))
    thread.start()
    there.wait()
    try:
        assert thread.ident is not None
        names = [function for _, _, function in stacks()[thread.ident]]
    finally:
        end.set()
        thread.join()
    last = names.index("wait") if "wait" in names else len(names)
    assert names[:last].count("inner") == min(depth + 1, MOST_FRAMES - (len(names) - last))
    assert names[last - 1] == "inner"
    assert (names[0] == "_bootstrap") == (depth < MOST_FRAMES)


@pytest.mark.slow
def test_threads_that_enter_and_leave_generators_meanwhile_do_no_harm() -> None:
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "taken\n"), done.stderr[-2000:]
