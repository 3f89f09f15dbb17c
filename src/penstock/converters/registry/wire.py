"""The bytes of messages of a registry, and many of them at once.

A message begins with a zero byte and the id of its schema in four bytes; Protobuf adds the index path of the message
type. ``Cursors`` read the next part of all messages in one NumPy call. A message that contradicts its schema, or ends
too early, is marked and then reads zeros: it does not affect its neighbours, and the lengths that it claims allocate no
memory. ``Pieces`` write: short pieces, such as numbers, go into a matrix with a row for each value and a mask of its
valid bytes, long ones stay Arrow arrays, and one Arrow call joins the pieces of all values.

Thread: a task's pipeline thread.
Source: io.confluent.kafka.serializers.AbstractKafkaSchemaSerDe; the Avro specification, 1.12, "Binary Encoding";
Protocol Buffers, "Encoding" (varints).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.converters.json.plain_bytes import is_utf8
from penstock.data import Schema, Type
from penstock.errors import DataException
from penstock.pipeline.columns.layout import Layout
from penstock.pipeline.plan.step import NOTHING, Side, Sorted

#: Zero bytes after the last message, so that block reads may go beyond its end.
_PADDING: Final = 32
#: The bytes of a 64-bit number with seven bits each.
_MOST_VARINT_BYTES: Final = 10
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_LOW_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
#: Joins neighbours in three steps: seven bits of one byte, fourteen of two, 28 of four.
_JOINS: Final = tuple(
    (np.uint64(low), np.uint64(low << width), np.uint64(shift))
    for low, width, shift in ((0x007F007F007F007F, 8, 1), (0x00003FFF00003FFF, 16, 2), (0x000000000FFFFFFF, 32, 4))
)
_ONE: Final = np.uint64(1)


class Source:
    """The concatenated bytes of some messages.

    Attributes:
        octets: Their bytes, followed by zeros.
        words: The eight bytes at each position, as a little-endian number.
        floats, doubles: The four-byte and eight-byte floating point numbers at each position.
        starts, ends: Where each message begins and ends; equal for a null.
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
    """The reading positions in some messages, one for each; ``bad`` ones cannot be read."""

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

    def varints(self) -> np.ndarray:
        """The next zigzag number of each message; int64."""
        return unzigzag(self.numbers())

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
        self.mark(self.at > self.ends)
        return found

    def octets(self) -> np.ndarray:
        """The next byte of each message."""
        return self._next(self.source.octets, 1)

    def floats(self) -> np.ndarray:
        """The next four-byte number of each message; float32."""
        return self._next(self.source.floats, 4)

    def doubles(self) -> np.ndarray:
        """The next eight-byte number of each message; float64."""
        return self._next(self.source.doubles, 8)

    def _next(self, values: np.ndarray, width: int) -> np.ndarray:
        found: np.ndarray = values[self.at]
        self.at += width
        self.mark(self.at > self.ends)
        return found

    def spans(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Skips the given numbers of bytes; returns where they begin and their lengths, 0 for marked messages."""
        wrong = (lengths < 0) | (lengths > self.ends - self.at)
        self.mark(wrong)
        kept = np.where(self.bad, 0, lengths)
        starts = self.at.copy()
        self.at += kept
        return starts, kept


def unzigzag(found: np.ndarray) -> np.ndarray:
    """Signed numbers; int64."""
    numbers: np.ndarray = (found >> _ONE).view(np.int64) ^ -(found & _ONE).view(np.int64)
    return numbers


def texts_of(found: pa.BinaryArray, cursors: Cursors) -> pa.StringArray:
    """The texts in these bytes; marks messages with invalid ones."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [one.decode() if is_utf8(one) else None for one in found.to_pylist()]
    cursors.mark(np.array([one is None for one in texts]))
    return pa.array([one or "" for one in texts], pa.string())


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


class WritableRows:
    """The positions in a batch of the values to write, and a mask of the values to write separately."""

    def __init__(self, wrong: np.ndarray, places: np.ndarray | None = None) -> None:
        self.wrong = wrong
        self._places = np.arange(len(wrong)) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    def mark(self, which: np.ndarray) -> None:
        """Marks values, given by a mask, that have to be written separately."""
        self.wrong[self._places[which]] = True

    def some(self, which: np.ndarray) -> WritableRows:
        """A selection by row numbers, which may repeat."""
        return WritableRows(self.wrong, self._places[which])


class Pieces:
    """The bytes of some values, from left to right."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._joined: list[pa.BinaryArray] = []
        self._data: list[np.ndarray] = []
        self._kept: list[np.ndarray] = []

    def short(self, data: np.ndarray, kept: np.ndarray) -> None:
        """Appends a row of a matrix to each value, without masked-out bytes."""
        self._data.append(data)
        self._kept.append(kept)

    def long(self, texts: pa.BinaryArray) -> None:
        """Appends bytes, none of which are null."""
        self._close()
        self._joined.append(texts)

    def varints(self, numbers: np.ndarray, there: np.ndarray | None) -> None:
        """Appends a zigzag number to each value; `there`: to these values only, None = to all."""
        zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        width = max(1, -(-int(zigzag.max(initial=0)).bit_length() // 7))
        if width == 1:
            data, kept = zigzag.astype(np.uint8)[:, np.newaxis], np.ones((self._count, 1), dtype=bool)
        else:
            bits = (7 * np.arange(width)).astype(np.uint64)
            rest = zigzag[:, np.newaxis] >> bits
            kept = rest != 0
            kept[:, 0] = True
            data = (rest & np.uint64(0x7F)).astype(np.uint8)
            data[:, :-1] |= kept[:, 1:].astype(np.uint8) << 7
        if there is not None:
            kept &= there[:, np.newaxis]
        self.short(data, kept)

    def _close(self) -> None:
        if not self._data:
            return
        data = self._data[0] if len(self._data) == 1 else np.hstack(self._data)
        kept = self._kept[0] if len(self._kept) == 1 else np.hstack(self._kept)
        offsets = np.zeros(self._count + 1, dtype=np.int32)
        np.cumsum(kept.sum(axis=1), out=offsets[1:])
        found = [None, pa.py_buffer(offsets), pa.py_buffer(data[kept])]
        self._joined.append(pa.Array.from_buffers(pa.binary(), self._count, found))
        self._data, self._kept = [], []

    def join(self, head: bytes = b"") -> pa.BinaryArray:
        """The bytes of each value, after a common head."""
        self._close()
        before = [pa.scalar(head, pa.binary())] if head else []
        if not self._joined:
            return pa.array([head] * self._count, pa.binary())
        if not before and len(self._joined) == 1:
            return self._joined[0]
        return pc.binary_join_element_wise(*before, *self._joined, pa.scalar(b"", pa.binary()))


#: Smaller groups are as fast one by one, because each column costs some calls.
MIN_ROWS: Final = 128
_HEAD_BYTES: Final = 5
#: Messages up to this total size still have 32-bit offsets, including added bytes.
_MAX_BYTES: Final = 1 << 30


class ColumnReader(Protocol):
    """Reads many payloads of one schema."""

    @property
    def schema(self) -> Schema:
        """The Connect schema."""

    @property
    def physical(self) -> Layout:
        """The layout of the columns."""

    def read(self, source: Source, at: np.ndarray, ends: np.ndarray, /) -> tuple[pa.Array, np.ndarray] | None:
        """The values of payloads between given positions, and which payloads have to be read one by one.

        None if all have to be read one by one.
        """


#: Returns the reader for a topic and a schema id; it also receives the first payload.
ReaderOf: TypeAlias = Callable[[str, int, bytes], ColumnReader | None]


def no_columns(rows: int) -> Sorted:
    """All messages are read one by one."""
    return Sorted((None,), np.full(rows, -1, dtype=np.int32))


def read_columns(
    column: pa.ChunkedArray, topics: pa.ChunkedArray, worth: Callable[[int, int], bool], reader_of: ReaderOf
) -> Sorted:
    """Reads the messages of a batch; see ``RowConverter``.

    Args:
        column: The messages.
        topics: The topic of each.
        worth: Decides if columns are worthwhile for a number of schemas and messages.
        reader_of: Returns the readers. It raises an error again for a single message of that schema.
    """
    rows = len(column)
    if rows < MIN_ROWS or column.nbytes > _MAX_BYTES:
        found = no_columns(rows)
        codes = found.codes
    else:
        found, codes = _read(column, topics, worth, reader_of)
    assert codes is not None, "each message has a code"
    if column.null_count:
        read = {**found.read, len(found.hints): (NOTHING, column)}
        codes[column.is_null().to_numpy()] = len(found.hints)
        found = replace(found, hints=(*found.hints, None), read=read)
    return found


def _read(
    column: pa.ChunkedArray, topics: pa.ChunkedArray, worth: Callable[[int, int], bool], reader_of: ReaderOf
) -> tuple[Sorted, np.ndarray]:
    messages = column.combine_chunks()
    rows = len(messages)
    source = Source(messages)
    codes = np.full(rows, -1, dtype=np.int32)
    places = np.zeros(rows, dtype=np.int64)
    names, kinds = _kinds(source, topics)
    numbers, counts = np.unique(kinds[kinds >= 0], return_counts=True)
    read: dict[int, tuple[Side, pa.ChunkedArray]] = {}
    chosen = numbers[counts >= MIN_ROWS].tolist() if worth(len(numbers), rows) else []
    for kind in chosen:
        mine = np.flatnonzero(kinds == kind)
        at, ends = source.starts[mine] + _HEAD_BYTES, source.ends[mine]
        try:
            reader = reader_of(names[kind >> 32], kind & 0xFFFFFFFF, source.octets[at[0] : ends[0]].tobytes())
        except Exception:  # Each message then meets the error separately, where it fails only one record.
            continue
        made = None if reader is None else reader.read(source, at, ends)
        if made is None or reader is None:
            continue
        values, bad = made
        if bad.any():
            good = np.flatnonzero(~bad)
            mine, values = mine[good], values.take(pa.array(good))
        if not len(mine):
            continue
        codes[mine] = len(read)
        places[mine] = np.arange(len(mine))
        side = _side_of(reader, values)
        read[len(read)] = (side, pa.chunked_array([values]))
    return Sorted((None,) * max(1, len(read)), codes, read=read, places=places), codes


def _kinds(source: Source, topics: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """The names of the topics; for each message the number of its topic and its schema id, -1 if it has none."""
    coded = topics.combine_chunks().dictionary_encode()
    there = (source.ends - source.starts >= _HEAD_BYTES) & (source.octets[source.starts] == MAGIC)
    numbers = source.words[source.starts]
    ids = ((numbers >> np.uint64(8)) & np.uint64(0xFFFFFFFF)).astype(np.uint32).byteswap().astype(np.int64)
    kinds = (coded.indices.to_numpy().astype(np.int64) << 32) | ids
    return coded.dictionary.to_pylist(), np.where(there, kinds, -1)


def _side_of(reader: ColumnReader, values: pa.Array) -> Side:
    """Returns the known properties of the values. No required nested value is null: the formats have no null for
    these.
    """
    schema = reader.schema
    worth = schema.type is Type.STRUCT or not schema.optional
    complete = bool(reader.physical.children)
    return Side.of(schema, reader.physical, present=worth and not values.null_count, complete=complete)


MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")
#: The meaning of the first byte of messages in other formats.
_TEXT_STARTS: Final = frozenset(b'{["')


def frame(schema_id: int, payload: bytes) -> bytes:
    """A message with its head.

    >>> frame(7, b"abc").hex()
    '0000000007616263'
    """
    return _HEAD.pack(MAGIC, schema_id) + payload


def unframe(data: bytes, where: str) -> tuple[int, bytes]:
    """The schema's id, and the bytes after the head.

    Raises:
        DataException: The head is missing or damaged.

    >>> unframe(bytes.fromhex("0000000007616263"), "the value of topic t")
    (7, b'abc')
    """
    if len(data) >= _HEAD.size and data[0] == MAGIC:
        return _HEAD.unpack_from(data)[1], data[_HEAD.size :]
    raise DataException(_refusal(data, where))


def _refusal(data: bytes, where: str) -> str:
    side = "key" if where.startswith("the key") else "value"
    if not data or data[0] == MAGIC:
        return (
            f"Unknown magic byte! {where} has {len(data)} bytes; a message of a schema registry begins with a zero "
            f"byte and a schema id, five bytes. Another serializer wrote it: set {side}.converter to its converter"
        )
    text = data[0] in _TEXT_STARTS
    hint = (
        f"Is it JSON? Set {side}.converter=org.apache.kafka.connect.json.JsonConverter, with "
        f"{side}.converter.schemas.enable=false unless each message holds its schema"
        if text
        else f"Set {side}.converter to what wrote it, such as org.apache.kafka.connect.storage.StringConverter"
    )
    return (
        f"Unknown magic byte! {where} begins with 0x{data[0]:02x}; a message of a schema registry begins with 0x00 and "
        f"a schema id. {hint}"
    )


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Writes the index path of a message type in a Protobuf file: one index for each level of nesting, outermost first.

    >>> write_indexes([0]).hex(), write_indexes([1, 0]).hex()
    ('00', '040200')
    """
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def read_indexes(payload: bytes, where: str) -> tuple[list[int], bytes]:
    """The index path, and the bytes after it.

    Raises:
        DataException: The bytes cannot be read.

    >>> read_indexes(bytes.fromhex("040200ff"), "the value of topic t")
    ([1, 0], b'\\xff')
    >>> read_indexes(bytes.fromhex("00ff"), "the value of topic t")
    ([0], b'\\xff')
    """
    count, at = _read_varint(payload, 0, where)
    if count == 0:
        return [0], payload[at:]
    if not 0 < count <= len(payload):
        raise DataException(f"{where} says that its message type is {count} levels deep: it is not a Protobuf message")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(payload, at, where)
        if index < 0:
            raise DataException(f"{where} says that its message type is number {index}: it is not a Protobuf message")
        indexes.append(index)
    return indexes, payload[at:]


def _varint(number: int) -> bytes:
    """Zigzag, seven bits a byte."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _read_varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise DataException(f"{where} ends within the place of its message type: it is not a Protobuf message")
