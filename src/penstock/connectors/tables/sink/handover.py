"""Units of data files that tasks have written, stored next to their table until one of the tasks commits them.

Main types: `CommitUnit`, the files and offset ranges of one task; `Handover`, the stored units of a connector.
``chain`` chooses the units of a commit.

A unit needs no lock. The table holds an offset for each partition, a unit states the offset from which it continues,
and the table refuses a commit if its own offset differs. So it does not matter which task commits a unit, when, or how
many tasks try. A unit is removed when it was committed, or can no longer be.

Thread: the task's. Source: Penstock's own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from penstock.api import TopicPartition
from penstock.connectors.tables.faults import fault_of
from penstock.connectors.tables.lake import Files, LakeTable, Moves
from penstock.files.names import path_part

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
