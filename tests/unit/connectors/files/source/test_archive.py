"""Files of the file sink that belong together, in a listing and row by row."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.files.source.archive import HEADERS, KEYS, Archive, JoinedReader
from penstock.connectors.files.source.ledger import FilePosition
from penstock.connectors.files.source.readers.reader import Bad, BadFileException, FileRows, FormatReader, Input
from penstock.files import Found
from penstock.testing import MemoryStore

ID, OTHER = "1700000000000-0a1b2c3d", "1700000000001-0a1b2c3d"


def store_of(*keys: str, **sizes: int) -> MemoryStore:
    store = MemoryStore()
    for key in keys:
        store.put(key, io.BytesIO(b"x" * sizes.get(key, 9)), 9)
    return store


def together(store: MemoryStore, archive: Archive | None = None) -> dict[str, dict[str, str]]:
    archive = archive or Archive(store, "+")
    archive.begin()
    found = archive.together(store.walk(lambda key: key.startswith("_")))
    return {one.key: {what[1:]: file.name for what, file in beside.items()} for one, beside in found}


def test_files_beside_others_are_found_in_any_order_of_their_names() -> None:
    store = store_of(
        "t/p/t+0+07.avro", "t/p/t+0+07.headers.avro", "t/p/t+0+07.keys.avro",
        "t/p/t+0+07-1.avro", "t/p/t+0+07-1.keys.json.gz",
        "t/p/t+0+08.keys.avro", "t/p/t+0+08.parquet",
        "t/p/t+0+09.keys.avro",
        "t/p/other.keys.avro", "t/q/t+0+09.parquet",
    )  # fmt: skip
    assert together(store) == {
        "t/p/other.keys.avro": {},
        "t/p/t+0+07-1.avro": {"keys": "t+0+07-1.keys.json.gz"},
        "t/p/t+0+07.avro": {"headers": "t+0+07.headers.avro", "keys": "t+0+07.keys.avro"},
        "t/p/t+0+08.parquet": {"keys": "t+0+08.keys.avro"},
        "t/q/t+0+09.parquet": {},
    }


def test_commits_count_whose_manifest_is_there_and_not_empty() -> None:
    store = store_of(f"t/{ID}.parquet", f"t/{ID}-1.parquet", f"t/{OTHER}.parquet", f"_manifests/c/{ID}.json")
    archive = Archive(store, "+")
    assert list(together(store, archive)) == [f"t/{ID}-1.parquet", f"t/{ID}.parquet"]
    assert archive.waiting == f"t/{OTHER}.parquet"
    store.put(f"_manifests/d/{OTHER}.json", io.BytesIO(b"{}"), 2)
    assert len(together(store, archive)) == 2
    store.put(f"_manifests/d/{OTHER}.json", io.BytesIO(b'{"commit": "x"}'), 15)
    assert len(together(store, archive)) == 3
    assert archive.waiting == ""


def test_a_file_beside_that_a_listing_came_too_early_for_is_looked_for() -> None:
    store = store_of("t/t+0+07.keys.avro", "t/t+0+07.parquet", "t/t+0+08.parquet")
    archive = Archive(store, "+")
    together(store, archive)
    late = store.look_at("t/t+0+08.parquet")
    assert archive.completed(late, {}) == {}
    store.put("t/t+0+08.keys.avro", io.BytesIO(b"x"), 1)
    assert archive.completed(late, {})[KEYS].name == "t+0+08.keys.avro"
    passed_over = Archive(store, "+", [HEADERS])
    together(store, passed_over)
    assert passed_over.completed(late, {KEYS: late}) == {}


class Numbers(FormatReader):
    """Numbers as rows, in blocks of ten; those that are told are bad."""

    def __init__(self, count: int, bad: tuple[int, ...] = (), name: str = "value") -> None:
        self.count, self.bad, self.name = count, bad, name

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        for start in range(place.at, self.count, 10):
            numbers = range(start, min(self.count, start + 10))
            rows = [one for one in numbers if one not in self.bad]
            bad = [Bad(0, b"", "bad", sum(row < one for row in rows)) for one in numbers if one in self.bad]
            yield FileRows(pa.table({self.name: rows}), FilePosition(start), FilePosition(start + 10), bad)


def joined(rows: Numbers, keys: Numbers) -> JoinedReader:
    def nothing() -> Any:
        raise AssertionError

    return JoinedReader(rows, {KEYS: (Input(Found("t/t+0+0.keys.avro", 1, 1), nothing), keys)})


def read(reader: JoinedReader, place: FilePosition) -> list[tuple[int, int]]:
    file = Input(Found("t/t+0+0.parquet", 1, 1), lambda: None)
    tables = [piece.table for piece in reader.pieces(file, place)]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("bad", [(), (0,), (3, 4, 19, 20), (24,)])
@pytest.mark.parametrize("begin", [0, 10, 20])
def test_each_row_has_its_own_key_wherever_reading_begins_and_whatever_rows_are_bad(
    bad: tuple[int, ...], begin: int
) -> None:
    found = read(joined(Numbers(25, bad), Numbers(25, name="key")), FilePosition(begin))
    assert found == [(one, one) for one in range(begin, 25) if one not in bad]


@pytest.mark.parametrize("count", [0, 9, 24, 26])
def test_files_that_do_not_have_as_many_rows_are_not_put_together(count: int) -> None:
    with pytest.raises(BadFileException, match=rf"keys\.avro has {count}: they do not belong together"):
        read(joined(Numbers(25), Numbers(count, name="key")), FilePosition())


def test_a_file_beside_with_a_bad_row_is_not_put_together() -> None:
    with pytest.raises(BadFileException, match=r"has its keys in t\+0\+0\.keys\.avro, which has a row .*: bad"):
        read(joined(Numbers(25), Numbers(25, (7,), name="key")), FilePosition())
