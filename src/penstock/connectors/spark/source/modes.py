"""The modes over rows that can be read again: `Bulk`, `BulkFiles`, `NewFiles`, `Incrementing`, `Versions`.

Each yields chunks after an offset, in a repeatable order, and ends when there is nothing more for now. Thread: the
task's. Source: Penstock's own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from penstock.api import Chunk
from penstock.connectors.spark.names import quoted
from penstock.connectors.spark.source.planning import MOST_BYTES, Begun, File, FilesRead, begun_in, groups
from penstock.connectors.spark.source.positions import PositionColumn, counts_within_values
from penstock.connectors.spark.source.reading import SparkReader, position_by
from penstock.connectors.spark.source.settings import ReadMode, SparkSourceConfig
from penstock.errors import ConnectException

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.connectors.spark.source.chunks import QueryChunks

log = logging.getLogger(__name__)

Offset = Mapping[str, Any]
Progress = Callable[[float | None, float | None, str], None]
#: Names of files in one line of the log.
_MOST_NAMED: Final = 10


class ReadStrategy(Protocol):
    """One mode."""

    def read(self, offset: Offset | None) -> Iterator[Chunk]:
        """Chunks starting at an offset; ends when there is nothing more for now.

        Raises:
            RetriableException: What is read is not there now.
            ConnectException: It cannot be read.
        """


def reading_of(config: SparkSourceConfig, reader: SparkReader, progress: Progress) -> ReadStrategy:
    """The mode of the settings."""
    match config.mode:
        case ReadMode.BULK:
            return BulkFiles(config, reader, progress) if config.is_of_files else Bulk(config, reader, progress)
        case ReadMode.FILES:
            return NewFiles(config, reader)
        case ReadMode.INCREMENTING:
            return Incrementing(config, reader)
        case ReadMode.VERSIONS:
            return Versions(config, reader)
        case ReadMode.STREAM:
            raise ValueError("Streams has parts of its own")


class Runs:
    """The times at which all rows are read, and read again."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms

    def number(self, offset: Offset | None) -> int | None:
        """The run that is in progress or due; None: none is due."""
        if offset is None:
            return 1
        try:
            run, done = int(offset["run"]), bool(offset.get("done", False))
            ended_ms = int(offset.get("ended", 0))
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectException(
                f"The offset {dict(offset)} is none of mode=bulk: reset the connector's offsets, or give it "
                "another name"
            ) from error
        if not done:
            return run
        is_due = self._interval_ms > 0 and _now_ms() >= ended_ms + self._interval_ms
        return run + 1 if is_due else None


class Bulk:
    """All rows of a table or a query: sorted, and gone on with by their number."""

    def __init__(self, config: SparkSourceConfig, reader: SparkReader, progress: Progress) -> None:
        self._runs = Runs(config.bulk_interval_ms)
        self._reader = reader
        self._progress = progress

    def read(self, offset: Offset | None) -> Iterator[Chunk]:
        """See ``ReadStrategy``."""
        run = self._runs.number(offset)
        if run is None:
            return
        done = int((offset or {}).get("row", 0)) if (offset or {}).get("run") == run else 0
        for chunk in chunks_of_rows(self._reader, self._reader.all(), {"run": run}, done, self._progress):
            done = int((chunk.offset or {})["row"])
            yield chunk
        log.info("All %d rows were read", done)
        self._progress(None, None, "rows")
        yield Chunk(None, offset={"run": run, "row": done, "done": True, "ended": _now_ms()})


class BulkFiles:
    """All files of a path that are there when a run begins or goes on, by their names."""

    def __init__(self, config: SparkSourceConfig, reader: SparkReader, progress: Progress) -> None:
        self._runs = Runs(config.bulk_interval_ms)
        self._reader = reader
        self._progress = progress

    def read(self, offset: Offset | None) -> Iterator[Chunk]:
        """See ``ReadStrategy``."""
        run = self._runs.number(offset)
        if run is None:
            return
        of_run = offset if offset is not None and offset.get("run") == run else {}
        files = sorted(self._reader.files(), key=lambda one: one.path)
        yield from chunks_of_files(self._reader, files, of_run, {"run": run}, self._progress)
        log.info("All %d files were read", len(files))
        self._progress(None, None, "bytes")
        through = max([str(of_run.get("through", "")), *(one.path for one in files)])
        yield Chunk(None, offset={"run": run, "through": through, "done": True, "ended": _now_ms()})


class NewFiles:
    """Files that were not read yet, the oldest first."""

    def __init__(self, config: SparkSourceConfig, reader: SparkReader) -> None:
        self._reader = reader
        self._late_ms, self._settle_ms = config.files_late_ms, config.files_settle_ms
        #: Marks of files that are not new: already read, or too old when the task began.
        self._known: set[str] | None = None

    def read(self, offset: Offset | None) -> Iterator[Chunk]:
        """See ``ReadStrategy``."""
        ledger, begun = FilesRead.of(offset), begun_in(offset or {})
        settled_ms = _now_ms() - self._settle_ms
        new, late = ledger.split([one for one in self._reader.files() if one.modified_ms <= settled_ms])
        self._tell(late)
        self._known = {one.mark for one in late} | {mark for _, mark in ledger.marks}
        for group in groups(new):
            reached = ledger.with_read(group, self._late_ms)
            yield from _chunks_of(self._reader, group, begun, ledger.offset(), _to(reached))
            self._known |= {one.mark for one in group}
            ledger = reached

    def _tell(self, late: Sequence[File]) -> None:
        """Names files that came too late: nothing says any more whether they were read."""
        found = [one.path for one in late if self._known is not None and one.mark not in self._known]
        if found:
            log.warning(
                "%d files came more than files.late.ms after others, and are not read: %s; raise files.late.ms, "
                "or touch them",
                len(found),
                ", ".join(found[:_MOST_NAMED]),
            )


class Incrementing:
    """Rows whose column is greater than that of all before."""

    def __init__(self, config: SparkSourceConfig, reader: SparkReader) -> None:
        self._column, self._most, self._reader = config.incrementing_column_name.strip(), config.batch_max_rows, reader

    def read(self, offset: Offset | None) -> Iterator[Chunk]:
        """See ``ReadStrategy``."""
        rows = self._reader.all()
        position = position_by(self._column, rows, self._reader.what)
        records = self._reader.records(rows)
        after = position.after(offset)
        column = rows[quoted(self._column)]
        done = int((offset or {}).get("rows", 0))
        if done:
            yield from self._of_value(rows, records, position, after, done)
        # Rows of one value have an order, too, so that some of them can be left out.
        in_order: list[Column | str] = [column.asc_nulls_first(), *self._reader.sort_columns(rows)]
        while True:
            new = rows if after is None else rows.where((column > position.literal(after)) | column.isNull())
            found = self._reader.at_once(new.orderBy(*in_order).limit(self._most))
            if not found.num_rows:
                return
            stored = position.stored(found)
            counts = counts_within_values(stored, found.num_rows)
            is_full = found.num_rows == self._most
            # Of the last value of a full batch there may be more rows: they come with the next query.
            count = _whole(counts[:-1]) if is_full else found.num_rows
            if not count:
                after = stored(0)
                yield from self._of_value(rows, records, position, after, 0)
                continue
            after = stored(count - 1)
            yield records.chunk(found.slice(0, count), position.offset(after), _by_value(position, stored, counts))
            if not is_full:
                return

    def _of_value(
        self, rows: DataFrame, records: QueryChunks, position: PositionColumn, value: object, done: int
    ) -> Iterator[Chunk]:
        """The rows of one value, starting with the first undelivered one."""
        same = rows.where(rows[quoted(self._column)] == position.literal(value))
        for first, piece in _numbered(self._reader.pieces(self._reader.sorted(same)), done):
            after = _counted(position, value, first)
            yield records.chunk(piece, after(piece.num_rows - 1), after)
        yield Chunk(None, offset=position.offset(value))


class Versions:
    """A table of Delta as it is, then the changes of each version."""

    def __init__(self, config: SparkSourceConfig, reader: SparkReader) -> None:
        self._path, self._reader = config.spark_path, reader

    def read(self, offset: Offset | None) -> Iterator[Chunk]:
        """See ``ReadStrategy``."""
        newest = self.newest(self._path, self._reader)
        if offset is None:
            yield from self._version(newest, 0, is_whole=True)
            done = newest
        else:
            try:
                done, row = int(offset["version"]), int(offset.get("row", 0))
                is_whole = bool(offset.get("whole", False))
            except (KeyError, TypeError, ValueError) as error:
                raise ConnectException(
                    f"The offset {dict(offset)} is none of mode=versions: reset the connector's offsets, or give it "
                    "another name"
                ) from error
            if "row" in offset:
                yield from self._version(done, row, is_whole=is_whole)
        for version in range(done + 1, newest + 1):
            yield from self._version(version, 0, is_whole=False)

    @staticmethod
    def newest(path: str, reader: SparkReader) -> int:
        """The number of the newest version of a table.

        Raises:
            ConnectException: It cannot be read.
        """
        quoted_path = path.replace("`", "``")
        (row,) = reader.sql(f"DESCRIBE HISTORY delta.`{quoted_path}` LIMIT 1")
        return int(row["version"])

    def between(self, first: int, end: int, offset: Offset | None) -> Iterator[Chunk]:
        """The changes of some versions, after an offset.

        Args:
            first: The first version.
            end: The version after the last.
            offset: The position already read; None: nothing was read.
        """
        done = first - 1 if offset is None else int(offset["version"])
        if offset is not None and "row" in offset:
            yield from self._version(done, int(offset["row"]), is_whole=False)
        for version in range(done + 1, end):
            yield from self._version(version, 0, is_whole=False)

    def _version(self, version: int, done: int, *, is_whole: bool) -> Iterator[Chunk]:
        from pyspark.sql import functions

        if is_whole:
            rows = self._reader.option(versionAsOf=version).withColumns(
                {
                    "_change_type": functions.lit("insert"),
                    "_commit_version": functions.lit(version).cast("bigint"),
                    "_commit_timestamp": functions.lit(None).cast("timestamp"),
                }
            )
        else:
            rows = self._reader.option(readChangeFeed="true", startingVersion=version, endingVersion=version)
            rows = rows.where("_change_type <> 'update_preimage'")
        records = self._reader.records(rows)
        at = {"version": version, **({"whole": True} if is_whole else {})}
        for first, piece in _numbered(self._reader.pieces(self._reader.sorted(rows)), done):
            yield records.chunk(piece, {**at, "row": first + piece.num_rows}, _rows_from(at, first))
        yield Chunk(None, offset={"version": version})


def chunks_of_rows(reader: SparkReader, rows: DataFrame, at: Offset, done: int, tell: Progress) -> Iterator[Chunk]:
    """Chunks of sorted rows, resumed by row number.

    Args:
        reader: Reads them.
        rows: The rows.
        at: The other fields of each offset.
        done: The number of delivered rows.
        tell: Receives the number of rows read.
    """
    records = reader.records(rows)
    for first, piece in _numbered(reader.pieces(reader.sorted(rows)), done):
        read = first + piece.num_rows
        tell(read, None, "rows")
        yield records.chunk(piece, {**at, "row": read}, _rows_from(at, first))


def chunks_of_files(
    reader: SparkReader, files: Sequence[File], offset: Offset, at: Offset, tell: Progress
) -> Iterator[Chunk]:
    """Chunks of files in the order of their names.

    Args:
        reader: Reads them.
        files: The files, in order.
        offset: The delivered position; empty: nothing was delivered.
        at: The other fields of each offset.
        tell: Receives the number of bytes read.
    """
    begun, through = begun_in(offset), str(offset.get("through", ""))
    total = sum(one.size for one in files)
    left = [one for one in files if one.path > through]
    for group in groups(left):
        yield from _chunks_of(
            reader, group, begun, {**at, "through": through}, lambda read: {**at, "through": read[-1].path}
        )
        through = group[-1].path
        tell(total - sum(one.size for one in left if one.path > through), total, "bytes")


def _chunks_of(
    reader: SparkReader,
    group: Sequence[File],
    begun: Begun | None,
    before: Offset,
    after: Callable[[Sequence[File]], Offset],
) -> Iterator[Chunk]:
    """Chunks of some files: of small ones one, which is repeated as a whole; of a large one its pieces."""
    rows = reader.of_files(group)
    records = reader.records(rows)
    file = group[0]
    if file.size <= MOST_BYTES:
        found = reader.at_once(rows)
        yield records.chunk(found, after(group)) if found.num_rows else Chunk(None, offset=after(group))
        return
    done = 0 if begun is None else begun.rows_of(file)
    at = {**before, "file": file.path, "modified": file.modified_ms}
    for first, piece in _numbered(reader.pieces(rows), done):
        yield records.chunk(piece, {**at, "row": first + piece.num_rows}, _rows_from(at, first))
    yield Chunk(None, offset=after(group))


def _to(ledger: FilesRead) -> Callable[[Sequence[File]], Offset]:
    return lambda group: ledger.offset()


def _numbered(pieces: Iterator[pa.Table], done: int) -> Iterator[tuple[int, pa.Table]]:
    """Pieces with the numbers of their first rows, from the first row on that was not delivered."""
    first = 0
    for piece in pieces:
        skipped = min(piece.num_rows, max(0, done - first))
        if skipped < piece.num_rows:
            yield first + skipped, piece.slice(skipped)
        first += piece.num_rows


def _rows_from(at: Offset, first: int) -> Callable[[int], Offset]:
    return lambda row: {**at, "row": first + row + 1}


def _by_value(
    position: PositionColumn, stored: Callable[[int], object], counts: Sequence[int]
) -> Callable[[int], Offset]:
    return lambda row: position.offset(stored(row), counts[row])


def _counted(position: PositionColumn, value: object, first: int) -> Callable[[int], Offset]:
    return lambda row: position.offset(value, first + row + 1)


def _whole(counts: Sequence[int]) -> int:
    """Returns the number of rows up to the last one that is the last of its value.

    >>> _whole([1, 0, 0, 1]), _whole([1, 2])
    (3, 0)
    """
    return next((place + 1 for place in reversed(range(len(counts))) if not counts[place]), 0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
