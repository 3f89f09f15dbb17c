"""Splits bytes into lines as columns.

Main function: `split_lines`; main type: `Lines`. Pure functions over bytes, numpy and Arrow; no file is touched.
A line ends with LF, CRLF or a lone CR, as in Java's reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

LF, CR = 10, 13

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Lines:
    """The complete lines at the start of some bytes.

    Attributes:
        values: the lines without their ends, an Arrow string array.
        ends: for each line the number of bytes up to and including its end.
        replaced: how many lines held bytes that are not UTF-8; those bytes read as U+FFFD.
    """

    values: pa.StringArray
    ends: npt.NDArray[np.int64]
    replaced: int = 0

    @property
    def consumed_bytes(self) -> int:
        """Bytes up to the end of the last line."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def slice(self, start: int, stop: int) -> Lines:
        """The lines from `start` up to `stop`; `ends` still count from the start of the bytes."""
        return Lines(self.values.slice(start, stop - start), self.ends[start:stop], self.replaced)


def memory(size: int) -> Bytes:
    """So many bytes to be written to.

    From Arrow, which keeps what it had back for the next batch. The C library asks the system for each large array
    anew, and that costs more than reading a file into it.
    """
    return np.frombuffer(pa.allocate_buffer(size), np.uint8) if size else np.empty(0, np.uint8)


def has_line_end(data: Bytes) -> bool:
    """Whether the bytes may hold a complete line."""
    return bool(_marked(data, LF).any() or _marked(data, CR).any())


def split_lines(data: Bytes, *, final: bool = False) -> Lines:
    """Splits the complete lines off the start of `data`.

    Args:
        data: bytes from the start of a line on; less than 2 GiB. The lines are copies: the memory may be used again.
        final: nothing follows these bytes: a last line without an end counts as complete.

    Returns:
        The lines; what follows the last line end is not among them. A CR as the very last byte ends no line yet,
        because an LF may follow, unless `final`.
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
        return Lines(pa.array([], pa.string()), ends)
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    with_ends = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    if tail:
        ends[-1] -= 1
    return _decoded(pc.binary_slice(with_ends, 0, -1), ends)


def _marked(data: Bytes, byte: int) -> npt.NDArray[np.bool_]:
    """Which of the bytes are this one."""
    return np.equal(data, byte, out=memory(len(data)).view(np.bool_))


def _split_any(buffer: Bytes, is_cr: npt.NDArray[np.bool_], final: bool) -> Lines:
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
        return Lines(pa.array([], pa.string()), ends)
    consumed = int(ends[-1])
    kept = ~(is_lf | lone_cr | (is_cr & follows_lf))[:consumed]
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = np.cumsum(kept)[ends - 1]
    content = buffer[:consumed][kept].tobytes()
    values = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(content)])
    return _decoded(values, ends)


def _decoded(values: Any, ends: npt.NDArray[np.int64]) -> Lines:
    """Binary lines as strings; bytes that are not UTF-8 become U+FFFD, as Java's reader does."""
    lines = values.view(pa.string())
    try:
        lines.validate(full=True)
    except pa.ArrowInvalid:
        texts, replaced = [], 0
        for value in values.to_pylist():
            text = value.decode(errors="replace")
            replaced += text.encode() != value
            texts.append(text)
        return Lines(pa.array(texts, pa.string()), ends, replaced)
    return Lines(lines, ends)
