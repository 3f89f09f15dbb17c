"""Commits over all tasks of a connector, one per interval: `CommitRounds` is the part of one task.

Intervals end at the same time by the clock of each worker. At the end each task stores a unit of the files that it has
written. After ``commit.wait.ms`` the task with the first id among those units commits all of them; if it does not, the
next task does so some seconds later. A task whose units are gone reads the table, and its offsets are committed as far
as the table has them.

Thread: the task's. Source: Penstock's own; Iceberg's sink for Kafka Connect does the same with messages in a topic.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from penstock.api import TopicPartition
from penstock.connectors.tables.lake import CommitConflictException, LakeTable
from penstock.connectors.tables.sink.handover import CommitUnit, Handover, chain, owner_of
from penstock.connectors.tables.sink.pending import Pending

log = logging.getLogger(__name__)

#: The number of attempts at a commit that conflicts with another writer, before the task waits.
AT_ONCE: Final = 5
#: The time that a task has for its turn, in seconds.
TURN_S: Final = 5.0


class CommitRounds:
    """Stores the units of one task, and commits the units of all tasks in its turn.

    Args:
        connector: The connector.
        interval_s: The time from one commit to the next.
        wait_s: How long a commit waits for other tasks.
        clock: Monotonic seconds.
        wall_clock: Seconds of the epoch; about the same on all workers.
    """

    def __init__(
        self,
        connector: str,
        interval_s: float,
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._connector = connector
        self._interval_s = interval_s
        self._wait_s = min(wait_s, interval_s / 2)
        self._clock = clock
        self._wall_clock = wall_clock
        self._id = uuid.uuid4().hex[:12]
        self._count = 0
        self._takes_over: set[str] = set()

    def end_of_interval(self) -> float:
        """The end of the present interval, by ``clock``."""
        return self._clock() + self._interval_s - self._wall_clock() % self._interval_s

    def hand_over(self, pending: Pending, moves: Mapping[TopicPartition, tuple[int | None, int]], due: float) -> None:
        """Writes the waiting rows of a table to files, and stores them as a unit.

        Args:
            pending: The rows.
            moves: The offset of each partition before and after them.
            due: The end of the interval, by ``clock``.

        Raises:
            RetriableException: The lake cannot be reached.
            ConnectException: The lake refuses the files.
        """
        table = pending.table
        assert table is not None
        files = table.write(pending.rows(table.columns))
        self._count += 1
        unit = CommitUnit(f"{self._id}-{self._count:06d}", int(self._wall_clock() * 1000), files, moves)
        Handover(table, self._connector).put(unit)
        pending.hand_over(unit, due + self._wait_s)

    def settle(self, pending: Pending, *, at_once: bool = False) -> dict[TopicPartition, int]:
        """Commits the stored units if it is this task's turn, and finds out which of its own rows are in the table.

        Args:
            pending: The rows and units of the table.
            at_once: True if the task does not wait for its turn.

        Returns:
            The partitions with rows that will not get into the table, each with the first of their offsets.

        Raises:
            RetriableException: The lake cannot be reached.
            ConnectException: The lake refuses the commit, or the table is gone.
        """
        if not pending.handed:
            return {}
        table = pending.table
        assert table is not None
        handover = Handover(table, self._connector)
        there = handover.names()
        if at_once or self._has_turn(pending, there):
            self._commit(table, handover, pending)
            there = []
        elif all(one.unit.name in there for one in pending.handed):
            return {}
        else:
            table.refresh()
        return pending.settle(there, table.positions())

    def finish(self, pending: Pending) -> None:
        """Commits the units of tasks that have ended, before a partition is read.

        Raises:
            ConnectException: As ``settle``.
        """
        if pending.table is not None:
            handover = Handover(pending.table, self._connector)
            if handover.names():
                self._commit(pending.table, handover, pending)

    def _has_turn(self, pending: Pending, there: list[str]) -> bool:
        ready = min((one.ready for one in pending.handed if one.unit.name in there), default=None)
        if ready is None:
            return False
        turn = sorted({owner_of(name) for name in there}).index(self._id)
        if self._clock() < ready + turn * TURN_S:
            return False
        if turn and pending.name not in self._takes_over:
            log.warning(
                "What tasks have handed over for the table %s was not committed by the task whose turn it was, in %.0f "
                "s: this task commits it",
                pending.name,
                turn * TURN_S,
            )
            self._takes_over.add(pending.name)
        elif not turn:
            self._takes_over.discard(pending.name)
        return True

    def _commit(self, table: LakeTable, handover: Handover, pending: Pending) -> None:
        own = {one.unit.name for one in pending.handed}
        for tries_left in range(AT_ONCE, -1, -1):
            # Units are listed before the table is read: a unit that was committed between the two is skipped.
            names = handover.names()
            units = handover.units(names)
            table.refresh()
            fitting = [one for one in units if table.fits(one.files)]
            taken, moves = chain(fitting, table.positions(), own)
            try:
                if taken:
                    table.add([one.files for one in taken], moves)
            except CommitConflictException as error:
                if not tries_left:
                    raise
                log.info("%s. The commit is made again on the newest version", error)
                time.sleep(random.uniform(0, 0.2))
                continue
            handover.remove(names)
            table.refresh()
            return
