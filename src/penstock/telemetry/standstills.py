"""The standstills of this worker: long waits that ``/health`` and the status of tasks report.

Main names: ``stands_still`` reports a long wait; ``goes_on`` ends the report; ``standstills`` returns all present ones.
In contrast to ``waits``, which holds the present wait of a thread, a standstill lasts until it is taken back, whatever
the thread does between two tries.

Thread: any.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True)
class Standstill:
    """One long wait.

    Attributes:
        owner: The name of the waiting part, such as ``task orders-0``.
        reason: The reason in one word.
        text: The reason as a sentence.
        since: The time at which it began.
        details: The fields that the status of a task shows.
        connector: The connector whose secrets may be in the texts; None for none.
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
    """Reports a long wait; a repeated report keeps the first time.

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
    """The name of a task, by its id, among the owners of standstills."""
    return f"task {task}"


def connector_owner(name: str) -> str:
    """The name of a connector among the owners of standstills."""
    return f"connector {name}"


def goes_on(owner: str, only: Standstill | None = None) -> None:
    """Ends the report of a wait: the owner continues, or is gone.

    Args:
        owner: The name of the waiting part.
        only: The caller's last report: a later report of another caller stays.
    """
    with _lock:
        if only is None or _now.get(owner) is only:
            _now.pop(owner, None)


def standstill_of(owner: str) -> Standstill | None:
    """Returns the reason why one thing makes no progress, or None if it makes progress."""
    return _now.get(owner)


def standstills() -> list[Standstill]:
    """All present standstills, longest first."""
    with _lock:
        return sorted(_now.values(), key=lambda one: one.since)
