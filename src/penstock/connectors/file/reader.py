"""Reads a growing file, or a stream, in chunks that end with a complete line.

Main type: `LineReader`, owned by the task's thread. It knows about partial last lines, files that are not there yet,
truncated files and files that were replaced under their name. Streams are standard input, named pipes and devices: what
was read of them cannot be read again, so they have no positions.
"""

from __future__ import annotations

import logging
import os
import select
import stat
from dataclasses import dataclass

from penstock.connectors.file.lines import Lines, has_line_end, split_lines
from penstock.errors import ConnectException

log = logging.getLogger(__name__)

# A large batch costs far less a record, so chunks grow while there is more to read; the first records do not wait.
FIRST_CHUNK_BYTES = 1024 * 1024
CHUNK_BYTES = 8 * 1024 * 1024
# A line is one record, and no broker takes one of this size; memory is worth more than the line.
MAX_LINE_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """Complete lines and where they are in the file.

    Attributes:
        lines: the lines; their `ends` count from `start`.
        start: position in the file of the first line; None for a stream.
        resume: where to go on after all of them; None for a stream.
    """

    lines: Lines
    start: int | None
    resume: int | None


class LineReader:
    """Reads complete lines from a path, or from a descriptor that cannot seek when `path` is None.

    Args:
        path: the file; it may appear later.
        position: where to begin, in bytes.
        descriptor: what to read when there is no path.

    Thread: the task's.
    """

    def __init__(self, path: str | None, position: int, *, descriptor: int = 0) -> None:
        self._path = path
        self._position = position
        self._start = position
        self._fd: int | None = None if path is not None else descriptor
        self._is_stream = path is None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._chunk_bytes = FIRST_CHUNK_BYTES
        self._at_end = False
        self._complained = False

    def read(self) -> Chunk | None:
        """The next complete lines, or None when there are none now. Does not wait.

        Raises:
            ConnectException: the file cannot be read.
        """
        if self._fd is None and not self._open():
            return None
        if self._is_stream:
            return self._read_stream()
        data = self._read_file()
        if data:
            return self._take(data)
        return self._look_for_change()

    def close(self) -> None:
        """Closes the file; standard input stays open."""
        if self._fd is not None and self._path is not None:
            os.close(self._fd)
        self._fd = None

    # ------------------------------------------------------------------ files
    def _open(self) -> bool:
        assert self._path is not None
        try:
            # Without O_NONBLOCK a named pipe that nobody writes to would hold the task here, whatever it is asked.
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            if not self._complained:
                log.warning("File %s is not there yet; waiting for it to be created", self._path)
                self._complained = True
            return False
        except OSError as error:
            raise ConnectException(
                f"Cannot open file {self._path} for reading: {error.strerror}. Check that the path is a file which "
                "the worker's user may read, then restart the task"
            ) from error
        self._complained = False
        found = os.fstat(fd)
        self._is_stream = stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)
        size = found.st_size
        if not self._is_stream and size < self._position:
            log.warning(
                "File %s has %d bytes, less than the committed position %d: it was truncated or replaced, so it is "
                "read from its start",
                self._path,
                size,
                self._position,
            )
            self._position = self._start = 0
        self._fd = fd
        return True

    def _read_file(self) -> bytes:
        assert self._fd is not None
        try:
            data = os.pread(self._fd, self._chunk_bytes, self._position)
        except OSError as error:
            raise ConnectException(
                f"Cannot read file {self._path} at position {self._position}: {error.strerror}"
            ) from error
        self._position += len(data)
        full = len(data) == self._chunk_bytes
        self._chunk_bytes = min(CHUNK_BYTES, 2 * self._chunk_bytes) if full else FIRST_CHUNK_BYTES
        return data

    def _take(self, data: bytes) -> Chunk | None:
        self._pending_bytes += len(data)
        self._pending.append(data)
        if not has_line_end(data) and not self._ends_with_cr():
            if self._pending_bytes > MAX_LINE_BYTES:
                raise ConnectException(
                    f"File {self._path or 'standard input'} has a line of more than {MAX_LINE_BYTES} bytes at "
                    f"position {self._start}"
                )
            return None
        return self._emit(final=False)

    def _ends_with_cr(self) -> bool:
        return len(self._pending) > 1 and self._pending[-2].endswith(b"\r")

    def _emit(self, *, final: bool) -> Chunk | None:
        data = b"".join(self._pending)
        lines = split_lines(data, final=final)
        consumed = lines.consumed_bytes
        rest = data[consumed:]
        self._pending = [rest] if rest else []
        self._pending_bytes = len(rest)
        if not consumed:
            return None
        start = self._start
        self._start += consumed
        if lines.replaced:
            log.warning(
                "File %s: %d lines between positions %d and %d hold bytes that are not UTF-8; they are read as U+FFFD",
                self._path or "standard input",
                lines.replaced,
                start,
                self._start,
            )
        if self._is_stream:
            return Chunk(lines, None, None)
        return Chunk(lines, start, self._start)

    def _look_for_change(self) -> Chunk | None:
        """At the end of the file: was it truncated, or is another file under its name now?"""
        assert self._fd is not None
        assert self._path is not None
        mine = os.fstat(self._fd)
        if mine.st_size < self._position:
            log.warning("File %s was truncated to %d bytes; it is read from its start", self._path, mine.st_size)
            self._position = self._start = 0
            self._pending, self._pending_bytes = [], 0
            return None
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return None  # moved away; its writer may still append, and a new file may come
        if (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino):
            return None
        log.info("File %s was replaced; the new file is read from its start", self._path)
        # The old file can never be found again, so its unfinished last line is as complete as it will be.
        last = self._emit(final=True) if self._pending else None
        self.close()
        self._position = self._start = 0
        return Chunk(last.lines, last.start, 0) if last is not None else None

    # ------------------------------------------------------------------ streams
    def _read_stream(self) -> Chunk | None:
        assert self._fd is not None
        if self._at_end:
            return None
        readable, _, _ = select.select([self._fd], [], [], 0)
        if not readable:
            return None
        try:
            data = os.read(self._fd, FIRST_CHUNK_BYTES)
        except OSError as error:
            raise ConnectException(f"Cannot read {self._path or 'standard input'}: {error.strerror}") from error
        if data:
            return self._take(data)
        # A named pipe is at its end while nobody has it open for writing; somebody may open it again.
        self._at_end = self._path is None
        return self._emit(final=True) if self._pending else None
