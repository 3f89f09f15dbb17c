"""A columnar sink that writes each order once, whatever topic it was routed to, and reports those it cannot take.

The key of a message is the order's; a null value deletes it. How far the task has read is in the transaction that
writes the rows, by the topic and partition that they were read from.
"""

import sqlite3
from collections.abc import Collection, Mapping

import pyarrow as pa

from penstock.api import FrameSinkTask, OffsetAndMetadata, SinkConnector, SinkFrame, TopicPartition, isolate
from penstock.config import AbstractConfig, ConfigDef, NonEmptyString, setting
from penstock.errors import DataException, OwnershipLostException, RetriableException


class OrdersConfig(AbstractConfig):
    database: str = setting(validator=NonEmptyString(), doc="The file of the database.")
    optimize_seconds: float = setting(default=60.0, doc="How often the database looks after its indexes.")


CREATE = (
    "PRAGMA journal_mode=WAL",
    "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER CHECK (cents > 0))",
    "CREATE TABLE IF NOT EXISTS places (topic TEXT, partition INTEGER, next INTEGER, PRIMARY KEY (topic, partition))",
)
FIELDS = {"customer.name": pa.string(), "total": pa.decimal128(12, 2)}


def open_database(props: Mapping[str, str]) -> sqlite3.Connection:
    database = sqlite3.connect(OrdersConfig.parse(props).database, timeout=5, isolation_level=None)
    for statement in CREATE:
        database.execute(statement)
    return database


class OrdersTask(FrameSinkTask):
    def start(self, props: Mapping[str, str]) -> None:
        self.database = open_database(props)
        self.next: dict[TopicPartition, int] = {}
        self.context.every(OrdersConfig.parse(props).optimize_seconds, self.optimize)

    def optimize(self) -> None:
        self.database.execute("PRAGMA optimize")

    def open(self, partitions: Collection[TopicPartition]) -> None:
        for place in partitions:
            found = self.database.execute("SELECT next FROM places WHERE (topic, partition) = (?, ?)", place).fetchone()
            self.next.pop(place, None)
            if found:
                self.next[place] = found[0]
        self.context.offset({place: self.next[place] for place in partitions if place in self.next})

    def put(self, frame: SinkFrame) -> None:
        isolate(self.write, frame, errors=(DataException, sqlite3.IntegrityError))

    def write(self, frame: SinkFrame) -> None:
        new = frame.since(self.next)  # Left out is what was written before `put` came again.
        if not new.num_rows:
            return
        rows = new.fields(FIELDS)
        keys, gone = new.table["key"].to_pylist(), new.table["value"].is_null().to_pylist()
        reached = new.next_offsets()
        try:
            self.database.execute("BEGIN IMMEDIATE")
            try:
                self.move(reached)
                for key, is_gone, name, total in zip(keys, gone, *(one.to_pylist() for one in rows), strict=True):
                    if is_gone:
                        self.database.execute("DELETE FROM orders WHERE id = ?", (key,))
                    else:
                        cents = None if total is None else int(total.scaleb(2))
                        self.database.execute("INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", (key, name, cents))
                self.database.execute("COMMIT")
            except BaseException:
                self.database.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            raise RetriableException(f"The database does not take {new.num_rows} rows now: {error}") from error
        self.next.update(reached)

    def move(self, reached: Mapping[TopicPartition, int]) -> None:
        for place, end in reached.items():
            known = self.next.get(place)
            if known is None:
                moved = self.database.execute("INSERT OR IGNORE INTO places VALUES (?, ?, ?)", (*place, end))
            else:
                where = (end, *place, known)
                moved = self.database.execute(
                    "UPDATE places SET next = ? WHERE (topic, partition, next) = (?, ?, ?)", where
                )
            if moved.rowcount != 1:
                raise OwnershipLostException(f"Another task has read {place.topic} on: `open` looks how far")

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {}  # The database knows; Kafka need not.

    def stop(self) -> None:
        if hasattr(self, "database"):  # `start` may have failed before.
            self.database.close()


class OrdersSink(SinkConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)
        open_database(props).close()  # Made once, and not by all tasks at the same time.

    def task_class(self) -> type[OrdersTask]:
        return OrdersTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self.props] * max_tasks

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return OrdersConfig.definition()
