"""Table sink task: takes frames, and commits waiting rows to their tables at an interval.

Main type: `TableSinkTask`, on the task's thread.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.api import FrameSinkTask, OffsetAndMetadata, RetryPolicy, SinkFrame, TopicPartition
from penstock.connectors.tables.lake import CommitConflictException, Lake, Moves, OutrunException
from penstock.connectors.tables.sink.intake import Intake, sink_lake
from penstock.connectors.tables.sink.maintenance import Maintenance
from penstock.connectors.tables.sink.pending import Pending
from penstock.connectors.tables.sink.rounds import AT_ONCE, CommitRounds
from penstock.connectors.tables.sink.settings import Commit, TableSinkConfig, WriteMode
from penstock.errors import ConnectException, DataException, RetriableException

log = logging.getLogger(__name__)

#: The interval of checks of the clock, in seconds.
_TICK_S: Final = 0.5


class TableSinkTask(FrameSinkTask):
    """Writes records into tables, in one commit per interval with the offsets, except those of a backfill.

    Exactly once: a task begins after the offset of a table, and a commit is refused if the table has other offsets than
    the task left there.
    """

    config_class = TableSinkConfig

    def __init__(self) -> None:
        self._lake: Lake | None = None
        self._intake: Intake | None = None
        self._next: dict[TopicPartition, int] = {}
        self._claimed: dict[TopicPartition, int] = {}
        #: The offsets at which partitions are read again, until their records come: later offsets are not safe
        #: meanwhile.
        self._again: dict[TopicPartition, int] = {}
        self._taken: pa.Table | None = None
        self._is_partial = False
        self._failures = 0
        self._due = 0.0
        self._rounds: CommitRounds | None = None

    def start(self, props: Mapping[str, str]) -> None:
        """Reads the settings, and checks that the lake exists.

        Raises:
            ConfigException: The settings are wrong.
            RetriableException: The lake is unreachable.
            ConnectException: There is no such lake, or no right to it.
        """
        config = TableSinkConfig.parse(props)
        self.settings: TableSinkConfig = config
        self._retry = RetryPolicy(max(0.001, config.retry_backoff_ms / 1000))
        self._lake = sink_lake(config, props, self.context.configs, self.context.kafka_cluster_id)
        self._lake.check()
        self._is_backfill = self.context.is_backfill
        if config.tables_commit is Commit.CONNECTOR and not self._is_backfill:
            self._rounds = CommitRounds(props["name"], config.commit_interval_ms / 1000, config.commit_wait_ms / 1000)
        self._intake = Intake(config, dict(props), self._lake, self._report, again=self._is_backfill)
        self._maintenance = Maintenance(config)
        self._wait()
        self.context.every(_TICK_S, self._tick)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Begins after the offset in the table of a topic, if it has exactly one table.

        Raises:
            RetriableException: The lake is unreachable.
        """
        for pending in self._tables.values():
            pending.forget(partitions)
            if pending.table is not None:
                pending.table.refresh()
        if self._is_backfill:
            return
        names = {place: self._taking.router.only_table(place.topic) for place in partitions}
        if self._rounds is not None:
            for one in {one for one in names.values() if one is not None}:
                if (found_there := self._taking.load(one)) is not None:
                    self._rounds.finish(found_there)
        for place, name in names.items():
            there = None if name is None else self._taking.load(name)
            if there is not None and there.table is not None:
                there.table.check_writer([place])
            found = None if there is None else there.position(place)
            if found is not None:
                self._claimed[place] = found
                self.context.offset(place, found)

    def put(self, frame: SinkFrame) -> None:
        """Adds a frame; with ``write.mode=upsert`` it commits when memory is full.

        Raises:
            RetriableException: The lake is unreachable; rows that were taken are not taken again.
            ConnectException: There is no such table, or a row is bad and ``errors.tolerance`` does not allow that.
        """
        if frame.num_rows and frame.table is not self._taken:
            self._take(frame)
            self._taken = frame.table
        self._keep_within_memory()
        self._taken = None

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The offsets before the first row that is not in a table; before partitions are revoked, rows are written."""
        if self.context.is_closing and not self._is_partial:
            try:
                self._commit_all()
                self._settle_all(at_once=True)
            except ConnectException as error:
                log.warning("What waits could not be committed, so its records will be read again: %s", error)
        found = {}
        for place, given in offsets.items():
            waiting = [one.first_offset(place) for one in self._tables.values()]
            first = min((one for one in [*waiting, self._again.get(place)] if one is not None), default=None)
            # Without waiting rows the offset also covers messages that a sink does not see: the ends of transactions.
            found[place] = given if first is None else OffsetAndMetadata(min(first, given.offset))
        return found

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Drops partitions, with rows that are not in tables."""
        self._forget(partitions)
        self._taken, self._is_partial = None, False

    def stop(self) -> None:
        """Closes files on this computer and connections."""
        if self._intake is not None:
            self._intake.close()
        if self._lake is not None:
            self._lake.close()

    # ------------------------------------------------------------------------------------------------------- taking
    def _take(self, frame: SinkFrame) -> None:
        self._refuse_old(frame)
        self._taking.take(frame.since(self._next))
        self._next.update(frame.next_offsets())
        for place in frame.next_offsets():
            self._again.pop(place, None)
        self._is_partial = frame.continued

    def _refuse_old(self, frame: SinkFrame) -> None:
        if not self._claimed:
            return
        for place, offset in _first_offsets(frame).items():
            claimed = self._claimed.pop(place, None)
            if claimed is not None and offset < claimed:
                table = self._taking.router.only_table(place.topic)
                raise ConnectException(
                    f"The topic {place.topic}, partition {place.partition}, was read from the offset {offset}, and the "
                    f"table {table} says that all before {claimed} is in it: the topic was deleted and made again. "
                    "Reset the offsets of the connector to write its messages"
                )

    def _report(self, frame: SinkFrame, rows: np.ndarray, error: DataException) -> None:
        self.context.report(frame, rows, error)

    @property
    def _taking(self) -> Intake:
        assert self._intake is not None
        return self._intake

    @property
    def _tables(self) -> dict[str, Pending]:
        return {} if self._intake is None else self._intake.tables

    def _keep_within_memory(self) -> None:
        if not self._taking.is_full:
            return
        if self.settings.write_mode is not WriteMode.UPSERT:
            self._taking.spill()
        elif not self._is_partial:
            self._retried(self._commit_all)

    # --------------------------------------------------------------------------------------------------- committing
    def _tick(self) -> None:
        if self._is_partial:
            return
        is_due = time.monotonic() >= self._due
        if is_due:
            self._retried(self._commit_all)
            self._wait()
        self._retried(self._settle_all)
        # Only one task does it: others would conflict.
        if is_due and self._maintenance.is_due and any(not one.partition for one in self.context.assignment()):
            self._maintenance.run([one.table for one in self._tables.values() if one.table is not None])

    def _wait(self) -> None:
        if self._rounds is not None:
            self._due = self._rounds.end_of_interval()
            return
        self._due = time.monotonic() + self.settings.commit_interval_ms / 1000

    def _retried(self, call: Callable[[], None]) -> None:
        try:
            call()
        except RetriableException as error:
            self._failures += 1
            raise RetriableException(str(error), retry_after_s=self._retry.wait_s(self._failures, error)) from error
        self._failures = 0

    def _commit_all(self) -> None:
        waiting = [one for one in self._tables.values() if one.num_rows]
        for pending in waiting:
            try:
                self._commit(pending)
            except OutrunException as error:
                self._outrun(error)
        if waiting and self._rounds is None:
            self.context.request_commit()

    def _settle_all(self, *, at_once: bool = False) -> None:
        """Checks which stored files are in tables, and commits them in turn."""
        if self._rounds is None:
            return
        for pending in self._tables.values():
            before = len(pending.handed)
            if lost := self._rounds.settle(pending, at_once=at_once):
                log.warning(
                    "Files that were handed over for the table %s could not be added to it, since another task has "
                    "written their records or the table was changed: %d partitions are read again from there",
                    pending.name,
                    len(lost),
                )
                self._read_again(lost)
            if len(pending.handed) < before:
                self.context.request_commit()

    def _commit(self, pending: Pending) -> None:
        for tries_left in range(AT_ONCE, -1, -1):
            try:
                # Only the connector's own tasks set the offsets of tables.
                moves = {} if self._is_backfill else pending.moves(self._next)
                if not self._is_there(pending, moves):
                    self._taking.evolve(pending)
                    if self._rounds is not None:
                        self._rounds.hand_over(pending, moves, self._due)
                        return
                    self._write(pending, moves)
                pending.committed(moves)
                return
            except CommitConflictException as error:
                if not tries_left:
                    raise
                log.info("%s. The commit is made again on the newest version", error)
                time.sleep(random.uniform(0, 0.2))

    def _is_there(self, pending: Pending, moves: Moves) -> bool:
        """Reads the newest version of a table, or creates it; True if the commit is in it."""
        self._taking.look(pending)
        assert pending.table is not None
        # Before its stored units are committed, the table's position is not this task's.
        return not pending.handed and pending.table.landed(moves)

    def _write(self, pending: Pending, moves: Moves) -> None:
        table = pending.table
        assert table is not None
        columns = table.columns
        if self.settings.write_mode is WriteMode.UPSERT:
            table.change(pending.changes(columns), pending.keys, moves)
        elif pending.is_out_of_paths:
            table.add([table.write(pending.rows(columns))], moves)
        else:
            table.append(pending.rows(columns), moves)

    def _outrun(self, error: OutrunException) -> None:
        """Drops waiting rows of partitions that another task has written; the remaining ones are read again."""
        self._read_again(dict.fromkeys(error.places))
        log.warning("%s. What waits of it is read again, without the records that are there", error)

    def _read_again(self, places: Mapping[TopicPartition, int | None]) -> None:
        """Drops waiting rows of partitions, and reads them again from the first row, or from an earlier offset."""
        for place, offset in places.items():
            firsts = [offset, self._again.get(place), *(one.first_offset(place) for one in self._tables.values())]
            first = min((one for one in firsts if one is not None), default=None)
            self._forget([place])
            if first is not None and place in self.context.assignment():
                self._next[place] = self._again[place] = first
                self.context.offset(place, first)

    def _forget(self, places: Collection[TopicPartition]) -> None:
        for pending in self._tables.values():
            pending.forget(places)
        for place in places:
            self._next.pop(place, None)
            self._claimed.pop(place, None)
            self._again.pop(place, None)


def _first_offsets(frame: SinkFrame) -> dict[TopicPartition, int]:
    read = frame.origin.group_by(["topic", "partition"], use_threads=False).aggregate([("offset", "min")])
    return {TopicPartition(one["topic"], one["partition"]): one["offset_min"] for one in read.to_pylist()}
