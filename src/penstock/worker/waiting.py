"""What a connector or task waits for now, told by where its threads stand.

Main types: ``Waiting``, ``Frame``. Main functions: ``task_waiting``, ``connector_waiting``, ``stacks``. The first two
are pure; ``stacks`` looks at the threads of this process, which costs the threads nothing.

The names of threads and of the functions that wait are those of ``docs/architecture.md``; a test brings about each.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final

from penstock.model import State

#: Every reason there is.
REASONS: Final = (
    "paused",
    "stopped",
    "failed",
    "not_started",
    "user_code",
    "spark_starting",
    "spark",
    "schema_registry",
    "record_retry",
    "sink_retry",
    "broker",
    "back_pressure",
    "no_data",
)

_TEXTS: Final[Mapping[str, str]] = {
    "paused": "It is paused; resume it.",
    "stopped": "It is stopped; resume it.",
    "failed": "It has failed; its status has the trace. Fix the cause and restart it.",
    "not_started": "It has not started yet, or its thread has ended.",
    "spark_starting": "The Spark session is not up; batches wait for it.",
    "spark": "Spark works on a batch.",
    "schema_registry": "The schema registry has not answered; records wait for it.",
    "record_retry": "A record failed with an error that may pass, and is tried again (errors.retry.timeout).",
    "sink_retry": "put() asked for the same records again.",
    "broker": "Kafka has not answered for what is under way.",
    "back_pressure": "What comes after is slower: the queue is full.",
    "no_data": "There is nothing to do.",
}
_RESTING: Final = {
    State.PAUSED: "paused",
    State.STOPPED: "stopped",
    State.FAILED: "failed",
    State.UNASSIGNED: "not_started",
}
#: Parts of the package that are written as users write theirs.
_AUTHORS: Final = ("connectors", "testing")
_PACKAGE: Final = str(PurePath(__file__).parents[1])


@dataclass(frozen=True)
class Frame:
    """One place in a stack, outermost first."""

    file: str
    line: int
    function: str

    @property
    def ours(self) -> bool:
        """Whether it is the worker's code, and not a connector's or a library's."""
        if not self.file.startswith(_PACKAGE + "/"):
            return False
        return self.file[len(_PACKAGE) + 1 :].split("/", 1)[0] not in _AUTHORS

    @property
    def module(self) -> str:
        """The name of its file."""
        return PurePath(self.file).stem


@dataclass(frozen=True)
class Waiting:
    """Why something does not go on.

    Attributes:
        reason: One of ``REASONS``.
        text: The same for people.
        stack: For a user's code: where it stands, innermost last; without the worker's own part.
    """

    reason: str
    text: str
    stack: Sequence[str] = ()

    def to_json(self) -> dict[str, object]:
        """The shape used by REST."""
        body: dict[str, object] = {"reason": self.reason, "text": self.text}
        if self.stack:
            body["stack"] = list(self.stack)
        return body


def stacks() -> dict[str, list[Frame]]:
    """Where each thread of this process stands, by the thread's name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = {}
    for ident, frame in sys._current_frames().items():
        name = names.get(ident)
        if name is not None:
            walked = reversed(list(traceback.walk_stack(frame)))
            found[name] = [Frame(one.f_code.co_filename, line, one.f_code.co_name) for one, line in walked]
    return found


def connector_waiting(name: str, state: State | None, threads: Mapping[str, Sequence[Frame]]) -> Waiting:
    """What a connector waits for: while a method of it runs, for that."""
    inside = _user_code(threads.get(f"connector-{name}", ()))
    if inside is not None:
        return inside
    return _because(_RESTING.get(state, "no_data") if state is not None else "not_started")


def task_waiting(
    task: str,
    state: State,
    threads: Mapping[str, Sequence[Frame]],
    *,
    spark_up: bool,
    retry_at_ms: int | None = None,
) -> Waiting:
    """What a task waits for.

    Args:
        task: Its id, the end of its threads' names.
        state: What it says it is doing.
        threads: Where threads stand.
        spark_up: Whether there is a Spark session.
        retry_at_ms: When records that ``put`` refused for now are put again; milliseconds since the epoch.
    """
    own = threads.get(f"task-{task}") or threads.get(f"task-thread-{task}") or ()
    inside = _user_code(own)
    if inside is not None:
        return inside
    if state in _RESTING:
        return _because(_RESTING[state])
    if retry_at_ms is not None:
        moment = datetime.fromtimestamp(retry_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return Waiting("sink_retry", f"{_TEXTS['sink_retry']} That is done at {moment}.")
    converting = threads.get(f"pipeline-{task}") or threads.get(f"convert-{task}") or ()
    delivering = threads.get(f"delivery-{task}") or ()
    if _calls(converting, "client", "_ask") or _calls(converting, "tolerance", "_wait_for_registry"):
        return _because("schema_registry")
    if _stands_in(converting, "tolerance"):
        return _because("record_retry")
    if _stands_in(converting, "session"):
        return _because("spark" if spark_up else "spark_starting")
    if _stands_in(delivering, "producer") or _stands_in(delivering, "admin"):
        return _because("broker")
    if _calls(own, "source_stages", "put") or _calls(converting, "source_stages", "put"):
        return _because("back_pressure")
    return _because("no_data" if own else "not_started")


def _because(reason: str) -> Waiting:
    return Waiting(reason, _TEXTS[reason])


def _user_code(frames: Sequence[Frame]) -> Waiting | None:
    """The part of a stack that is below the worker's last frame, when a connector's own file is in it."""
    last = max((number for number, frame in enumerate(frames) if frame.ours), default=-1)
    below = [frame for frame in frames[last + 1 :] if not _library(frame)]
    if last < 0 or not below:
        return None
    first = below[0]
    listed = [f"{frame.module}.py:{frame.line} in {frame.function}" for frame in frames[last + 1 :]]
    return Waiting("user_code", f"Its own code runs: {first.function} in {first.module}.py", listed)


def _library(frame: Frame) -> bool:
    """Whether a frame is of the standard library or an installed one: what our own code may wait in, too."""
    return frame.file.startswith(("<", sys.base_prefix + "/lib", sys.prefix + "/lib")) or "site-packages" in frame.file


def _stands_in(frames: Sequence[Frame], module: str) -> bool:
    return any(frame.ours and frame.module == module for frame in frames)


def _calls(frames: Sequence[Frame], module: str, function: str) -> bool:
    return any(frame.ours and (frame.module, frame.function) == (module, function) for frame in frames)
