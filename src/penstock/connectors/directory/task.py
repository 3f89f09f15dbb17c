"""Directory source task: reads its files side by side, a frame from one, then from the next.

Main types: `DirectorySourceTask`; `FileTail`, one of its files, which adds to `LineReader`: a last line without an end,
closing and opening again, and the time of the next look. Owning thread: the task's.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.api import FrameSourceTask, SourceFrame
from penstock.connectors.directory.planning import (
    BYTES_FIELD,
    FILENAME_FIELD,
    POSITION_FIELD,
    SIZE_FIELD,
    Committed,
    parse_offset,
    resume_position,
)
from penstock.connectors.directory.settings import TASK_FILES_CONFIG, DirectorySourceConfig, decode_files
from penstock.connectors.file.reader import LineReader, PlacedLines
from penstock.data import STRING_SCHEMA
from penstock.errors import ConnectException

log = logging.getLogger(__name__)

# A file that was written to a moment ago is looked at often, any other at the scan interval.
BUSY_WAIT_S, BUSY_FOR_S = 0.02, 5.0
LONGEST_RETRY_S = 60.0

Glance = tuple[int, int, tuple[int, int]]


class ResumingReader(LineReader):
    """A `LineReader` that can be put aside, and notices on opening that the file is another one."""

    def __init__(self, path: str, committed: Committed | None) -> None:
        super().__init__(path, committed.position if committed is not None else 0)
        self._file = path
        # Up to where it was read before, and how large it was then.
        self._committed = committed
        self._identity: tuple[int, int] | None = None
        self._missed = False

    @property
    def is_open(self) -> bool:
        """True if it holds an open file descriptor."""
        return self._fd is not None

    def size(self) -> int:
        """Size of the open file; 0 without one."""
        return os.fstat(self._fd).st_size if self._fd is not None else 0

    @property
    def taken(self) -> int:
        """The bytes of the file that were taken in so far."""
        return self._position

    def has_pending_bytes(self) -> bool:
        """True if it holds a line without an end."""
        return self._held > 0

    def finish(self) -> PlacedLines | None:
        """The line without an end, taken as complete."""
        return self._emit(final=True)

    def park(self) -> None:
        """Closes the file, to be opened again by the next `read`."""
        if self._fd is not None:
            self._committed = Committed(self._start, self.size())
        self.close()
        self._position = self._start
        self._discard()

    def _open(self) -> bool:
        if not os.path.exists(self._file):
            if not self._missed:
                log.warning("File %s was removed; it was read up to position %d", self._file, self._start)
                self._missed = True
            return False
        if not super()._open():
            return False
        assert self._fd is not None
        self._missed = False
        found = os.fstat(self._fd)
        identity = (found.st_dev, found.st_ino)
        if self._identity is not None and identity != self._identity and self._start:
            log.warning("File %s was replaced; the new file is read from its start", self._file)
            self._position = self._start = 0
        elif self._start and resume_position(found.st_size, self._committed) == 0:
            log.warning(
                "File %s has %d bytes, less than when it was read before: it is read from its start",
                self._file,
                found.st_size,
            )
            self._position = self._start = 0
        self._identity = identity
        return True


@dataclass(frozen=True, slots=True)
class TailedLines:
    """Some lines of a file, and the size of the file when they were read."""

    path: str
    chunk: PlacedLines
    size: int


class FileTail:
    """One file of a task: hands over its lines and says when to look again.

    Args:
        path: the file.
        committed: where to go on.
        idle_s: after so long without a change a last line without an end is complete, and the file is closed.
        look_s: how often to look at a file that rests.
    """

    def __init__(self, path: str, committed: Committed | None, *, idle_s: float, look_s: float) -> None:
        self.path = path
        self.due = 0.0
        self._reader = ResumingReader(path, committed)
        self._idle_s = idle_s
        self._look_s = look_s
        self._seen: Glance | None = None
        self._seen_at: float | None = None
        self._resting = False
        self._last_data = float("-inf")
        self._failures = 0
        self._fault = ""

    @property
    def is_open(self) -> bool:
        """True if it holds an open file descriptor."""
        return self._reader.is_open

    def visit(self, now: float) -> TailedLines | None:
        """The next lines, or None when there are none now; sets `due`, the time of the next visit. Does not wait.

        Raises:
            ConnectException: the file cannot be read.
            OSError: the same.
        """
        if self._resting and self._glance() == self._seen:
            self.due = now + self._look_s
            return None
        self._resting = False
        chunk, before = None, -1
        # More than once in the middle of a long line, and at the start of a truncated file.
        while chunk is None and self._reader.taken != before:
            before = self._reader.taken
            chunk = self._reader.read()
        self._failures, self._fault = 0, ""
        if chunk is None:
            chunk = self._at_end(now)
        if chunk is None:
            return None
        self._last_data = self.due = now
        size = max(self._reader.size(), chunk.resume or 0)
        return TailedLines(self.path, chunk, size)

    def failed(self, error: Exception, now: float) -> None:
        """Reading did not work: says so once, and tries again later."""
        if str(error) != self._fault:
            log.warning("File %s is left for later: %s", self.path, error)
            self._fault = str(error)
        self._failures += 1
        self.park()
        self.due = now + min(LONGEST_RETRY_S, self._look_s * 2 ** min(self._failures, 16))

    def park(self) -> None:
        """Closes the file until the next visit."""
        self._reader.park()

    def _at_end(self, now: float) -> PlacedLines | None:
        glance = self._glance()
        if self._seen_at is None or glance != self._seen:
            self._seen, self._seen_at = glance, now
        busy = now - self._last_data < BUSY_FOR_S
        self.due = now + (min(BUSY_WAIT_S, self._look_s) if busy else self._look_s)
        left = self._seen_at + self._idle_s - now
        if left > 0:
            self.due = min(self.due, now + left)
            return None
        if self._reader.has_pending_bytes():
            return self._reader.finish()
        self.park()
        self._resting = True
        return None

    def _glance(self) -> Glance | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino)


POLL_LIMIT_S = 1.0
# Descriptors are scarcer than files.
MAX_OPEN_FILES = 64


class DirectorySourceTask(FrameSourceTask):
    """Hands over the lines of its files as frames, each from one file, in turn.

    A file that cannot be read is left for later and does not keep the task from the others. When all files are
    complete, `poll` waits for one to grow.

    Offsets: `{"filename": path}` -> `{"position": bytes up to the end of the line, "size": bytes of the file when it
    was read, "bytes": bytes of the line with its end}`.
    """

    def __init__(self) -> None:
        self._tails: list[FileTail] = []
        self._open: dict[str, FileTail] = {}
        self._next = 0
        self._topic = ""
        self._clock: Callable[[], float] = time.monotonic

    def start(self, props: Mapping[str, str]) -> None:
        """Finds the committed positions, with one read for all files.

        Raises:
            ConnectException: the offsets cannot be read, or the configuration is not of the connector's making.
        """
        config = DirectorySourceConfig.parse(props)
        self._topic = config.topic
        idle_s, look_s = config.idle_ms / 1000, config.scan_interval_ms / 1000
        files = decode_files(props.get(TASK_FILES_CONFIG))
        reader = self.context.offset_storage_reader()
        offsets = reader.offsets([{FILENAME_FIELD: path} for path in files.paths])
        for path, offset in zip(files.paths, offsets, strict=True):
            committed = parse_offset(path, offset)
            if committed is not None and committed == files.stale.get(path):
                committed = None
            self._tails.append(FileTail(path, committed, idle_s=idle_s, look_s=look_s))

    def poll(self) -> SourceFrame | None:
        """The next lines of the next file that has some; waits up to a second."""
        deadline = self._clock() + POLL_LIMIT_S
        while not self.context.stopping.is_set():
            piece = self._round()
            if piece is not None:
                return self._frame(piece)
            now = self._clock()
            if now >= deadline:
                return None
            due = min((tail.due for tail in self._tails), default=deadline)
            self.context.stopping.wait(max(0.0, min(due, deadline) - now))
        return None

    def stop(self) -> None:
        """Closes the files."""
        for tail in self._tails:
            tail.park()
        self._open.clear()

    def _round(self) -> TailedLines | None:
        """Goes round the files once, from where it stopped last time, up to the first that has lines."""
        for _ in range(len(self._tails)):
            if self.context.stopping.is_set():
                return None
            tail = self._tails[self._next]
            self._next = (self._next + 1) % len(self._tails)
            now = self._clock()
            if tail.due > now:
                continue
            piece = None
            try:
                piece = tail.visit(now)
            except (ConnectException, OSError) as error:
                tail.failed(error, now)
            self._limit_open_files(tail)
            if piece is not None:
                return piece
        return None

    def _limit_open_files(self, tail: FileTail) -> None:
        """Closes the file that was not visited for the longest time when too many are open."""
        self._open.pop(tail.path, None)
        if tail.is_open:
            self._open[tail.path] = tail
        if len(self._open) > MAX_OPEN_FILES:
            self._open.pop(next(iter(self._open))).park()

    def _frame(self, piece: TailedLines) -> SourceFrame:
        offset_after = _offset_after(piece)
        lines = piece.chunk.lines
        return SourceFrame(
            data=pa.table({"value": lines.values}),
            topic=self._topic,
            value_schema=STRING_SCHEMA,
            source_partition={FILENAME_FIELD: piece.path},
            source_offset=offset_after(len(lines.values) - 1),
            timestamp=int(time.time() * 1000),
            offset_after=offset_after,
        )


def _offset_after(piece: TailedLines) -> Callable[[int], Mapping[str, object]]:
    chunk, ends = piece.chunk, piece.chunk.lines.ends

    def offset_after(row: int) -> Mapping[str, object]:
        end = int(ends[row])
        length = end - (int(ends[row - 1]) if row else 0)
        if row == len(ends) - 1 and chunk.resume == 0:
            # The last line of a file that was replaced: what is next is the start of the new one.
            return {POSITION_FIELD: 0, SIZE_FIELD: 0, BYTES_FIELD: length}
        return {POSITION_FIELD: (chunk.start or 0) + end, SIZE_FIELD: piece.size, BYTES_FIELD: length}

    return offset_after
