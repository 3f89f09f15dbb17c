"""Reads a growing file, or a stream, in chunks that end with a complete line, and splits them into lines as columns.

Main types: `LineReader`, owned by the task's thread, and `CompleteLines`; `split_lines` is pure. A line ends with LF,
CRLF or a lone CR, as in Java's reader. The reader handles partial last lines, missing files, truncated files and files
that were replaced. Streams are standard input, named pipes and devices: they cannot be read twice, so they have no
positions.
"""

from __future__ import annotations

import logging
import os
import re
import select
import stat
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConnectException

LF, CR = 10, 13

Bytes = npt.NDArray[np.uint8]

#: Half of a surrogate pair as UTF-8: one U+FFFD in Java, and three in Python.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd".encode()


@dataclass(frozen=True, slots=True)
class CompleteLines:
    """The complete lines at the start of some bytes.

    Attributes:
        values: the lines without their ends, an Arrow string array.
        ends: for each line the number of bytes up to and including its end.
        replaced: the number of lines with invalid UTF-8; the invalid bytes become U+FFFD.
    """

    values: pa.StringArray
    ends: npt.NDArray[np.int64]
    replaced: int = 0

    @property
    def consumed_bytes(self) -> int:
        """Bytes up to the end of the last line."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def slice(self, start: int, stop: int) -> CompleteLines:
        """The lines from `start` up to `stop`; `ends` still count from the start of the bytes."""
        return CompleteLines(self.values.slice(start, stop - start), self.ends[start:stop], self.replaced)


def memory(size: int) -> Bytes:
    """A writable buffer of the given size.

    Arrow reuses memory of the previous batch. The C library would request each large array from the system again, which
    costs more than reading a file into it.
    """
    return np.frombuffer(pa.allocate_buffer(size), np.uint8) if size else np.empty(0, np.uint8)


def has_line_end(data: Bytes) -> bool:
    """True if the bytes may hold a complete line."""
    return bool(_marked(data, LF).any() or _marked(data, CR).any())


def split_lines(data: Bytes, *, final: bool = False) -> CompleteLines:
    """Splits the complete lines off the start of `data`.

    Args:
        data: bytes from the start of a line on; less than 2 GiB. The lines are copies: the memory may be used again.
        final: True at the end of the input: a last line without a line end counts as complete.

    Returns:
        The lines, without the rest after the last line end. A CR as the very last byte ends no line yet, because an LF
        may follow, unless `final`.
    """
    is_cr = _marked(data, CR)
    if is_cr.any():
        return _split_any(data, is_cr, final)
    ends: npt.NDArray[np.int64] = np.flatnonzero(_marked(data, LF)).astype(np.int64, copy=False) + 1
    tail = final and len(data) > (int(ends[-1]) if len(ends) else 0)
    if tail:
        data = np.append(data, np.uint8(LF))
        ends = np.append(ends, len(data))
    if not len(ends):
        return CompleteLines(pa.array([], pa.string()), ends)
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    with_ends = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    if tail:
        ends[-1] -= 1
    return _decoded(pc.binary_slice(with_ends, 0, -1), ends)


def _marked(data: Bytes, byte: int) -> npt.NDArray[np.bool_]:
    """Marks the bytes that are equal to this one."""
    return np.equal(data, byte, out=memory(len(data)).view(np.bool_))


def _split_any(buffer: Bytes, is_cr: npt.NDArray[np.bool_], final: bool) -> CompleteLines:
    """The general form: CR and CRLF end lines too."""
    is_lf = _marked(buffer, LF)
    follows_lf = np.append(is_lf[1:], False)
    lone_cr = is_cr & ~follows_lf
    if not final and len(lone_cr):
        lone_cr[-1] = False
    ends: npt.NDArray[np.int64] = np.flatnonzero(is_lf | lone_cr).astype(np.int64) + 1
    if final and len(buffer) > (int(ends[-1]) if len(ends) else 0):
        ends = np.append(ends, len(buffer))
    if not len(ends):
        return CompleteLines(pa.array([], pa.string()), ends)
    consumed = int(ends[-1])
    kept = ~(is_lf | lone_cr | (is_cr & follows_lf))[:consumed]
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = np.cumsum(kept)[ends - 1]
    content = buffer[:consumed][kept].tobytes()
    values = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(content)])
    return _decoded(values, ends)


def _decoded(values: Any, ends: npt.NDArray[np.int64]) -> CompleteLines:
    """Binary lines as strings; bytes that are not UTF-8 become U+FFFD, as Java's reader does."""
    lines = values.view(pa.string())
    try:
        lines.validate(full=True)
    except pa.ArrowInvalid:
        texts, replaced = [], 0
        for value in values.to_pylist():
            text = _SURROGATE.sub(_REPLACEMENT, value).decode(errors="replace")
            replaced += text.encode() != value
            texts.append(text)
        return CompleteLines(pa.array(texts, pa.string()), ends, replaced)
    return CompleteLines(lines, ends)


log = logging.getLogger(__name__)

# A large batch costs far less a record, so chunks grow while there is more to read; the first records do not wait.
FIRST_CHUNK_BYTES = 1024 * 1024
CHUNK_BYTES = 8 * 1024 * 1024
# A line is one record, and no broker takes one of this size; memory is worth more than the line.
MAX_LINE_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PlacedLines:
    """Complete lines and where they are in the file.

    Attributes:
        lines: the lines; their `ends` count from `start`.
        start: position in the file of the first line; None for a stream.
        resume: where to go on after all of them; None for a stream.
    """

    lines: CompleteLines
    start: int | None
    resume: int | None


class LineReader:
    """Reads complete lines from a path, or from a descriptor that cannot seek when `path` is None.

    Thread: the task's.
    """

    def __init__(self, path: str | None, position: int, *, descriptor: int = 0) -> None:
        self._path = path
        self._position = position
        self._start = position
        self._fd: int | None = None if path is not None else descriptor
        self._is_stream = path is None
        # Begins with the bytes of an incomplete line.
        self._buffer = memory(0)
        self._held = 0
        self._chunk_bytes = FIRST_CHUNK_BYTES
        self._at_end = False
        self._complained = False

    def read(self) -> PlacedLines | None:
        """The next complete lines, or None when there are none now. Does not wait.

        Raises:
            ConnectException: the file cannot be read.
        """
        if self._fd is None and not self._open():
            return None
        if self._is_stream:
            return self._read_stream()
        if count := self._read_file():
            return self._take(count)
        if self._held < FIRST_CHUNK_BYTES:  # the start of a longer line stays where it is
            self._keep(0)
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
            # Without O_NONBLOCK a named pipe without a writer would block the task here, even when it has to stop.
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

    def _read_file(self) -> int:
        assert self._fd is not None
        wanted = self._chunk_bytes
        try:
            count = os.preadv(self._fd, [self._room(wanted).data], self._position)
        except OSError as error:
            raise ConnectException(
                f"Cannot read file {self._path} at position {self._position}: {error.strerror}"
            ) from error
        self._position += count
        self._chunk_bytes = min(CHUNK_BYTES, 2 * wanted) if count == wanted else FIRST_CHUNK_BYTES
        return count

    # ------------------------------------------------------------------ lines
    def _room(self, size: int) -> Bytes:
        """Returns the free part of the buffer, with room for the given number of bytes."""
        if len(self._buffer) < self._held + size:
            larger = memory(self._held + max(size, self._held))
            larger[: self._held] = self._buffer[: self._held]
            self._buffer = larger
        return self._buffer[self._held : self._held + size]

    def _take(self, count: int) -> PlacedLines | None:
        """The lines that the given number of new bytes completes."""
        before, self._held = self._held, self._held + count
        new = self._buffer[before : self._held]
        chunk = None
        # A long line is not looked through again for each piece that is read of it.
        if before < FIRST_CHUNK_BYTES or self._buffer[before - 1] == CR or has_line_end(new):
            chunk = self._emit(final=False)
        if self._held > MAX_LINE_BYTES:
            raise ConnectException(
                f"File {self._path or 'standard input'} has a line of more than {MAX_LINE_BYTES} bytes at "
                f"position {self._start}"
            )
        return chunk

    def _emit(self, *, final: bool) -> PlacedLines | None:
        lines = split_lines(self._buffer[: self._held], final=final)
        consumed = lines.consumed_bytes
        self._keep(consumed)
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
            return PlacedLines(lines, None, None)
        return PlacedLines(lines, start, self._start)

    def _keep(self, start: int) -> None:
        """Keeps only the bytes from `start` on, and no other memory, because a worker may read many files."""
        self._buffer = self._buffer[start : self._held].copy()
        self._held = len(self._buffer)

    def _discard(self) -> None:
        """Hold nothing."""
        self._buffer, self._held = memory(0), 0

    def _look_for_change(self) -> PlacedLines | None:
        """At the end of the file: was it truncated, or is another file under its name now?"""
        assert self._fd is not None
        assert self._path is not None
        mine = os.fstat(self._fd)
        if mine.st_size < self._position:
            log.warning("File %s was truncated to %d bytes; it is read from its start", self._path, mine.st_size)
            self._position = self._start = 0
            self._discard()
            return None
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return None  # moved away; its writer may still append, and a new file may come
        if (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino):
            return None
        log.info("File %s was replaced; the new file is read from its start", self._path)
        # The old file can never be found again, so its unfinished last line is as complete as it will be.
        last = self._emit(final=True) if self._held else None
        self.close()
        self._position = self._start = 0
        return PlacedLines(last.lines, last.start, 0) if last is not None else None

    # ------------------------------------------------------------------ streams
    def _read_stream(self) -> PlacedLines | None:
        assert self._fd is not None
        if self._at_end:
            return None
        readable, _, _ = select.select([self._fd], [], [], 0)
        if not readable:
            return None
        try:
            count = os.readv(self._fd, [self._room(FIRST_CHUNK_BYTES).data])
        except OSError as error:
            raise ConnectException(f"Cannot read {self._path or 'standard input'}: {error.strerror}") from error
        if count:
            return self._take(count)
        # A named pipe is at its end while no process has it open for writing; another one may open it later.
        self._at_end = self._path is None
        return self._emit(final=True) if self._held else None


def unreadable(path: str) -> list[str]:
    """Returns why a file cannot be read now, as clauses; an empty list if it can."""
    directory = os.path.dirname(os.path.abspath(path))
    if not os.path.exists(path):
        if os.path.isdir(directory) and os.access(directory, os.X_OK):
            return [f"the file {path} does not exist; it is read as soon as it does"]
        why = "cannot be entered by the worker's user" if os.path.isdir(directory) else "does not exist"
        return [f"the file {path} cannot be found: the directory {directory} {why}"]
    if os.path.isdir(path):
        return [f"{path} is a directory and no file"]
    return [] if os.access(path, os.R_OK) else [f"the file {path} may not be read by the worker's user"]
