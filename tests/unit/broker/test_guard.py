import signal
import subprocess
import sys

from testkit.processes.worker_process import is_running, wait_gone

from penstock.broker.process import OwnerGuard

# An owner with a guarded child, that then dies as told.
OWNER = """
import os, signal, subprocess, sys
from penstock.broker.process import OwnerGuard
guard = OwnerGuard()
child = subprocess.Popen(["sleep", "60"], start_new_session=True, stdout=subprocess.PIPE)
guard.watch(child.pid)
print(child.pid, flush=True)
sys.stdin.readline()
if sys.argv[1] == "release":
    guard.release()
os.kill(os.getpid(), signal.SIGKILL)
"""


def owner(how: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("go\n", timeout=10)
    assert process.returncode == -signal.SIGKILL


def test_the_child_of_a_killed_owner_is_killed() -> None:
    process, child = owner("die")
    assert is_running(child)

    end(process)

    assert wait_gone([child], 10) == []


def test_a_released_child_outlives_its_owner() -> None:
    process, child = owner("release")

    end(process)

    assert is_running(child)
    subprocess.run(["kill", "-KILL", str(child)], check=True)


def test_releasing_twice_and_without_a_child_is_harmless() -> None:
    guard = OwnerGuard()

    guard.release()
    guard.release()
