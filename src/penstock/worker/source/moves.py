"""Positions of a source task that have moved without a record: from the task's call to the end of its poll.

Main type: `Moves`. Moves count after the records of the poll in which the task reported them, since only the task knows
their order within the poll. Then they are part of the batch (``batcher``).

Thread: any adds, the task's takes.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping

from penstock.stores.offsets import key_bytes, partition_identity, value_bytes

#: A source partition and the position in it; None: the partition is forgotten.
Move = tuple[Mapping[str, object], Mapping[str, object] | None]


class Moves:
    """The positions that a task has reported and that are not in a batch yet; the last one of a source partition
    counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[Hashable, Move] = {}

    def add(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        """Takes a position.

        Raises:
            DataException: It cannot be stored.
        """
        # Here, where the author sees it: later it would fail the task without saying where it is from.
        key_bytes("", partition)
        value_bytes(offset)
        move = dict(partition), None if offset is None else dict(offset)
        with self._lock:
            self._told[partition_identity(partition)] = move

    def take(self) -> list[Move]:
        """The positions since the last call."""
        with self._lock:
            told, self._told = self._told, {}
            return list(told.values())
