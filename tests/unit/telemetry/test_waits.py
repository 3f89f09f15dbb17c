"""What threads say that they wait for."""

from __future__ import annotations

import subprocess
import sys
import threading
from threading import get_ident

import pytest

from penstock.telemetry import Wait, waiting_for, waits
from penstock.telemetry.waits import MOST_FRAMES, stacks


def said() -> str | None:
    """What this thread says."""
    found = waits().get(get_ident())
    return None if found is None else found.reason


def test_a_wait_is_said_while_it_lasts_and_the_inner_one_counts() -> None:
    assert said() is None
    with waiting_for("outer", "detail"):
        assert waits()[get_ident()].detail == "detail"
        with waiting_for("inner"):
            assert said() == "inner"
        assert said() == "outer"
    assert said() is None


def test_a_wait_that_raises_is_over() -> None:
    with pytest.raises(ValueError, match="x"), waiting_for("something"):
        raise ValueError("x")
    assert said() is None


def test_a_function_waits_while_it_runs() -> None:
    @waiting_for("a call")
    def call(argument: str) -> tuple[str, str | None]:
        return argument, said()

    assert call("a") == ("a", "a call")
    assert said() is None


def test_each_thread_says_its_own() -> None:
    found: list[str | None] = []
    with waiting_for("here"):
        thread = threading.Thread(target=lambda: found.append(said()))
        thread.start()
        thread.join()
    assert found == [None]


def test_since_when_is_said() -> None:
    with waiting_for("a"):
        first: Wait = waits()[get_ident()]
    with waiting_for("a"):
        assert waits()[get_ident()].since_s >= first.since_s


#: Threads that enter and leave generators, one within the other, while their stacks are taken.
BUSY = """
import sys, threading, time
from contextlib import contextmanager
from penstock.telemetry.waits import stacks

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
