"""What a source task says about its transactions, with ``transaction.boundary=connector``.

Main type: ``TransactionRequests``, the `TransactionContext` of a task, which cuts what was polled where the task asked
for it.

Thread: any may ask; `pieces` is called on the task's thread.
Source: org.apache.kafka.connect.runtime.WorkerTransactionContext; KIP-618.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from penstock.api import SourceFrame, SourceRecord, TransactionContext
from penstock.errors import ConnectException, IllegalWorkerStateException
from penstock.worker.boundaries import End
from penstock.worker.source_stages import Polled


class TransactionRequests(TransactionContext):
    """The requests of one task.

    Args:
        owner: The task, for messages.
        frames: Whether it returns frames, whose rows are no records that it could name.
    """

    def __init__(self, owner: str, *, frames: bool = False) -> None:
        self._owner = owner
        self._frames = frames
        self._lock = threading.Lock()
        self._batch: set[End] = set()
        # The records themselves are kept, so that nothing else gets their ids.
        self._records: dict[int, tuple[SourceRecord, set[End]]] = {}

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """See ``TransactionContext``."""
        self._ask(record, End.COMMIT)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """See ``TransactionContext``."""
        self._ask(record, End.ABORT)

    def pieces(self, polled: Polled | None) -> list[tuple[Polled, End]]:
        """What was polled, cut where the task has asked for the end of its transaction.

        Args:
            polled: What ``poll`` has returned; None and empty for nothing.

        Raises:
            ConnectException: The task asks for a commit and for an abort at the same place.
        """
        with self._lock:
            batch, self._batch = self._one(self._batch, "the same batch"), set()
            if polled is None or isinstance(polled, SourceFrame):
                if polled is None:
                    return [] if batch is None else [((), batch)]
                return [(polled, batch or End.POLL)]
            return self._cut(polled, batch) if self._records else _whole(polled, batch)

    def _ask(self, record: SourceRecord | None, end: End) -> None:
        if record is None:
            with self._lock:
                self._batch.add(end)
            return
        if self._frames:
            raise IllegalWorkerStateException(
                f"Task {self._owner} returns frames, whose rows are no records: it can end a transaction after the "
                "frame that it returns next, without naming a record"
            )
        if not isinstance(record, SourceRecord):
            raise ConnectException(
                f"Task {self._owner} wants its transaction to end after a {type(record).__name__}: give the "
                "SourceRecord that poll() returns, or nothing"
            )
        with self._lock:
            self._records.setdefault(id(record), (record, set()))[1].add(end)

    def _cut(self, polled: Sequence[SourceRecord], batch: End | None) -> list[tuple[Polled, End]]:
        found: list[tuple[Polled, End]] = []
        first = 0
        for row, record in enumerate(polled):
            asked = self._records.pop(id(record), None)
            if asked is None:
                continue
            end = self._one(asked[1], f"the same record ({record.source_partition}, {record.source_offset})")
            assert end is not None
            found.append((polled[first : row + 1], end))
            first = row + 1
        # Where a request for its last record stands already, one for the whole batch finds nothing left.
        return found if first == len(polled) and found else [*found, *_whole(polled[first:], batch)]

    def _one(self, ends: set[End], place: str) -> End | None:
        if len(ends) > 1:
            raise ConnectException(
                f"Task {self._owner} asks for a commit and for an abort of the transaction after {place}: it can be "
                "one of them"
            )
        return next(iter(ends), None)


def _whole(polled: Sequence[SourceRecord], batch: End | None) -> list[tuple[Polled, End]]:
    return [(polled, batch or End.POLL)] if polled or batch else []
