"""Workers come and go: where the work is then, what was not touched, and how long that took.

Each measured time is printed (``pytest -rP``) beside what is aimed at on a machine that has nothing else to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from testkit.connectors.journal_source import Probes
from testkit.processes.worker_group import GroupWorker, WorkerGroup

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

#: How much longer than aimed at it may take where other tests run beside it.
UNDER_LOAD = 5


class Spread:
    """Probe connectors that are spread over the group, and what happens to their units."""

    def __init__(self, group: WorkerGroup, probes: Probes) -> None:
        self.group, self.probes = group, probes

    def make(self, name: str, tasks: int) -> None:
        """A connector more."""
        self.group.create(name, self.probes.config(tasks))

    def timed(self, what: str, aim_s: float, trigger: Callable[[], float | None]) -> set[str]:
        """Waits after a trigger until all is where it is to be; which units were started, and not too late.

        Args:
            what: for the printed line.
            aim_s: how long it may take.
            trigger: acts; gives the moment that counts when it is not that of the call.
        """
        before = len(self.probes.calls())
        began = time.monotonic()
        began = trigger() or began
        self.group.settled()
        started = [call for call in self.probes.calls()[before:] if call.call == "start"]
        took = max((call.at_s for call in started), default=began) - began
        print(f"{what}: {took:.2f} s, aimed at {aim_s:g} s; started: {', '.join(call.unit for call in started)}")
        assert took < aim_s * UNDER_LOAD, what
        return {call.unit for call in started}

    def since(self, mark: int, what: str) -> set[str]:
        """The units of which something was called after so many entries of the journal."""
        return {call.unit for call in self.probes.calls()[mark:] if call.call == what}

    def of(self, *workers: GroupWorker) -> set[str]:
        """The units that these workers have."""
        return {unit for unit, worker in self.group.where().items() if worker in workers}


@pytest.fixture
def spread(group: WorkerGroup, probes: Probes) -> Spread:
    """Two connectors with five tasks, as two of the three workers can have them evenly too."""
    made = Spread(group, probes)
    made.make("m-a", 3)
    made.make("m-b", 2)
    group.settled()
    return made


def test_scenarios_53_and_54_a_worker_that_leaves_and_comes_back_moves_its_share_alone(spread: Spread) -> None:
    group = spread.group
    leaving = group.followers()[0]
    theirs, mark = spread.of(leaving), len(spread.probes.calls())
    others = set(group.where()) - theirs

    def leave() -> None:
        assert leaving.end() == 0, leaving.text()[-4000:]

    assert spread.timed("a worker leaves", 1, leave) == theirs
    assert not spread.since(mark, "stop") & others

    def join() -> float:
        known = len(leaving.text())
        leaving.start()
        leaving.wait(lambda: "The worker serves" in leaving.said_since(known), "it serves", 120)
        return time.monotonic()

    mark = len(spread.probes.calls())
    moved = spread.timed("a worker joins", 3, join)
    assert moved == spread.of(leaving) == spread.since(mark, "stop")


def test_scenarios_56_and_59_work_of_workers_that_were_killed_is_taken_over_and_spread_again(spread: Spread) -> None:
    group = spread.group
    # The leader too, once each.
    for victim in (group.leader(), group.followers()[0]):
        theirs, mark = spread.of(victim), len(spread.probes.calls())
        others = set(group.where()) - theirs

        def kill(victim: GroupWorker = victim) -> float:
            victim.kill()
            return time.monotonic()

        assert spread.timed("a worker is killed", 8, kill) == theirs
        assert not spread.since(mark, "stop") & others
    group.start()
    group.settled()
    assert all(spread.of(worker) for worker in group.workers)
