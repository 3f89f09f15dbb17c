"""Offsets of a sink that live in the database it writes to, and move in the transaction that writes the rows.

Main type: `OffsetsInTarget`.

Owning thread: the task's.
Source: Penstock's own.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.api.record import TopicPartition
from penstock.errors import ConnectException, OwnershipLostException, RetriableException

if TYPE_CHECKING:
    from penstock.api.frame import SinkFrame

#: A cursor of the DB-API, in the caller's transaction; or a function that runs a statement there, and gives its rows.
RunStatement: TypeAlias = "Callable[[str, Sequence[object]], Sequence[Sequence[Any]]] | Any"

#: The offset of a partition of which nothing was written.
_NOTHING: Final = -1


class OffsetsInTarget:
    """The offsets of a sink task, in a table of its database: each record is written once.

    A task calls ``claim`` in ``open``, in a transaction; ``new`` in ``put``; ``move`` in the transaction that writes
    the rows, before it writes them; ``moved`` when that is committed; and ``forget`` in ``close``.

    A task that was replaced, because it was frozen or cut off, writes nothing: its ``move`` finds that another task has
    claimed the partition, or that the offset is not the one it left, and the transaction is to be rolled back. A
    ``claim`` waits for a transaction that has moved the offset, and then sees what it left.

    The table is ``penstock_offsets`` with the columns ``connector``, ``topic``, ``kafka_partition``, ``next_offset``
    (-1: nothing was written) and ``owner``, a name of the task. It works with databases that have INSERT .. ON CONFLICT
    and RETURNING (PostgreSQL, SQLite from 3.35, DuckDB), and with MySQL and MariaDB (InnoDB).

    Args:
        connector: The name of the connector.
        placeholder: Where parameters stand in a statement of the driver: ``?``, ``%s``, or ``$``, which is numbered:
            ``$1``, ``$2``.
        table: The name of the table, as it stands in SQL.
        mysql: True for MySQL and MariaDB, which have INSERT .. ON DUPLICATE KEY UPDATE.

    Attributes:
        owner: The name of this task, another one for each instance.

    Source: Penstock's own.
    """

    def __init__(
        self, connector: str, *, placeholder: str = "?", table: str = "penstock_offsets", mysql: bool = False
    ) -> None:
        self.owner = f"{socket.gethostname()}, process {os.getpid()}, {uuid.uuid4().hex}"
        self._connector = connector
        self._placeholder = placeholder
        self._table = table
        self._mysql = mysql
        self._next: dict[TopicPartition, int] = {}
        self._claimed: dict[TopicPartition, int] = {}

    @property
    def create_statement(self) -> str:
        """The statement that makes the table, if it is not there."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} (connector VARCHAR(255) NOT NULL, topic VARCHAR(255) NOT NULL, "
            "kafka_partition BIGINT NOT NULL, next_offset BIGINT NOT NULL, owner VARCHAR(512) NOT NULL, "
            "PRIMARY KEY (connector, topic, kafka_partition))"
            # There the engine and the collation are the server's choice: these have transactions, and tell A from a.
            + (" ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if self._mysql else "")
        )

    def claim(self, run: RunStatement, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Makes this task the owner of partitions, and loads their offsets.

        Args:
            run: Runs statements in a transaction, which is to be committed before the first row is read; a cursor of
                the DB-API, or a function, as for all methods.
            partitions: As ``open`` is given them.

        Returns:
            Where to go on, for ``context.offset``; a partition of which nothing was written is not among them.
        """
        statement = self._upsert("owner") + ("" if self._mysql else " RETURNING next_offset")
        for place in sorted(partitions):
            rows = _rows(run, statement, (self._connector, *place, _NOTHING, self.owner))
            found = int((self._row(run, place) if self._mysql else rows)[0][0])
            self._next[place] = self._claimed[place] = found
        return {place: self._next[place] for place in partitions if self._next[place] != _NOTHING}

    def new(self, frame: SinkFrame) -> SinkFrame:
        """The rows of a frame that are not written yet.

        Raises:
            ConnectException: A message lies before the offset where this task began: its topic was deleted and made
                again, so that the offsets of the table are those of other messages.
        """
        read = frame.origin.group_by(["topic", "partition"], use_threads=False).aggregate([("offset", "min")])
        for one in read.to_pylist():
            place, first = TopicPartition(one["topic"], one["partition"]), one["offset_min"]
            if first < self._claimed.get(place, _NOTHING):
                raise ConnectException(
                    f"The topic {place.topic}, partition {place.partition}, was read from the offset {first}, and the "
                    f"table {self._table} says that all before {self._claimed[place]} is written: the topic was "
                    "deleted and made again. Reset the offsets of the connector to write its messages"
                )
        return frame.since({place: offset for place, offset in self._next.items() if offset != _NOTHING})

    def move(self, run: RunStatement, reached: Mapping[TopicPartition, int]) -> None:
        """Moves offsets on, from where this task left them.

        Args:
            run: Runs statements in the transaction that writes the rows.
            reached: The offsets behind the rows, as ``frame.next_offsets()`` gives them.

        Raises:
            OwnershipLostException: Another task has claimed a partition. Roll the transaction back.
            RetriableException: The transaction before, whose end was not seen, was committed after all. Roll back; the
                frame comes again, without the rows that are written.
        """
        statement = self._sql(
            "UPDATE {table} SET next_offset = ? WHERE connector = ? AND topic = ? AND kafka_partition = ? "
            "AND next_offset = ? AND owner = ?" + ("" if self._mysql else " RETURNING next_offset")
        )
        for place, offset in sorted(reached.items()):
            known = self._next.get(place)
            if known is None or not self._move(run, statement, place, known, offset):
                raise self._refused(run, place)

    def _move(self, run: RunStatement, statement: str, place: TopicPartition, known: int, offset: int) -> bool:
        """Moves an offset; False if it is not as this task left it."""
        as_left = not self._mysql or [tuple(one) for one in self._row(run, place)] == [(known, self.owner)]
        changed = as_left and _rows(run, statement, (offset, self._connector, *place, known, self.owner))
        return as_left if self._mysql else bool(changed)

    def moved(self, reached: Mapping[TopicPartition, int]) -> None:
        """Says that a transaction with this ``move`` was committed."""
        self._next.update(reached)

    def pending(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets that are behind those of the table."""
        return {place: offset for place, offset in reached.items() if offset > self._next.get(place, _NOTHING)}

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Gives partitions up, as ``close`` is given them. The table keeps their offsets."""
        for place in partitions:
            self._next.pop(place, None)
            self._claimed.pop(place, None)

    def alter(self, run: RunStatement, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Sets offsets, as ``alter_offsets`` of a connector is given them; None: nothing counts as written."""
        upsert = self._upsert("next_offset", "owner")
        delete = self._sql("DELETE FROM {table} WHERE connector = ? AND topic = ? AND kafka_partition = ?")
        for place, offset in sorted(offsets.items()):
            if offset is None:
                _rows(run, delete, (self._connector, *place))
            else:
                _rows(run, upsert, (self._connector, *place, offset, "offsets were set"))

    def _refused(self, run: RunStatement, place: TopicPartition) -> ConnectException:
        """The error of an offset that is not as this task left it."""
        found = self._row(run, place)
        where = f"topic {place.topic}, partition {place.partition}"
        if found and found[0][1] == self.owner and place in self._next:
            self._next[place] = int(found[0][0])
            return RetriableException(
                f"The rows of {where} were written up to the offset {found[0][0]} by a transaction whose end "
                "was not seen"
            )
        owner = f"another task ({found[0][1]})" if found else "nobody any more: its row was deleted"
        return OwnershipLostException(
            f"In {self._table} {where} of the connector {self._connector} belongs to {owner}. This task "
            f"({self.owner}) was replaced and has written nothing of these records; restart it if it is the only one"
        )

    def _row(self, run: RunStatement, place: TopicPartition) -> Sequence[Sequence[Any]]:
        """Offset and owner of a partition; MySQL is asked for what is committed now, and keeps it until then."""
        statement = "SELECT next_offset, owner FROM {table} WHERE connector = ? AND topic = ? AND kafka_partition = ?"
        return _rows(run, self._sql(statement + " FOR UPDATE" * self._mysql), (self._connector, *place))

    def _upsert(self, *changed: str) -> str:
        values = "INSERT INTO {table} (connector, topic, kafka_partition, next_offset, owner) VALUES (?, ?, ?, ?, ?) "
        if self._mysql:
            return self._sql(
                f"{values}ON DUPLICATE KEY UPDATE {', '.join(f'{one} = VALUES({one})' for one in changed)}"
            )
        new = ", ".join(f"{one} = excluded.{one}" for one in changed)
        return self._sql(f"{values}ON CONFLICT (connector, topic, kafka_partition) DO UPDATE SET {new}")

    def _sql(self, statement: str) -> str:
        """A statement with the placeholders of the driver."""
        parts = statement.format(table=self._table).split("?")
        if self._placeholder != "$":
            return self._placeholder.join(parts)
        return parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))


def _rows(run: Any, statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
    """Runs a statement, and gives the rows that it returns."""
    execute = getattr(run, "execute", None)
    if execute is None:
        rows: Sequence[Sequence[Any]] = run(statement, parameters)
        return rows
    execute(statement, parameters)
    return run.fetchall() if run.description else []
