"""Waits until a connector that was just created goes on running, or tells why it does not.

Main function: ``await_running``. Thread: the main thread of the command.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.cli.api_client import ApiClient, ApiError
from penstock.cli.output import complain, counting
from penstock.cli.session import EXIT_REFUSED, NOT_FOUND, end
from penstock.traces import root_cause

_POLL_S: Final = 0.3
#: Tasks that have been RUNNING for so long go on.
_STEADY_S: Final = 1.0
#: What keeps a task from working may pass by itself in that time, such as a topic that is being created.
_PASSING_S: Final = 5.0
#: What a task that is RUNNING waits for before it does anything that could fail.
_NOT_BEGUN: Final = ("spark_starting", "group_join")
_CONFLICT: Final = 409


def await_running(api: ApiClient, name: str, timeout_s: float = 60.0) -> None:
    """Waits until all have been RUNNING for a second and no task still waits to begin; ends with the first error."""
    deadline = time.monotonic() + timeout_s
    steady_since: float | None = None
    waits: Sequence[Mapping[str, Any]] = ()
    pause = threading.Event()
    with counting(f"Starting {name}") as running:
        while True:
            found = _status_of(api, name)
            parts = [("the connector", found["connector"]), *((f"task {one['id']}", one) for one in found["tasks"])]
            for what, one in parts:
                if one["state"] == "FAILED":
                    end(_failure(name, what, one.get("trace") or "no reason is known"), EXIT_REFUSED)
            up = sum(one["state"] == "RUNNING" for _, one in parts)
            running(up, len(parts))
            now = time.monotonic()
            steady_since = None if up < len(parts) else now if steady_since is None else steady_since
            if steady_since is not None and now - steady_since >= _STEADY_S and _all_told(api, found):
                explained = api.call("GET", ["connectors", name, "explain"])
                waits = [one["waiting_for"] for one in explained["tasks"]]
                if any(one["reason"] in _NOT_BEGUN for one in waits):
                    # What it waits for may end with an error: after it, a second again.
                    steady_since = None
                elif now - steady_since >= _PASSING_S or not any(one.get("cause") for one in waits):
                    break
            if now > deadline:
                why = "".join(f"\n  task {number}: {one['text']}" for number, one in enumerate(waits))
                end(f"{name} does not run after {timeout_s:.0f} seconds{why}", EXIT_REFUSED)
            pause.wait(_POLL_S)
    for number, one in enumerate(waits):
        if one.get("cause"):
            complain(f"Warning: task {number} has nothing to do yet. {one['text']}", "yellow")


def _status_of(api: ApiClient, name: str) -> Any:
    """What a connector that was just created is doing; in a group the worker that gets it says so a little later."""
    try:
        return api.call("GET", ["connectors", name, "status"])
    except ApiError as error:
        if error.status not in (NOT_FOUND, _CONFLICT):
            raise
        return {"name": name, "connector": {"state": "UNASSIGNED"}, "tasks": []}


def _all_told(api: ApiClient, found: Mapping[str, Any]) -> bool:
    """Whether all tasks that a connector has say what they are doing."""
    return len(found["tasks"]) >= len(api.call("GET", ["connectors", found["name"]])["tasks"])


def _failure(name: str, what: str, trace: str) -> str:
    return (
        f"{name} was created, but {what} has failed: {root_cause(trace)}\n"
        f"The whole trace: penstock connectors status {shlex.quote(name)}"
    )
