"""A single broker that is stopped and killed, again and again, under eight sources that deliver exactly once.

Main type: ``BrokerRounds`` (`bin/chaos --distributed` runs it behind its faults at random). A broker that stops while
transactions end can leave hanging ones behind, which nobody but the worker ends: after each round every source has to
go on by itself. At the end each line is in its topic once and in order.

Thread: the test's; each source's file has its feeder.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from testkit.doubles.exactly_once import visible
from testkit.processes.file_flow import Feeder
from testkit.processes.worker_group import WorkerGroup

from penstock.broker import EmbeddedBroker

SOURCES: Final = 8
ROUNDS: Final = 10
#: Longest that all sources may take to go on after a round: a hanging transaction has to be older than its timeout.
MENDED_S: Final = 180.0
_LOOK_S: Final = 1.0
_HUNG: Final = re.compile(r"a transaction of (\S+) \(producer id \d+\) was hanging")


class BrokerRounds:
    """Runs rounds against one worker of its own.

    Args:
        directory: For all files.
        broker: A running broker that only this run uses.
        say: Gets a line for each thing that happens.
    """

    def __init__(self, directory: Path, broker: EmbeddedBroker, say: Callable[[str], None] = print) -> None:
        self._directory, self._broker, self._say = directory, broker, say
        settings = {"exactly.once.source.support": "enabled", "offset.flush.interval.ms": "1000"}
        self._group = WorkerGroup(directory, broker.bootstrap_servers, settings, size=1)

    def run(self, rounds: int = ROUNDS, seed: int = 1) -> None:
        """Stops the broker cleanly and hard by turns, starts it again, and waits until all sources go on.

        Raises:
            AssertionError: A source does not go on by itself, or a line is missing, twice or out of order.
        """
        chance = random.Random(seed)
        with ExitStack() as opened:
            opened.callback(self._group.close)
            self._group.start()
            with ExitStack() as feeders:
                for number in range(SOURCES):
                    path = self._directory / f"source-{number}.txt"
                    path.touch()
                    feeders.enter_context(Feeder(path, 5, per_s=8))
                    config = {"connector.class": "FileStreamSource", "file": str(path), "tasks.max": "1"}
                    self._group.create(f"source-{number}", {**config, "topic": self._topic(number)})
                self._group.settled()
                self._go_on({}, "lines flow")
                for number in range(1, rounds + 1):
                    self._round(number, chance)
            for number in range(SOURCES):
                self._check(number)
            self._group.stop()
        hung = sorted(_HUNG.findall(self._group.logs()))
        self._say(f"{rounds} rounds, {SOURCES} sources, each line once and in order; {len(hung)} hanging transactions")

    def _round(self, number: int, chance: random.Random) -> None:
        clean = number % 2 == 1
        threading.Event().wait(chance.uniform(0.5, 3.0))
        before = self._counts()
        (self._broker.stop if clean else self._broker.kill)()
        threading.Event().wait(chance.uniform(0.1, 3.0))
        self._broker.start()
        back = time.monotonic()
        self._go_on(before, f"all sources go on after round {number}")
        took = time.monotonic() - back
        self._say(f"round {number}: broker {'stopped' if clean else 'killed'}; all sources go on after {took:.1f} s")

    def _go_on(self, before: dict[int, int], what: str) -> None:
        pause = threading.Event()

        def going() -> bool:
            counts = self._counts()
            behind = [number for number, count in counts.items() if count <= before.get(number, 0)]
            return not behind or pause.wait(_LOOK_S)

        self._group.wait(going, what, MENDED_S)

    def _counts(self) -> dict[int, int]:
        return {number: len(self._seen(number)) for number in range(SOURCES)}

    def _seen(self, number: int) -> list[str]:
        return visible(self._broker.bootstrap_servers, self._topic(number))

    def _check(self, number: int) -> None:
        wanted = (self._directory / f"source-{number}.txt").read_text().splitlines()
        pause = threading.Event()
        self._group.wait(
            lambda: len(self._seen(number)) >= len(wanted) or pause.wait(_LOOK_S), f"all lines of {number}", MENDED_S
        )
        assert self._seen(number) == wanted, f"source {number}: lines are missing, twice or out of order"

    def _topic(self, number: int) -> str:
        return f"{self._group.name}-round-{number}"
