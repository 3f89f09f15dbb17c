"""Backfills of a Spark source: reads a range of files, of column values, or of versions again.

Main type: ``SparkBackfill``, which plans ranges and reads them, in the worker or as a run of executors. The decisions
are functions without I/O: ``in_range``, ``bounds_of``. Thread: the task's; ``data`` of a run: the worker's for it.
Source: Penstock's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from penstock.api import BackfillPart, BackfillSpan, Chunk
from penstock.api.bulk import BulkFrame
from penstock.connectors.spark.source.modes import Progress, Versions, chunks_of_files, chunks_of_rows
from penstock.connectors.spark.source.planning import File
from penstock.connectors.spark.source.reading import SparkReader
from penstock.connectors.spark.source.settings import ReadMode, SparkSourceConfig
from penstock.errors import BadRequestException, ConnectException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The fields of a part that define its range: the kind, the first value, and the end.
_BY: Final = "by"
_FROM: Final = "from"
_TO: Final = "to"
_NAME: Final = "names of files"
_TIME: Final = "milliseconds since 1970"
_VALUE: Final = "values"
_VERSION: Final = "versions"
_COLUMN: Final = "column"

_WHOLE: Final = ("byte", "short", "integer", "long")

Partition = Mapping[str, Any]


class SparkBackfill:
    """The backfills of a configuration.

    Args:
        config: The settings.
        reader: Reads the data on the session of the task.
        partition: The source partition.
        progress: Receives the progress.
    """

    def __init__(
        self,
        config: SparkSourceConfig,
        reader: SparkReader,
        partition: Partition,
        progress: Progress = lambda done, total, unit: None,
    ) -> None:
        self._config = config
        self._reader = reader
        self._partition = partition
        self._progress = progress

    def plan(self, span: BackfillSpan) -> list[BackfillPart]:
        """The part of a range; none if the range is empty. Runs jobs: it lists files, or counts rows.

        Raises:
            BadRequestException: The settings do not support this kind of range.
            RetriableException: The data is currently unavailable.
            ConnectException: The data cannot be read.
        """
        config = self._config
        if span.of is not None:
            raise BadRequestException(f"This source reads one thing, {config.label}, and no {span.of}: leave of out")
        if config.mode is ReadMode.VERSIONS:
            first, end = span.numbers("give two numbers of versions of the table")
            newest = Versions.newest(config.spark_path, self._reader)
            return self._part({_BY: _VERSION, _FROM: max(0, first), _TO: min(end, newest + 1)})
        if self._is_of_files:
            return self._plan_of_files(span)
        column, kind = self._column(span)
        first_value, end_value = bounds_of(column, kind, span)
        rows = self._reader.count(self._reader.within(column, first_value, end_value))
        reads = {_COLUMN: column, _BY: _VALUE, _FROM: first_value, _TO: end_value}
        return self._part(reads, rows) if rows else []

    @property
    def _is_of_files(self) -> bool:
        """True if files have ranges, and not the values of a column."""
        return self._config.is_of_files and self._config.mode is not ReadMode.INCREMENTING

    def _plan_of_files(self, span: BackfillSpan) -> list[BackfillPart]:
        reads: dict[str, Any]
        if span.start_ms is not None:
            reads = {_BY: _TIME, _FROM: span.start_ms, _TO: span.end_ms}
        else:
            first, end = span.positions("give two names of files, or two times")
            reads = {_BY: _NAME, _FROM: str(first), _TO: str(end)}
        files = self._files(reads)
        return self._part({**reads, "files": len(files), "bytes": sum(one.size for one in files)}) if files else []

    def _part(self, reads: Mapping[str, Any], rows: int | None = None) -> list[BackfillPart]:
        if reads[_BY] == _VERSION and reads[_FROM] >= reads[_TO]:
            return []
        return [BackfillPart(self._partition, reads, rows)]

    def _column(self, span: BackfillSpan) -> tuple[str, str]:
        """The column that a range goes by, and its type."""
        incrementing, timestamp = self._config.incrementing_column_name.strip(), self._config.timestamp_column.strip()
        of_times = span.start_ms is not None
        for name in (timestamp, incrementing) if of_times else (incrementing,):
            if name and (not of_times or self._reader.kind_of(name) in ("timestamp", "timestamp_ntz", "date")):
                return name, self._reader.kind_of(name)
        what = "timestamp.column to a column of timestamps" if of_times else "incrementing.column.name"
        raise BadRequestException(
            f"A backfill of {self._config.label} by {'times' if of_times else 'positions'} needs a column to go "
            f"by: set {what} of the connector, which may be set in every mode"
        )

    # ------------------------------------------------------------------ reading
    def read(self, part: BackfillPart, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """The rows of a part, after an offset.

        Raises:
            RetriableException: The data is currently unavailable.
            ConnectException: The data cannot be read.
        """
        reads, reader = part.reads, self._reader
        match reads[_BY]:
            case by if by == _VERSION:
                versions = Versions(self._config, reader)
                yield from versions.between(_whole(reads[_FROM]), _whole(reads[_TO]), offset)
            case by if by in (_NAME, _TIME):
                yield from chunks_of_files(reader, self._files(reads), offset or {}, {}, self._progress)
            case _:
                done = 0 if offset is None else int(offset["row"])
                rows = reader.within(str(reads[_COLUMN]), reads[_FROM], reads[_TO])
                yield from chunks_of_rows(reader, rows, {}, done, self._progress)

    def run(self, part: BackfillPart) -> BulkFrame:
        """The rows of a part as a run of executors, which resumes after its markers when repeated.

        Raises:
            RetriableException: The data is currently unavailable.
            ConnectException: The data cannot be read.
        """
        config, reads = self._config, part.reads
        name = f"backfill-{hashlib.sha256(json.dumps(reads, sort_keys=True).encode()).hexdigest()[:16]}"
        files = self._files(reads) if self._is_of_files else []

        def rows_of(reader: SparkReader) -> DataFrame:
            if self._is_of_files:
                return reader.of_files(files)
            return reader.within(str(reads[_COLUMN]), reads[_FROM], reads[_TO])

        records = self._reader.records(rows_of(self._reader))

        def data(session: SparkSession) -> DataFrame:
            return records.columns_of(rows_of(self._reader.on(lambda: session)))

        return BulkFrame(
            data=data,
            topic=config.topic,
            source_partition=part.partition,
            source_offset={"backfill": name, "done": True},
            run=name,
            value_schema=records.schema,
            key_schema=records.key_schema,
        )

    def _files(self, reads: Mapping[str, Any]) -> list[File]:
        found = in_range(self._reader.files(), reads[_BY] == _TIME, reads[_FROM], reads[_TO], self._config.spark_path)
        return sorted(found, key=lambda one: one.path)


def in_range(files: Sequence[File], by_time: bool, first: Any, end: Any, path: str) -> list[File]:
    """The files between two times or names.

    Args:
        files: All files.
        by_time: True if the range is by time in milliseconds.
        first: The first time or name.
        end: The end of the range (exclusive).
        path: The base path of the names.

    >>> some = [File("file:/in/d=1/a", 10, 1), File("file:/in/d=2/b", 20, 1)]
    >>> [one.path for one in in_range(some, False, "d=2/", "d=3/", "/in")]
    ['file:/in/d=2/b']
    >>> [one.path for one in in_range(some, True, 10, 20, "/in")]
    ['file:/in/d=1/a']
    """

    def key(file: File) -> Any:
        if by_time:
            return file.modified_ms
        base = path.rstrip("/") + "/"
        return file.path.partition(base)[2] or file.path.rpartition("/")[2]

    return [one for one in files if first <= key(one) < end]


def bounds_of(column: str, kind: str, span: BackfillSpan) -> tuple[Any, Any]:
    """The bounds of a range in the form in which values of a column are stored; see ``Position``.

    Args:
        column: Its name.
        kind: Its type, as Spark's JSON calls it.
        span: The requested range.

    Raises:
        BadRequestException: The column does not support this kind of range.

    >>> bounds_of("day", "date", BackfillSpan(start_ms=0, end_ms=86_400_000))
    ('1970-01-01', '1970-01-02')
    >>> bounds_of("id", "long", BackfillSpan(first="7", end="9"))
    (7, 9)
    """
    if span.start_ms is not None and span.end_ms is not None:
        return _of_ms(kind, span.start_ms), _of_ms(kind, span.end_ms)
    if kind in _WHOLE:
        return span.numbers(f"give two whole numbers, values of the column {column}")
    first, end = (str(one) for one in span.positions(f"give two values of the column {column}"))
    if kind == "timestamp":
        raise BadRequestException(f"The column {column} has timestamps: give two times, from and to")
    try:
        keys = [_read(kind, one) for one in (first, end)]
    except (ValueError, InvalidOperation):
        raise BadRequestException(
            f"The range is {first} to {end}, of which one is no {kind}: give two values of the column {column}"
        ) from None
    if not keys[0] < keys[1]:
        raise BadRequestException(f"The range {first} to {end} is empty: the end is exclusive, so it must be larger")
    return first, end


def _read(kind: str, text: str) -> Any:
    if kind.startswith("decimal"):
        return Decimal(text)
    if kind == "date":
        return date.fromisoformat(text)
    return datetime.fromisoformat(text) if kind == "timestamp_ntz" else text


def _of_ms(kind: str, ms: int) -> object:
    if kind == "timestamp":
        return ms * 1000
    when = datetime.fromtimestamp(ms / 1000, UTC)
    # The days of a time range are the days that begin in it.
    if kind == "date":
        whole = when.date()
        return whole.isoformat() if ms % 86_400_000 == 0 else date.fromordinal(whole.toordinal() + 1).isoformat()
    return when.strftime("%Y-%m-%d %H:%M:%S.%f")


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise ConnectException(f"The number of a version is a whole one, not {value!r}")
    return value
