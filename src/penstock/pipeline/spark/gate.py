"""Admits jobs to the session: shared by batches of several tasks, within its memory, and cancelled with their task.

A job has a fixed cost that a small batch does not pay back. So at most `permits` jobs run at a time; batches that
arrive meanwhile wait, and the next job includes every waiting batch with the same plan. A batch never waits when a
permit is free. No object here owns a thread: the callers' threads (one pipeline thread for each task) run the jobs. All
state of an object is guarded by one condition.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConnectException
from penstock.telemetry import waiting_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: The rows of one job are at most this part of the JVM's heap, and those of all jobs together.
JOB_PART: Final = 1 / 32
ALL_PART: Final = 1 / 12
#: Small means less than this fraction of the budget.
SMALL_PART: Final = 1 / 64
_MB: Final = 1024 * 1024


def shares(heap_bytes: int) -> tuple[int, int]:
    """The bytes of rows that one job may have, and all together: 21 and 58 MiB with 700 MiB of heap."""
    return int(heap_bytes * JOB_PART), int(heap_bytes * ALL_PART)


class MemoryBudget:
    """Room for the rows of jobs, in order of arrival; a job that is larger than the whole budget runs without others.

    The JVM holds a batch about ten times: as input, in Spark's tasks, in Spark's rows, whose buffers grow by doubling,
    and as output. Small jobs neither wait nor count. Without a known heap, as on a Spark Connect server, there are no
    bounds.
    """

    def __init__(self, heap_bytes: int | None = None) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self.used = 0
        self.job_bytes: int | None = None
        self._all_bytes: int | None = None
        self.set_heap(heap_bytes)

    def set_heap(self, heap_bytes: int | None) -> None:
        """Takes the size of the heap of the session that is up now."""
        with self._changed:
            self.job_bytes, self._all_bytes = (None, None) if heap_bytes is None else shares(heap_bytes)
            self._changed.notify_all()

    @contextmanager
    def room_for(self, nbytes: int) -> Iterator[None]:
        """Waits until there is room for the given number of bytes, and reserves it for the duration of the context."""
        if self._all_bytes is not None and nbytes < self._all_bytes * SMALL_PART:
            yield
            return
        mine = object()
        with self._changed:
            self._waiting.append(mine)
            try:
                if not self._may_go(mine, nbytes):
                    told = f"{self.used // _MB} MB of batches are in the session, and {nbytes // _MB} MB do not fit "
                    with waiting_for("spark", f"{told}beside them (spark.driver.memory)"):
                        self._changed.wait_for(lambda: self._may_go(mine, nbytes))
                self.used += nbytes
            finally:
                self._waiting.remove(mine)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self.used -= nbytes
                self._changed.notify_all()

    def _may_go(self, mine: object, nbytes: int) -> bool:
        if self._all_bytes is None:
            return True
        return self._waiting[0] is mine and (not self.used or self.used + nbytes <= self._all_bytes)


#: The longest wait for a cancelled job, which normally ends within seconds.
_TRIES: Final = 30
_AGAIN_S: Final = 1.0


class PythonWork:
    """The work of Python workers for one task. Thread: any.

    An endless loop in the code of an abandoned task would occupy a core for ever in Spark's Python workers, and only
    Spark knows its process. After a job is cancelled, Spark ends processes that have not stopped after
    ``spark.python.task.killTimeout``, 2 s.
    """

    def __init__(self) -> None:
        self._tag = f"penstock-{uuid.uuid4().hex}"
        self._changed = threading.Condition()
        self._sessions: list[SparkSession] = []
        self._ended = False

    @property
    def ended(self) -> bool:
        """True if no new work may begin, because the task was abandoned."""
        return self._ended

    @contextmanager
    def under_way(self, session: SparkSession) -> Iterator[None]:
        """Surrounds a job; raises ConnectException if the work was ended."""
        with self._changed:
            if self._ended:
                raise ConnectException("The task was abandoned: Spark's Python workers run nothing for it any more")
            self._sessions.append(session)
        try:
            # A classic session knows its tags only on their own thread; the context knows them on all.
            context = getattr(session, "_sc", None)
            add, remove = (
                (session.addTag, session.removeTag) if context is None else (context.addJobTag, context.removeJobTag)
            )
            add(self._tag)
            try:
                yield
            finally:
                remove(self._tag)
        finally:
            with self._changed:
                self._sessions.remove(session)
                self._changed.notify_all()

    def end(self) -> None:
        """Ends it, and lets nothing more begin; waits for the end."""
        # Spark does not know a job yet that is about to begin, so it is asked again.
        for _ in range(_TRIES):
            with self._changed:
                self._ended = True
                if not self._sessions:
                    return
                session = self._sessions[0]
            _cancel(session, self._tag)
            with self._changed:
                self._changed.wait_for(lambda: not self._sessions, _AGAIN_S)


def _cancel(session: SparkSession, tag: str) -> None:
    context = getattr(session, "_sc", None)
    if context is None:
        session.interruptTag(tag)
    else:
        context.cancelJobsWithTag(tag)


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

        With ``patient`` further batches may join: the job begins when they have had time for that, or when a waiting
        batch is asked for without patience.
        """


def lengths_of(messages: pa.Table) -> pa.Table:
    """The row of a batch of keys and values, as bytes or texts."""
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


class _PassingBatch:
    """One batch that waits, then what became of it."""

    __slots__ = ("done", "error", "messages", "row", "urgent")

    def __init__(self, row: pa.Table, messages: int) -> None:
        self.row = row
        self.messages = messages
        self.done = self.urgent = False
        self.error: BaseException | None = None


class Passing:
    """Sends the lengths of batches that are converted outside Spark through it, one row for each, all waiting ones in
    one job.

    A job costs the JVM some milliseconds, in its first minutes some ten. A batch of a task that has nothing else to do
    never waits for further batches. One that is waited for while the task begins others lets several times the duration
    of the latest job go by after it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[_PassingBatch] = deque()
        self._is_busy = False
        self._rests_until = 0.0

    def begin(self, messages: pa.Table, execute: Callable[[pa.Table], object]) -> Passage:
        """Lets a batch wait for the next job; the result raises what ``execute`` raised for this batch.

        Where the batches of a job fail together, each has another to itself. ``execute`` runs one job over rows as in
        ``LENGTHS``; one caller's is as good as another's.
        """
        ticket = _PassingBatch(lengths_of(messages), messages.num_rows)
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

    def _take(self) -> list[_PassingBatch]:
        """The batches that have waited longest, as many as may share a job. The caller holds the lock."""
        taken = [self._waiting.popleft()]
        messages = taken[0].messages
        while self._waiting and messages + self._waiting[0].messages <= MOST_MESSAGES:
            taken.append(self._waiting.popleft())
            messages += taken[-1].messages
        return taken


def _run(group: Sequence[_PassingBatch], execute: Callable[[pa.Table], object]) -> None:
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


Execute = Callable[[pa.Table], pa.Table]

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
    """Admits batches to Spark, several of one plan together. Thread: any; calls block until the caller's own batch is
    done.

    At most ``permits`` jobs run at once. A shared job has at most ``max_records`` rows and ``max_bytes``: beyond that
    there is nothing to gain from sharing, and a job takes several times its input in memory. A larger batch runs by
    itself. Several small batches run before a large one, because one task with large messages would delay all other
    tasks.
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

        Batches with equal keys have equal Arrow schemas, and one caller's `execute` is as good as another's: it runs
        one job and returns as many rows in the same order. When a shared job fails, every batch of it is run again by
        itself, so that one batch cannot fail another.
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
