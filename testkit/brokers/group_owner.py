"""An owner of a member of a workers' group that writes down what it is told; alone, or as a process of its own.

Main type: ``GroupOwner``; ``run_member`` has one in this process, ``MemberProcess`` one in another, which may be killed
and frozen.
Thread: ``GroupOwner`` is told by the member's threads and read by the test's; a ``MemberProcess`` is the test's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from penstock.kafka.group.events import GroupRefusedException, RoundJoined
from penstock.kafka.group.member import GroupMember
from penstock.kafka.group.settings import group_settings

#: Quick ones: a heartbeat each second, six seconds of a session, the shortest that brokers allow.
QUICK = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}

Assign = Callable[[str, Mapping[str, bytes], int, int], Mapping[str, bytes]]


class Told(NamedTuple):
    """Something that the owner was told, or asked.

    Attributes:
        kind: ``joined``, ``lost``, ``refused``, ``before_join`` or ``assign``.
        about: What came with it.
        at: When, in seconds of the monotonic clock, which all processes share.
    """

    kind: str
    about: Any
    at: float


def say_back(protocol: str, members: Mapping[str, bytes], generation: int, last_completed: int) -> dict[str, bytes]:
    """Tells each member what it has said, and how many there are."""
    return {member: said + b" of %d" % len(members) for member, said in members.items()}


class GroupOwner:
    """Keeps what it is told.

    Args:
        says: Its metadata.
        protocols: What it offers.
        assign: What it does as the leader.
        before_join: Called before each join.
        heard: Called with each thing it is told.
    """

    def __init__(
        self,
        says: str = "",
        protocols: Sequence[str] = ("sessioned", "compatible", "default"),
        *,
        assign: Assign = say_back,
        before_join: Callable[[int], None] = lambda generation: None,
        heard: Callable[[Told], None] = lambda told: None,
    ) -> None:
        self.says = says
        self.protocols = protocols
        self.told: list[Told] = []
        self._assign = assign
        self._before_join = before_join
        self._heard = heard
        self._changed = threading.Condition()

    # ------------------------------------------------------------------------------------------------ the member's side
    def metadata(self) -> Sequence[tuple[str, bytes]]:
        return [(protocol, self.says.encode()) for protocol in self.protocols]

    def before_join(self, generation: int) -> None:
        self._note("before_join", generation)
        self._before_join(generation)

    def assign(
        self, protocol: str, leader: str, members: Mapping[str, bytes], generation: int, last_completed: int
    ) -> Mapping[str, bytes]:
        self._note("assign", (protocol, dict(members), generation, last_completed))
        return self._assign(protocol, members, generation, last_completed)

    def joined(self, joined: RoundJoined) -> None:
        self._note("joined", joined)

    def lost(self, reason: str) -> None:
        self._note("lost", reason)

    def refused(self, error: GroupRefusedException) -> None:
        self._note("refused", error)

    def _note(self, kind: str, about: object) -> None:
        told = Told(kind, about, time.monotonic())
        with self._changed:
            self.told.append(told)
            self._changed.notify_all()
        self._heard(told)

    # -------------------------------------------------------------------------------------------------- the test's side
    def all(self, kind: str) -> list[Told]:
        """Everything of one kind."""
        with self._changed:
            return [told for told in self.told if told.kind == kind]

    def wait(
        self,
        kind: str,
        fits: Callable[[Any], bool] = lambda about: True,
        *,
        after: float = 0.0,
        timeout_s: float = 90.0,
    ) -> Told:
        """The first thing of a kind that was told after some moment and fits.

        Raises:
            TimeoutError: there is none in time; says what there was.
        """
        with self._changed:
            found: list[Told] = []

            def there() -> bool:
                found[:] = [one for one in self.told if one.kind == kind and one.at >= after and fits(one.about)]
                return bool(found)

            if not self._changed.wait_for(there, timeout_s):
                raise TimeoutError(f"Not told within {timeout_s} s: {kind}. Told: {self.told}")
            return found[0]

    def wait_joined(self, assignment: str | None = None, *, after: float = 0.0, timeout_s: float = 30.0) -> Told:
        """The first round that gave it this assignment, or any."""
        return self.wait(
            "joined",
            lambda joined: assignment is None or joined.assignment == assignment.encode(),
            after=after,
            timeout_s=timeout_s,
        )


@contextmanager
def run_member(
    worker: Mapping[str, str], owner: GroupOwner, *, client_id: str = "connect-test", polls: bool = True
) -> Iterator[GroupMember]:
    """A member that is started, and closed at the end.

    Args:
        worker: Settings of the worker.
        owner: Its owner.
        client_id: The default of the client id.
        polls: Whether the owner shows that it is alive.
    """
    member = GroupMember(group_settings(worker, client_id=client_id), owner)
    ended = threading.Event()

    def poll() -> None:
        while polls and not ended.wait(0.1):
            member.polled()

    poller = threading.Thread(target=poll, name="poller")
    member.start()
    poller.start()
    try:
        yield member
    finally:
        ended.set()
        poller.join()
        assert member.close(10), "The member has not ended in time"


class MemberProcess:
    """A member in a process of its own; a context manager, which ends the process."""

    def __init__(self, worker: Mapping[str, str], says: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testkit.brokers.group_owner", json.dumps({"worker": dict(worker), "says": says})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.owner = GroupOwner()
        self._reader = threading.Thread(target=self._read, name="member-process")
        self._reader.start()

    def __enter__(self) -> MemberProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGCONT)
        self.kill()
        self._reader.join(10)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless the process has ended."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Ends it at once."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            heard = json.loads(line)
            about = (
                RoundJoined(**{**heard["about"], "assignment": heard["about"]["assignment"].encode()})
                if (heard["kind"] == "joined")
                else heard["about"]
            )
            with self.owner._changed:
                self.owner.told.append(Told(heard["kind"], about, heard["at"]))
                self.owner._changed.notify_all()


def _say(told: Told) -> None:
    about = told.about
    if isinstance(about, RoundJoined):
        about = {**vars(about), "assignment": about.assignment.decode()}
    line = json.dumps({"kind": told.kind, "about": about, "at": told.at}, default=str)
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main(argument: str) -> None:
    """Is a member until standard input ends."""
    given = json.loads(argument)
    with run_member(given["worker"], GroupOwner(given["says"], heard=_say)):
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
