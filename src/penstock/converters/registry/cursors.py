"""Cursors over many messages: NumPy reads the next part of all messages in one call.

A message that contradicts its schema, or ends too early, is marked and then reads zeros: it does not affect its
neighbours, and the lengths that it claims allocate no memory.

Main types: ``Source`` (the bytes of a batch) and ``Cursors``. Thread: a task's pipeline thread.
Source: the Avro specification, 1.12, "Binary Encoding"; Protocol Buffers, "Encoding" (varints).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

#: Zero bytes after the last message, so that block reads may go beyond its end.
_PADDING: Final = 32
#: The bytes of a 64-bit number with seven bits each.
_MOST_VARINT_BYTES: Final = 10
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_LOW_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
#: Joins neighbours in three steps: seven bits of one byte, fourteen of two, 28 of four.
_JOINS: Final = tuple(
    (np.uint64(low), np.uint64(low << width), np.uint64(shift))
    for low, width, shift in (
        (0x007F007F007F007F, 8, 1),
        (0x00003FFF00003FFF, 16, 2),
        (0x000000000FFFFFFF, 32, 4),
    )
)
_ONE: Final = np.uint64(1)


class Source:
    """The concatenated bytes of some messages.

    Args:
        column: The messages.

    Attributes:
        octets: Their bytes, followed by zeros.
        words: The eight bytes at each position, as a little-endian number.
        floats, doubles: The four-byte and eight-byte floating point numbers at each position.
        starts, ends: Where each message begins and ends; equal for a null.
        size: The number of bytes.
    """

    def __init__(self, column: pa.BinaryArray) -> None:
        _, offsets, data = column.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
        first, last = (int(bounds[0]), int(bounds[-1])) if len(column) else (0, 0)
        self.size = last - first
        self.octets = np.zeros(self.size + _PADDING, dtype=np.uint8)
        if self.size:
            self.octets[: self.size] = np.frombuffer(data, dtype=np.uint8)[first:last]
        self.starts = bounds[:-1].astype(np.int64) - first
        self.ends = bounds[1:].astype(np.int64) - first
        self.words = self._every(np.dtype("<u8"))
        self.floats = self._every(np.dtype("<f4"))
        self.doubles = self._every(np.dtype("<f8"))
        self._buffer = pa.py_buffer(self.octets)

    def _every(self, kind: np.dtype) -> np.ndarray:
        return np.ndarray((len(self.octets) - kind.itemsize + 1,), kind, self.octets, strides=(1,))

    def slices(self, starts: np.ndarray, lengths: np.ndarray) -> pa.BinaryArray:
        """Slices of given lengths from given positions."""
        count = len(starts)
        if not count:
            return pa.array([], pa.binary())
        # An array with twice as many items, of which every other one is wanted, because C code then copies them. The
        # other items are meaningless; their last bound is the highest, as Arrow requires.
        bounds = np.empty(2 * count + 1, dtype=np.int32)
        bounds[:-1:2] = starts
        bounds[1::2] = starts + lengths
        bounds[-1] = self.size
        both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), self._buffer], 0)
        return both.take(pa.array(np.arange(0, 2 * count, 2)))


class Cursors:
    """The reading positions in some messages, one for each.

    Args:
        source: The bytes.
        at: The next position of each message.
        ends: The end of each message.
        bad: True for messages that cannot be read.
    """

    __slots__ = ("at", "bad", "ends", "source")

    def __init__(self, source: Source, at: np.ndarray, ends: np.ndarray, bad: np.ndarray | None = None) -> None:
        self.source = source
        self.at = at
        self.ends = ends
        self.bad = np.zeros(len(at), dtype=bool) if bad is None else bad

    def __len__(self) -> int:
        return len(self.at)

    def some(self, rows: np.ndarray) -> Cursors:
        """Cursors of some of the messages, which move independently until ``put``."""
        return Cursors(self.source, self.at[rows], self.ends[rows], self.bad[rows])

    def put(self, rows: np.ndarray, part: Cursors) -> None:
        """Takes over the positions of the cursors of some messages."""
        self.at[rows] = part.at
        self.ends[rows] = part.ends
        self.bad[rows] = part.bad

    def mark(self, wrong: np.ndarray) -> None:
        """Marks messages, given by a mask, as unreadable."""
        if wrong.any():
            self.bad |= wrong
            # After the last message come zeros, which are a value of every type.
            self.at[wrong] = self.source.size
            self.ends[wrong] = self.source.size

    def _moved(self) -> None:
        self.mark(self.at > self.ends)

    def varints(self) -> np.ndarray:
        """The next zigzag number of each message; int64."""
        found = self.numbers()
        numbers: np.ndarray = (found >> _ONE).view(np.int64) ^ -(found & _ONE).view(np.int64)
        return numbers

    def numbers(self) -> np.ndarray:
        """The next unsigned number of each message; uint64."""
        found: np.ndarray = self.source.octets[self.at].astype(np.uint64)
        more = np.flatnonzero(found >= 0x80)
        wrong: np.ndarray | None = None
        if len(more):
            found[more], widths = _long_varints(self.source, self.at[more])
            self.at += 1
            self.at[more] += widths - 1
            if not widths.all():
                wrong = np.zeros(len(self), dtype=bool)
                wrong[more[widths == 0]] = True
        else:
            self.at += 1
        if wrong is not None:
            self.mark(wrong)
            found[wrong] = 0
        self._moved()
        return found

    def octets(self) -> np.ndarray:
        """The next byte of each message."""
        found: np.ndarray = self.source.octets[self.at]
        self.at += 1
        self._moved()
        return found

    def floats(self) -> np.ndarray:
        """The next four-byte number of each message; float32."""
        found: np.ndarray = self.source.floats[self.at]
        self.at += 4
        self._moved()
        return found

    def doubles(self) -> np.ndarray:
        """The next eight-byte number of each message; float64."""
        found: np.ndarray = self.source.doubles[self.at]
        self.at += 8
        self._moved()
        return found

    def spans(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Skips the given numbers of bytes; returns where they begin and their lengths, 0 for marked messages."""
        wrong = (lengths < 0) | (lengths > self.ends - self.at)
        self.mark(wrong)
        kept = np.where(self.bad, 0, lengths)
        starts = self.at.copy()
        self.at += kept
        return starts, kept


def _long_varints(source: Source, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of more than seven bits, and the bytes that each takes; 0 = too many bits."""
    words = source.words[at]
    stops = ~words & _HIGH_BITS
    last = stops & (~stops + _ONE)
    widths = (np.bitwise_count(last - _ONE) // 8 + 1).astype(np.int64)
    # For eight bytes overflow makes the mask all ones.
    found = _joined(words & ((last << _ONE) - _ONE))
    rare = np.flatnonzero(stops == 0)
    if len(rare):
        ninth = source.octets[at[rare] + 8].astype(np.uint64)
        tenth = source.octets[at[rare] + 9].astype(np.uint64)
        short = ninth < 0x80
        top = np.where(short, 0, tenth) << np.uint64(63)
        found[rare] = _joined(words[rare]) | ((ninth & np.uint64(0x7F)) << np.uint64(56)) | top
        widths[rare] = np.where(short, 9, np.where(tenth > 1, 0, _MOST_VARINT_BYTES))
    return found, widths


def _joined(words: np.ndarray) -> np.ndarray:
    """56 bits of eight bytes."""
    words = words & _LOW_BITS
    for low, high, shift in _JOINS:
        words = (words & low) | ((words & high) >> shift)
    return words
