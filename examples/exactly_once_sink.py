"""A sink that writes each record once: how far it has read is in the same transaction as what it has written.

If another task has read on meanwhile, the task drops the records that it has in hand, and opens its partitions again.
"""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from penstock.api import OffsetAndMetadata, SinkConnector, SinkRecord, SinkTask, TopicPartition
from penstock.config import AbstractConfig, ConfigDef, NonEmptyString, setting
from penstock.data import Values
from penstock.errors import OwnershipLostException, RetriableException


class OffsetsInSqliteConfig(AbstractConfig):
    database: str = setting(validator=NonEmptyString(), doc="The file of the database.")


CREATE = (
    # With it a reader does not wait for a writer, which may be a task that was replaced while it wrote.
    "PRAGMA journal_mode=WAL",
    'CREATE TABLE IF NOT EXISTS lines (topic TEXT, partition INTEGER, "offset" INTEGER, value TEXT)',
    "CREATE TABLE IF NOT EXISTS places (topic TEXT, partition INTEGER, next INTEGER, PRIMARY KEY (topic, partition))",
)


def open_database(props: Mapping[str, str]) -> sqlite3.Connection:
    # Transactions are begun by hand: they take the lock at once, before anything is compared.
    database = sqlite3.connect(OffsetsInSqliteConfig.parse(props).database, timeout=5, isolation_level=None)
    for statement in CREATE:
        database.execute(statement)
    return database


def place_of(record: SinkRecord) -> TopicPartition:
    return TopicPartition(record.original_topic, record.original_kafka_partition or 0)


class ExactlyOnceTask(SinkTask):
    def start(self, props: Mapping[str, str]) -> None:
        self.database = open_database(props)
        self.next: dict[TopicPartition, int | None] = {}

    def open(self, partitions: Collection[TopicPartition]) -> None:
        for place in partitions:
            found = self.database.execute("SELECT next FROM places WHERE (topic, partition) = (?, ?)", place).fetchone()
            self.next[place] = found[0] if found else None
            if found:
                self.context.offset(place, found[0])

    def put(self, records: Sequence[SinkRecord]) -> None:
        try:
            self.database.execute("BEGIN IMMEDIATE")
            try:
                reached = {
                    place: self.write(place, list(those))
                    for place, those in groupby(sorted_by_place(records), place_of)
                }
                self.database.execute("COMMIT")
            except BaseException:
                self.database.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            raise RetriableException(f"The database does not take {len(records)} records now: {error}") from error
        self.next.update(reached)

    def write(self, place: TopicPartition, records: Sequence[SinkRecord]) -> int:
        known = self.next[place]
        new = [one for one in records if known is None or one.original_kafka_offset >= known]
        if not new:
            return known or 0
        reached = new[-1].original_kafka_offset + 1
        if known is None:
            moved = self.database.execute("INSERT OR IGNORE INTO places VALUES (?, ?, ?)", (*place, reached))
        else:
            where = (reached, *place, known)
            moved = self.database.execute(
                "UPDATE places SET next = ? WHERE (topic, partition, next) = (?, ?, ?)", where
            )
        if moved.rowcount != 1:
            raise OwnershipLostException(f"Another task has read {place.topic} on: `open` looks how far")
        rows = [
            (*place, one.original_kafka_offset, Values.convert_to_string(one.value_schema, one.value)) for one in new
        ]
        self.database.executemany("INSERT INTO lines VALUES (?, ?, ?, ?)", rows)
        return reached

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {}  # The database knows; Kafka need not.

    def stop(self) -> None:
        database = getattr(self, "database", None)  # `start` may have failed before.
        if database is not None:
            database.close()


def sorted_by_place(records: Sequence[SinkRecord]) -> list[SinkRecord]:
    return sorted(records, key=place_of)  # Within a partition the order stays.


class ExactlyOnceSink(SinkConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)
        open_database(props).close()  # Made once, and not by all tasks at the same time.

    def task_class(self) -> type[ExactlyOnceTask]:
        return ExactlyOnceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self.props] * max_tasks

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        database = open_database(props)
        try:
            if not offsets:
                database.execute("DELETE FROM places")  # A reset: Kafka knows of none.
            for place, offset in offsets.items():
                if offset is None:
                    database.execute("DELETE FROM places WHERE (topic, partition) = (?, ?)", place)
                else:
                    database.execute("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", (*place, offset))
        finally:
            database.close()
        return True

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return OffsetsInSqliteConfig.definition()
