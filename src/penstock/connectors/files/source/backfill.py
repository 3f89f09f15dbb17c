"""Backfills of files: those of a range of names or times, once more, even if they were moved after the first read.

Main type: ``FilesBackfill``, which plans and reads them for a task, without the ledger. Owning thread: the task's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Final

import pyarrow as pa

from penstock.api import BackfillPart, BackfillSpan, Chunk, SourceFrame
from penstock.connectors.files.source.ledger import FilePosition, as_text
from penstock.connectors.files.source.listing import FileSelection, OnDone
from penstock.connectors.files.source.readers.opening import Readers
from penstock.connectors.files.source.readers.reader import Bad, FileRows, Input, rest
from penstock.connectors.files.source.records import FrameBuilder
from penstock.connectors.files.source.settings import FileSourceConfig
from penstock.errors import BadRequestException, ConnectException, DataException, RetriableException
from penstock.files import ChangedException, Found, GoneException, Store

log = logging.getLogger(__name__)

_MS_NS: Final = 1_000_000
#: The fields of a part that define its range.
_BY: Final = "by"
_FROM: Final = "from"
_TO: Final = "to"
_OF: Final = "of"
_NAME: Final = "names"
_TIME: Final = "milliseconds since 1970"
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}/")
#: The number of bad rows of a file that the log names.
_LOGGED: Final = 10


class FilesBackfill:
    """The backfills of one task's files.

    Args:
        config: The settings.
        share: Identifies its share among those of other tasks.
        store: The store of the files.
        selection: Selects the files of the task.
        readers: Makes the reader of a file.
        records: Converts rows to records.
        progress: Called with the number of bytes that were read.
    """

    def __init__(
        self,
        config: FileSourceConfig,
        share: int,
        store: Store,
        selection: FileSelection,
        readers: Readers,
        records: FrameBuilder,
        progress: Callable[[float | None, float | None, str], None] = lambda done, total, unit: None,
    ) -> None:
        self._config = config
        self._share = share
        self._store = store
        self._selection = selection
        self._readers = readers
        self._records = records
        self._progress = progress
        self._letters = config.errors_deadletterqueue_topic_name

    def plan(self, span: BackfillSpan) -> list[BackfillPart]:
        """Plans the part of a range; none if there is no file in it.

        Raises:
            BadRequestException: The source restores topics, which have no files of their own.
            RetriableException: The store is unreachable.
            ConnectException: The store cannot be listed.
        """
        if self._config.restores:
            raise BadRequestException(
                "This source brings back what a FileSink has written, commit by commit, of which files are only parts: "
                "let another connector, with another name, read a copy of the directories that are wanted"
            )
        reads: dict[str, Any]
        if span.start_ms is not None:
            reads = {_BY: _TIME, _FROM: span.start_ms, _TO: span.end_ms}
        else:
            first, end = span.positions("give two names of files, or two times")
            reads = {_BY: _NAME, _FROM: str(first), _TO: str(end)}
        if span.of is not None:
            reads[_OF] = span.of
        sizes = [found.size for _, found in self._files(reads)]
        if not sizes:
            return []
        partition = {"files": self._selection.address, "share": self._share}
        return [BackfillPart(partition, {**reads, "files": len(sizes), "bytes": sum(sizes)})]

    def read(self, part: BackfillPart, offset: Mapping[str, Any] | None) -> Iterator[Chunk | SourceFrame]:
        """Reads the rows of a part, after an offset.

        Raises:
            RetriableException: The store is unreachable, or a file cannot be read now.
            ConnectException: A row or a file cannot be read, and ``halt.on.error`` is set.
        """
        at = offset or {"file": "", "read": True}
        files = sorted(self._files(part.reads), key=lambda one: as_text(one[0].key))
        total, done = sum(found.size for _, found in files), 0
        for named, found in files:
            name = as_text(named.key)
            if name > at["file"] or (name == at["file"] and not at.get("read")):
                place = _place(at) if name == at["file"] else FilePosition()
                yield from self._rows_of(named, found, place, part.partition)
                yield Chunk(None, offset={"file": name, "read": True})
            done += found.size
            self._progress(done, total, "bytes")

    # ---------------------------------------------------------------------------------------------------------- files
    def _files(self, reads: Mapping[str, Any]) -> Iterator[tuple[Found, Found]]:
        """The files of a range: as they were at the first read, and as they are now."""
        for found in self._store.walk(self._skips):
            named = self._as_before(found)
            if not self._selection.takes(named) or not self._selection.is_own(named):
                continue
            if reads.get(_OF) not in (None, named.key, named.name):
                continue
            key = named.time_ns // _MS_NS if reads[_BY] == _TIME else named.key
            if reads[_FROM] <= key < reads[_TO] and self._records.topic_of(named) is not None:
                yield named, found

    def _skips(self, directory: str) -> bool:
        """True if a directory is not searched; the one of files that were read is searched."""
        finished = self._config.finished
        if finished and f"{finished}/".startswith(f"{directory}/"):
            return False
        if finished and directory.startswith(f"{finished}/"):
            # It has the original directories of files, and one for each day.
            return False
        return self._selection.skips(directory)

    def _as_before(self, found: Found) -> Found:
        finished = self._config.finished
        if not finished or not found.key.startswith(f"{finished}/"):
            return found
        key = found.key.removeprefix(f"{finished}/")
        return replace(found, key=_DAY.sub("", key, count=1) if self._by_day and _DAY.match(key) else key)

    @property
    def _by_day(self) -> bool:
        return self._config.on_done is OnDone.MOVE_BY_DATE

    # ----------------------------------------------------------------------------------------------------------- rows
    def _rows_of(
        self, named: Found, found: Found, begin: FilePosition, partition: Mapping[str, Any]
    ) -> Iterator[SourceFrame]:
        name = f"{self._selection.address}/{found.key}"
        said: set[str] = set()

        def warn(text: str) -> None:
            if text not in said:
                said.add(text)
                log.warning("%s %s", name, text)

        bad_rows = 0
        try:
            reader = self._readers.of(named)
            file = Input(named, lambda: self._store.open(found), None, lambda: True, warn)
            for whole in reader.pieces(file, begin):
                piece = rest(self._records.fitted(whole), begin)
                if piece is None:
                    continue
                after = {"file": as_text(named.key), **asdict(piece.next)}
                if piece.bad:
                    bad_rows = self._tell(name, piece, bad_rows)
                    yield from self._letters_of(piece.bad, named, partition, after)
                if piece.table.num_rows:
                    yield self._records.frame(piece, named, partition, after)
        except RetriableException:
            raise
        except (GoneException, ChangedException) as error:
            log.warning("%s. The rest of it is left out of the backfill", error)
        except (DataException, pa.ArrowException, UnicodeError, RecursionError) as error:
            text = " ".join(str(error).split())
            if self._config.halts:
                raise ConnectException(
                    f"{name} {text}. Mend the file or move it away, or set halt.on.error=false; then ask for the "
                    "backfill again"
                ) from error
            log.error("%s %s. It is left out of the backfill", name, text)
            fault = [Bad(0, b"", f"the file {text}", 0)]
            yield from self._letters_of(fault, named, partition, {"file": as_text(named.key), "read": True})
        except OSError as error:
            raise RetriableException(f"Cannot read {name}: {error}") from error

    def _tell(self, name: str, piece: FileRows, before: int) -> int:
        """Logs bad rows, or ends the backfill at the first; returns their number in the file so far."""
        if self._config.halts:
            one = piece.bad[0]
            raise ConnectException(
                f"{name}, line {one.line or '?'}: {one.reason}: {one.text[:200]!r}. Mend or remove it, or set "
                "halt.on.error=false; then ask for the backfill again"
            )
        for one in piece.bad[: max(0, _LOGGED - before)]:
            log.warning("%s, line %s: %s: %r. It is left out", name, one.line or "?", one.reason, one.text[:200])
        return before + len(piece.bad)

    def _letters_of(
        self, bad: list[Bad], named: Found, partition: Mapping[str, Any], after: Mapping[str, Any]
    ) -> Iterator[SourceFrame]:
        if self._letters:
            yield self._records.letters(self._letters, bad, named, partition, after)


def _place(offset: Mapping[str, Any]) -> FilePosition:
    return FilePosition(**{one.name: offset[one.name] for one in fields(FilePosition)})
