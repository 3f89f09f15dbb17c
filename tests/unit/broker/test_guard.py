import signal
import subprocess
import sys
from pathlib import Path

from penstock.broker.guard import OwnerGuard

# An owner with a guarded child, that then dies as told.
OWNER = """
import os, signal, subprocess, sys
from penstock.broker.guard import OwnerGuard
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


def lives(pid: int) -> bool:
    """Whether the process still runs (a zombie does not)."""
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends_soon(pid: int) -> bool:
    return subprocess.run(["timeout", "10", "tail", f"--pid={pid}", "-f", "/dev/null"], check=False).returncode == 0


def test_the_child_of_a_killed_owner_is_killed() -> None:
    process, child = owner("die")
    assert lives(child)

    end(process)

    assert ends_soon(child)
    assert not lives(child)


def test_a_released_child_outlives_its_owner() -> None:
    process, child = owner("release")

    end(process)

    assert lives(child)
    subprocess.run(["kill", "-KILL", str(child)], check=True)


def test_releasing_twice_and_without_a_child_is_harmless() -> None:
    guard = OwnerGuard()

    guard.release()
    guard.release()
