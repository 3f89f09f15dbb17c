"""A member of a Kafka group of workers: it exchanges bytes and does not know connectors.

Heartbeats continue while the leader assigns and while work stops. A member stops its work when a limit of ``session``
is exceeded or the broker does not know it; after the work has stopped it joins again.

Threads: the member's own, ``group-member``, from ``start`` to ``close``; ``group-call`` for long calls of the owner,
and ``group-names`` for host name lookups, if needed. The methods may be called from any thread.

Source: org.apache.kafka.connect.runtime.distributed.WorkerGroupMember, WorkerCoordinator.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.kafka.group.events import GroupEvents, GroupView
from penstock.kafka.group.rounds import GroupLife
from penstock.kafka.group.session import GroupMetrics, Limits, MemberState, RejoinBackoff, Standing
from penstock.kafka.group.settings import GroupSettings
from penstock.kafka.network.transport import NamePendingException

logger = logging.getLogger("penstock.kafka.group")

_BROKEN_FIRST_S: Final = 0.5
_BROKEN_MOST_S: Final = 30.0
#: A broker that was looked up, but not connected to, may have another address when it is needed.
_NAME_LIFE_S: Final = 10.0
_NOT_FOUND: Final = (None, None, float("-inf"))

Ended = Callable[[object, BaseException | None], None]


class GroupCalls:
    """Runs calls one after the other, on threads of this name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], object], Ended]] = deque()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], object], ended: Ended) -> None:
        """Runs a call after all earlier calls have ended.

        Args:
            call: It may block.
            ended: Receives the call's result or exception, on the thread of the call.
        """
        with self._lock:
            self._waiting.append((call, ended))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """Drops calls that have not begun, and waits for a running one; False if that does not end in time."""
        with self._lock:
            self._waiting.clear()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                call, ended = self._waiting.popleft()
            try:
                result = call()
            except BaseException as error:
                ended(None, error)
            else:
                ended(result, None)


class HostNames:
    """Looks up hosts on another thread, because a resolver may take seconds and heartbeats go on meanwhile."""

    def __init__(self, calls: GroupCalls, wake: Callable[[], None]) -> None:
        self._calls = calls
        self._wake = wake
        self._found: dict[tuple[str, int], Any] = {}

    def look_up(self, host: str, port: int, **how: Any) -> list[Any]:
        """The addresses of a host, as ``socket.getaddrinfo`` gives them. Raises ``NamePendingException`` if they are
        not known yet; ``wake`` is called then.
        """
        try:
            return socket.getaddrinfo(host, port, **how, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass
        place = (host, port)
        if (ended := self._found.get(place, _NOT_FOUND)) is not None and time.monotonic() > ended[2]:
            self._found[place] = None
            self._calls.submit(lambda: socket.getaddrinfo(host, port, **how), lambda *ended: self._end(place, *ended))
        if (ended := self._found[place]) is None:
            raise NamePendingException(f"The host {host} is being looked up")
        del self._found[place]
        found, error, _ = ended
        if error is not None:
            raise error
        return list(found)

    def _end(self, place: tuple[str, int], found: object, error: BaseException | None) -> None:
        self._found[place] = (found, error, time.monotonic() + _NAME_LIFE_S)
        self._wake()


class GroupMember:
    """A member of a group."""

    def __init__(self, settings: GroupSettings, events: GroupEvents) -> None:
        self._settings = settings
        self._events = events
        limits = Limits(
            settings.heartbeat_interval_ms / 1000,
            settings.session_timeout_ms / 1000,
            settings.rebalance_timeout_ms / 1000,
        )
        self._state = MemberState(Standing(limits, time.monotonic()))
        self._calls = GroupCalls("group-call")
        self._name_calls = GroupCalls("group-names")
        self._names = HostNames(self._name_calls, lambda: self._post(lambda life: None))
        self._closing = threading.Event()
        self._life = self._new_life()
        self._thread = threading.Thread(target=self._run, name="group-member", daemon=True)

    @property
    def view(self) -> GroupView:
        return self._state.view

    @property
    def metrics(self) -> GroupMetrics:
        return self._state.counts.snapshot

    def start(self) -> None:
        """Starts joining. The owner counts as alive after this call."""
        self.polled()
        self._thread.start()

    def rejoin(self, reason: str) -> None:
        """Joins again, even after ``leave``; returns at once.

        The leader starts a rebalance, and so does a member whose metadata has changed. A member with the same metadata
        receives its last assignment again.
        """
        self._state.reason = reason
        self._state.asked += 1
        self._state.requested = True
        self._post(GroupLife.rejoin)

    def polled(self) -> None:
        """Reports that the owner's loop is alive.

        Without this call for the rebalance timeout the member leaves the group; with the next call it joins again.
        """
        self._state.standing.polled(time.monotonic())
        if self._state.unpolled:
            self._state.unpolled = False
            self._post(GroupLife.rejoin)

    def leave(self, reason: str) -> None:
        """Leaves the group until ``rejoin``; returns at once. ``lost`` is not called."""
        self._state.requested = False
        self._post(lambda life: life.leave(reason))

    def close(self, timeout_s: float, reason: str = "the worker stops") -> bool:
        """Leaves the group and ends all threads. Returns True if all threads have ended."""
        deadline = time.monotonic() + timeout_s
        self._state.closing = True
        self._closing.set()
        # The rest of the time is for the end of the thread.
        self._post(lambda life: life.end(reason, timeout_s * 0.8))
        if self._thread.ident is None:
            self._life.close()
        else:
            self._thread.join(timeout_s)
        ended = [calls.close(max(0.0, deadline - time.monotonic())) for calls in (self._calls, self._name_calls)]
        return all(ended) and not self._thread.is_alive()

    def _post(self, call: Callable[[GroupLife], None]) -> None:
        life = self._life
        life.post(lambda: call(life))

    def _new_life(self) -> GroupLife:
        return GroupLife(self._settings, self._events, self._state, self._calls.submit, self._names.look_up)

    def _run(self) -> None:
        pause = RejoinBackoff(_BROKEN_FIRST_S, _BROKEN_MOST_S)
        broken = False
        while True:
            try:
                if broken:
                    self._life = self._new_life()
                    # If it is closed before it first runs, this is the only report of its end.
                    if self._closing.is_set():
                        self._life.end("the worker stops", 0.0)
                self._life.run()
                return
            except Exception:
                logger.exception("The client of the group %s broke; another one takes over", self._settings.group_id)
                self._give_up()
            broken = True
            if self._closing.wait(pause.next_s()):
                return

    def _give_up(self) -> None:
        if self._state.standing.joined:
            self._state.standing.leave()
            self._state.counts.lost()
            try:
                self._events.lost("the client of the group broke")
            except Exception:
                logger.exception("The worker failed to handle an event of its group")
