"""The source table of the faults among connectors: rows that are inserted, changed and deleted while they come.

Main types: `Changer`, which changes the table in threads of its own; `Gone`, a transform that makes tombstones of rows
that are marked as gone. Each change of a row has a higher ``version``, so that a record that comes twice shows.

Thread: `Changer` starts two threads, which its end joins.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, cast

import psycopg

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.broker.postgresql import PostgreSql
from penstock.config import ConfigDef
from penstock.data import Struct

TABLE: Final = "chaos"
#: Rows whose deletion a reader of the table may miss: they were not marked as gone before.
ERASED: Final = "chaos_erased"
_MAKE: Final = f"""
CREATE TABLE {TABLE} (id bigserial PRIMARY KEY, version int NOT NULL DEFAULT 1, name text NOT NULL,
    amount numeric(12,2), note text, gone boolean NOT NULL DEFAULT false,
    changed timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON {TABLE} (changed);
CREATE TABLE {ERASED} (id bigint)
"""
_INSERT: Final = (
    f"INSERT INTO {TABLE} (name, amount, note) SELECT 'n' || n, n * random(), repeat('x', (random() * 50)::int) "
    "FROM generate_series(1, %s) n"
)
_CHANGE: Final = (
    f"UPDATE {TABLE} SET version = version + 1, amount = amount + 1, changed = clock_timestamp(), gone = %s "
    f"WHERE id IN (SELECT id FROM {TABLE} WHERE NOT gone ORDER BY random() LIMIT %s FOR UPDATE SKIP LOCKED)"
)
_ERASE: Final = (
    f"WITH erased AS (DELETE FROM {TABLE} WHERE id = (SELECT id FROM {TABLE} WHERE NOT gone ORDER BY id DESC LIMIT 1 "
    f"FOR UPDATE SKIP LOCKED) RETURNING id) INSERT INTO {ERASED} SELECT id FROM erased"
)
_PAUSE_S: Final = 0.05


class Changer:
    """Changes the source table, in transactions that overlap and commit out of order, until it ends.

    Args:
        server: The database; it may be killed meanwhile.
        rows: How many rows a transaction inserts.
    """

    def __init__(self, server: PostgreSql, rows: int = 10) -> None:
        self._server, self._rows = server, rows
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._change, args=(number,), name=f"chaos-changer-{number}") for number in range(2)
        ]

    def __enter__(self) -> Self:
        self._server.execute(_MAKE)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _change(self, number: int) -> None:
        chance = random.Random(number)
        address = f"postgresql://postgres@127.0.0.1:{self._server.port}/postgres?connect_timeout=5"
        while not self._stopping.is_set():
            # The server goes away now and then; the table says what has come to pass.
            with suppress(psycopg.Error), psycopg.connect(address) as connection:
                while not self._stopping.is_set():
                    connection.execute(_INSERT, (chance.randrange(1, 2 * self._rows),))
                    connection.execute(_CHANGE, (False, chance.randrange(5)))
                    # The longer it stays open, the later its rows are seen.
                    self._stopping.wait(chance.choice((0, 0, _PAUSE_S, 20 * _PAUSE_S)) * number)
                    if chance.random() < 0.3:
                        connection.execute(_CHANGE, (True, 1))
                    if chance.random() < 0.1:
                        connection.execute(_ERASE)
                    connection.commit()
                    self._stopping.wait(_PAUSE_S)
            self._stopping.wait(_PAUSE_S)


class Gone(Transformation):
    """Makes a tombstone of the record of a row that is marked as gone."""

    def config(self) -> ConfigDef:
        """See ``Transformation``: it has no settings."""
        return ConfigDef()

    def configure(self, props: Mapping[str, object]) -> None:
        """See ``Transformation``."""

    def apply(self, record: R) -> R | None:
        """See ``Transformation``."""
        if not isinstance(record.value, Struct) or not record.value.get("gone"):
            return record
        return cast(R, record.new_record(value=None, value_schema=None))
