"""Everything of this worker that stands still for a reason worth telling, for ``/health`` and the status of tasks.

Main names: ``stands_still``, said where something waits for what may take long; ``goes_on``, said when it does not any
more; ``standstills``, all that there are now. Beside ``waits``, which says what a thread does at a moment: a standstill
lasts until it is taken back, whatever the thread does between two tries.

Thread: any.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True)
class Standstill:
    """One thing that stands still.

    Attributes:
        owner: The thing, as ``task orders-0``.
        reason: The reason in one word.
        text: The reason for people.
        since: The time since when.
        details: What the status of a task shows of it.
        connector: Whose secrets may be in the texts; None for nobody's.
    """

    owner: str
    reason: str
    text: str
    since: datetime
    details: Mapping[str, object] = field(default_factory=dict)
    connector: str | None = None

    def __str__(self) -> str:
        return f"{self.owner} ({self.reason} since {self.since.isoformat(timespec='seconds')}): {self.text}"


_lock = threading.Lock()
_now: dict[str, Standstill] = {}


def stands_still(
    owner: str,
    reason: str,
    text: str,
    *,
    since: datetime | None = None,
    details: Mapping[str, object] | None = None,
    connector: str | None = None,
) -> Standstill:
    """Says that something stands still; said again, the first time counts for since when.

    Args:
        owner: The thing; it has one standstill at a time.
        reason: In one word.
        text: For people.
        since: Since when, if that is known better than by this call.
        details, connector: See ``Standstill``.

    >>> stands_still("task a-0", "source_retry", "busy").reason
    'source_retry'
    >>> [one.owner for one in standstills()]
    ['task a-0']
    >>> goes_on("task a-0")
    >>> standstills()
    []
    """
    with _lock:
        before = _now.get(owner)
        if since is None:
            since = before.since if before is not None and before.reason == reason else datetime.now(UTC)
        _now[owner] = found = Standstill(owner, reason, text, since, details or {}, connector)
        return found


def task_owner(task: object) -> str:
    """The name of a task, by its id, among things that stand still."""
    return f"task {task}"


def goes_on(owner: str, only: Standstill | None = None) -> None:
    """Says that something does not stand still, or is gone.

    Args:
        owner: The thing.
        only: What was said of it last by whoever says this: what somebody else has said since stays.
    """
    with _lock:
        if only is None or _now.get(owner) is only:
            _now.pop(owner, None)


def standstill_of(owner: str) -> Standstill | None:
    """Returns the reason why one thing makes no progress, or None if it makes progress."""
    return _now.get(owner)


def standstills() -> list[Standstill]:
    """Everything that stands still now, longest first."""
    with _lock:
        return sorted(_now.values(), key=lambda one: one.since)
