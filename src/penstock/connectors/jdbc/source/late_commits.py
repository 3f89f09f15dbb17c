"""Detects PostgreSQL transactions that may still commit rows before rows that are already visible.

A row gets its id or timestamp when it is written, but becomes visible when its transaction commits. Before a reader
moves past a row, no earlier row must be able to appear. Main types: `Snapshot`, `Look`; `bound_of_numbers` and
`bound_of_timestamps` compute the bound of a read.
Pure: the statements are texts, and the answers are arguments. Any thread.

Source: the documentation of PostgreSQL, "System Columns" (xmin) and "Transaction ID and Snapshot Information
Functions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final, TypeAlias

from penstock.connectors.jdbc.source.queries import Bound

_READER: Final = "penstock reads"
_OTHERS: Final = f"pid <> pg_backend_pid() AND left(application_name, {len(_READER)}) <> '{_READER}'"


def reader_name(options: Mapping[str, str]) -> str:
    """The statement by which a connection that only reads says so: none of them can still write a row.

    Args:
        options: The parameters of the address, of which ``application_name`` is kept.
    """
    own = options.get("application_name", "").replace("'", "''")
    return f"SET application_name TO '{_READER}{f': {own}' if own else ''}'"


#: The present moment of the database in microseconds since 1970, and then the oldest start of a transaction that has
#: written something or may still, and its process. A reader asks before it takes its snapshot: a transaction that ends
#: in between is in the answer though the snapshot does not have its rows, and one that begins later is younger than the
#: moment. Asked the other way round, it would be in neither.
RUNNING: Final = (
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, "
    "(SELECT (extract(epoch FROM min(xact_start)) * 1000000)::bigint FROM pg_stat_activity "
    f"WHERE {_OTHERS} AND datid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND backend_type = 'client backend' AND state <> 'idle'), "
    f"(SELECT pid FROM pg_stat_activity WHERE {_OTHERS} AND backend_type = 'client backend'"
    " AND state <> 'idle' AND datname = current_database() ORDER BY xact_start LIMIT 1)"
)
#: An answer to that.
Running: TypeAlias = tuple[object, ...]
_XIDS: Final = 1 << 32
#: A number below all that a column can hold.
_NO_NUMBER: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The set of transactions that a reader can see.

    Attributes:
        oldest: The oldest running transaction id: all lower ones have ended.
        next: The id after the latest ended transaction. Running transactions may have higher ids.
    """

    oldest: int
    next: int
    SQL: ClassVar[str] = (
        "SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_snapshot_xmax(pg_current_snapshot())::text"
    )

    @staticmethod
    def of(oldest: str, following: str) -> Snapshot:
        """The snapshot that the statement `SQL` gave."""
        return Snapshot(int(oldest), int(following))

    @property
    def has_running(self) -> bool:
        """True if a transaction was running that is older than one that has ended."""
        return self.next > self.oldest


def unsettled(snapshot: Snapshot) -> str:
    """The condition that a row was written by a transaction that began after the oldest running one.

    Ids of rows have 32 bits and start again; the condition counts from the oldest one.
    """
    first = snapshot.oldest % _XIDS
    return f"mod(penstock_source.xmin::text::bigint - {first} + {_XIDS}, {_XIDS}) < {snapshot.next - snapshot.oldest}"


@dataclass(frozen=True, slots=True)
class Look:
    """Numbers that were seen, and the transactions that may still commit lower ones.

    All numbers up to the highest one were taken before that was seen, by transactions that have ended or were running.

    Attributes:
        highest: The highest number of the rows that could be seen.
        next: The first id after all transactions that were running.
        SQL: The query in addition to the highest number. Each transaction with an id holds a lock on it, which every
            user may see.
    """

    highest: int
    next: int
    SQL: ClassVar[str] = (
        "pg_snapshot_xmin(pg_current_snapshot())::text, (SELECT max(mod(transactionid::text::bigint - "
        f"mod(pg_snapshot_xmin(pg_current_snapshot())::text::bigint, {_XIDS}) + {_XIDS}, {_XIDS})) FROM pg_locks "
        "WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted)"
    )

    @staticmethod
    def of(highest: int, oldest: str, ahead: int | None) -> Look:
        """The look that the statement gave: the oldest id that was running, and how far the youngest is ahead of it."""
        return Look(highest, int(oldest) + (0 if ahead is None else ahead + 1))

    def is_settled(self, snapshot: Snapshot) -> bool:
        """True if all transactions that were running then have ended."""
        return snapshot.oldest >= self.next


def bound_of_numbers(after: int | None, looks: Sequence[Look], snapshot: Snapshot, running: Running) -> Bound:
    """Computes the bound of a read by numbers: the highest number below which no transaction can commit a row.

    Args:
        after: The position, None before all rows.
        looks: What was seen, the latest last.
        snapshot: What can be seen.
        running: The answer to `RUNNING`.
    """
    settled = [one.highest for one in looks if one.is_settled(snapshot)]
    first = _NO_NUMBER if after is None else after
    safe = max([first, *settled])
    waits = bool(looks) and looks[-1].highest > safe
    return Bound(None, safe + 1, _because(running) if waits else None)


def bound_of_timestamps(snapshot: Snapshot, running: Running, lowest: int | None) -> Bound:
    """Computes the bound of a read by timestamps.

    Rows of transactions that began after the oldest running one wait, and so do all rows from the first of them on. A
    timestamp is often that of the start of its transaction, so no reader goes past the oldest start.

    Args:
        snapshot: What can be seen.
        running: The answer to `RUNNING`.
        lowest: The lowest position of the rows that are `unsettled`, in nanoseconds.
    """
    now, start, _ = running
    timestamps = [one for one in (lowest, start * 1000 if isinstance(start, int) else None) if one is not None]
    assert isinstance(now, int)
    is_held = bool(timestamps) and (snapshot.has_running or isinstance(start, int))
    return Bound(min([*timestamps, now * 1000]), None, _because(running) if is_held else None)


def _because(running: Running) -> str:
    _, start, process = running
    since = ""
    if isinstance(start, int):
        since = f" since {datetime.fromtimestamp(start // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    which = f"{since} (process {process})" if process else since
    return (
        f"a transaction of the database that is open{which}: rows that it commits later may come before them. They are "
        "read when it ends"
    )
