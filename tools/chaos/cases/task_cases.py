"""Cases of code in a task that takes what all tasks share: the interpreter, threads, descriptors; or does not stop.

Thread: the test's.
"""

from __future__ import annotations

import os
import resource

from tools.chaos.stage import TROUBLEMAKER, Stage, lasting

#: Descriptors that are left when the limit comes down.
_SPARE_FILES = 30
_SECONDS = 4


def endless_loop(stage: Stage) -> None:
    """A task runs Python code that never waits: the others go on, slower, and its connector can be deleted."""
    with stage.trouble("loop") as trouble:
        stage.worker.wait_running(trouble.name)
        stage.goes_on()
        assert stage.worker.ask("DELETE", f"/connectors/{trouble.name}")[0] == 204
        stage.goes_on()
    stage.goes_on()


def blocked_stop(stage: Stage) -> None:
    """A task's `stop` does not come back: its connector is gone all the same, and its name can be used again."""
    with stage.trouble("blocked-stop") as trouble:
        path = f"/connectors/{trouble.name}"
        stage.worker.wait_running(trouble.name)
        _, config = stage.worker.get(f"{path}/config")
        assert stage.worker.ask("DELETE", path)[0] == 204
        stage.goes_on()
        assert stage.worker.ask("PUT", f"{path}/config", config)[0] == 201
        stage.worker.wait_running(trouble.name)
    stage.goes_on()


def leaked_threads(stage: Stage) -> None:
    """A task leaks 3,000 threads, or all that the machine has; then nobody can start one for some seconds."""
    ask = stage.worker.ask
    with stage.trouble("none") as idle, stage.trouble("leaked-threads") as trouble:
        stage.worker.wait_running(idle.name)
        stage.worker.wait(trouble.is_there, "threads are used up", 120)
        refused = [
            ask("POST", f"/connectors/{idle.name}/restart?includeTasks=true"),
            ask("PUT", f"/connectors/{idle.name}-2/config", {"connector.class": TROUBLEMAKER}),
            ask("DELETE", f"/connectors/{idle.name}"),
            ask("GET", "/metrics"),
        ]
        for status, body in refused:
            assert status == 503, body
            assert "the system gives it no more" in str(body)
        assert ask("GET", f"/connectors/{idle.name}/status")[0] == 200
        stage.goes_on()
        trouble.until.unlink()
        stage.worker.wait(lambda: ask("POST", f"/connectors/{idle.name}/tasks/0/restart")[0] == 204, "threads again")
        stage.worker.wait_running(idle.name)
    stage.goes_on()


def used_up_files(stage: Stage) -> None:
    """A task takes every file descriptor that the worker may have, for some seconds."""
    pid = stage.worker.pid
    with stage.trouble("none") as idle:
        stage.worker.wait_running(idle.name)
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        there = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (there + _SPARE_FILES, limits[1]))
        try:
            with stage.trouble("open-files") as trouble:
                stage.worker.wait(trouble.is_there, "descriptors are used up", 30)
                for _ in lasting(_SECONDS):
                    stage.worker.ask("POST", f"/connectors/{idle.name}/restart?includeTasks=true", timeout_s=0.5)
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        stage.goes_on()
        # What could not be started meanwhile says why, and can be restarted.
        assert stage.worker.ask("POST", f"/connectors/{idle.name}/restart?includeTasks=true")[0] == 202
        stage.worker.wait_running(idle.name)
