"""Sends only the lengths of messages through Spark; batches that arrive while a job runs share the next job.

Every job costs the JVM some milliseconds, and has nothing to do for a batch that is converted outside Spark. So such a
batch sends one row, with the lengths of its keys and values, and all waiting batches share a job. A batch never waits
for further batches: if no job is running it starts one at once.

Main types: ``Passing``, and ``LENGTHS``, the columns of a row. Main function: ``lengths_of``. Thread: any; the waiting
threads run the jobs, one at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry import waiting_for

#: A row for each batch: the lengths of its keys and values in bytes, null where a message has none; null for a column
#: without any.
LENGTHS: Final = pa.schema([("key", pa.list_(pa.int32())), ("value", pa.list_(pa.int32()))])
#: The most messages that share a job, in addition to one larger batch.
MOST_MESSAGES: Final = 1_000_000


def lengths_of(messages: pa.Table) -> pa.Table:
    """The row of a batch.

    Args:
        messages: Keys and values, as bytes or texts.

    >>> lengths_of(pa.table({"key": pa.nulls(2, pa.binary()), "value": [b"abc", None]})).to_pylist()
    [{'key': None, 'value': [3, None]}]
    """
    rows = messages.num_rows
    columns = []
    for name in LENGTHS.names:
        column = messages.column(name)
        if column.null_count == rows:
            columns.append(pa.nulls(1, LENGTHS.field(name).type))
            continue
        chunks = [pc.binary_length(chunk).cast(pa.int32()) for chunk in column.chunks]
        lengths = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        columns.append(pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), lengths))
    return pa.Table.from_arrays(columns, schema=LENGTHS)


class _Ticket:
    """One batch that waits, then what became of it."""

    __slots__ = ("done", "error", "messages", "row")

    def __init__(self, row: pa.Table, messages: int) -> None:
        self.row = row
        self.messages = messages
        self.done = False
        self.error: BaseException | None = None


class Passing:
    """The batches of all tasks that are to pass."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[_Ticket] = deque()
        self._is_busy = False

    def begin(self, messages: pa.Table, execute: Callable[[pa.Table], object]) -> Callable[[], None]:
        """Lets a batch wait for the next job.

        Args:
            messages: Keys and values, as bytes or texts; they are not kept.
            execute: Runs one job over rows as in ``LENGTHS``. One caller's is as good as another's.

        Returns:
            What waits until the batch has passed, and runs the job itself if no other thread does. It raises what
            ``execute`` raised for this batch; where the batches of a job fail together, each has another to itself.
        """
        ticket = _Ticket(lengths_of(messages), messages.num_rows)
        with self._changed:
            self._waiting.append(ticket)

        def wait() -> None:
            while True:
                with self._changed, waiting_for("spark"):
                    self._changed.wait_for(lambda: ticket.done or not self._is_busy)
                    if ticket.done:
                        break
                    self._is_busy = True
                    group = self._take()
                try:
                    _run(group, execute)
                finally:
                    with self._changed:
                        self._is_busy = False
                        for one in group:
                            one.done = True
                        self._changed.notify_all()
            if ticket.error is not None:
                raise ticket.error

        return wait

    def _take(self) -> list[_Ticket]:
        """The batches that have waited longest, as many as may share a job. The caller holds the lock."""
        taken = [self._waiting.popleft()]
        messages = taken[0].messages
        while self._waiting and messages + self._waiting[0].messages <= MOST_MESSAGES:
            taken.append(self._waiting.popleft())
            messages += taken[-1].messages
        return taken


def _run(group: Sequence[_Ticket], execute: Callable[[pa.Table], object]) -> None:
    if len(group) > 1:
        try:
            execute(pa.concat_tables([one.row for one in group]))
        except Exception:  # Each has its own verdict below.
            pass
        else:
            return
    for ticket in group:
        try:
            execute(ticket.row)
        except BaseException as error:
            ticket.error = error
