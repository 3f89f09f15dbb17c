"""File source task: lists files, reads one after the other, and reports its progress. Main type: ``FileSourceTask``.

Owning thread: the task's.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from penstock.api import BackfillPart, BackfillSpan, Chunk, CumulativeSum, FrameSourceTask, RetryPolicy, SourceFrame
from penstock.config.java_pattern import compile_java
from penstock.connectors.files.source.archive import Archive, JoinedReader, commit_of
from penstock.connectors.files.source.backfill import FilesBackfill
from penstock.connectors.files.source.connector import TASK, TASKS
from penstock.connectors.files.source.ledger import (
    LOGS,
    FileInProgress,
    FileLedger,
    FileOutcome,
    FilePosition,
    Log,
    as_text,
)
from penstock.connectors.files.source.listing import Cleanup, FileSelection, FileUnit, Listing, OnDone
from penstock.connectors.files.source.readers.opening import Readers
from penstock.connectors.files.source.readers.reader import Bad, BadFileException, FileRows, FormatReader, Input, rest
from penstock.connectors.files.source.records import FrameBuilder
from penstock.connectors.files.source.settings import FileSourceConfig
from penstock.errors import ConnectException, DataException, RetriableException
from penstock.files import Found, Location, open_store
from penstock.files.manifests import MANIFESTS
from penstock.files.store import ChangedException, GoneException

log = logging.getLogger(__name__)

#: The longest time in which ``poll`` works or waits before it returns, in seconds.
_POLL_S: Final = 1.0
#: The number of bad rows of a file that the log names; it counts further ones.
_LOGGED: Final = 10
#: The interval in which the ledgers of other tasks are read, in seconds.
_REFRESH_S: Final = 20.0
_RECENT: Final = 10_000
_POSTPONED: Final = RetryPolicy(first_s=1.0, longest_s=30.0)


@dataclass
class _Open:
    """The current file.

    Attributes:
        unit: The file, or a part of it.
        pieces: Its rows.
        place: The position after the returned rows.
        begin: The start position.
        held: The next piece, which may be the last.
        bad: The number of bad rows so far.
        appends: True if reading continues when it has grown.
    """

    unit: FileUnit
    pieces: Iterator[FileRows]
    place: FilePosition
    begin: FilePosition = field(default_factory=FilePosition)
    held: FileRows | None = None
    bad: int = 0
    appends: bool = False


class FileSourceTask(FrameSourceTask):
    """Reads its share of the files.

    A file that cannot be read is skipped, named in the log and, if there is one, in the dead letter queue, and the next
    one is read; if only such files are left that may be read later, ``poll`` raises their error.
    """

    config_class = FileSourceConfig

    def __init__(self) -> None:
        self._queue: deque[SourceFrame] = deque()
        self._file: _Open | None = None
        self._again: FileUnit | None = None
        self._failure: Exception | None = None
        self._units: Iterator[FileUnit | None] | None = None
        self._listing: Listing | None = None
        self._listed_s = 0.0
        self._refreshed = time.monotonic()
        self._rest_s = 0.0
        self._postponed: dict[int, tuple[int, float, str]] = {}
        self._has_read = False
        self._warned: set[str] = set()
        # The keys of the last files that were read.
        self._recent: dict[str, None] = {}
        self._letters = ""
        self._now_ms: Callable[[], float] = lambda: time.time() * 1000

    def start(self, props: Mapping[str, str]) -> None:
        """Reads the settings and the ledger, and checks if the store exists.

        Raises:
            ConfigException: The settings are wrong.
            RetriableException: The store is unreachable.
            ConnectException: There is no such store, or no right to it; or the ledger cannot be read.
        """
        config = FileSourceConfig.parse(props)
        self.settings: FileSourceConfig = config
        self._store = open_store(config.place(), self._location)
        self._store.check_reading()
        self._readers = Readers(config, props.get("connector.class", ""))
        self._records = records_of(config)
        self._letters = config.errors_deadletterqueue_topic_name
        self._archive = Archive(self._store, config.file_delim, config.beside) if config.restores else None
        self._share = int(props[TASK])
        self._selection = selection_of(config, self._records, self._readers, self._share, int(props[TASKS]))
        self._ledger = FileLedger(self._selection.logs, self.context.offset_storage_reader().offsets)
        self._cleanup = Cleanup(self._store, config.on_done, config.finished, config.failed)
        metrics = self.context.plugin_metrics()
        self._counts = {}
        for name, text in _METRICS.items():
            sensor = metrics.add_sensor(name)
            sensor.add(metrics.metric_name(f"{name}-total", text), CumulativeSum())
            self._counts[name] = sensor

    def poll(self) -> SourceFrame | None:
        """Returns the next rows of the current file, or of the next one.

        Raises:
            RetriableException: The store is unreachable, or none of the remaining files can be read now.
            ConnectException: A row or file cannot be read, and ``halt.on.error`` is set.
        """
        end = time.monotonic() + _POLL_S
        while not self.context.stopping.is_set():
            if self._rest_s > 0:
                wait_s = min(self._rest_s, _POLL_S)
                self._rest_s -= wait_s
                if self.context.stopping.wait(wait_s):
                    break
                if self._rest_s > 0:
                    return None
            frame = self._step()
            if frame is not None or self._rest_s > 0 or time.monotonic() >= end:
                return frame
        return None

    def plan_backfill(self, span: BackfillSpan) -> Sequence[BackfillPart]:
        """See ``SourceTask.plan_backfill``: one part, of the files in the range that are this task's."""
        return self._backfill().plan(span)

    def backfill(self, part: BackfillPart, offset: Mapping[str, object] | None) -> Iterator[Chunk | SourceFrame]:
        """See ``SourceTask.backfill``."""
        return self._backfill().read(part, offset)

    def _backfill(self) -> FilesBackfill:
        return FilesBackfill(
            self.settings,
            self._share,
            self._store,
            self._selection,
            self._readers,
            self._records,
            self.context.progress,
        )

    def stop(self) -> None:
        """Closes the file and the store."""
        self._close_file()
        store = getattr(self, "_store", None)
        if store is not None:
            store.close()

    # ---------------------------------------------------------------------------------------------------------- steps
    def _step(self) -> SourceFrame | None:
        """Does one step of work, and returns rows if there are some."""
        if self._queue:
            return self._queue.popleft()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._file is not None:
            return self._read_on(self._file)
        unit, self._again = self._again or self._next_unit(), None
        if unit is not None:
            self._begin(unit)
        return None

    def _next_unit(self) -> FileUnit | None:
        if self._units is None:
            if self._ledger.is_open or time.monotonic() - self._refreshed > _REFRESH_S:
                self._ledger.refresh()
                self._refreshed = time.monotonic()
            self._listing = Listing(
                self._store, self._selection, self._ledger, self._now_ms, self._clean, self._archive
            )
            self._units = iter(self._listing)
            self._listed_s, self._has_read = 0.0, False
        began = time.monotonic()
        try:
            unit = next(self._units)
        except StopIteration:
            self._units = None
            self._listed_s += time.monotonic() - began
            self._end_of_list()
            return None
        except ConnectException:
            self._units = None
            raise
        self._listed_s += time.monotonic() - began
        if unit is None:
            return None
        count, due, _ = self._postponed.get(unit.identity, (0, 0.0, ""))
        return unit if not count or due <= self._now_ms() else None

    def _end_of_list(self) -> None:
        """Ends a listing: forgets files that are gone, and waits a while."""
        assert self._listing is not None
        if self._listing.listed:
            # An empty directory may be one that is not mounted.
            for partition in self._ledger.forget():
                self.context.advance(partition, None)
        if self._archive is not None and self._archive.waiting:
            self._warn_once(
                f"{self._selection.address}/{self._archive.waiting} belongs to a commit without a manifest below "
                f"{MANIFESTS}, and is not read: the commit is still running, did not finish, or its manifest was not "
                "copied"
            )
        self._rest_s = max(self.settings.wait_s, self._listed_s)
        if self._postponed and not self._has_read:
            _, due, text = min(self._postponed.values(), key=lambda one: one[1])
            self._rest_s = 0.0
            raise RetriableException(text, retry_after_s=max(0.1, (due - self._now_ms()) / 1000))

    def _clean(self, found: Found, outcome: FileOutcome) -> bool:
        if self._records.topic_of(found) is None or self.context.stopping.is_set():
            return False
        return self._cleanup(found, outcome)

    # ---------------------------------------------------------------------------------------------------------- files
    def _begin(self, unit: FileUnit) -> None:
        if self._records.topic_of(unit.found) is None:
            self._warn_once(
                f"{self._name(unit.found)} belongs to no topic, and is not read: set topic, or topic.regex.list to "
                "patterns of which one matches its whole path"
            )
            return
        try:
            reader = self._readers.of(unit.found)
            if self._archive is not None and (beside := self._archive.completed(unit.found, unit.beside)):
                inputs = {column: (self._input(one), self._readers.beside(one)) for column, one in beside.items()}
                reader = JoinedReader(reader, inputs)
            place = self._place_of(unit, reader)
            file = self._input(unit.found, unit.span)
        except BadFileException as error:
            self._log_of(unit).begin(_reading(unit, FilePosition()))
            self._file = _Open(unit, iter(()), FilePosition())
            self._fail(self._file, error)
            return
        self._log_of(unit).begin(_reading(unit, place))
        appends = reader.appends and self._store.appends
        self._file = _Open(unit, reader.pieces(file, place), place, place, appends=appends)

    def _input(self, found: Found, span: tuple[int, int] | None = None) -> Input:
        return Input(
            found,
            lambda: self._store.open(found),
            span,
            lambda: not self._store.appends or self._is_same(found),
            lambda text: self._warn_once(f"{self._name(found)} {text}"),
        )

    def _place_of(self, unit: FileUnit, reader: FormatReader) -> FilePosition:
        """Returns the position to begin at."""
        found, before = unit.found, self._log_of(unit).reading_of(as_text(unit.found.key), unit.part)
        if before is None:
            if found.key in self._recent and unit.part == 0:
                self._warn_once(
                    f"{self._name(found)} has changed since it was read, and is read again from its start; set "
                    "offset.attributes.string=path to ignore changes, or DirectorySourceConnector for appended lines"
                )
            return FilePosition()
        if before.identity == unit.identity:
            return before.place
        grown = reader.appends and self._store.appends and before.version == found.version
        if grown and found.size >= before.size and self._ledger.outcome(before.identity) is None:
            return before.place
        log.warning(
            "%s is another file than when it was read up to %s: it is read from its start",
            self._name(found),
            before.place,
        )
        return FilePosition()

    def _read_on(self, file: _Open) -> SourceFrame | None:
        """Returns the held piece, once it is known if it is the last."""
        following = None
        try:
            following = next(file.pieces, None)
            if following is not None:
                following = rest(self._records.fitted(following), file.begin)
                if following is None:
                    return None
        except Exception as error:
            if not self._has_failed(file, error):
                return None
        else:
            if following is None:
                return self._end(file)
        piece, file.held = file.held, following
        return None if piece is None else self._frame(file, piece, is_last=False)

    def _frame(self, file: _Open, piece: FileRows, *, is_last: bool) -> SourceFrame | None:
        """Converts a piece to a frame, after reporting its bad rows.

        Args:
            file: The file.
            piece: The piece.
            is_last: True if the file is finished after it.
        """
        log, found = self._log_of(file.unit), file.unit.found
        before, reading = log.offset(piece.place), log.reading
        if piece.bad:
            piece = self._report(file, piece)
        rows = piece.table.num_rows
        try:
            frame = self._records.frame(piece, found, log.partition, before) if rows else None
        except BadFileException as error:
            self._fail(file, error)
            return self._queue.popleft() if self._queue else None
        file.place = piece.next
        if is_last:
            self._finish(file.unit, FileOutcome.READ)
        after = log.offset(None if is_last else piece.next)
        if frame is None:
            self.context.advance(log.partition, after)
            return self._queue.popleft() if self._queue else None

        def offset_after(row: int) -> Mapping[str, Any]:
            if row == rows - 1:
                return after
            start = piece.place
            at = replace(start, rows=start.rows + row + 1, letters=start.letters or bool(piece.bad))
            return log.with_place(before, reading, at)

        self._counts["rows"].record(rows)
        self._queue.append(replace(frame, source_offset=after, offset_after=offset_after))
        return self._queue.popleft()

    def _end(self, file: _Open) -> SourceFrame | None:
        """Ends a file: notes that it is finished, unless it has grown."""
        unit, piece = file.unit, file.held
        file.held = None
        self._close_file()
        self._has_read = True
        self._postponed.pop(unit.identity, None)
        if file.appends and not self._is_same(unit.found):
            return self._suspended(file, piece)
        if piece is not None:
            # A file with a bad row that ends the task is not finished.
            return self._frame(file, piece, is_last=not (piece.bad and self.settings.halts))
        self._finish(unit, FileOutcome.READ)
        self._moved(unit)
        return None

    def _suspended(self, file: _Open, piece: FileRows | None) -> SourceFrame | None:
        frame = None if piece is None else self._frame(file, piece, is_last=False)
        self._log_of(file.unit).suspend(file.place)
        if frame is None:
            self._moved(file.unit)
        return frame

    def _finish(self, unit: FileUnit, outcome: FileOutcome) -> None:
        log = self._log_of(unit)
        if log.waits_for_block:
            self._ledger.refresh()
        if (block := log.full_block()) is not None:
            # It has only files of earlier polls.
            self.context.advance(*block)
        self._ledger.finish(log, unit.identity, outcome)
        self._counts["files" if outcome is FileOutcome.READ else "files-failed"].record(1)
        self._recent[unit.found.key] = None
        if len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def _close_file(self) -> None:
        file, self._file = self._file, None
        close = getattr(file.pieces, "close", None) if file is not None else None
        if close is not None:
            close()

    # --------------------------------------------------------------------------------------------------------- faults
    def _has_failed(self, file: _Open, error: Exception) -> bool:
        """Handles a failed read: the held piece is returned first, the error is handled afterwards.

        Returns:
            True if a piece is held.
        """
        if file.held is not None:
            file.pieces = _raising(error)
            return True
        name = self._name(file.unit.found)
        if isinstance(error, RetriableException):
            self._let_go(file)
            self._again = file.unit
            raise error
        if isinstance(error, (GoneException, ChangedException)):
            log.warning("%s. What was read of it stays in the topic, up to %s", error, file.place)
            self._let_go(file)
            self._moved(file.unit)
        elif isinstance(error, ConnectException) and not isinstance(error, DataException):
            self._postpone(file, error)
        elif isinstance(error, (DataException, pa.ArrowException, UnicodeError, RecursionError)):
            self._fail(file, error)
        elif isinstance(error, OSError):
            self._again = file.unit
            self._let_go(file)
            raise RetriableException(f"Cannot read {name}: {error}") from error
        else:
            raise error
        return False

    def _postpone(self, file: _Open, error: Exception) -> None:
        """Postpones a file that cannot be opened because of an error that a user may fix."""
        count, _, before = self._postponed.get(file.unit.identity, (0, 0.0, ""))
        if before != str(error):
            log.warning("%s is left for later: %s", self._name(file.unit.found), error)
        wait_s = _POSTPONED.wait_s(count + 1, error)
        self._postponed[file.unit.identity] = (count + 1, self._now_ms() + wait_s * 1000, str(error))
        self._let_go(file)

    def _let_go(self, file: _Open) -> None:
        self._close_file()
        self._log_of(file.unit).suspend(file.place)

    def _fail(self, file: _Open, error: Exception) -> None:
        """Finishes a file that cannot be read."""
        name, text = self._name(file.unit.found), " ".join(str(error).split())
        self._close_file()
        if self.settings.halts:
            self._log_of(file.unit).suspend(file.place)
            raise ConnectException(
                f"{name} {text}. Repair the file or move it away, or set halt.on.error=false; then restart the task"
            ) from error
        log.error(
            "%s %s. It is not read%s until that is corrected", name, text,
            f" after {file.place}" if file.place.at or file.place.rows else "",
        )  # fmt: skip
        self._has_read = True
        bad = Bad(0, b"", f"the file {text}", 0)
        self._finish(file.unit, FileOutcome.FAILED)
        self._send_letters([bad], file.unit)
        if not self._letters:
            self._moved(file.unit)

    def _report(self, file: _Open, piece: FileRows) -> FileRows:
        """Reports bad rows to the log and the dead letter queue; or the rows up to the first one, if that ends the
        task.
        """
        name = self._name(file.unit.found)
        if self.settings.halts:
            one = piece.bad[0]
            where = f"line {one.line}" if one.line else f"row {piece.place.rows + one.before + 1} of its block"
            self._failure = ConnectException(
                f"{name}, {where}: {one.reason}: {one.text[:200]!r}. Mend or remove it, or set halt.on.error=false; "
                "then restart the task"
            )
            self._close_file()
            self._log_of(file.unit).suspend(replace(piece.place, rows=piece.place.rows + one.before))
            rows = piece.place.rows + one.before
            return replace(piece, table=piece.table.slice(0, one.before), bad=[], next=replace(piece.place, rows=rows))
        for one in piece.bad[: max(0, _LOGGED - file.bad)]:
            log.warning("%s, line %s: %s: %r. It is left out", name, one.line or "?", one.reason, one.text[:200])
        file.bad += len(piece.bad)
        if file.bad > _LOGGED >= file.bad - len(piece.bad):
            log.warning("%s has more bad rows, which are not named here", name)
        self._counts["rows-bad"].record(len(piece.bad))
        self._send_letters(piece.bad, file.unit, replace(piece.place, letters=True))
        return piece

    def _send_letters(self, bad: list[Bad], unit: FileUnit, place: FilePosition | None = None) -> None:
        if self._letters:
            log = self._log_of(unit)
            letters = self._records.letters(self._letters, bad, unit.found, log.partition, log.offset(place))
            self._queue.append(letters)

    # -------------------------------------------------------------------------------------------------------- helpers
    def _log_of(self, unit: FileUnit) -> Log:
        return self._ledger.logs[unit.log]

    def _moved(self, unit: FileUnit) -> None:
        """Notes a position that has moved without a record."""
        log = self._log_of(unit)
        self.context.advance(log.partition, log.offset())

    def _is_same(self, found: Found) -> bool:
        try:
            now = self._store.look_at(found.key)
        except GoneException:
            return True
        return (now.size, now.time_ns) == (found.size, found.time_ns)

    def _name(self, found: Found) -> str:
        return f"{self._selection.address}/{found.key}"

    def _warn_once(self, text: str) -> None:
        if text not in self._warned and len(self._warned) < 10_000:
            self._warned.add(text)
            log.warning("%s", text)

    def _location(self) -> Location:
        """The address with the newest secrets."""
        return FileSourceConfig.parse(self.context.configs()).place()


_METRICS: Final = {
    "files": "Files, or parts of large ones, that were read to their end.",
    "files-failed": "Files that could not be read.",
    "rows": "Rows that were handed over.",
    "rows-bad": "Rows that could not be read.",
}


def records_of(config: FileSourceConfig) -> FrameBuilder:
    """Makes the converter of rows to records."""
    topics = (one.partition(":") for one in config.topic_regex_list)
    return FrameBuilder(
        config.topic,
        tuple((topic, compile_java(pattern)) for topic, _, pattern in topics),
        config.restores,
        config.metadata_columns or (None if config.restores else ()),
        config.metadata_columns_prefix,
        config.file_delim,
        config.fields_of_key,
        config.keys,
        config.values,
        config.schema_generation_key_name,
        config.schema_generation_value_name,
        config.timestamp_mode,
        config.timestamp_field,
        config.metadata_location == "HEADERS",
        config.root,
    )


def selection_of(
    config: FileSourceConfig, records: FrameBuilder, readers: Readers, task: int, tasks: int
) -> FileSelection:
    """Selects the files of a task."""

    def owner(found: Found) -> str:
        # Files of one partition are assigned to one task, so that they are read in order.
        place = records.place_of(found) if config.restores else None
        if place is None and config.restores and commit_of(found) is not None:
            # Their rows are of all partitions.
            return found.key.partition("/")[0]
        return found.key if place is None else "+".join(map(str, place))

    ending = config.processing_file_extension

    return FileSelection(
        config.root,
        config.pattern,
        config.recursive,
        frozenset(one for one in (config.finished, config.failed) if one),
        config.file_minimum_age_ms,
        config.file_maximum_size_bytes,
        config.file_minimum_size_bytes,
        config.order,
        config.attributes,
        owner,
        readers.share,
        frozenset(range(task, LOGS, tasks)),
        ending if config.on_done is not OnDone.NONE else "",
    )


def _reading(unit: FileUnit, place: FilePosition) -> FileInProgress:
    found = unit.found
    return FileInProgress(as_text(found.key), unit.part, unit.identity, found.version, found.size, place)


def _raising(error: Exception) -> Iterator[FileRows]:
    yield from ()
    raise error
