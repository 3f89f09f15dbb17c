"""Queries a database for the size of a table, and for the boundaries of ranges of its key.

Main functions: `rows_about`, `keys_of`; `ExportedSnapshots` keeps the snapshots that all ranges of a table are read
from. Needs SQLAlchemy and a driver.

Thread: any; one call at a time. All of them block on the database.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import sqlalchemy as sa

from penstock.connectors.jdbc.faults import fault_of
from penstock.connectors.jdbc.source.late_commits import reader_name
from penstock.connectors.jdbc.source.ranges import Key
from penstock.connectors.jdbc.tables import Catalog, TableName
from penstock.errors import ConnectException

log = logging.getLogger(__name__)

#: Rows of a sample for each range, and at least for a table.
_OF_RANGE: Final = 2000
_OF_TABLE: Final = 20_000


def rows_about(catalog: Catalog, table: TableName, enough: int) -> int:
    """About how many rows a table has, without reading a large one.

    PostgreSQL is asked for the estimate of its planner, which knows the size of the table also where it was never
    analyzed. Other databases count: up to ``enough`` first, so that a small table costs nothing.

    Raises:
        RetriableException: The database cannot be reached.
        ConnectException: It refuses.
    """
    source = sa.table(table.name, schema=table.schema)
    rows = sa.select(sa.literal(1)).select_from(source)
    with catalog.connection() as connection:
        if connection.dialect.name == "postgresql":
            text = rows.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
            (explained,) = _all(catalog, connection, sa.text(f"EXPLAIN (FORMAT JSON) {text}"))[0]
            return int(explained[0]["Plan"]["Plan Rows"])
        counted = sa.select(sa.func.count())
        ((found,),) = _all(catalog, connection, counted.select_from(rows.limit(enough).subquery()))
        if found == enough:
            ((found,),) = _all(catalog, connection, counted.select_from(source))
        return int(found)


def keys_of(catalog: Catalog, table: TableName, key: Sequence[str], rows: int, ranges: int) -> list[Key]:
    """Keys of a table in the database's order, from which bounds of ranges are chosen.

    PostgreSQL reads some pages of the table, chosen at random; other databases number the keys by an index.

    Args:
        catalog: Makes the connection.
        table: The table.
        key: The columns of its key.
        rows: About how many rows it has.
        ranges: How many ranges are wanted.

    Raises:
        RetriableException: The database cannot be reached.
        ConnectException: It refuses.
    """
    source: Any = sa.table(table.name, *(sa.column(name) for name in key), schema=table.schema)
    with catalog.connection() as connection:
        if connection.dialect.name == "postgresql":
            wanted = max(_OF_TABLE, _OF_RANGE * ranges)
            sample = source.tablesample(sa.func.system(min(100.0, 100.0 * wanted / max(rows, 1))), name="sample")
            columns = [sample.c[name] for name in key]
            # As text, which the database reads in a literal of any type.
            statement: Any = sa.select(*(sa.cast(one, sa.Text) for one in columns)).order_by(*columns)
        else:
            columns = [source.c[name] for name in key]
            number = sa.func.row_number().over(order_by=columns).label("penstock_number")
            numbered = sa.select(*columns, number).subquery("numbered")
            step = max(1, rows // ranges)
            statement = sa.select(*(numbered.c[name] for name in key)).where(numbered.c.penstock_number % step == 0)
            statement = statement.order_by(numbered.c.penstock_number)
        return [tuple(row) for row in _all(catalog, connection, statement)]


def _all(catalog: Catalog, connection: sa.Connection, statement: Any) -> Sequence[Any]:
    try:
        return connection.execute(statement).all()
    except sa.exc.DBAPIError as error:
        raise fault_of(catalog.address, error.orig or error).error from error


class ExportedSnapshots:
    """Snapshots of PostgreSQL that other connections can read from, one for each plan, as long as ranges are left.

    A snapshot lives in the transaction that has exported it. Where that has ended, with the database, the connector or
    its worker, ranges are read from snapshots of their own: each has all rows up to the end of the plan.

    Source: the documentation of PostgreSQL, "Snapshot Synchronization Functions".

    Args:
        catalog: Makes the connections.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[sa.Connection, str]] = {}

    def keep(self, plans: Collection[str]) -> Mapping[str, str]:
        """The names of the snapshots of these plans, by the plans' ids; other snapshots are let go.

        A plan whose snapshot was lost gets no other one: its ranges would not be of one moment any more.
        """
        with self._lock:
            for plan in set(self._kept) - set(plans):
                self._close(plan)
            if self._catalog.address.dialect.name == "postgresql":
                for plan in plans:
                    if plan not in self._kept:
                        self._export(plan)
            return {plan: name for plan, (_, name) in self._kept.items()}

    def close(self) -> None:
        """Lets all go."""
        self.keep(())

    def _export(self, plan: str) -> None:
        try:
            connection = self._catalog.engine.connect().execution_options(isolation_level="REPEATABLE READ")
            connection.execute(sa.text(reader_name(self._catalog.address.options).replace(":", "\\:")))
            connection.execute(sa.text("SET idle_in_transaction_session_timeout TO 0"))
            name = connection.execute(sa.text("SELECT pg_export_snapshot()")).scalar_one()
            self._kept[plan] = connection, str(name)
        except (sa.exc.SQLAlchemyError, ConnectException) as error:
            log.warning("No snapshot can be exported, so each range is read from one of its own: %s", error)

    def _close(self, plan: str) -> None:
        connection, _ = self._kept.pop(plan)
        with suppress(Exception):
            connection.close()
