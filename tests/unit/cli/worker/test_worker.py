"""What signals do to a process that waits for its end: in order, at once, and while C code keeps the interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from testkit.processes.worker_process import children, cpu_seconds, is_running, wait_gone

from penstock.cli.worker.watchdog import AGAIN_WITHIN_S, BEGIN_WITHIN_S, BEGUN, SAME_WISH_S, WatchdogVerdict

TERM, INT = signal.SIGTERM, signal.SIGINT

# A search that goes on for years, without letting any other Python code run.
HELD = "import re; held = re.compile('(a+)+b'); print('held', flush=True); held.search('a' * 80)"
PROCESS = """
import os, signal, sys, threading, time
from penstock.cli.worker.worker import Events
events = Events()
events.install()
threading.Thread(target=lambda: exec(sys.argv[1]), daemon=True).start()
ending = events.wait()
print(ending.reason, flush=True)
exec(sys.argv[2])
events.restore()
sys.exit(ending.exit_code)
"""
# More than any code between the line and the search takes.
HELD_FOR_S = 0.1
READY = "print('ready', flush=True)"
# The main thread would run its handlers within such a search.
HELD_AT_THE_END = f"threading.Thread(target=exec, args=({HELD!r},), daemon=True).start(); threading.Event().wait(60)"


class Waiting:
    """A process that waits for its end in a process group of its own; its two texts are Python: beside, and after."""

    def __init__(self, beside: str = READY, after: str = "pass") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, beside, after],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline().strip()
        self.watchdog = children(self.process.pid)

    def rest(self, timeout_s: float = 20.0) -> tuple[int, str]:
        """Exit code, and what else was printed."""
        text, _ = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, text

    def wait_held(self) -> None:
        """Waits until the search runs: the process said that it would begin, and has computed for a while since.

        Writing the line lets the main thread run, so a signal that comes with the line may still be seen by it.
        """
        assert self.first_line == "held"
        began, deadline = cpu_seconds(self.process.pid), time.monotonic() + 20
        while cpu_seconds(self.process.pid) - began < HELD_FOR_S:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def group(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)


@pytest.fixture
def started() -> Iterator[list[Waiting]]:
    found: list[Waiting] = []
    yield found
    for one in found:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()
        assert wait_gone(one.watchdog, 10) == []


@pytest.mark.parametrize(
    ("told", "kill_at"),
    [
        ([(TERM, 1)], 1 + BEGIN_WITHIN_S),
        ([(INT, 1), (BEGUN, 2)], None),
        ([(TERM, 1), (TERM, 1 + SAME_WISH_S / 2)], 1 + BEGIN_WITHIN_S),
        ([(TERM, 1), (BEGUN, 1), (INT, 1 + SAME_WISH_S / 2)], None),
        ([(TERM, 1), (INT, 3)], 3 + AGAIN_WITHIN_S),
        ([(TERM, 1), (BEGUN, 2), (TERM, 3)], 3 + AGAIN_WITHIN_S),
        # Nothing takes back what a second signal has asked for.
        ([(TERM, 1), (TERM, 3), (TERM, 3.4), (BEGUN, 3.4)], 3 + AGAIN_WITHIN_S),
        # It had begun to end by itself when the first signal came.
        ([(BEGUN, 1), (TERM, 2)], None),
        ([(BEGUN, 1), (TERM, 2), (TERM, 3)], 3 + AGAIN_WITHIN_S),
        # Other signals that have a handler in Python are written to the pipe, too.
        ([(signal.SIGCHLD, 1), (signal.SIGUSR1, 2), (signal.SIGHUP, 3), (signal.SIGCHLD, 5)], None),
        ([(TERM, 1), (signal.SIGCHLD, 3)], 1 + BEGIN_WITHIN_S),
    ],
)
def test_when_a_worker_is_killed(told: list[tuple[int, float]], kill_at: float | None) -> None:
    verdict = WatchdogVerdict()
    for number, moment in told:
        verdict.told(number, moment)
    assert verdict.kill_at == kill_at


@pytest.mark.parametrize("number", [TERM, INT])
def test_a_signal_to_the_group_ends_it_in_order_and_leaves_no_process(
    started: list[Waiting], number: signal.Signals
) -> None:
    started.append(one := Waiting())
    assert len(one.watchdog) == 1
    one.group(number)
    assert one.rest() == (0, f"{number.name} received\n")
    assert wait_gone(one.watchdog, 10) == []


def test_the_two_signals_of_timeout_are_one_wish(started: list[Waiting]) -> None:
    started.append(one := Waiting(after="time.sleep(0.3)"))
    one.process.send_signal(TERM)
    one.group(TERM)
    assert one.rest() == (0, "SIGTERM received\n")


def test_a_second_signal_ends_a_clean_stop_at_once(started: list[Waiting]) -> None:
    started.append(one := Waiting(after="threading.Event().wait(60)"))
    one.process.send_signal(TERM)
    assert one.process.stdout is not None
    assert one.process.stdout.readline() == "SIGTERM received\n"
    time.sleep(SAME_WISH_S)
    one.process.send_signal(INT)
    assert one.rest() == (130, "SIGINT again: ending at once\n")


@pytest.mark.slow
@pytest.mark.parametrize("stopping", [False, True])
def test_a_second_signal_ends_a_process_whose_interpreter_is_held(started: list[Waiting], stopping: bool) -> None:
    one = Waiting(after=HELD_AT_THE_END) if stopping else Waiting(HELD)
    started.append(one)
    if not stopping:
        one.wait_held()
    one.group(TERM)
    time.sleep(2 * SAME_WISH_S)
    assert one.process.poll() is None
    began = time.monotonic()
    one.group(TERM)
    code, text = one.rest()
    assert time.monotonic() - began < 1.0
    assert code == -signal.SIGKILL
    assert text.endswith("The worker does not react to signals: it is killed\n")


@pytest.mark.slow
def test_one_signal_ends_a_process_whose_clean_stop_does_not_begin(started: list[Waiting]) -> None:
    started.append(one := Waiting(HELD))
    one.wait_held()
    began = time.monotonic()
    one.process.send_signal(INT)
    # It has told its watchdog by then, and need not compute for as long as that waits.
    for _ in range(3):
        one.wait_held()
    one.process.send_signal(signal.SIGSTOP)
    assert one.rest(BEGIN_WITHIN_S + 60)[0] == -signal.SIGKILL
    assert time.monotonic() - began >= BEGIN_WITHIN_S


def test_a_process_that_is_killed_leaves_no_watchdog(started: list[Waiting]) -> None:
    started.append(one := Waiting())
    one.process.kill()
    assert wait_gone(one.watchdog, 10) == []


@pytest.mark.slow
def test_signals_of_a_forked_child_are_none_of_the_process(started: list[Waiting]) -> None:
    forked = """
child = os.fork()
if not child:
    time.sleep(60)
    os._exit(0)
for attempt in range(2):
    time.sleep(0.3)
    os.kill(child, signal.SIGTERM)
_, status = os.waitpid(child, 0)
print('child', os.waitstatus_to_exitcode(status), flush=True)
"""
    started.append(one := Waiting(forked))
    assert one.first_line == f"child {-TERM}"
    time.sleep(AGAIN_WITHIN_S + 0.2)
    assert one.process.poll() is None
    assert all(map(is_running, one.watchdog))
    one.process.send_signal(TERM)
    assert one.rest() == (0, "SIGTERM received\n")
