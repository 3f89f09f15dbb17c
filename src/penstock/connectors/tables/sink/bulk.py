"""Ranges of topics that executors write into tables: `TableBulkSinkTask`, the task of ``tables.bulk=true``.

Executors write data files that readers do not see; the task commits those of a job, with the offsets after it, to each
table. A table has the position of each partition, and executors leave out rows that it already has: so a job that was
cut off between its commits, or before its offsets were committed to the group, writes nothing twice.

Thread: the task's; ``write``: a Python worker's of Spark. Source: Penstock's own.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from penstock.api import SinkFrame, TopicPartition
from penstock.api.bulk import BulkSinkTask, TopicRange, WaitingRanges, WrittenRange
from penstock.connectors.tables.lake import CommitConflictException, Files, Lake, LakeTable, OutrunException
from penstock.connectors.tables.places import missing_library
from penstock.connectors.tables.sink.intake import Intake, router_of, sink_lake
from penstock.connectors.tables.sink.maintenance import Maintenance
from penstock.connectors.tables.sink.pending import Pending
from penstock.connectors.tables.sink.rounds import AT_ONCE
from penstock.connectors.tables.sink.settings import TableSinkConfig
from penstock.errors import ConnectException, DataException
from penstock.files.location import local_path

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableFiles:
    """The files of a range in one table.

    Attributes:
        table: The name of the table.
        before: The table's position in the partition when they were written.
        files: The files.
    """

    table: str
    before: int | None
    files: Files


class TableBulkSinkTask(BulkSinkTask):
    """Executors write files of tables; the task commits them with the offsets."""

    config_class = TableSinkConfig

    def start(self, props: Mapping[str, str]) -> None:
        """Reads the settings, and checks that the lake exists.

        Raises:
            ConfigException: The settings are wrong.
            RetriableException: The lake is unreachable.
            ConnectException: There is no such lake, or no right to it.
        """
        self._props = dict(props)
        if (url := props.get("url", "")) and urlsplit(url).scheme in ("", "file"):
            # Executors have other working directories.
            self._props["url"] = str(Path(local_path(url)).absolute())
        config = TableSinkConfig.parse(self._props)
        self.settings: TableSinkConfig = config
        self._lake: Lake | None = sink_lake(config, self._props, self.context.configs, self.context.kafka_cluster_id)
        self._lake.check()
        self._ranges = WaitingRanges(config.bulk_range_rows, config.commit_interval_ms / 1000)
        self._maintenance = Maintenance(config)

    def stop(self) -> None:
        """Closes connections."""
        if self._lake is not None:
            self._lake.close()

    def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets in the table of a topic, if it has exactly one table."""
        router = router_of(self.settings, self._props)
        tables: dict[str, LakeTable | None] = {}
        found = {}
        for place in partitions:
            if (name := router.only_table(place.topic)) is None:
                continue
            if name not in tables:
                tables[name] = self._table(name)
            there = tables[name]
            if there is not None:
                there.check_writer([place])
            if there is not None and (offset := there.positions().get(place)) is not None:
                found[place] = offset
        return found

    def plan(self, ranges: Sequence[TopicRange]) -> Sequence[TopicRange]:
        """Ranges of ``bulk.range.rows``, and shorter ones that have waited for ``commit.interval.ms``."""
        return self._ranges.plan(ranges, time.monotonic())

    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> list[TableFiles] | None:
        """Writes the files of a range, for each table that it has records for; creates and alters tables for them.

        Raises:
            RetriableException: The lake is unreachable.
            ConnectException: The lake refuses, or the executor lacks the library for its format.
        """
        if text := missing_library(self.settings.format):
            raise ConnectException(f"On an executor {text}, or bring it with spark.archives (penstock spark pack)")
        lake = sink_lake(self.settings, self._props)
        intake = Intake(self.settings, self._props, lake, self._report)
        try:
            for frame in batches:
                if frame.num_rows:
                    intake.take(frame)
                if intake.is_full:
                    intake.spill()
            written = [_written(intake, one, topic_range) for one in intake.tables.values() if one.num_rows]
        finally:
            intake.close()
            lake.close()
        return written or None

    def commit(self, files: Sequence[WrittenRange], ends: Mapping[TopicPartition, int]) -> None:
        """Adds the files of a job to each table, in one commit with its offsets; tables that already have them are
        skipped.

        Raises:
            RetriableException: The lake is unreachable.
            ConnectException: A table no longer exists, was changed, or another task has written the partitions.
        """
        tables: dict[str, list[tuple[TopicPartition, TableFiles]]] = {}
        for one in files:
            made: Sequence[TableFiles] = one.file  # type: ignore[assignment]
            for each in made:
                tables.setdefault(each.table, []).append((one.range.place, each))
        for name, found in tables.items():
            moves = {place: (each.before, ends[place]) for place, each in found}
            try:
                # Executors that have seen different positions have left out different rows.
                if other := [place for place, each in found if each.before != moves[place][0]]:
                    raise OutrunException(other, f"The table {name} got records of {other[0]} while executors wrote")
                self._commit(name, [each.files for _, each in found], moves)
            except OutrunException as error:
                raise ConnectException(f"{error}. Restart the task: it continues after them") from error
        if self._maintenance.is_due and any(not one.partition for one in self.context.assignment()):
            self._maintenance.run([table for name in tables if (table := self._table(name)) is not None])

    def _commit(
        self, name: str, files: Sequence[Files], moves: Mapping[TopicPartition, tuple[int | None, int]]
    ) -> None:
        for tries_left in range(AT_ONCE, -1, -1):
            table = self._table(name)
            if table is None:
                raise ConnectException(
                    f"The table {name} is gone: it was dropped while executors wrote files for it. Restart the task: "
                    "its ranges are written again"
                )
            if table.landed(moves):
                return
            if not all(table.fits(one) for one in files):
                raise ConnectException(
                    f"The table {name} was made again, partitioned otherwise or overwritten while executors wrote "
                    "files for it, or the files were removed. Restart the task: its ranges are written again"
                )
            try:
                table.add(files, moves)
                return
            except CommitConflictException as error:
                if not tries_left:
                    raise
                log.info("%s. The commit is made again on the newest version", error)
                time.sleep(random.uniform(0, 0.2))

    def _table(self, name: str) -> LakeTable | None:
        """The newest version of a table."""
        assert self._lake is not None
        return self._lake.table(name, self.settings.of_table(name, self._props).branch)

    def _report(self, frame: SinkFrame, rows: np.ndarray, error: DataException) -> None:
        self.context.report(frame, rows, error)

    def __getstate__(self) -> dict[str, object]:
        own = super().__getstate__()
        return {name: own[name] for name in own if name not in ("_lake", "_ranges", "_maintenance")}


def _written(intake: Intake, pending: Pending, topic_range: TopicRange) -> TableFiles:
    """Writes the waiting rows of a table. Executors that alter it at the same time conflict."""
    for tries_left in range(AT_ONCE * 2, -1, -1):
        try:
            intake.look(pending)
            intake.evolve(pending)
            break
        except CommitConflictException:
            if not tries_left:
                raise
            time.sleep(random.uniform(0, 0.5))
    table = pending.table
    assert table is not None
    files = table.write(pending.rows(table.columns))
    return TableFiles(pending.name, pending.position(topic_range.place), files)
