"""Faults at random in a group of workers and its broker, while lines flow through five connectors.

Main types: `Fault`, `GroupChaos` (`bin/chaos --distributed`). Main function: `plan`, which faults a seed makes. Three
file sources deliver exactly once, with other boundaries of their transactions each; a file sink delivers at least once,
and the sink of ``examples/exactly_once_sink.py`` once. At the end every line was moved: once and in order in each
topic, once in the database, and at least once in the file. Thread: the test's; each source's file has its feeder.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from testkit.brokers.embedded import freeze, thaw
from testkit.doubles.exactly_once import visible
from testkit.processes.file_flow import Feeder
from testkit.processes.worker_group import GroupWorker, WorkerGroup

from penstock.broker import EmbeddedBroker

WORKERS: Final = 3
#: Longest that everything may take to run again after the last fault.
MENDED_S: Final = 120.0
_SINK: Final = Path("examples/exactly_once_sink.py")
_BOUNDARIES: Final = (
    {"transaction.boundary": "poll"},
    {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "100"},
    {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "2000"},
)
_LONGEST_S: Final = 60.0
_LONGEST_BROKER_S: Final = 20.0
_LOOK_S: Final = 2.0


class Kind(Enum):
    """The kinds of faults, and what they hit."""

    WORKER_KILLED = "worker killed"
    WORKER_STOPPED = "worker stopped"
    WORKER_FROZEN = "worker frozen"
    JVM_KILLED = "JVM killed"
    JVM_FROZEN = "JVM frozen"
    BROKER_STOPPED = "broker stopped"
    BROKER_KILLED = "broker killed"
    BROKER_FROZEN = "broker frozen"

    @property
    def of_broker(self) -> bool:
        """True if it happens to the broker."""
        return self in (Kind.BROKER_STOPPED, Kind.BROKER_KILLED, Kind.BROKER_FROZEN)


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        at_s: When it comes, after the first.
        kind: What happens.
        worker: To which worker.
        lasts_s: After which time it ends.
    """

    at_s: float
    kind: Kind
    worker: int
    lasts_s: float


def plan(seed: int, seconds: float) -> list[Fault]:
    """The faults of so many seconds, the same for the same seed; short ones are as likely as long ones.

    >>> faults = plan(1, 600)
    >>> faults == plan(1, 600), faults == plan(2, 600), {one.kind for one in faults} == set(Kind)
    (True, False, True)
    """
    chance, faults, at_s = random.Random(seed), list[Fault](), 0.0
    kinds = list(Kind)
    while at_s < seconds:
        kind = chance.choice(kinds)
        longest_s = _LONGEST_BROKER_S if kind.of_broker else _LONGEST_S
        faults.append(Fault(at_s, kind, chance.randrange(WORKERS), math.exp(chance.uniform(0, math.log(longest_s)))))
        at_s += chance.uniform(1, 15)
    return faults


class GroupChaos:
    """Runs a plan against workers of its own.

    Args:
        directory: for all files.
        broker: runs already; nobody else uses it.
        lines_at_once: how many lines each source's file gets, four times a second.
        say: gets a line for each thing that happens.
    """

    def __init__(
        self, directory: Path, broker: EmbeddedBroker, lines_at_once: int = 200, say: Callable[[str], None] = print
    ) -> None:
        self._directory, self._broker, self._lines_at_once, self._say = directory, broker, lines_at_once, say
        settings = {"exactly.once.source.support": "enabled", "offset.flush.interval.ms": "2000"}
        self._group = WorkerGroup(directory, broker.bootstrap_servers, settings, size=WORKERS)
        self._hurt: set[int | str] = set()
        self._came: Counter[str] = Counter()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._began = 0.0

    # ---------------------------------------------------------------- the run
    def run(self, faults: list[Fault]) -> None:
        """Starts all, lets the faults come and go, and checks every line.

        Raises:
            AssertionError: A line is missing, is there twice or out of order; something does not run again by itself; a
                worker has ended that nobody ended.
        """
        with ExitStack() as opened:
            opened.callback(self._group.close)
            # In front of that: a frozen broker would keep workers from ending.
            opened.callback(thaw, self._broker)
            # A session that is not hit starts with the first batch.
            hit = {fault.worker for fault in faults if fault.kind in (Kind.JVM_KILLED, Kind.JVM_FROZEN)}
            for number, worker in enumerate(self._group.workers):
                worker.spark_on_demand = number not in hit
            self._group.start()
            with ExitStack() as feeders:
                for number, boundary in enumerate(_BOUNDARIES):
                    self._in(number).touch()
                    feeders.enter_context(Feeder(self._in(number), self._lines_at_once))
                    source = {"connector.class": "FileStreamSource", "file": str(self._in(number)), "tasks.max": "1"}
                    self._group.create(f"in-{number}", {**source, "topic": self._topic(number), **boundary})
                self._make_sinks()
                self._group.settled()
                self._group.wait(lambda: self._written() and self._stored(), "lines flow", 180)
                self._disturb(faults)
                mended = time.monotonic()
                self._group.settled(timeout_s=MENDED_S)
                self._tell(f"all runs again after {time.monotonic() - mended:.1f} s")
            self._check()
            self._group.settled(timeout_s=MENDED_S)
            self._tell(", ".join(f"{count} x {kind}" for kind, count in sorted(self._came.items())))
            self._group.stop()

    def _make_sinks(self) -> None:
        for worker in self._group.workers:
            shutil.copy(_SINK, worker.directory)
        committed = {"consumer.override.isolation.level": "read_committed", "tasks.max": "1"}
        file = {"connector.class": "FileStreamSink", "file": str(self._out), "topics": self._topic(0)}
        self._group.create("out-file", {**file, **committed})
        once = {"connector.class": "exactly_once_sink:ExactlyOnceSink", "topics": self._topic(1)}
        self._group.create("out-once", {**once, "database": str(self._database), **committed})

    def _disturb(self, faults: list[Fault]) -> None:
        self._began = time.monotonic()
        for fault in faults:
            self._later(fault.at_s, lambda fault=fault: self._come(fault))  # type: ignore[misc]
        pause = threading.Event()
        while self._due:
            when, _, act = heapq.heappop(self._due)
            pause.wait(max(0.0, when - self._now()))
            self._look()
            act()

    def _come(self, fault: Fault) -> None:
        whom: int | str = "broker" if fault.kind.of_broker else fault.worker
        worker = self._group.workers[fault.worker]
        if whom in self._hurt:
            return
        jvm = worker.jvm()
        if fault.kind is Kind.WORKER_STOPPED and worker.get("/")[0] == 0:
            return  # It has just been started, and a signal would end Python before there is a worker.
        if jvm is None and fault.kind in (Kind.JVM_KILLED, Kind.JVM_FROZEN):
            return
        self._tell(f"{fault.kind.value} ({whom}) for {fault.lasts_s:.1f} s")
        self._hurt.add(whom)
        self._came[fault.kind.value] += 1
        end = self._hit(fault.kind, worker, jvm or 0)

        def mend() -> None:
            end()
            self._hurt.remove(whom)
            self._tell(f"{whom} is itself again")

        self._later(self._now() + fault.lasts_s, mend)

    def _hit(self, kind: Kind, worker: GroupWorker, jvm: int) -> Callable[[], object]:
        """Lets it happen; what ends it."""
        if kind is Kind.WORKER_KILLED:
            worker.kill()
            return worker.start
        if kind is Kind.WORKER_STOPPED:
            os.kill(worker.pid, signal.SIGTERM)

            def again() -> None:
                # Without a broker it takes a while to find out that nothing can be committed.
                assert worker.wait_ended(120) == 0, worker.text()[-4000:]
                worker.start()

            return again
        if kind is Kind.WORKER_FROZEN:
            worker.freeze()
            return worker.thaw
        if kind is Kind.JVM_KILLED:
            _signal(jvm, signal.SIGKILL)
            return lambda: None
        if kind is Kind.JVM_FROZEN:
            _signal(jvm, signal.SIGSTOP)
            return lambda: _signal(jvm, signal.SIGCONT)
        if kind in (Kind.BROKER_STOPPED, Kind.BROKER_KILLED):
            (self._broker.stop if kind is Kind.BROKER_STOPPED else self._broker.kill)()
            return self._broker.start
        freeze(self._broker)
        return partial(thaw, self._broker)

    # ---------------------------------------------------------------- what must hold
    def _look(self) -> None:
        """Fails when a worker has ended by itself."""
        for number, worker in enumerate(self._group.workers):
            ended = worker.running.poll() if worker.running else None
            assert number in self._hurt or ended is None, f"worker {number} ended with {ended}\n{worker.text()[-6000:]}"

    def _check(self) -> None:
        """Waits until all lines are where they are to be, and compares them."""
        lines = 0
        for number in range(len(_BOUNDARIES)):
            wanted = self._in(number).read_text().splitlines()
            lines += len(wanted)
            found: list[str] = []

            def complete(number: int = number, count: int = len(wanted)) -> bool:
                nonlocal found
                found = visible(self._broker.bootstrap_servers, self._topic(number))
                return len(found) >= count

            self._wait_slowly(complete, f"{len(wanted)} lines in {self._topic(number)}")
            assert found == wanted, f"topic {number}: {_difference(wanted, found)}"
        wanted = self._in(1).read_text().splitlines()
        self._wait_slowly(lambda: len(self._stored()) >= len(wanted), f"{len(wanted)} lines in the database")
        assert self._stored() == wanted, f"database: {_difference(wanted, self._stored())}"
        distinct = set(self._in(0).read_text().splitlines())
        self._wait_slowly(lambda: distinct <= set(self._written()), f"{len(distinct)} lines in the file")
        again = len(self._written()) - len(distinct)
        self._tell(f"{lines} lines, each once and in order in its topic and the database; {again} twice in the file")

    def _wait_slowly(self, holds: Callable[[], bool], what: str) -> None:
        pause = threading.Event()

        def later() -> bool:
            return holds() or pause.wait(_LOOK_S)

        self._group.wait(later, what, 600)

    def _written(self) -> list[str]:
        return self._out.read_text(errors="replace").splitlines() if self._out.exists() else []

    def _stored(self) -> list[str]:
        if not self._database.exists():
            return []
        database = sqlite3.connect(self._database, timeout=30)
        try:
            return [row[0] for row in database.execute('SELECT value FROM lines ORDER BY "offset"')]
        except sqlite3.OperationalError:
            return []  # The sink has not made its tables yet.
        finally:
            database.close()

    # ---------------------------------------------------------------- names and times
    def _in(self, number: int) -> Path:
        return self._directory / f"in-{number}.txt"

    @property
    def _out(self) -> Path:
        return self._directory / "out.txt"

    @property
    def _database(self) -> Path:
        return self._directory / "lines.db"

    def _topic(self, number: int) -> str:
        return f"{self._group.name}-lines-{number}"

    def _later(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_s, next(self._numbers), act))

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _tell(self, text: str) -> None:
        self._say(f"{self._now():7.1f} s  {text}")


def _signal(pid: int, number: signal.Signals) -> None:
    """Signals a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _difference(wanted: list[str], found: list[str]) -> str:
    counted = Counter(found)
    missing = [line for line in wanted if line not in counted]
    twice = [line for line, count in counted.items() if count > 1]
    at = next((row for row, (one, other) in enumerate(zip(wanted, found, strict=False)) if one != other), None)
    return f"{len(missing)} missing ({missing[:3]}), {len(twice)} more than once ({twice[:3]}), first other at {at}"
