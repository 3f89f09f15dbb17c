"""Record batches, taken apart by a reader that shares nothing with what writes them."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.kafka.producer.record_batches import EncodedBatch, encode
from penstock.kafka.settings.values import Compression
from penstock.pipeline.batch.batches import WIRE_HEADERS

NOW: Final = 1_700_000_000_000
NO_COMPRESSION: Final = Compression(0)
LARGE_LIMIT: Final = 1 << 20
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = list[tuple[str, bytes | None]]


class Row(NamedTuple):
    """A record, as it is given and as it is read."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = NOW
    headers: Headers | None = None


# ---------------------------------------------------------------- a reader of record batches
def _checksum_table() -> list[int]:
    table = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (0x82F63B78 if entry & 1 else 0)
        table.append(entry)
    return table


CHECKSUMS: Final = _checksum_table()


def crc_32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CHECKSUMS[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@dataclass
class Reader:
    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def varint(self) -> int:
        number = self.unsigned()
        return number >> 1 ^ -(number & 1)

    def sized(self) -> bytes | None:
        length = self.varint()
        assert length >= -1
        return None if length < 0 else self.take(length)


@dataclass
class Batch:
    """What a batch's header says, and the records."""

    base_offset: int
    leader_epoch: int
    magic: int
    attributes: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    epoch: int
    sequence: int
    records: list[Row]


def decompressed(code: int, body: bytes) -> bytes:
    match code:
        case 0:
            return body
        case 1:
            return gzip.decompress(body)
        case 2:
            return b"".join(_snappy_blocks(Reader(body)))
    stream = pa.CompressedInputStream(pa.BufferReader(body), {3: "lz4", 4: "zstd"}[code])
    return bytes(stream.read())


def _snappy_blocks(reader: Reader) -> Iterator[bytes]:
    assert reader.take(16) == b"\x82SNAPPY\0" + bytes([0, 0, 0, 1, 0, 0, 0, 1])
    while reader.at < len(reader.data):
        block = reader.take(int.from_bytes(reader.take(4), "big"))
        size = Reader(block).unsigned()
        assert 0 < size <= 32 * 1024
        yield pa.Codec("snappy").decompress(block, size, asbytes=True)


def read(batch: EncodedBatch, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> Batch:
    header = batch.header(producer_id, epoch, sequence)
    wire = header + bytes(batch.body)
    assert len(header) == 61
    assert len(wire) == batch.size
    offset, length, leader, magic, checksum = struct.unpack_from(">qiibI", wire)
    assert length == len(wire) - 12
    assert checksum == crc_32c(wire[21:])
    attributes, last, base, highest, owner, age, start, count = struct.unpack_from(">hiqqqhii", wire, 21)
    reader = Reader(decompressed(attributes, wire[61:]))
    records = [read_record(reader, base, position) for position in range(count)]
    assert reader.at == len(reader.data)
    assert count == batch.count
    return Batch(offset, leader, magic, attributes, last, base, highest, owner, age, start, records)


def read_record(reader: Reader, base_timestamp: int, position: int) -> Row:
    length = reader.varint()
    end = reader.at + length
    assert reader.take(1) == b"\0"
    timestamp = base_timestamp + reader.varint()
    # Deltas wrap as Java's longs do.
    timestamp = (timestamp + (1 << 63)) % (1 << 64) - (1 << 63)
    assert reader.varint() == position
    key, value = reader.sized(), reader.sized()
    headers: Headers = []
    for _ in range(reader.varint()):
        name = reader.sized()
        assert name is not None
        headers.append((name.decode(), reader.sized()))
    assert reader.at == end
    return Row(value, key, timestamp, headers or None)


# ---------------------------------------------------------------- what is written
def table_of(rows: Sequence[Row]) -> pa.Table:
    headers = [
        None if row.headers is None else [{"key": key, "value": value} for key, value in row.headers] for row in rows
    ]
    return pa.table(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "timestamp": pa.array([row.timestamp for row in rows], pa.int64()),
            "headers": pa.array(headers, WIRE_HEADERS),
        }
    )


def encoded(
    table: pa.Table,
    *,
    limit: int = LARGE_LIMIT,
    compression: Compression = NO_COMPRESSION,
    keys: bool = True,
    headers: bool = True,
    timestamp: int | None = None,
) -> list[EncodedBatch]:
    return encode(table, limit=limit, compression=compression, now=NOW, keys=keys, headers=headers, timestamp=timestamp)


def records_of(batches: Sequence[EncodedBatch]) -> list[Row]:
    return [record for batch in batches for record in read(batch).records]


def as_read(row: Row) -> Row:
    """What a reader gets for a row: rows without a time have the current one, no headers are none."""
    return row._replace(timestamp=NOW if row.timestamp in (None, -1) else row.timestamp, headers=row.headers or None)


def test_records_are_written_byte_for_byte_as_the_protocol_says() -> None:
    rows = [Row(b"hi"), Row(None), Row(b"", b"k", NOW, [("a", None), ("b", b"\0")])]
    (plain,) = encoded(table_of(rows[:2]), keys=False, headers=False)
    assert bytes(plain.body) == b"\x10\0\0\0\x01\x04hi\0" + b"\x0c\0\0\x02\x01\x01\0"
    (full,) = encoded(table_of(rows[2:]))
    assert bytes(full.body) == b"\x1c\0\0\0\x02k\0\x04" + b"\x02a\x01" + b"\x02b\x02\0"


def test_the_header_has_what_the_producer_gives_and_covers_the_batch_with_a_checksum() -> None:
    (batch,) = encoded(table_of([Row(b"1"), Row(b"2", timestamp=NOW + 5), Row(b"3", timestamp=NOW - 3)]))
    assert read(batch, 123_456_789_012, 7, 42) == Batch(
        base_offset=0,
        leader_epoch=-1,
        magic=2,
        attributes=0,
        last_delta=2,
        base_timestamp=NOW,
        max_timestamp=NOW + 5,
        producer_id=123_456_789_012,
        epoch=7,
        sequence=42,
        records=[Row(b"1"), Row(b"2", timestamp=NOW + 5), Row(b"3", timestamp=NOW - 3)],
    )


def test_the_reference_checksum_is_the_one_of_the_standard() -> None:
    assert crc_32c(b"123456789") == 0xE3069283


def test_no_rows_are_no_batches() -> None:
    table = table_of([])
    assert encoded(table) == []
    assert (
        encoded(pa.table({name: pa.chunked_array([], table.schema.field(name).type) for name in table.schema.names}))
        == []
    )


@pytest.mark.parametrize(
    "rows",
    [
        [Row(b"a"), Row(b""), Row(b"x" * 70), Row(b"y" * 9000)],
        [Row(None), Row(None)],
        [Row(b"a"), Row(None), Row(b"")],
        [Row(b"a", b"k"), Row(None, None), Row(b"c", b""), Row(None, b"long key" * 20)],
        [
            Row(b"a", headers=[("h", b"1"), ("h", b"2")]),
            Row(b"b"),
            Row(b"c", headers=[]),
            Row(None, headers=[("é", None)]),
        ],
        [Row(b"a", headers=[]), Row(b"b")],
        [Row(b"a", headers=[("h", None)] * 100)],
        [Row(b"v" * 40_000), Row(b"w")],
        [Row(b"%d" % number) for number in range(300)],
    ],
    ids=[
        "values",
        "nothing but nulls",
        "null values",
        "keys",
        "headers",
        "no headers after all",
        "many headers",
        "a length beyond the table",
        "offset deltas of two bytes",
    ],
)
def test_rows_are_read_as_they_were_given(rows: list[Row]) -> None:
    assert records_of(encoded(table_of(rows))) == [as_read(row) for row in rows]


def test_columns_that_are_said_to_be_empty_are_not_looked_at() -> None:
    rows = [Row(b"a", b"k", NOW, [("h", b"1")])]
    assert records_of(encoded(table_of(rows), keys=False, headers=False)) == [Row(b"a")]
    table = table_of(rows).select(["value"])
    assert records_of(encoded(table, keys=False, headers=False, timestamp=3)) == [Row(b"a", timestamp=3)]


def test_a_value_of_megabytes_has_its_length_in_four_bytes() -> None:
    (batch,) = encoded(table_of([Row(bytes(5_000_000))]), keys=False)
    reader = Reader(bytes(batch.body[:16]))
    assert reader.varint() == len(batch.body) - 4
    assert reader.take(4) == b"\0\0\0\x01"
    assert reader.varint() == 5_000_000
    assert len(batch.body) == 4 + 4 + 4 + 5_000_000 + 1


# ---------------------------------------------------------------- time
@pytest.mark.parametrize(
    ("given", "stamps"),
    [
        ([5, 5, 5], 5),
        ([0, 0, 0], 0),
        ([None, None, None], NOW),
        ([-1, None, NOW], NOW),
        ([5, 7, 4], [5, 7, 4]),
        ([None, 7, -1], [NOW, 7, NOW]),
        ([NOW, 0, NOW + 86_400_000], [NOW, 0, NOW + 86_400_000]),
        ([2**63 - 1, -(2**63), 0], [2**63 - 1, -(2**63), 0]),
        ([-(2**63), 2**63 - 1, -2], [-(2**63), 2**63 - 1, -2]),
    ],
    ids=["alike", "1970", "none", "now in three ways", "near", "some without", "far", "latest first", "earliest first"],
)
def test_times_are_those_of_the_column_and_now_where_it_has_none(
    given: list[int | None], stamps: int | list[int]
) -> None:
    (batch,) = encoded(table_of([Row(b"v", timestamp=one) for one in given]))
    each = [stamps] * 3 if isinstance(stamps, int) else stamps
    found = read(batch)
    assert [record.timestamp for record in found.records] == each
    assert (found.base_timestamp, found.max_timestamp) == (each[0], max(each))
    assert (batch.timestamps if isinstance(batch.timestamps, int) else batch.timestamps.tolist()) == stamps


@pytest.mark.parametrize(("given", "stamp"), [(5, 5), (0, 0), (-1, NOW)])
def test_a_time_for_all_rows_is_taken_in_place_of_the_column(given: int, stamp: int) -> None:
    (batch,) = encoded(table_of([Row(b"a", timestamp=1), Row(b"b", timestamp=2)]), timestamp=given)
    assert batch.timestamps == stamp
    assert [record.timestamp for record in read(batch).records] == [stamp, stamp]


def test_times_start_anew_in_each_batch() -> None:
    stamps = [10, 10, 40, 30]
    first, second = encoded(table_of([Row(b"v" * 100, timestamp=one) for one in stamps]), limit=61 + 230)
    assert first.timestamps == 10
    assert isinstance(second.timestamps, np.ndarray)
    assert second.timestamps.tolist() == [40, 30]
    assert (read(second).base_timestamp, read(second).max_timestamp) == (40, 40)
    assert [record.timestamp for batch in (first, second) for record in read(batch).records] == stamps


# ---------------------------------------------------------------- limits
def test_batches_end_before_the_limit_and_count_anew() -> None:
    rows = [Row(b"%03d" % number * 30) for number in range(100)]
    batches = encoded(table_of(rows), limit=1000)
    assert [(batch.first, batch.count) for batch in batches] == [(at, min(9, 100 - at)) for at in range(0, 100, 9)]
    assert all(batch.size <= 1000 for batch in batches)
    assert records_of(batches) == rows


def test_a_row_that_is_larger_than_the_limit_is_a_batch_of_its_own() -> None:
    rows = [Row(b"a"), Row(b"b"), Row(b"x" * 300), Row(b"y" * 300), Row(b"c"), Row(b"d")]
    batches = encoded(table_of(rows), limit=200)
    assert [(batch.first, batch.count) for batch in batches] == [(0, 2), (2, 1), (3, 1), (4, 2)]
    assert records_of(batches) == rows


def test_a_limit_that_nothing_fits_into_makes_a_batch_of_each_row() -> None:
    rows = [Row(b"a"), Row(b"b"), Row(b"c")]
    batches = encoded(table_of(rows), limit=1)
    assert [(batch.first, batch.count) for batch in batches] == [(0, 1), (1, 1), (2, 1)]
    assert records_of(batches) == rows


def test_rows_that_just_fit_are_together() -> None:
    table = table_of([Row(b"v" * 10), Row(b"w" * 10)])
    (both,) = encoded(table)
    assert [batch.count for batch in encoded(table, limit=both.size)] == [2]
    assert [batch.count for batch in encoded(table, limit=both.size - 1)] == [1, 1]


# ---------------------------------------------------------------- the shapes of columns
FOUR_HEADERS: Final[list[Headers | None]] = [None, [], [("a", b"1")], [("b", None), ("c", b"")]]
MANY: Final = [
    Row(
        None if number % 5 == 0 else b"value %d" % number,
        None if number % 3 == 0 else b"key %d" % number,
        None if number % 7 == 0 else NOW + number,
        FOUR_HEADERS[number % 4],
    )
    for number in range(40)
]


@pytest.mark.parametrize(("start", "count"), [(0, 40), (0, 7), (13, 11), (39, 1), (20, 0)])
def test_slices_have_their_own_rows_alone(start: int, count: int) -> None:
    batches = encoded(table_of(MANY).slice(start, count))
    assert records_of(batches) == [as_read(row) for row in MANY[start : start + count]]


def test_columns_may_be_in_chunks_that_differ_from_column_to_column() -> None:
    table = table_of(MANY)
    parts = {"key": [10, 30], "value": [0, 1, 39], "timestamp": [40], "headers": [5, 0, 20, 15]}
    columns = {}
    for name, sizes in parts.items():
        ends = np.cumsum(sizes).tolist()
        columns[name] = pa.chunked_array(
            [table.column(name).chunk(0).slice(end - size, size) for end, size in zip(ends, sizes, strict=True)]
        )
    assert records_of(encoded(pa.table(columns))) == [as_read(row) for row in MANY]
    assert records_of(encoded(pa.table(columns).slice(8, 20))) == [as_read(row) for row in MANY[8:28]]


def test_bytes_behind_nulls_are_not_written() -> None:
    table = table_of([Row(b"a"), Row(b"b"), Row(b"c")])
    value = pa.Array.from_buffers(
        pa.binary(), 3, [pa.py_buffer(b"\x05"), *table.column("value").chunk(0).buffers()[1:]], null_count=1
    )
    hidden = table.set_column(1, "value", value)
    assert [record.value for record in records_of(encoded(hidden))] == [b"a", None, b"c"]


def test_headers_may_be_slices_of_slices_and_hidden_behind_nulls() -> None:
    entries = pa.array([{"key": f"k{number}", "value": b"%d" % number} for number in range(9)], WIRE_HEADERS.value_type)
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 3, 5, 6], pa.int32()), entries.slice(3), mask=pa.array([False, False, False, True, False])
    )
    table = table_of([Row(b"%d" % number) for number in range(5)]).set_column(3, "headers", lists.cast(WIRE_HEADERS))
    expected: list[Headers | None] = [[("k3", b"3")], [("k4", b"4"), ("k5", b"5")], None, None, [("k8", b"8")]]
    assert [record.headers for record in records_of(encoded(table))] == expected
    assert [record.headers for record in records_of(encoded(table.slice(1, 3)))] == expected[1:4]


def test_a_header_without_a_key_is_refused() -> None:
    headers = pa.array([[{"key": "a", "value": b""}], [{"key": None, "value": b""}]], WIRE_HEADERS)
    table = table_of([Row(b"a"), Row(b"b")]).set_column(3, "headers", headers)
    with pytest.raises(ValueError, match="a header without a key: Kafka's headers always have one"):
        encoded(table)


# ---------------------------------------------------------------- compression
@pytest.mark.parametrize(
    ("compression", "code"),
    [
        (Compression.named("none"), 0),
        (Compression.named("none", 3), 0),
        (Compression.named("gzip"), 1),
        (Compression.named("gzip", 1), 1),
        (Compression.named("gzip", -1), 1),
        (Compression.named("snappy"), 2),
        (Compression.named("snappy", 3), 2),
        (Compression.named("lz4"), 3),
        (Compression.named("lz4", 12), 3),
        (Compression.named("zstd"), 4),
        (Compression.named("zstd", 12), 4),
    ],
    ids=str,
)
def test_compressed_batches_are_read_as_they_were_given(compression: Compression, code: int) -> None:
    rows = [Row(b"some words that come again %d" % number, timestamp=NOW + number) for number in range(3000)]
    (batch,) = encoded(table_of(rows), compression=compression)
    found = read(batch)
    assert found.attributes == code
    assert found.records == rows
    # Several blocks of those compressions that have blocks.
    assert (len(batch.body) > 100_000) is (code == 0)


def test_lz4_frames_have_independent_blocks_as_java_demands() -> None:
    (batch,) = encoded(table_of([Row(b"words " * 40_000)]), compression=Compression.named("lz4"))
    assert bytes(batch.body[:7]).hex(" ") == "04 22 4d 18 60 40 82"


def test_a_block_that_lz4_cannot_make_smaller_is_stored_as_it_is() -> None:
    noise = np.random.default_rng(1).bytes(64 * 1024)
    rows = [Row(noise), Row(b"words " * 2000)]
    (batch,) = encoded(table_of(rows), compression=Compression.named("lz4"))
    assert read(batch).attributes == 3
    assert records_of([batch]) == rows


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_batches_that_would_become_larger_are_not_compressed(name: str) -> None:
    (batch,) = encoded(table_of([Row(b"abc")]), compression=Compression.named(name))
    assert read(batch).attributes == 0
    assert records_of([batch]) == [Row(b"abc")]


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(ValueError, match="'brotli', it must be one of none, gzip, snappy, lz4, zstd"):
        Compression.named("brotli")


# ---------------------------------------------------------------- anything
some_bytes = st.none() | st.binary(max_size=80) | st.integers(0, 40_000).map(lambda size: b"-" * size)
some_headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=4)
some_times = st.none() | st.integers(-1, 3) | st.integers(NOW, NOW + 10**6) | st.integers(-(2**63), 2**63 - 1)
some_rows = st.lists(
    st.builds(Row, some_bytes, st.none() | st.binary(max_size=9), some_times, some_headers), max_size=30
)


@examples(50)
@given(
    chunks=st.lists(some_rows, max_size=3),
    margins=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    limit=st.integers(1, 2000) | st.just(LARGE_LIMIT),
    name=st.sampled_from(COMPRESSIONS),
)
def test_any_rows_are_read_as_they_were_given(
    chunks: list[list[Row]], margins: tuple[int, int], limit: int, name: str
) -> None:
    rows = [row for chunk in chunks for row in chunk]
    kept = rows[margins[0] : len(rows) - margins[1]]
    table = pa.concat_tables([table_of([]), *map(table_of, chunks)]).slice(margins[0], len(kept))
    batches = encoded(table, limit=limit, compression=Compression.named(name))
    found = [read(batch) for batch in batches]
    assert [record for batch in found for record in batch.records] == [as_read(row) for row in kept]
    assert [batch.first for batch in batches] == [0, *np.cumsum([batch.count for batch in batches]).tolist()][:-1]
    for batch, seen in zip(batches, found, strict=True):
        assert batch.size <= limit or batch.count == 1
        assert seen.last_delta == batch.count - 1
        assert seen.max_timestamp == max(record.timestamp for record in seen.records if record.timestamp is not None)
