"""Arrow columns as Kafka's record batches (message format v2), without Python code for a row.

A record consists of columns of small pieces: its length, the offset delta, the key with its length, and so on. A table
converts lengths and deltas to varints, or arithmetic on whole columns if one is too large for the table; one call then
joins all pieces of all rows. Batch boundaries are computed before that, from sizes that assume the longest delta, so a
batch may end a few rows before it is full.

Source: KIP-98, "Message Format", and the Kafka protocol guide, "Record Batch".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kafka.settings.values import COMPRESSIONS, GZIP, LZ4, NONE, SNAPPY, ZSTD, Compression
from penstock.pipeline.batch.batches import PRODUCE_SCHEMA, ProduceBatch

#: Base offset, length of the rest, partition leader epoch, magic, checksum.
_HEAD: Final = struct.Struct(">qiibI")
#: The fields at the start of the checksum: attributes, last offset delta, base and maximum timestamp, producer id and
#: epoch, base sequence, number of records.
_TAIL: Final = struct.Struct(">hiqqqhii")
HEADER_BYTES: Final = _HEAD.size + _TAIL.size
#: The bytes of `_HEAD` that its length does not count.
_BEFORE_LENGTH_ENDS: Final = 12
_MAGIC: Final = 2
_TRANSACTIONAL: Final = 1 << 4
#: The leader epoch, which the broker fills in.
_NO_LEADER_EPOCH: Final = -1
_NO_TIMESTAMP: Final = -1

#: The limit of zigzag numbers that are looked up in a table.
_TABLE_SIZE: Final = 1 << 16
_LONGEST_VARINT: Final = 10
#: The varints of 0 and of -1.
_ZERO: Final = b"\0"
_MINUS_ONE: Final = b"\x01"

#: Magic number; version 1 with independent blocks; blocks of up to 64 KiB; checksum of the last two bytes.
_LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
_LZ4_BLOCK: Final = 1 << 16
_LZ4_NOT_COMPRESSED: Final = 1 << 31
_LZ4_END: Final = b"\0\0\0\0"
#: Magic number, version, and the oldest compatible version.
_SNAPPY_HEADER: Final = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK: Final = 1 << 15

#: Kafka's defaults that differ from Arrow's.
_DEFAULT_LEVELS: Final = {GZIP: -1, ZSTD: 3}

_Compress = Callable[[memoryview], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBatch:
    """A record batch without the fields that only the producer knows.

    Attributes:
        first: The position of its first row in the input columns.
        timestamps: The time of each of its records in ms since 1970, or a single one for all.
        body: The records, compressed if that makes them smaller.
    """

    first: int
    count: int
    timestamps: np.ndarray | int
    body: memoryview | bytes
    _attributes: int
    _base_timestamp: int
    _max_timestamp: int

    @property
    def size(self) -> int:
        """Bytes on the wire, with the header."""
        return HEADER_BYTES + len(self.body)

    def header(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool = False
    ) -> bytes:
        """The 61 bytes before `body`; -1 three times for a producer that is not idempotent.

        Source: the Kafka protocol guide, "Record Batch".
        """
        tail = _TAIL.pack(
            self._attributes | (_TRANSACTIONAL if transactional else 0),
            self.count - 1,
            self._base_timestamp,
            self._max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        # The function takes no memoryview; an array on the same memory is no copy.
        checksum = google_crc32c.extend(google_crc32c.value(tail), np.frombuffer(self.body, np.uint8))
        return _HEAD.pack(0, self.size - _BEFORE_LENGTH_ENDS, _NO_LEADER_EPOCH, _MAGIC, checksum) + tail


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of each record: consecutive columns of bytes, or constant bytes, and their size in a row."""

    pieces: Sequence[pa.Array | bytes]
    sizes: np.ndarray | int


def encode(
    table: pa.Table,
    *,
    limit: int,
    compression: Compression,
    now: int,
    keys: bool,
    headers: bool,
    timestamp: int | None,
) -> list[EncodedBatch]:
    """Record batches of all rows, in their order.

    Args:
        table: Columns `key`, `value`, `timestamp` and `headers` as in `PRODUCE_SCHEMA`; of less than 1 GB.
        limit: The most bytes of a batch before it is compressed, unless a single row has more.
        now: The time of rows without one (null or -1), in ms since 1970.
        keys: True if any row has a key; the column is ignored otherwise.
        headers: True if any row has headers; the column is ignored otherwise.

    Source: KIP-98, "Message Format".
    """
    if not table.num_rows:
        return []
    times = _times(table, now, timestamp)
    parts = [_bytes_part(joined(table.column(name))) for name in (("key", "value") if keys else ("value",))]
    parts.append(_headers_part(joined(table.column("headers"))) if headers else _NO_HEADERS)
    content = np.full(table.num_rows, 0 if keys else len(_MINUS_ONE))
    for part in parts:
        content += part.sizes
    starts = _starts(content + _most_for_deltas(times, table.num_rows), limit)
    counts = np.diff(starts, append=table.num_rows)

    offset_deltas = _zigzag(np.arange(table.num_rows) - np.repeat(starts, counts))
    attributes = _ZERO
    sizes = content + len(attributes) + _sizes(offset_deltas)
    pieces: list[pa.Array | bytes] = []
    if isinstance(times, int):
        after_length, sizes = attributes + _ZERO, sizes + len(_ZERO)
    else:
        time_deltas = _zigzag(times - np.repeat(times[starts], counts))
        after_length, sizes = attributes, sizes + _sizes(time_deltas)
        pieces.append(_varints(time_deltas))
    pieces.append(_varints(offset_deltas, b"" if keys else _MINUS_ONE))
    pieces += [piece for part in parts for piece in part.pieces]
    records = pc.binary_join_element_wise(_varints(_zigzag(sizes), after_length), *pieces, b"")
    return _batches(records, starts, counts, times, compression)


def _batches(
    records: pa.Array, starts: np.ndarray, counts: np.ndarray, times: np.ndarray | int, compression: Compression
) -> list[EncodedBatch]:
    """The batches of the rows at `starts`, with `counts` rows each."""
    compress = _compressor(compression)
    data = memoryview(records.buffers()[2]).cast("B")
    ends = _offsets(records)
    if isinstance(times, int):
        lowest = highest = np.full(len(starts), times)
    else:
        lowest, highest = np.minimum.reduceat(times, starts), np.maximum.reduceat(times, starts)
    made = []
    for first, count, low, high in zip(
        starts.tolist(), counts.tolist(), lowest.tolist(), highest.tolist(), strict=True
    ):
        raw = data[ends[first] : ends[first + count]]
        body = compress(raw) if compress else raw
        # Brokers store batches unchanged: one that compression has made larger stays larger.
        smaller = len(body) < len(raw)
        own = low if isinstance(times, int) or low == high else times[first : first + count]
        made.append(
            EncodedBatch(
                first=first,
                count=count,
                timestamps=own,
                body=body if smaller else raw,
                _attributes=compression.code if smaller else NONE,
                _base_timestamp=own if isinstance(own, int) else int(own[0]),
                _max_timestamp=high,
            )
        )
    return made


def _starts(sizes: np.ndarray, limit: int) -> np.ndarray:
    """The first row of each batch, for rows of at most these sizes without their length."""
    ends = np.cumsum(sizes + _sizes(_zigzag(sizes)))
    starts, before = [0], 0
    while True:
        stop = int(np.searchsorted(ends, before + limit - HEADER_BYTES, side="right"))
        stop = max(stop, starts[-1] + 1)
        if stop >= len(ends):
            return np.array(starts)
        starts.append(stop)
        before = int(ends[stop - 1])


def _most_for_deltas(times: np.ndarray | int, count: int) -> int:
    """The maximum size of the attributes and both deltas of a row, in bytes."""
    span = 0 if isinstance(times, int) else int(times.max()) - int(times.min())
    return len(_ZERO) + _varint_size(span) + _varint_size(count - 1)


def _varint_size(number: int) -> int:
    """The maximum size of a varint from minus this number to this number, in bytes."""
    return min(_LONGEST_VARINT, max(1, -(-(2 * number).bit_length() // 7)))


# -------------------------------------------------------------------------------------------------- columns
def joined(column: pa.ChunkedArray) -> pa.Array:
    """A column's values as one array; copies them only if they are in several arrays."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _times(table: pa.Table, now: int, timestamp: int | None) -> np.ndarray | int:
    """The time of each row, or a single one for all."""
    if timestamp is not None:
        return now if timestamp == _NO_TIMESTAMP else timestamp
    column = joined(table.column("timestamp"))
    if column.null_count == len(column):
        return now
    given = column.fill_null(_NO_TIMESTAMP).to_numpy()
    times = np.where(given == _NO_TIMESTAMP, np.int64(now), given)
    return int(times[0]) if (times == times[0]).all() else times


def _bytes_part(column: pa.Array) -> _Part:
    """Bytes preceded by their length, which is -1 for null."""
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    if not column.null_count:
        lengths = np.diff(_offsets(column)).astype(np.int64)
        zigzag = _zigzag(lengths)
        return _Part((_varints(zigzag), column), _sizes(zigzag) + lengths)
    # Joining a null gives a null, but a null value must add no bytes.
    filled = column.fill_null(b"")
    lengths = np.diff(_offsets(filled)).astype(np.int64)
    zigzag = _zigzag(np.where(column.is_null().to_numpy(zero_copy_only=False), -1, lengths))
    return _Part((_varints(zigzag), filled), _sizes(zigzag) + lengths)


#: A count of 0.
_NO_HEADERS: Final = _Part((_ZERO,), len(_ZERO))


def _headers_part(column: pa.Array) -> _Part:
    """The number of a row's headers, and their keys and values; encoded for all rows at once, then cut into rows."""
    entries = column.flatten()
    if not len(entries):
        return _NO_HEADERS
    key, value = entries.flatten()
    if key.null_count:
        raise ValueError("A record to be sent has a header without a key: Kafka's headers always have one")
    joined = pc.binary_join_element_wise(*_bytes_part(key).pieces, *_bytes_part(value).pieces, b"")
    counts = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    offsets = _offsets(joined)[np.concatenate(([0], np.cumsum(counts)))]
    rows = pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(offsets), joined.buffers()[2]])
    zigzag = _zigzag(counts)
    return _Part((_varints(zigzag), rows), _sizes(zigzag) + np.diff(offsets))


def _offsets(column: pa.Array) -> np.ndarray:
    """Returns the offset of each value of a binary column in its data, and the end of the last one."""
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * np.int32().itemsize)


# -------------------------------------------------------------------------------------------------- varints
def _zigzag(numbers: np.ndarray) -> np.ndarray:
    """0, -1, 1, -2, ... become 0, 1, 2, 3, ..."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _sizes(zigzag: np.ndarray) -> np.ndarray:
    sizes = np.ones(len(zigzag), np.int64)
    for bits in range(7, int(zigzag.max()).bit_length(), 7):
        sizes += zigzag >= np.uint64(1 << bits)
    return sizes


def _varints(zigzag: np.ndarray, after: bytes = b"") -> pa.Array:
    """Each number as a varint, followed by the same bytes."""
    if int(zigzag.max()) < _TABLE_SIZE:
        return _table(after).take(pa.array(zigzag.view(np.int64)))
    return _spelled(zigzag, after)


@cache
def _table(after: bytes) -> pa.Array:
    return _spelled(np.arange(_TABLE_SIZE, dtype=np.uint64), after)


def _spelled(zigzag: np.ndarray, after: bytes) -> pa.Array:
    """`_varints` by arithmetic: a matrix with a row for each number, from which the used bytes are selected."""
    sizes = _sizes(zigzag)[:, np.newaxis]
    place = np.arange(int(sizes.max()))
    septets = (zigzag[:, np.newaxis] >> (7 * place).astype(np.uint64)).astype(np.uint8) & 0x7F
    septets |= (place < sizes - 1).astype(np.uint8) << 7
    behind = np.broadcast_to(np.frombuffer(after, np.uint8), (len(zigzag), len(after)))
    kept = np.hstack((place < sizes, np.ones(behind.shape, np.bool_)))
    data = np.hstack((septets, behind))[kept]
    offsets = np.concatenate(([0], np.cumsum(sizes + len(after)))).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(zigzag), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


# -------------------------------------------------------------------------------------------------- compression
def _compressor(compression: Compression) -> _Compress | None:
    level = _DEFAULT_LEVELS.get(compression.code) if compression.level is None else compression.level
    if compression.code == NONE:
        return None
    if compression.code == SNAPPY:
        return _snappy
    if compression.code == LZ4:
        return _lz4(pa.Codec("lz4_raw", level))
    codec = pa.Codec(COMPRESSIONS[compression.code], level)
    return lambda body: bytes(codec.compress(body, asbytes=True))


def _lz4(codec: pa.Codec) -> _Compress:
    """LZ4's frames. In Arrow's frames, blocks depend on earlier blocks, which Kafka's brokers and clients refuse.

    Source: KIP-57, "Interoperable LZ4 Framing", and the LZ4 frame format.
    """

    def compress(body: memoryview) -> bytes:
        parts: list[bytes | memoryview] = [_LZ4_HEADER]
        for at in range(0, len(body), _LZ4_BLOCK):
            raw = body[at : at + _LZ4_BLOCK]
            block = codec.compress(raw, asbytes=True)
            if len(block) < len(raw):
                parts += (struct.pack("<I", len(block)), block)
            else:
                parts += (struct.pack("<I", len(raw) | _LZ4_NOT_COMPRESSED), raw)
        parts.append(_LZ4_END)
        return b"".join(parts)

    return compress


def _snappy(body: memoryview) -> bytes:
    """Snappy's blocks, each preceded by its length, as the stream classes of snappy-java write them."""
    codec = pa.Codec("snappy")
    parts = [_SNAPPY_HEADER]
    for at in range(0, len(body), _SNAPPY_BLOCK):
        block = codec.compress(body[at : at + _SNAPPY_BLOCK], asbytes=True)
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


class ProducerRecord(NamedTuple):
    """A record to send.

    Attributes:
        key, value: Its contents; None is null.
        timestamp: Milliseconds since 1970; the time of sending if it is None or negative.
        partition: Its partition; the producer chooses one if it is None.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = None
    partition: int | None = None


def batch_of(records: Sequence[ProducerRecord]) -> ProduceBatch:
    """The records as columns; row i is record i.

    >>> batch_of([ProducerRecord("t", b"k", None), ProducerRecord("u", None, b"v")]).table.column("topic").to_pylist()
    ['t', 'u']
    """
    times = [one.timestamp if one.timestamp is not None and one.timestamp >= 0 else None for one in records]
    columns: dict[str, Sequence[object]] = {
        "seq": range(len(records)),
        "topic": [one.topic for one in records],
        "partition": [one.partition for one in records],
        "timestamp": times,
        "key": [one.key for one in records],
        "value": [one.value for one in records],
        "headers": [[{"key": name, "value": value} for name, value in one.headers] for one in records],
        "dropped": [False] * len(records),
    }
    table = pa.table([pa.array(columns[one.name], one.type) for one in PRODUCE_SCHEMA], schema=PRODUCE_SCHEMA)
    topics = {one.topic for one in records}
    return ProduceBatch(
        table,
        {},
        topics.pop() if len(topics) == 1 else None,
        has_headers=any(one.headers for one in records),
        has_dropped=False,
        has_keys=any(one.key is not None for one in records),
        has_partition=any(one.partition is not None for one in records),
        timestamp=None,
    )
