"""A sink that collects records and writes them to a table of SQLite, many in one transaction."""

import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence

from penstock.api import CumulativeSum, OffsetAndMetadata, SinkConnector, SinkRecord, SinkTask, TopicPartition
from penstock.config import AbstractConfig, ConfigDef, ConfigType, NonEmptyString, Range, setting
from penstock.data import Values
from penstock.errors import RetriableException

# Records that come twice replace themselves: the offset of a record is its identity.
CREATE = """CREATE TABLE IF NOT EXISTS records
            (topic TEXT, partition INTEGER, "offset" INTEGER, key TEXT, value TEXT,
             PRIMARY KEY (topic, partition, "offset"))"""
INSERT = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)"


class SqliteConfig(AbstractConfig):
    database: str = setting(validator=NonEmptyString(), doc="The file of the database.")
    buffer_rows: int = setting(default=500, validator=Range.at_least(1), doc="Write at so many records.")
    buffer_ms: int = setting(
        type=ConfigType.LONG, default=5000, validator=Range.at_least(0), doc="Write after so long."
    )


def place_of(record: SinkRecord) -> TopicPartition:
    """Where a record was read from. Transforms may have changed `topic`; offsets are always about the original."""
    return TopicPartition(record.original_topic, record.original_kafka_partition or 0)


def row_of(record: SinkRecord) -> tuple[object, ...]:
    key = Values.convert_to_string(record.key_schema, record.key)
    value = Values.convert_to_string(record.value_schema, record.value)
    return (*place_of(record), record.original_kafka_offset, key, value)


class SqliteTask(SinkTask):
    def start(self, props: Mapping[str, str]) -> None:
        config = SqliteConfig.parse(props)
        self.most_rows = config.buffer_rows
        self.longest_s = config.buffer_ms / 1000
        self.buffer: list[SinkRecord] = []
        self.since = time.monotonic()
        self.database = sqlite3.connect(config.database)
        self.database.execute(CREATE)
        self.add_metrics()

    def add_metrics(self) -> None:
        metrics = self.context.plugin_metrics()
        self.written = metrics.add_sensor("written")
        self.written.add(metrics.metric_name("rows-written-total", "Rows written to the database."), CumulativeSum())
        waiting = metrics.metric_name("rows-waiting", "Records in the buffer.")
        metrics.add_metric(waiting, lambda: len(self.buffer))

    def put(self, records: Sequence[SinkRecord]) -> None:
        # Also called without records, so that old ones are written when nothing more comes.
        too_many = len(self.buffer) + len(records) > self.most_rows
        if self.buffer and (too_many or time.monotonic() - self.since >= self.longest_s):
            self.write()  # Before taking the new records: when it fails, they come again.
        if not self.buffer:
            self.since = time.monotonic()
        self.buffer.extend(records)

    def write(self) -> None:
        try:
            with self.database:
                self.database.executemany(INSERT, map(row_of, self.buffer))
        except sqlite3.OperationalError as error:
            raise RetriableException(f"The database does not take {len(self.buffer)} records now: {error}") from error
        self.written.record(len(self.buffer))
        self.buffer.clear()

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if self.context.is_closing:
            # No later commit comes for these partitions: what stays in the buffer now is read again by another task.
            self.write()
        waiting: dict[TopicPartition, OffsetAndMetadata] = {}
        for record in self.buffer:
            waiting.setdefault(place_of(record), OffsetAndMetadata(record.original_kafka_offset))
        # Safe is everything before the first record that waits, or all of it.
        return {place: waiting.get(place, reached) for place, reached in offsets.items()}

    def close(self, partitions: Collection[TopicPartition]) -> None:
        gone = set(partitions)
        self.buffer = [record for record in self.buffer if place_of(record) not in gone]

    def stop(self) -> None:
        database = getattr(self, "database", None)  # `start` may have failed before.
        if database is not None:
            database.close()


class SqliteSink(SinkConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)

    def task_class(self) -> type[SqliteTask]:
        return SqliteTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self.props] * max_tasks

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return SqliteConfig.definition()
