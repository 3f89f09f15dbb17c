"""A member of a Kafka group of workers: it exchanges bytes and does not know connectors.

Main type: ``GroupMember``. It joins the group (protocol type ``connect``), keeps its membership with heartbeats,
reports the results of rebalances to its owner (``GroupEvents``), and tells it when to stop its work. ``tame`` reduces
the log lines of the underlying library, which writes a dozen lines a second about one missing broker, and at DEBUG the
bytes of logins: only lines from WARNING on pass, whatever level is configured, and each cause once a minute.

Threads: the member's own, ``group-member``, from ``start`` to ``close``; ``group-call`` for long calls of the owner,
and ``group-names`` for host name lookups, if needed. The methods may be called from any thread.

Source: org.apache.kafka.connect.runtime.distributed.WorkerGroupMember.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.kafka.group.connections import Access, GroupCalls
from penstock.kafka.group.events import GroupEvents, GroupView
from penstock.kafka.group.lifecycle import GroupLife
from penstock.kafka.group.session import GroupMetrics, Limits, MemberState, RejoinBackoff, Standing
from penstock.kafka.group.settings import GroupSettings
from penstock.telemetry.logs import SeldomLog

_LIBRARY: Final = "kafka"
#: The beginnings of lines that repeat other lines or only announce a retry.
_SAID_ELSEWHERE: Final = (
    "%s: socket disconnected",
    "%s: Error receiving network data",
    "Bootstrap failed",
    "Bootstrap %s not ready",
    "No node available for metadata refresh",
)


class _Chatter(logging.Handler):
    """Passes only new messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seldom = SeldomLog(logging.getLogger("penstock.kafka.group"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING and not str(record.msg).startswith(_SAID_ELSEWHERE):
            self._seldom.warning(cause_of(record), "Group client: %s", record.getMessage())


def cause_of(record: logging.LogRecord) -> object:
    """The cause of a log line: its error, or the kind of line.

    The library reports one lost connection for the socket, the connection, the request and the coordinator, with one
    error.
    """
    errors = [str(one) for one in record.args or () if isinstance(one, BaseException)]
    return errors[0] if errors else (record.name, record.msg)


def tame() -> None:
    """Sends all further lines of the library in this process through ``_Chatter``."""
    logger = logging.getLogger(_LIBRARY)
    if any(isinstance(handler, _Chatter) for handler in logger.handlers):
        return
    logger.addHandler(_Chatter())
    logger.setLevel(logging.WARNING)
    logger.propagate = False


logger = logging.getLogger("penstock.kafka.group")

_BROKEN_FIRST_S: Final = 0.5
_BROKEN_MOST_S: Final = 30.0


class GroupMember:
    """A member of a group.

    Args:
        settings: The group, its brokers and the login.
        events: The owner.

    Raises:
        ConfigException: a key, a certificate or a package that the settings ask for cannot be used.
    """

    def __init__(self, settings: GroupSettings, events: GroupEvents) -> None:
        self._settings = settings
        self._events = events
        self._access = Access.of(settings)
        limits = Limits(
            settings.heartbeat_interval_ms / 1000,
            settings.session_timeout_ms / 1000,
            settings.rebalance_timeout_ms / 1000,
        )
        self._state = MemberState(Standing(limits, time.monotonic()))
        self._calls = GroupCalls("group-call")
        self._closing = threading.Event()
        self._life: GroupLife | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="group-member", daemon=True)

    @property
    def view(self) -> GroupView:
        """A snapshot of the member's state."""
        return self._state.view

    @property
    def metrics(self) -> GroupMetrics:
        """The metrics of the member."""
        return self._state.counts.snapshot

    def start(self) -> None:
        """Starts joining. The owner counts as alive after this call."""
        tame()
        self.polled()
        self._thread.start()

    def rejoin(self, reason: str) -> None:
        """Joins again, even after ``leave``; returns at once.

        The leader starts a rebalance, and so does a member whose metadata has changed. A member with the same metadata
        receives its last assignment again.

        Args:
            reason: For the broker's log.
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
        """Leaves the group until ``rejoin``; returns at once. ``lost`` is not called.

        Args:
            reason: For the broker's log.
        """
        self._state.requested = False
        self._post(lambda life: life.leave(reason))

    def close(self, timeout_s: float, reason: str = "the worker stops") -> bool:
        """Leaves the group and ends all threads.

        Args:
            timeout_s: The timeout, including the broker's response.
            reason: For the broker's log.

        Returns:
            True if all threads have ended.
        """
        deadline = time.monotonic() + timeout_s
        self._state.closing = True
        self._closing.set()
        # The rest of the time is for the end of the thread.
        self._post(lambda life: life.end(reason, timeout_s * 0.8))
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        ended = [part.close(max(0.0, deadline - time.monotonic())) for part in (self._calls, self._access)]
        return all(ended) and not self._thread.is_alive()

    def _post(self, call: Callable[[GroupLife], None]) -> None:
        with self._lock:
            life = self._life
        if life is not None:
            life.post(lambda: call(life))

    def _run(self) -> None:
        pause = RejoinBackoff(_BROKEN_FIRST_S, _BROKEN_MOST_S)
        while not self._closing.is_set():
            try:
                life = GroupLife(self._settings, self._events, self._state, self._calls, self._access)
                with self._lock:
                    self._life = life
                # If it is closed before its loop first runs, this is the only report of its end.
                if self._closing.is_set():
                    life.end("the worker stops", 0.0)
                life.run()
                return
            except Exception:
                logger.exception("The client of the group %s broke; another one takes over", self._settings.group_id)
                self._give_up()
            self._closing.wait(pause.next_s())

    def _give_up(self) -> None:
        if self._state.standing.joined:
            self._state.standing.leave()
            self._state.counts.lost()
            try:
                self._events.lost("the client of the group broke")
            except Exception:
                logger.exception("The worker failed to handle an event of its group")
