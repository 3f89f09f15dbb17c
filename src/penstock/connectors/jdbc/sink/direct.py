"""Loads of the sink straight into a table of PostgreSQL: COPY without a temporary table and ON CONFLICT.

A COPY into the table takes half of the server's time, but it fails if a key is there already. So it is tried while keys
are new; after a failure the rows go by way of a temporary table, and the next tries become rarer.

Main types: `DirectLoads`, which decides for one table; `CopyTarget`, the table as the server's catalog has it. Pure;
any thread.

Source: the documentation of PostgreSQL, COPY (no rules, no row security) and INSERT (ON CONFLICT).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.connectors.jdbc.sink.settings import InsertMode
from penstock.connectors.jdbc.sink.statements import copied_type

#: A table in one answer. With index 0 the columns of an ordinary or partitioned table; nothing for a view, or a table
#: with rules or row security. With others the columns of each index that ON CONFLICT can name by them: unique,
#: complete, and checked at once.
DESCRIBED: Final = (
    "SELECT 0::bigint, a.attname::text, format_type(a.atttypid, NULL)::text, a.attidentity = 'a' FROM pg_class c "
    "JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.oid = $1::regclass AND c.relkind IN ('r', 'p') "
    "AND NOT c.relhasrules AND NOT c.relrowsecurity AND a.attnum > 0 AND NOT a.attisdropped "
    "UNION ALL SELECT i.indexrelid::bigint, a.attname::text, NULL, NULL FROM pg_index i JOIN pg_attribute a "
    "ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) "
    "WHERE i.indrelid = $1::regclass AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL "
    "AND i.indexprs IS NULL"
)
#: The types of columns that read the binary form of a copied type as an assignment would convert it.
_READ_BY: Final[Mapping[str, Collection[str]]] = {
    "boolean": ("boolean",),
    "int2": ("smallint",),
    "int4": ("integer",),
    "int8": ("bigint",),
    "float4": ("real",),
    "float8": ("double precision",),
    "numeric": ("numeric",),
    "bytea": ("bytea",),
    "date": ("date",),
    "time": ("time without time zone",),
    "timestamp": ("timestamp without time zone",),
    "timestamptz": ("timestamp with time zone",),
    "text": ("text", "character varying", "character"),
}
#: The fewest rows of a load that is tried: below that, looking at the table costs more than is won.
LEAST_ROWS: Final = 500
#: The most loads that are not tried after failures in a row.
_MOST: Final = 256


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """A table as the server's catalog has it.

    Attributes:
        types: The type of each column, without its length; empty if COPY is not an INSERT for this table.
        identities: The columns that an INSERT must not name.
        unique: The columns of each index that keeps keys unique.
    """

    types: Mapping[str, str]
    identities: frozenset[str] = frozenset()
    unique: frozenset[frozenset[str]] = frozenset()

    @staticmethod
    def of(columns: Sequence[Sequence[Any]], indexes: Sequence[Sequence[Any]]) -> CopyTarget:
        """The table by the rows of columns and of indexes that `DESCRIBED` answers with."""
        unique: dict[int, set[str]] = {}
        for index, column, *_ in indexes:
            unique.setdefault(index, set()).add(column)
        return CopyTarget(
            {name: kind for name, kind, _ in columns},
            frozenset(name for name, _, is_identity in columns if is_identity),
            frozenset(map(frozenset, unique.values())),
        )

    def takes(self, rows: pa.Schema, keys: Collection[str], mode: InsertMode) -> bool:
        """True if a COPY of such rows leaves what the statement of ``insert.mode`` leaves, or fails.

        >>> table = CopyTarget({"id": "bigint", "at": "date"}, unique=frozenset([frozenset(["id"])]))
        >>> rows = pa.schema([("id", pa.int64()), ("at", pa.date32())])
        >>> [table.takes(rows, keys, InsertMode.UPSERT) for keys in (["id"], ["at"])]
        [True, False]
        """
        if mode is InsertMode.UPDATE or (mode is InsertMode.UPSERT and frozenset(keys) not in self.unique):
            return False
        return all(
            field.name not in self.identities
            and self.types.get(field.name) in _READ_BY.get(copied_type(field.type), ())
            for field in rows
        )


class DirectLoads:
    """Decides which loads of one table are tried straight into it.

    Args:
        table: The table.

    >>> loads = DirectLoads(CopyTarget({}))
    >>> for _ in range(3): loads.failed()
    >>> [loads.are_worth_it() for _ in range(5)]
    [False, False, False, False, True]
    """

    def __init__(self, table: CopyTarget) -> None:
        self.table = table
        self._left_out = 0
        self._next = 1

    def are_worth_it(self) -> bool:
        """True if the next load is to be tried."""
        if self._left_out:
            self._left_out -= 1
            return False
        return True

    def worked(self) -> None:
        """A load was committed."""
        self._next = 1

    def failed(self) -> None:
        """A load was refused, such as for a key that is there: twice as many as last time are not tried."""
        self._left_out, self._next = self._next, min(self._next * 2, _MOST)
