"""Assigns records to tables, converts them to rows, and creates or alters the tables for them.

Main types: `Intake`, which takes frames, and holds the waiting rows of each table in ``tables``; its owner commits
them. `Router` chooses the table of a record: by topic, by a list, or by a field of the value.

Thread: the task's, or that of an executor.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame, TopicPartition, isolate
from penstock.api.arrow import is_text, one_array
from penstock.config.java_pattern import JavaPattern
from penstock.connectors.setting_values import OnNull
from penstock.connectors.tables.lake import Lake
from penstock.connectors.tables.places import open_lake
from penstock.connectors.tables.sink.changes import TableRows, rows_of
from penstock.connectors.tables.sink.pending import Pending
from penstock.connectors.tables.sink.settings import TableSinkConfig, WriteMode
from penstock.errors import ConnectException, DataException, RetriableException

#: A valid part of a table's name: one that needs no escapes in a catalog and an object store.
_NAME: Final = re.compile(r"[^\x00-\x20/\\?#%*:|\"<>]{1,200}")

#: Called with rows that go to no table, with the reason.
Report = Callable[[SinkFrame, np.ndarray, DataException], None]


@dataclass(frozen=True, slots=True)
class Router:
    """The rules for the tables of records.

    Attributes:
        name_format: The format of a topic's table name.
        tables: The tables, if they are listed.
        field: The field with the table; empty for none.
        dynamic: True if the value of the field is the name.
        patterns: The pattern for the value, for tables that have one.
    """

    name_format: str
    tables: Sequence[str] = ()
    field: str = ""
    dynamic: bool = False
    patterns: Mapping[str, JavaPattern] | None = None

    def only_table(self, topic: str) -> str | None:
        """The only table for the records of a topic, unless transforms change the topic; None if there are several."""
        if self.field or len(self.tables) > 1:
            return None
        return self.tables[0] if self.tables else self._of_topic(topic)

    def all_tables(self, topics: Sequence[str]) -> list[str]:
        """The tables that are known without the records."""
        return list(dict.fromkeys(self.tables or ([] if self.dynamic else map(self._of_topic, topics))))

    def route(self, frame: SinkFrame, report: Report) -> Iterator[tuple[str, SinkFrame]]:
        """Yields each table with its rows."""
        if not self.field:
            if self.tables:
                yield from ((one, frame) for one in self.tables)
            else:
                yield from self._by(frame, one_array(frame.table.column("topic")), self._of_topic)
            return
        try:
            cells = one_array(frame.fields([self.field]).column(0))
        except DataException as error:
            report(frame, np.arange(frame.num_rows), error)
            return
        if not is_text(cells.type):
            cells = cells.cast(pa.string()) if not pa.types.is_nested(cells.type) else pa.nulls(len(cells), pa.string())
        if self.dynamic:
            yield from self._dynamic(frame, cells, report)
            return
        texts = cells.dictionary_encode()
        for table, pattern in (self.patterns or {}).items():
            matches = [pattern.matches(str(one)) for one in texts.dictionary.to_pylist()]
            mask = pa.array(matches, pa.bool_()).take(texts.indices).fill_null(False)
            chosen = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            if len(chosen):
                yield table, frame.take(chosen)

    def _dynamic(self, frame: SinkFrame, cells: pa.Array, report: Report) -> Iterator[tuple[str, SinkFrame]]:
        texts = pc.utf8_lower(cells).dictionary_encode(null_encoding="encode")
        bad = [one is None or not is_name(one) for one in texts.dictionary.to_pylist()]
        mask = pa.array(bad, pa.bool_()).take(texts.indices).to_numpy(zero_copy_only=False)
        if mask.any():
            error = DataException(
                f'The field "{self.field}" (route.field) is not the name of a table: it is null, empty, longer than '
                "200 characters, or has characters such as / and spaces"
            )
            report(frame, np.flatnonzero(mask), error)
            frame, cells = frame.take(np.flatnonzero(~mask)), cells.filter(pa.array(~mask))
        yield from self._by(frame, pc.utf8_lower(cells), str)

    def _by(self, frame: SinkFrame, values: pa.Array, name_of: Callable[[str], str]) -> Iterator[tuple[str, SinkFrame]]:
        if not frame.num_rows:
            return
        there = pc.unique(values).to_pylist()
        for one in there:
            if len(there) == 1:
                yield name_of(one), frame
            else:
                yield name_of(one), frame.take(np.flatnonzero(pc.equal(values, one).to_numpy(zero_copy_only=False)))

    def _of_topic(self, topic: str) -> str:
        return self.name_format.replace("${topic}", topic)


def is_name(text: str) -> bool:
    """True for a text that can be the name of a table, with dots between its parts.

    >>> is_name("db.orders"), is_name("../orders"), is_name(""), is_name("a..b")
    (True, False, False, False)
    """
    return all(_NAME.fullmatch(one) for one in text.split("."))


log = logging.getLogger(__name__)


def sink_lake(
    config: TableSinkConfig,
    props: Mapping[str, str],
    renew: Callable[[], Mapping[str, object]] | None = None,
    cluster: str | None = None,
) -> Lake:
    """Opens the lake of a sink, without a request. See ``open_lake``."""
    return open_lake(
        config,
        props,
        props["name"],
        codec=config.parquet_codec,
        file_bytes=config.target_file_bytes,
        renew=renew,
        renamed_from=config.renamed_from,
        is_shared=config.shared_tables,
        cluster=cluster,
    )


def router_of(config: TableSinkConfig, props: Mapping[str, str]) -> Router:
    """The rules of the settings for the tables of records."""
    return Router(
        config.table_name_format, config.tables, config.route_field, config.dynamic_tables, config.routes(props)
    )


class Intake:
    """Takes records for tables.

    Args:
        config: The settings, parsed.
        props: The unparsed settings.
        lake: The lake of the tables.
        report: Called with rows that go to no table, with the reason.
        again: True to take records that their tables already have.

    Attributes:
        tables: The waiting rows of each table that got a record.
    """

    def __init__(
        self, config: TableSinkConfig, props: Mapping[str, str], lake: Lake, report: Report, *, again: bool = False
    ) -> None:
        self.router = router_of(config, props)
        self.tables: dict[str, Pending] = {}
        self._config = config
        self._props = props
        self._lake = lake
        self._report = report
        self._again = again
        self._on_null = config.on_null(props)
        self._warned: set[TopicPartition] = set()

    def take(self, frame: SinkFrame) -> None:
        """Takes the rows of a frame that are not in their tables yet, or all of them with ``again``.

        Raises:
            RetriableException: The lake is unreachable; no row was taken.
            ConnectException: There is no such table, or a row is bad and ``errors.tolerance`` does not allow that.
        """
        new = self._without_nulls(frame)
        routed = list(self.router.route(new, self._report)) if new.num_rows else []
        # All tables are read before the first row is taken, so that the frame can come again.
        tables = [(self.load(name), name, part) for name, part in routed]
        for pending, name, part in tables:
            if pending is None:
                self._without_table(name, part)
            else:
                self._add(pending, part if self._again else self._not_there_yet(pending, part))

    def load(self, name: str) -> Pending | None:
        """The rows that wait for a table; None if the table is missing and must not be created.

        Raises:
            ConnectException: The table cannot be read.
        """
        if name in self.tables:
            return self.tables[name]
        config = self._config
        own = config.of_table(name, self._props)
        table = self._lake.table(name, own.branch)
        if table is None and not config.auto_create:
            return None
        self.tables[name] = Pending(
            name,
            own,
            self._lake.kinds,
            table,
            evolves=config.auto_evolve,
            forces_optional=config.schema_force_optional,
            directory=config.buffer_dir or None,
        )
        return self.tables[name]

    @property
    def is_full(self) -> bool:
        """True if the waiting rows exceed the memory limit."""
        return sum(one.held for one in self.tables.values()) > self._config.buffer_bytes

    def spill(self) -> None:
        """Moves waiting rows from memory to disk.

        Raises:
            RetriableException: There is no room.
        """
        try:
            for one in self.tables.values():
                one.spill()
        except OSError as error:
            raise RetriableException(
                f"Records that wait for a commit do not fit into buffer.bytes, and cannot be moved to a file: {error}. "
                "Make room, set buffer.dir, or a shorter commit.interval.ms"
            ) from error

    def look(self, pending: Pending) -> None:
        """Reads the newest version of a table, or creates it.

        Raises:
            CommitConflictException: Another writer was faster.
            ConnectException: The table no longer exists, or the lake refuses.
        """
        if pending.table is not None:
            pending.table.refresh()
            return
        assert pending.columns is not None
        own = pending.settings
        pending.table = self._lake.create(pending.name, pending.columns, own.partition_by, pending.keys, own.branch)
        # Another task may have created it from other records.
        _evolve(pending, pending.columns)

    def evolve(self, pending: Pending) -> None:
        """Alters a table for waiting rows, if that is allowed.

        Raises:
            CommitConflictException: Another writer was faster.
            ConnectException: The table refuses.
        """
        if self._config.auto_evolve:
            assert pending.columns is not None
            _evolve(pending, pending.columns)

    def close(self) -> None:
        """Releases waiting rows."""
        for pending in self.tables.values():
            pending.close()

    def _without_nulls(self, frame: SinkFrame) -> SinkFrame:
        column = frame.table.column("value")
        if self._config.write_mode is WriteMode.UPSERT or not (column.null_count or pa.types.is_null(column.type)):
            return frame
        gone = column.is_null().to_numpy()
        if self._on_null is OnNull.FAIL:
            error = DataException(
                "The value is null, which is no row of a table: write.mode=upsert deletes the row of the key, and "
                "behavior.on.null.values=ignore leaves such records out"
            )
            self._report(frame, np.flatnonzero(gone), error)
        return frame.take(np.flatnonzero(~gone))

    def _not_there_yet(self, pending: Pending, part: SinkFrame) -> SinkFrame:
        new = pending.new(part)
        if new.num_rows < part.num_rows:
            for place in part.next_offsets():
                if place not in self._warned:
                    self._warned.add(place)
                    log.warning(
                        "The table %s has the records of topic %s, partition %d, up to the offset %s: the task skips "
                        "these records when it reads them again. If the topic was deleted and created again, reset "
                        "the offsets of the connector",
                        pending.name,
                        place.topic,
                        place.partition,
                        pending.position(place),
                    )
        return new

    def _add(self, pending: Pending, part: SinkFrame) -> None:
        def add(rows: SinkFrame) -> None:
            pending.add(rows, self._rows(pending, rows))

        def report(frame: SinkFrame, rows: Any, error: BaseException) -> None:
            assert isinstance(error, DataException)
            self._report(frame, rows, error)

        if not part.num_rows:
            return
        try:
            # An error without any row is one of the schema, and so of all rows.
            self._rows(pending, part.slice(0, 0))
        except DataException as error:
            self._report(part, np.arange(part.num_rows), error)
            return
        isolate(add, part, errors=DataException, report=report)

    def _rows(self, pending: Pending, part: SinkFrame) -> TableRows:
        config = self._config
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

    def _without_table(self, name: str, part: SinkFrame) -> None:
        text = f"There is no table {name}: create it, or set auto.create=true"
        if not self._config.dynamic_tables:
            raise ConnectException(text)
        self._report(part, np.arange(part.num_rows), DataException(text))


def _evolve(pending: Pending, wanted: pa.Schema) -> None:
    table = pending.table
    assert table is not None
    changed = pending.evolved(table.columns, wanted)
    if not changed.equals(table.columns):
        table.evolve(changed)
        log.info("The table %s has the columns %s now", pending.name, ", ".join(changed.names))
    pending.columns = table.columns
