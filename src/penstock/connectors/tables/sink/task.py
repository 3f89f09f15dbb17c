"""Table sink task: takes frames, and commits what waits to its tables by the clock.

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

from penstock.api import FrameSinkTask, OffsetAndMetadata, RetryPolicy, SinkFrame, TopicPartition, isolate
from penstock.connectors.tables.lake import CommitConflictException, Lake, OutrunException
from penstock.connectors.tables.places import open_lake
from penstock.connectors.tables.sink.changes import TableRows, rows_of
from penstock.connectors.tables.sink.pending import Pending
from penstock.connectors.tables.sink.rounds import AT_ONCE, Rounds
from penstock.connectors.tables.sink.routing import Router
from penstock.connectors.tables.sink.settings import Commit, OnNull, TableSinkConfig, WriteMode
from penstock.errors import ConnectException, DataException, RetriableException

log = logging.getLogger(__name__)

#: The clock is looked at so often.
_TICK_S: Final = 0.5


class TableSinkTask(FrameSinkTask):
    """Writes records into tables, in one commit an interval, which carries the offsets.

    Exactly once: a task begins behind the offset that a table has, and a commit is refused whose table has other
    offsets than the task left there.
    """

    config_class = TableSinkConfig

    def __init__(self) -> None:
        self._lake: Lake | None = None
        self._tables: dict[str, Pending] = {}
        self._next: dict[TopicPartition, int] = {}
        self._claimed: dict[TopicPartition, int] = {}
        #: Where partitions are read again, until their records come: offsets behind that are not safe meanwhile.
        self._again: dict[TopicPartition, int] = {}
        self._taken: pa.Table | None = None
        self._is_partial = False
        self._failures = 0
        self._due = 0.0
        self._warned: set[TopicPartition] = set()
        self._rounds: Rounds | None = None

    def start(self, props: Mapping[str, str]) -> None:
        """Takes the settings, and looks whether the lake is there.

        Raises:
            ConfigException: The settings are wrong.
            RetriableException: The lake is away.
            ConnectException: There is no such lake, or no right to it.
        """
        config = TableSinkConfig.parse(props)
        self.settings: TableSinkConfig = config
        self._props = dict(props)
        self._on_null = config.on_null(props)
        self._router = Router(
            config.table_name_format, config.tables, config.route_field, config.dynamic_tables, config.routes(props)
        )
        self._retry = RetryPolicy(max(0.001, config.retry_backoff_ms / 1000))
        self._lake = open_lake(
            config,
            props,
            props["name"],
            codec=config.parquet_codec,
            file_bytes=config.target_file_bytes,
            renew=self.context.configs,
        )
        self._lake.check()
        if config.tables_commit is Commit.CONNECTOR:
            self._rounds = Rounds(props["name"], config.commit_interval_ms / 1000, config.commit_wait_ms / 1000)
        self._wait()
        self._maintenance_due = time.monotonic() + config.maintenance_interval_ms / 1000
        self.context.every(_TICK_S, self._tick)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Begins behind the offset that the table of a topic has, where there is one table for it.

        Raises:
            RetriableException: The lake is away.
        """
        for pending in self._tables.values():
            pending.forget(partitions)
            if pending.table is not None:
                pending.table.refresh()
        names = {place: self._router.only_table(place.topic) for place in partitions}
        if self._rounds is not None:
            for one in {one for one in names.values() if one is not None}:
                if (found_there := self._load(one)) is not None:
                    self._rounds.finish(found_there)
        for place, name in names.items():
            there = None if name is None else self._load(name)
            found = None if there is None else there.position(place)
            if found is not None:
                self._claimed[place] = found
                self.context.offset(place, found)

    def put(self, frame: SinkFrame) -> None:
        """Takes a frame; with ``write.mode=upsert`` it commits when memory is full.

        Raises:
            RetriableException: The lake is away; what was taken is not taken again.
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
        """The offsets in front of what is not in tables yet; before partitions go, it is written."""
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
            # Where nothing waits it is also behind what a sink does not see: the ends of transactions.
            found[place] = given if first is None else OffsetAndMetadata(min(first, given.offset))
        return found

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Gives partitions up, with what is not in tables."""
        self._forget(partitions)
        self._taken, self._is_partial = None, False

    def stop(self) -> None:
        """Lets go of files on this computer and of connections."""
        for pending in self._tables.values():
            pending.close()
        if self._lake is not None:
            self._lake.close()

    # ------------------------------------------------------------------------------------------------------- taking
    def _take(self, frame: SinkFrame) -> None:
        self._refuse_old(frame)
        new = self._without_nulls(frame.since(self._next))
        routed = list(self._router.route(new, self._report)) if new.num_rows else []
        # All tables are looked at before the first row is taken, so that the frame can come again.
        tables = [(self._load(name), name, part) for name, part in routed]
        for pending, name, part in tables:
            if pending is None:
                self._without_table(name, part)
            else:
                self._add(pending, self._not_there_yet(pending, part))
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
                raise ConnectException(
                    f"The topic {place.topic}, partition {place.partition}, was read from the offset {offset}, and the "
                    f"table {self._router.only_table(place.topic)} says that all before {claimed} is in it: the topic "
                    "was deleted and made again. Reset the offsets of the connector to write its messages"
                )

    def _without_nulls(self, frame: SinkFrame) -> SinkFrame:
        column = frame.table.column("value")
        if self.settings.write_mode is WriteMode.UPSERT or not (column.null_count or pa.types.is_null(column.type)):
            return frame
        gone = column.is_null().to_numpy()
        if self._on_null is OnNull.FAIL:
            error = DataException(
                "The value is null, which is no row of a table: write.mode=upsert deletes the row of the key, and "
                "behavior.on.null.values=ignore leaves such records out"
            )
            self.context.report(frame, np.flatnonzero(gone), error)
        return frame.take(np.flatnonzero(~gone))

    def _not_there_yet(self, pending: Pending, part: SinkFrame) -> SinkFrame:
        new = pending.new(part)
        if new.num_rows < part.num_rows:
            for place in part.next_offsets():
                if place not in self._warned:
                    self._warned.add(place)
                    log.warning(
                        "The table %s has the records of topic %s, partition %d, up to the offset %s: those that are "
                        "read again are left out. If the topic was deleted and made again, reset the offsets of the "
                        "connector",
                        pending.name,
                        place.topic,
                        place.partition,
                        pending.position(place),
                    )
        return new

    def _add(self, pending: Pending, part: SinkFrame) -> None:
        def add(rows: SinkFrame) -> None:
            pending.add(rows, self._rows(pending, rows))

        if not part.num_rows:
            return
        try:
            # An error without any row is one of the schema, and so of all rows.
            self._rows(pending, part.slice(0, 0))
        except DataException as error:
            self._report(part, np.arange(part.num_rows), error)
            return
        isolate(add, part, errors=DataException, report=self.context.report)

    def _rows(self, pending: Pending, part: SinkFrame) -> TableRows:
        config = self.settings
        try:
            return rows_of(
                part,
                config.metadata_columns,
                config.metadata_columns_prefix,
                upserts=config.write_mode is WriteMode.UPSERT,
                keys=pending.settings.keys,
                cdc_field=config.cdc_field,
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataException(f"The value is no row of a table: {error}") from error

    def _report(self, frame: SinkFrame, rows: np.ndarray, error: DataException) -> None:
        self.context.report(frame, rows, error)

    def _without_table(self, name: str, part: SinkFrame) -> None:
        text = f"There is no table {name}: create it, or set auto.create=true"
        if not self.settings.dynamic_tables:
            raise ConnectException(text)
        self._report(part, np.arange(part.num_rows), DataException(text))

    def _load(self, name: str) -> Pending | None:
        """The facts about a table; None if it is not there and must not be created."""
        if name in self._tables:
            return self._tables[name]
        config = self.settings
        own = config.of_table(name, self._props)
        table = self._there.table(name, own.branch)
        if table is None and not config.auto_create:
            return None
        self._tables[name] = Pending(
            name,
            own,
            self._there.kinds,
            table,
            evolves=config.auto_evolve,
            forces_optional=config.schema_force_optional,
            directory=config.buffer_dir or None,
        )
        return self._tables[name]

    @property
    def _there(self) -> Lake:
        assert self._lake is not None
        return self._lake

    def _keep_within_memory(self) -> None:
        held = [(one.held, one) for one in self._tables.values()]
        if sum(size for size, _ in held) <= self.settings.buffer_bytes:
            return
        if self.settings.write_mode is WriteMode.UPSERT:
            if not self._is_partial:
                self._retried(self._commit_all)
            return
        try:
            for _, one in held:
                one.spill()
        except OSError as error:
            raise RetriableException(
                f"Records that wait for a commit do not fit into buffer.bytes, and cannot be moved to a file: {error}. "
                "Make room, set buffer.dir, or a shorter commit.interval.ms"
            ) from error

    # --------------------------------------------------------------------------------------------------- committing
    def _tick(self) -> None:
        if self._is_partial:
            return
        is_due = time.monotonic() >= self._due
        if is_due:
            self._retried(self._commit_all)
            self._wait()
        self._retried(self._settle_all)
        if is_due:
            self._maintain()

    def _maintain(self) -> None:
        """Joins small files and removes old versions, if it is time to; a fault of that does not stop records."""
        config = self.settings
        if not config.compact_small_files and config.expire_older_than_ms < 0:
            return
        if time.monotonic() < self._maintenance_due:
            return
        self._maintenance_due = time.monotonic() + config.maintenance_interval_ms / 1000
        # One task does it: the others would be in its way.
        if all(place.partition for place in self.context.assignment()):
            return
        for pending in self._tables.values():
            try:
                self._maintain_table(pending)
            except ConnectException as error:
                log.warning("The table %s is left as it is until the next maintenance: %s", pending.name, error)

    def _maintain_table(self, pending: Pending) -> None:
        table, config = pending.table, self.settings
        if table is None:
            return
        table.refresh()
        if config.compact_small_files and (count := table.compact()):
            log.info("%d small files of the table %s were joined", count, pending.name)
            table.refresh()
        if config.expire_older_than_ms >= 0 and (count := table.expire(config.expire_older_than_ms)):
            log.info(
                "Old versions of the table %s were removed: %d files or snapshots are not kept", pending.name, count
            )

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
        """Finds out which files that were handed over are in tables, and commits them in turn."""
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
                moves = pending.moves(self._next)
                is_there = self._is_there(pending, moves)
                if not is_there and self._rounds is not None:
                    self._evolve_if_allowed(pending)
                    self._rounds.hand_over(pending, moves, self._due)
                    return
                if not is_there:
                    self._write(pending, moves)
                pending.committed(moves)
                return
            except CommitConflictException as error:
                if not tries_left:
                    raise
                log.info("%s. The commit is made again on the newest version", error)
                time.sleep(random.uniform(0, 0.2))

    def _is_there(self, pending: Pending, moves: Mapping[TopicPartition, tuple[int | None, int]]) -> bool:
        """Looks at the newest version of a table, and makes it where there is none; True if the commit is in it."""
        if pending.table is None:
            assert pending.columns is not None
            own = pending.settings
            pending.table = self._there.create(
                pending.name, pending.columns, own.partition_by, pending.keys, own.branch
            )
            # Another task may have made it of other records.
            self._evolve(pending, pending.columns)
        else:
            pending.table.refresh()
        # In front of what was handed over the table is not where this task goes on.
        landed: bool = not pending.handed and pending.table.landed(moves)
        return landed

    def _write(self, pending: Pending, moves: Mapping[TopicPartition, tuple[int | None, int]]) -> None:
        table = pending.table
        assert table is not None
        self._evolve_if_allowed(pending)
        columns = table.columns
        if self.settings.write_mode is WriteMode.UPSERT:
            table.change(pending.changes(columns), pending.keys, moves)
        else:
            table.append(pending.rows(columns), moves)

    def _evolve_if_allowed(self, pending: Pending) -> None:
        if self.settings.auto_evolve:
            assert pending.columns is not None
            self._evolve(pending, pending.columns)

    def _evolve(self, pending: Pending, wanted: pa.Schema) -> None:
        """Alters the table for rows that wait."""
        table = pending.table
        assert table is not None
        changed = pending.evolved(table.columns, wanted)
        if not changed.equals(table.columns):
            table.evolve(changed)
            log.info("The table %s has the columns %s now", pending.name, ", ".join(changed.names))
        pending.columns = table.columns

    def _outrun(self, error: OutrunException) -> None:
        """Gives up what waits of partitions that another task has written; the rest of them is read again."""
        self._read_again(dict.fromkeys(error.places))
        log.warning("%s. What waits of it is read again, without the records that are there", error)

    def _read_again(self, places: Mapping[TopicPartition, int | None]) -> None:
        """Gives up what waits of partitions, and reads them from the first of it on, or from an offset before it."""
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
