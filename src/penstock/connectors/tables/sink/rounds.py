"""Commits over all tasks of a connector, one per interval: `CommitRounds` is the part of one task.

Intervals end at the same time by the clock of each worker. At the end each task stores a `CommitUnit` of the files that
it has written, next to the table (`Handover`). After ``commit.wait.ms`` the task with the first id among those units
commits all of them; if it does not, the next task does so some seconds later. A task whose units are gone reads the
table, and its offsets are committed as far as the table has them.

A unit needs no lock. The table holds an offset for each partition, a unit states the offset from which it continues,
and the table refuses a commit if its own offset differs. So it does not matter which task commits a unit, when, or how
many tasks try. ``chain`` chooses the units of a commit. A unit is removed when it was committed, or can no longer be.

Thread: the task's. Source: Penstock's own; Iceberg's sink for Kafka Connect does the same with messages in a topic.
"""

from __future__ import annotations

import json
import logging
import random
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs

from penstock.api import TopicPartition
from penstock.connectors.tables.lake import CommitConflictException, Files, LakeTable, Moves, fault_of
from penstock.files.generations import path_part

if TYPE_CHECKING:
    from penstock.connectors.tables.sink.pending import Pending

log = logging.getLogger(__name__)

#: A directory next to the table, which readers and clean-ups of both formats ignore.
HIDDEN: Final = "_penstock"
_ENDING: Final = ".json"
#: File systems that show files before they are complete.
_SHOW_PARTS: Final = ("local", "hdfs")


@dataclass(frozen=True, slots=True)
class CommitUnit:
    """The files of one task that one commit adds to a table.

    Attributes:
        name: Its task's own id, a hyphen, and a number.
        made: The time at which it was made, in milliseconds of the epoch.
        files: The files.
        moves: The offset of each partition before and after these files.
    """

    name: str
    made: int
    files: Files
    moves: Moves

    def to_bytes(self) -> bytes:
        """The stored form."""
        moves = [[*place, before, after] for place, (before, after) in self.moves.items()]
        return json.dumps({"made": self.made, "moves": moves, **self.files}, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, name: str, data: bytes) -> CommitUnit:
        """Parses the stored form.

        Raises:
            ValueError: The bytes are invalid.
        """
        said: dict[str, Any] = json.loads(data)
        try:
            moves = {TopicPartition(one[0], one[1]): (one[2], one[3]) for one in said.pop("moves")}
            made = said.pop("made")
            if not (isinstance(said["table"], str) and isinstance(said["files"], list)):
                raise TypeError("names no files of a table")
            return cls(name, made, said, moves)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"no unit: {error}") from error


def owner_of(name: str) -> str:
    """The id of the task that has stored a unit of this name."""
    return name.rpartition("-")[0]


def chain(
    units: Sequence[CommitUnit], positions: Mapping[TopicPartition, int], own: Collection[str] = ()
) -> tuple[list[CommitUnit], dict[TopicPartition, tuple[int | None, int]]]:
    """Finds the units that continue what a table has, and each other.

    If two units have the same records, which happens after a task was replaced, one of the committing task takes
    precedence, and a newer one over older ones. A unit that is not taken never will be: a predecessor is stored before
    its successor.

    Args:
        units: All units that existed before ``positions`` were read.
        positions: The table's position in each partition.
        own: The names of those of the committing task.

    Returns:
        The units, and the offsets that they move together.
    """
    taken: list[CommitUnit] = []
    moves: dict[TopicPartition, tuple[int | None, int]] = {}
    left = sorted(units, key=lambda one: (one.name in own, one.made, one.name), reverse=True)
    while True:
        found = next(
            (one for one in left if all(_at(place, moves, positions) == one.moves[place][0] for place in one.moves)),
            None,
        )
        if found is None:
            return taken, moves
        left.remove(found)
        taken.append(found)
        for place, (before, after) in found.moves.items():
            moves[place] = (moves[place][0] if place in moves else before, after)


def _at(place: TopicPartition, moves: Moves, positions: Mapping[TopicPartition, int]) -> int | None:
    return moves[place][1] if place in moves else positions.get(place)


class Handover:
    """The units of a connector that are stored next to a table.

    Args:
        table: The table.
        connector: The connector.

    Raises:
        RetriableException: From every method: the store is unreachable.
        ConnectException: From every method: the store refuses.
    """

    def __init__(self, table: LakeTable, connector: str) -> None:
        self._where = f"the files that tasks hand over for the table {table.name}"
        with self._faults("open"):
            self._system, root = table.beside()
            self._directory = "/".join(filter(None, (root.rstrip("/"), HIDDEN, path_part(connector))))

    def names(self) -> list[str]:
        """The names of all units, in order."""
        with self._faults("list"):
            found = self._system.get_file_info(fs.FileSelector(self._directory, allow_not_found=True))
        names = [one.path.rpartition("/")[2] for one in found]
        return sorted(one.removesuffix(_ENDING) for one in names if one.endswith(_ENDING))

    def put(self, unit: CommitUnit) -> None:
        """Stores a unit, after its files."""
        path = self._path(unit.name)
        shows_parts = self._system.type_name in _SHOW_PARTS
        with self._faults("write"):
            if shows_parts:  # Object stores have no directories.
                self._system.create_dir(self._directory, recursive=True)
            with self._system.open_output_stream(f"{path}.new" if shows_parts else path) as out:
                out.write(unit.to_bytes())
            if shows_parts:
                self._system.move(f"{path}.new", path)

    def units(self, names: Sequence[str]) -> list[CommitUnit]:
        """The units of these names that still exist."""
        found = []
        for name in names:
            try:
                with self._faults("read"), self._system.open_input_stream(self._path(name)) as file:
                    found.append(CommitUnit.from_bytes(name, bytes(file.read())))
            except FileNotFoundError:
                continue
            except ValueError as error:
                log.warning("%s: %s is passed over, and its records are read again: %s", self._where, name, error)
        return found

    def remove(self, names: Sequence[str]) -> None:
        """Removes units, and leaves their files."""
        for name in names:
            try:
                with self._faults("delete"):
                    self._system.delete_file(self._path(name))
            except FileNotFoundError:
                continue  # Another task was faster.

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}{_ENDING}"

    @contextmanager
    def _faults(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise fault_of(error, self._where, what) from error


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
