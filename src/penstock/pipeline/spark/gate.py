"""Lets batches of several tasks that need the same plan share one Spark job.

A job has a fixed cost that a small batch does not pay back. So at most `permits` jobs run at a time; batches that
arrive meanwhile wait, and the next job includes every waiting batch with the same plan. A batch never waits when a
permit is free, so sharing costs a single batch nothing. Several small batches run before a large one, because one task
with large messages would delay all other tasks.

Main type: `Gate`. It owns no thread: the callers' threads (one pipeline thread for each task) run the jobs. All state
is guarded by one condition.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from penstock.telemetry import waiting_for

if TYPE_CHECKING:
    import pyarrow as pa

Execute = Callable[["pa.Table"], "pa.Table"]

#: Batches up to this size run before larger ones, at most this many in a row.
SMALL_BYTES: Final = 1024 * 1024
MOST_BEFORE: Final = 16
_TURN: Final = "batches of other tasks come first, or share a job with this one"


class _Ticket:
    """One batch at the gate: the input, then the output or the failure."""

    __slots__ = ("done", "error", "key", "result", "small", "table", "taken")

    def __init__(self, key: Hashable, table: pa.Table) -> None:
        self.key = key
        self.table = table
        self.small = table.nbytes <= SMALL_BYTES
        self.taken = False
        self.done = False
        self.result: pa.Table | None = None
        self.error: BaseException | None = None


class Gate:
    """Admits batches to Spark, several of one plan together.

    Args:
        permits: jobs that may run at the same time, at least 1.
        max_records: upper bound of the rows of a shared job. A single batch above it still runs, by itself.
        max_bytes: upper bound of their size, likewise. Beyond it there is nothing to gain from sharing, and a job takes
            several times its input in memory.

    Thread: any; calls block until the caller's own batch is done.
    """

    def __init__(self, permits: int, max_records: int = 100_000, max_bytes: int = 8 * 1024 * 1024) -> None:
        if permits < 1:
            raise ValueError(f"a gate needs at least one permit, got {permits}")
        self._free = permits
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._waiting: deque[_Ticket] = deque()
        # How many batches in a row have gone before the one that has waited for longest.
        self._gone_before = 0
        self.jobs = 0
        self.shared_batches = 0

    def run(self, key: Hashable, table: pa.Table, execute: Execute) -> pa.Table:
        """Runs `execute` on the batch, perhaps together with batches that others brought under the same key.

        Args:
            key: identifies chain and schemas; batches with equal keys have equal Arrow schemas, and one caller's
                `execute` is as good as another's.
            table: the batch.
            execute: maps a table to a table with as many rows in the same order; runs one Spark job.

        Returns:
            The rows of the result that belong to `table`, in order.

        Raises:
            BaseException: what `execute` raised for this batch. When a shared job fails, every batch of it is run
                again by itself, so that one batch cannot fail another.
        """
        ticket = _Ticket(key, table)
        with self._changed:
            self._waiting.append(ticket)
            self._changed.notify_all()
        while True:
            with self._changed, waiting_for("spark", _TURN):
                self._changed.wait_for(lambda: ticket.done or (self._free > 0 and self._is_next(ticket)))
                if ticket.done:
                    break
                self._free -= 1
                group = self._take(ticket)
            try:
                self._execute(group, execute)
            finally:
                with self._changed:
                    self._free += 1
                    for member in group:
                        member.done = True
                    self._changed.notify_all()
        if ticket.error is not None:
            raise ticket.error
        assert ticket.result is not None
        return ticket.result

    def _is_next(self, ticket: _Ticket) -> bool:
        if ticket.taken or not self._waiting:
            return False
        small = next((one for one in self._waiting if one.small), None)
        return ticket is (self._waiting[0] if small is None or self._gone_before >= MOST_BEFORE else small)

    def _take(self, first: _Ticket) -> list[_Ticket]:
        """Removes a waiting ticket and those of the same key that fit into the same job. Caller holds the lock."""
        self._gone_before = 0 if self._waiting[0] is first else self._gone_before + 1
        group: list[_Ticket] = [first]
        rest: deque[_Ticket] = deque()
        first.taken = True
        rows, nbytes = first.table.num_rows, first.table.nbytes
        for ticket in self._waiting:
            if ticket is first:
                continue
            more_rows, more_bytes = ticket.table.num_rows, ticket.table.nbytes
            fits = rows + more_rows <= self._max_records and nbytes + more_bytes <= self._max_bytes
            if ticket.key == first.key and fits:
                ticket.taken = True
                group.append(ticket)
                rows += more_rows
                nbytes += more_bytes
            else:
                rest.append(ticket)
        self._waiting = rest
        self._changed.notify_all()
        return group

    def _execute(self, group: list[_Ticket], execute: Execute) -> None:
        if len(group) > 1:
            try:
                self._execute_shared(group, execute)
                return
            except Exception:  # each batch gets its own verdict below
                pass
        for ticket in group:
            self.jobs += 1
            try:
                ticket.result = execute(ticket.table)
            except BaseException as error:
                ticket.error = error

    def _execute_shared(self, group: list[_Ticket], execute: Execute) -> None:
        import pyarrow as pa

        self.jobs += 1
        output = execute(pa.concat_tables([ticket.table for ticket in group]))
        expected = sum(ticket.table.num_rows for ticket in group)
        if output.num_rows != expected:
            raise RuntimeError(f"a shared job returned {output.num_rows} rows for {expected}")
        self.shared_batches += len(group)
        start = 0
        for ticket in group:
            ticket.result = output.slice(start, ticket.table.num_rows)
            start += ticket.table.num_rows
