"""Positions in a table: the offsets of the source, and the conditions that select the rows after them.

Main types: `QueryMode`, `RowPosition`, `partition_of`. Offsets have the form of the Java connector, so that a position
can be taken over from it. Pure; any thread.

Source: io.confluent.connect.jdbc.source, TimestampIncrementingOffset and JdbcSourceConnectorConstants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from penstock.api import OffsetStorageReader
from penstock.errors import ConnectException

_MS: Final = 1_000_000
_SECOND: Final = 1_000_000_000


class QueryMode(Enum):
    """The way to find new rows: the values of ``mode``."""

    BULK = "bulk"
    INCREMENTING = "incrementing"
    TIMESTAMP = "timestamp"
    TIMESTAMP_INCREMENTING = "timestamp+incrementing"

    @property
    def has_timestamp(self) -> bool:
        """True if it looks at timestamp columns."""
        return self in (QueryMode.TIMESTAMP, QueryMode.TIMESTAMP_INCREMENTING)

    @property
    def has_incrementing(self) -> bool:
        """True if it looks at an incrementing column."""
        return self in (QueryMode.INCREMENTING, QueryMode.TIMESTAMP_INCREMENTING)


@dataclass(frozen=True, slots=True, order=True)
class RowPosition:
    """The place after the last row that was read.

    Attributes:
        timestamp: Nanoseconds since 1970 in UTC, of the timestamp column; None: before all rows.
        incrementing: The value of the incrementing column; None: before all rows.
    """

    timestamp: int | None = None
    incrementing: int | None = None

    def offset(self) -> dict[str, object]:
        """The position as a source offset."""
        offset: dict[str, object] = {}
        if self.incrementing is not None:
            offset["incrementing"] = self.incrementing
        if self.timestamp is not None:
            offset["timestamp"] = self.timestamp // _MS
            offset["timestamp_nanos"] = self.timestamp % _SECOND
        return offset

    @staticmethod
    def of(offset: Mapping[str, object] | None) -> RowPosition:
        """The position that a source offset holds.

        Raises:
            ConnectException: It is no offset of this connector.
        """
        if not offset:
            return RowPosition()
        incrementing, ms = offset.get("incrementing"), offset.get("timestamp")
        nanos = offset.get("timestamp_nanos", None if ms is None else 0)
        for name, value in (("incrementing", incrementing), ("timestamp", ms), ("timestamp_nanos", nanos)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConnectException(f"The '{name}' of an offset has to be a whole number, got {value!r}")
        if set(offset) - {"incrementing", "timestamp", "timestamp_nanos"}:
            raise ConnectException(
                f"An offset has 'incrementing', or 'timestamp' in milliseconds with 'timestamp_nanos', or both; got "
                f"{dict(offset)!r}"
            )
        if isinstance(nanos, int) and not 0 <= nanos < _SECOND:
            raise ConnectException(f"The 'timestamp_nanos' of an offset are those of its second, got {nanos}")
        timestamp = None
        if isinstance(ms, int) and isinstance(nanos, int):
            # The nanoseconds are those of the second, as in java.sql.Timestamp, and so repeat the milliseconds.
            timestamp = ms // 1000 * _SECOND + (nanos if nanos else ms % 1000 * _MS)
        return RowPosition(timestamp, incrementing if isinstance(incrementing, int) else None)


def partition_of(table: str | None) -> dict[str, object]:
    """The source partition of a table, or of the query (None)."""
    return {"query": "query"} if table is None else {"protocol": "1", "table": table}


def table_of(partition: Mapping[str, object]) -> str | None:
    """The table of a source partition, which may be one of its snapshot's; None for the query.

    Raises:
        ConnectException: It is no source partition of this connector.
    """
    if dict(partition) == {"query": "query"}:
        return None
    table = partition.get("table")
    if not isinstance(table, str) or set(partition) - {"protocol", "table", "snapshot", "range"}:
        raise ConnectException(
            'A source partition is {"protocol": "1", "table": "schema.table"}, or {"query": "query"}; got '
            f"{dict(partition)!r}"
        )
    return table


def stored_offsets(
    reader: OffsetStorageReader, database: str, partitions: Sequence[Mapping[str, object]]
) -> list[Mapping[str, Any] | None]:
    """The committed offsets of source partitions, also where the Java connector has committed them.

    It calls a table as its driver does: with the name of the database in front, or without.

    Args:
        reader: Reads them.
        database: The name of the database.
        partitions: Of tables, of the query, or of snapshots.

    Raises:
        ConnectException: They cannot be read.
    """
    names = [table_of(one) if set(one) == {"protocol", "table"} else None for one in partitions]
    others = {place: partition_of(f"{database}.{name}") for place, name in enumerate(names) if name is not None}
    found = reader.offsets([*partitions, *others.values()])
    javas = dict(zip(others, found[len(partitions) :], strict=True))
    return [own or javas.get(place) for place, own in enumerate(found[: len(partitions)])]
