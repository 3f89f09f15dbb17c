"""Kills that come by a plan: ``Kill`` and ``plan``, which are pure, and ``strike``, which does some of them.

Thread: any; ``strike`` the test's. Source: Penstock's own.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from testkit.processes.worker_group import WorkerGroup

    from penstock.broker import EmbeddedBroker

_LONGEST_S: Final = 8.0


@dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
        at_s: When it comes, after the first.
        whom: One of the victims.
        worker: Which worker, or whose JVM.
        lasts_s: After which time the victim is started again, unless it comes by itself or by its worker.
    """

    at_s: float
    whom: str
    worker: int
    lasts_s: float


def plan(victims: Sequence[str], seed: int, seconds: float, workers: int, pause_s: tuple[float, float]) -> list[Kill]:
    """The kills of so many seconds, the same for the same seed: each victim in turn, in an order of chance.

    Args:
        victims: Their names.
        seed: Of the chance.
        seconds: How long kills come.
        workers: How many there are.
        pause_s: The shortest and the longest time between two kills, in seconds.

    >>> kills = plan("abc", 1, 120, 2, (3, 12))
    >>> kills == plan("abc", 1, 120, 2, (3, 12)), kills == plan("abc", 2, 120, 2, (3, 12))
    (True, False)
    >>> {one.whom for one in kills} == set("abc")
    True
    """
    chance, kills, at_s = random.Random(seed), list[Kill](), 0.0
    while at_s < seconds:
        for whom in chance.sample(victims, len(victims)):
            if at_s < seconds:
                kills.append(Kill(at_s, whom, chance.randrange(workers), chance.uniform(0.2, _LONGEST_S)))
            at_s += chance.uniform(*pause_s)
    return kills


def strike(
    kill: Kill, group: WorkerGroup, broker: EmbeddedBroker, others: Mapping[str, tuple[Callable[[], object], ...]]
) -> None:
    """Kills somebody, and starts it again once its time is over.

    Args:
        kill: Whom; ``worker``, ``JVM`` and ``broker`` are known.
        group: The workers.
        broker: Their broker.
        others: How others are killed, and how they are started again if they do not come by themselves.
    """
    worker = group.workers[kill.worker]
    known: dict[str, tuple[Callable[[], object], ...]] = {
        "worker": (worker.kill, worker.start),
        "broker": (broker.kill, broker.start),
        **others,
    }
    if kill.whom == "JVM":
        if (jvm := worker.jvm()) is not None:
            with suppress(ProcessLookupError):
                os.kill(jvm, signal.SIGKILL)
        return
    end, *again = known[kill.whom]
    end()
    for begin in again:
        threading.Event().wait(kill.lasts_s)
        begin()
