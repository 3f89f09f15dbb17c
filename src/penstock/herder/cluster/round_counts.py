"""Counts the rounds in which a group deals out its work, as one worker of it lives through them.

Main type: ``RoundCounts``. It stands between the member and its owner, and tells the owner all that it hears. A round
begins for a worker when it is about to join, and has ended when what it was given is in force; a round that another
one overtakes is a part of that.

Thread: the member's threads tell it of rounds, the herder's that one is in force, any thread reads.
Source: org.apache.kafka.connect.runtime.distributed.DistributedHerder.HerderMetrics; metrics.md section 8.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence

from penstock.api import Avg, Max, SampleWindow
from penstock.kafka.group.events import GroupEvents, GroupRefusedException, Joined


class RoundCounts(GroupEvents):
    """The rounds of one worker.

    Args:
        owner: Is told all that the member tells.
        clock: Monotonic seconds.
        window: What the longest and the average duration look at.
    """

    def __init__(self, owner: GroupEvents, clock: Callable[[], float], window: SampleWindow) -> None:
        self._owner = owner
        self._clock = clock
        self._window = window
        self._lock = threading.Lock()
        #: When the worker began to join; None while it does not.
        self._joins_s: float | None = None
        #: When each round began that has ended in the group and is not in force here, by generation.
        self._coming: dict[int, float] = {}
        self._completed = 0
        self._last_s: float | None = None
        self._longest, self._average = Max(), Avg()

    # ------------------------------------------------------------------ what happens
    def in_force(self, generation: int) -> None:
        """What the round of this generation has given runs from now on, and nothing of it is to be given up."""
        with self._lock:
            began = [self._coming.pop(one) for one in list(self._coming) if one <= generation]
            if not began:
                return
            now = self._clock()
            self._completed, self._last_s = self._completed + 1, now
            for stat in (self._longest, self._average):
                stat.record((now - min(began)) * 1000, now, self._window)

    # ------------------------------------------------------------------ what is read
    @property
    def completed(self) -> int:
        """How many rounds have come into force."""
        return self._completed

    @property
    def under_way(self) -> bool:
        """Whether the worker joins, or what it was given is not in force yet."""
        with self._lock:
            return self._joins_s is not None or bool(self._coming)

    @property
    def longest_ms(self) -> float:
        """Of the window's rounds; NaN when there was none."""
        return self._measured(self._longest)

    @property
    def average_ms(self) -> float:
        """Of the window's rounds; NaN when there was none."""
        return self._measured(self._average)

    @property
    def since_last_ms(self) -> float:
        """How long ago a round came into force; infinite before the first."""
        last_s = self._last_s
        return math.inf if last_s is None else (self._clock() - last_s) * 1000

    def _measured(self, stat: Max | Avg) -> float:
        with self._lock:
            return stat.measure(self._clock(), self._window)

    # ------------------------------------------------------------------ GroupEvents
    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """See ``GroupEvents``."""
        return self._owner.metadata()

    def before_join(self, generation: int) -> None:
        """See ``GroupEvents``."""
        self._joins()
        self._owner.before_join(generation)

    def assign(
        self, protocol: str, leader: str, members: Mapping[str, bytes], generation: int, last_completed: int
    ) -> Mapping[str, bytes]:
        """See ``GroupEvents``."""
        return self._owner.assign(protocol, leader, members, generation, last_completed)

    def joined(self, joined: Joined) -> None:
        """See ``GroupEvents``."""
        with self._lock:
            began, self._joins_s = self._joins_s, None
            self._coming[joined.generation] = self._clock() if began is None else began
        self._owner.joined(joined)

    def lost(self, reason: str) -> None:
        """See ``GroupEvents``."""
        with self._lock:
            self._coming.clear()
        self._joins()
        self._owner.lost(reason)

    def refused(self, error: GroupRefusedException) -> None:
        """See ``GroupEvents``."""
        self._owner.refused(error)

    def _joins(self) -> None:
        with self._lock:
            if self._joins_s is None:
                self._joins_s = self._clock()
