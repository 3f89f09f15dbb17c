"""Sends only the lengths of messages through Spark; batches that arrive while a job runs share the next job.

Every job costs the JVM some milliseconds, in its first minutes some ten, and has nothing to do for a batch that is
converted outside Spark. So such a batch sends one row, with the lengths of its keys and values, and all waiting batches
share a job. A batch of a task that has nothing else to do never waits for further batches: if no job is running it
starts one at once. One that is waited for while the task begins others lets several times the duration of the latest
job go by after it.

Main types: ``Passing``, ``Passage`` (waits for a batch), and ``LENGTHS``, the columns of a row. Main function:
``lengths_of``. Thread: any; the waiting threads run the jobs, one at a time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry import waiting_for

#: A row for each batch: the lengths of its keys and values in bytes, null where a message has none; null for a column
#: without any.
LENGTHS: Final = pa.schema([("key", pa.list_(pa.int32())), ("value", pa.list_(pa.int32()))])
#: The most messages that share a job, in addition to one larger batch.
MOST_MESSAGES: Final = 1_000_000
#: A job for patient batches begins after a multiple of the duration of the job before it, and at most after this time.
REST: Final = 4
MOST_REST_S: Final = 0.25


class Passage(Protocol):
    """Waits until a batch has passed, and runs the job if no other thread does."""

    def __call__(self, *, patient: bool = False) -> None:
        """Raises what the job of the batch raised.

        Args:
            patient: True if further batches may join: the job begins when they have had time for that, or when a
                waiting batch is asked for without patience.
        """


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

    __slots__ = ("done", "error", "messages", "row", "urgent")

    def __init__(self, row: pa.Table, messages: int) -> None:
        self.row = row
        self.messages = messages
        self.done = self.urgent = False
        self.error: BaseException | None = None


class Passing:
    """The batches of all tasks that are to pass.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[_Ticket] = deque()
        self._is_busy = False
        self._rests_until = 0.0

    def begin(self, messages: pa.Table, execute: Callable[[pa.Table], object]) -> Passage:
        """Lets a batch wait for the next job.

        Args:
            messages: Keys and values, as bytes or texts; they are not kept.
            execute: Runs one job over rows as in ``LENGTHS``. One caller's is as good as another's.

        Returns:
            What waits until the batch has passed. It raises what ``execute`` raised for this batch; where the batches
            of a job fail together, each has another to itself.
        """
        ticket = _Ticket(lengths_of(messages), messages.num_rows)
        with self._changed:
            self._waiting.append(ticket)

        def wait(*, patient: bool = False) -> None:
            while True:
                with self._changed, waiting_for("spark"):
                    if not patient and not ticket.urgent:
                        ticket.urgent = True
                        self._changed.notify_all()
                    while not ticket.done and (left := self._rest_s()) != 0:
                        self._changed.wait(left)
                    if ticket.done:
                        break
                    self._is_busy = True
                    group = self._take()
                started = self._clock()
                try:
                    _run(group, execute)
                finally:
                    with self._changed:
                        self._is_busy = False
                        ended = self._clock()
                        self._rests_until = ended + min(REST * (ended - started), MOST_REST_S)
                        for one in group:
                            one.done = True
                        self._changed.notify_all()
            if ticket.error is not None:
                raise ticket.error

        return wait

    def _rest_s(self) -> float | None:
        """Seconds until the next job may begin; None while another one runs. The caller holds the lock."""
        if self._is_busy:
            return None
        if any(one.urgent for one in self._waiting):
            return 0.0
        return max(0.0, self._rests_until - self._clock())

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
