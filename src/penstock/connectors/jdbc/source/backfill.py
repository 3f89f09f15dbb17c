"""Backfills of tables: the rows between two values of their incrementing column, or two times, once more.

Main type: ``JdbcBackfill``, which plans and reads them for a task. Owning thread: the task's. Needs SQLAlchemy and a
driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.api import BackfillPart, BackfillSpan
from penstock.connectors.jdbc.source.position import QueryMode, RowPosition, partition_of, table_of
from penstock.connectors.jdbc.source.queries import Bound, ResultRows, RowSelection, pieces
from penstock.connectors.jdbc.source.ranges import SNAPSHOT
from penstock.connectors.jdbc.source.reading import ReadConnection
from penstock.connectors.jdbc.source.settings import JdbcSourceConfig, is_meant
from penstock.errors import BadRequestException

_MS: Final = 1_000_000
#: The fields of a part that say what it reads: by which kind of column, from its first value on up to another.
_BY: Final = "by"
_FROM: Final = "from"
_TO: Final = "to"
_NUMBER: Final = "number"
_TIME: Final = "milliseconds since 1970"


class JdbcBackfill:
    """The backfills of one task's tables.

    Args:
        config: The settings.
        selection: Says how a table is read, or the query for None.
        reader: Makes a reader with a connection of its own.
    """

    def __init__(
        self,
        config: JdbcSourceConfig,
        selection: Callable[[str | None], RowSelection],
        reader: Callable[[], ReadConnection],
    ) -> None:
        self._config = config
        self._selection = selection
        self._reader = reader

    def plan(self, partitions: Sequence[Mapping[str, Any]], span: BackfillSpan) -> list[BackfillPart]:
        """The parts of some tables.

        Args:
            partitions: The source partitions of the tables, or of the query; those of first loads are passed over.
            span: What was asked for.

        Raises:
            BadRequestException: The mode does not go by what was asked for.
            RetriableException: The database cannot be reached.
            ConnectException: It refuses.
        """
        reads = self._range(span)
        tables = [table_of(one) for one in partitions if SNAPSHOT not in one]
        if span.of is not None:
            tables = [one for one in tables if one is not None and is_meant(one, span.of)]
        found = []
        for table in tables:
            selection, first, end = self._within(table, reads)
            columns = [selection.incrementing] if reads[_BY] == _NUMBER else selection.timestamps
            reader = self._reader()
            try:
                rows = reader.count(selection.count(first, end))
            finally:
                reader.close()
            if rows:
                told = {"column": ", ".join(map(str, columns)), **reads}
                found.append(BackfillPart(partition_of(table), told, rows))
        return found

    def read(self, part: BackfillPart, offset: Mapping[str, Any] | None) -> Iterator[ResultRows]:
        """The rows of a part, after an offset.

        Raises:
            RetriableException: The database cannot be reached, or ended the connection.
            ConnectException: It refuses.
        """
        selection, first, end = self._within(table_of(part.partition), part.reads)
        after, most = RowPosition.of(offset), self._config.batch_max_rows
        reader = self._reader()
        try:
            rows = reader.rows(selection, selection.statement(after, end, first), most)
            yield from pieces(selection, rows, after, most)
        finally:
            reader.close()

    def _range(self, span: BackfillSpan) -> dict[str, Any]:
        mode = self._config.mode
        if mode is QueryMode.BULK:
            raise BadRequestException(
                "mode=bulk goes by no column, so that it reads all rows or none: a connector of its own, with "
                "mode=incrementing or timestamp and the same topic.prefix, reads a range"
            )
        if not mode.has_timestamp or (mode.has_incrementing and span.start_ms is None):
            also = ", or two times" if mode.has_timestamp else ", since mode=incrementing goes by no time"
            first, end = span.numbers(f"give two whole numbers, values of the incrementing column{also}")
            return {_BY: _NUMBER, _FROM: first, _TO: end}
        start_ms, end_ms = span.times("give two times, since mode=timestamp goes by no number")
        return {_BY: _TIME, _FROM: start_ms, _TO: end_ms}

    def _within(self, table: str | None, reads: Mapping[str, Any]) -> tuple[RowSelection, Bound, Bound]:
        """The selection of the rows, with the first bound and the last one."""
        selection, first, end = self._selection(table), int(reads[_FROM]), int(reads[_TO])
        if reads[_BY] == _TIME:
            return selection, Bound(timestamp=first * _MS), Bound(timestamp=end * _MS)
        by_number = replace(selection, mode=QueryMode.INCREMENTING, timestamps=())
        return by_number, Bound(incrementing=first), Bound(incrementing=end)
