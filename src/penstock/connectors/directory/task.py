"""Directory source task: reads its files side by side, a frame from one, then from the next.

Main type: `DirectorySourceTask`, on the task's thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import pyarrow as pa

from penstock.api import FrameSourceTask, SourceFrame
from penstock.connectors.directory.planning import (
    BYTES_FIELD,
    FILENAME_FIELD,
    POSITION_FIELD,
    SIZE_FIELD,
    parse_offset,
)
from penstock.connectors.directory.settings import TASK_FILES_CONFIG, DirectorySourceConfig, decode_files
from penstock.connectors.directory.tail import FileTail, TailedLines
from penstock.data import STRING_SCHEMA
from penstock.errors import ConnectException

log = logging.getLogger(__name__)

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
