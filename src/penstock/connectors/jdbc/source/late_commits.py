"""Transactions of PostgreSQL that may still commit rows before rows that can be seen already.

A row gets its id or timestamp when it is written, and can be seen when its transaction commits. A reader that goes past
a row must be sure that no earlier one comes later. Main types: `Snapshot`; `bound_of` says how far a reader may go.
Pure: the statements are texts, and the answers are arguments. Any thread.

Source: the documentation of PostgreSQL, "System Columns" (xmin) and "Transaction ID and Snapshot Information
Functions".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final

from penstock.connectors.jdbc.source.position import Mode
from penstock.connectors.jdbc.source.queries import Bound

#: The present moment of the database in microseconds since 1970, and then the oldest start of a transaction that has
#: written something or may still, and its process. A reader asks before it takes its snapshot: a transaction that ends
#: in between is in the answer though the snapshot does not have its rows, and one that begins later is younger than the
#: moment. Asked the other way round, it would be in neither.
RUNNING: Final = (
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, "
    "(SELECT (extract(epoch FROM min(xact_start)) * 1000000)::bigint FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND datid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND backend_type = 'client backend' AND state <> 'idle'), "
    "(SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    " AND state <> 'idle' AND datname = current_database() ORDER BY xact_start LIMIT 1)"
)
_XIDS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which transactions a reader can see.

    Attributes:
        oldest: The oldest transaction id that is still running: all below it have ended.
        next: The first transaction id that was not yet given.
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
        """True if a transaction that has an id was running."""
        return self.next > self.oldest


def unsettled(snapshot: Snapshot) -> str:
    """The condition that a row was written by a transaction that began after the oldest running one.

    Ids of rows have 32 bits and start again; the condition counts from the oldest one.
    """
    first = snapshot.oldest % _XIDS
    return f"mod(penstock_source.xmin::text::bigint - {first} + {_XIDS}, {_XIDS}) < {snapshot.next - snapshot.oldest}"


def bound_of(mode: Mode, snapshot: Snapshot, running: tuple[object, ...], lowest: int | None) -> Bound:
    """Computes the bound of a read.

    Rows of transactions that began after the oldest running one wait, and so do all rows from the first of them on. A
    timestamp is often that of the start of its transaction, so no reader goes past the oldest start.

    Args:
        mode: How new rows are found.
        snapshot: What can be seen.
        running: The answer to `RUNNING`.
        lowest: The lowest position of the rows that are `unsettled`: a number, or nanoseconds.
    """
    now, start, process = running
    because = None
    if snapshot.has_running or isinstance(start, int):
        since = ""
        if isinstance(start, int):
            since = f" since {datetime.fromtimestamp(start // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        because = f"a transaction of the database that is open{since}" + (f" (process {process})" if process else "")
    if not mode.has_timestamp:
        return Bound(None, lowest, because if lowest is not None else None)
    timestamps = [one for one in (lowest, start * 1000 if isinstance(start, int) else None) if one is not None]
    assert isinstance(now, int)
    return Bound(min([*timestamps, now * 1000]), None, because if timestamps else None)
