"""The format of source offsets, and what the reader and the writer promise."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import pytest

from penstock.errors import ConnectException, DataException, OffsetStoreException
from penstock.stores.interface import OffsetStore
from penstock.stores.offsets import (
    MemoryOffsetStore,
    OffsetReader,
    OffsetWriter,
    connector_offsets,
    key_bytes,
    parse_key,
    parse_value,
    partition_identity,
    value_bytes,
)


class FakeStore:
    """Keeps entries in a dict; can fail or block."""

    def __init__(self, entries: Mapping[bytes, bytes] | None = None) -> None:
        self.data: dict[bytes, bytes] = dict(entries or {})
        self.fail: Exception | None = None
        self.writes: list[dict[bytes, bytes | None]] = []
        self.entered = threading.Event()
        self.gate: threading.Event | None = None
        self.reads = 0

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        self.reads += 1
        if self.fail:
            raise self.fail
        return {key: self.data.get(key) for key in keys}

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.fail:
            raise self.fail
        self.writes.append(dict(entries))
        for key, value in entries.items():
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = value

    def entries(self) -> dict[bytes, bytes]:
        return dict(self.data)


def memory(entries: Mapping[bytes, bytes]) -> MemoryOffsetStore:
    store = MemoryOffsetStore(entries)
    store.start()
    return store


def test_the_fake_is_an_offset_store() -> None:
    assert isinstance(FakeStore(), OffsetStore)


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        ({"filename": "/data/in.txt"}, b'["c-ref-src",{"filename":"/data/in.txt"}]'),
        (None, b'["c-ref-src",null]'),
        ({}, b'["c-ref-src",{}]'),
        ({"b": 1, "a": True}, b'["c-ref-src",{"b":1,"a":true}]'),
        ({"t": "\u00e9\u20ac\U0001f600"}, '["c-ref-src",{"t":"é€\\uD83D\\uDE00"}]'.encode()),
        ({"t": 'a"b\\c\n\x1f'}, b'["c-ref-src",{"t":"a\\"b\\\\c\\n\\u001F"}]'),
        ({"t": "\\u00ab\x0b"}, b'["c-ref-src",{"t":"\\\\u00ab\\u000B"}]'),
    ],
)
def test_keys_have_the_bytes_that_java_writes(partition: dict[str, object] | None, expected: bytes) -> None:
    assert key_bytes("c-ref-src", partition) == expected


def test_values_keep_numbers_and_turn_bytes_into_base64() -> None:
    assert value_bytes({"position": 10}) == b'{"position":10}'
    assert value_bytes({"f": 0.5, "big": 1e10, "b": b"\x00\xff"}) == b'{"f":0.5,"big":1.0E10,"b":"AP8="}'
    assert value_bytes({"x": float("nan")}) == b'{"x":"NaN"}'
    assert value_bytes(None) is None
    assert parse_value(b'{"position":10,"f":1.0E10}') == {"position": 10, "f": 1e10}


@pytest.mark.parametrize(
    "bad", [{"a": [1]}, {"a": {}}, {1: "a"}, {"a": 2**63}, {"a": "\ud800"}, {"a": object()}, "text"]
)
def test_maps_of_other_things_than_primitives_are_refused(bad: object) -> None:
    with pytest.raises(DataException):
        value_bytes(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [b"", b"null", b'"a"', b'["a"]', b'[1,{"a":1}]', b'["a",3]', b'["a",{}', b'["a",{},1]'])
def test_keys_of_another_form_are_not_parsed(key: bytes) -> None:
    assert parse_key(key) is None


def test_equal_partitions_are_one_whatever_the_order_but_not_whatever_the_kind() -> None:
    assert partition_identity({"a": 1, "b": 2}) == partition_identity({"b": 2, "a": 1})
    assert partition_identity({"a": 1}) != partition_identity({"a": 1.0})
    assert partition_identity({"a": [1]}) == partition_identity({"a": [1]})


def test_a_reader_answers_in_the_order_asked_for_with_one_read() -> None:
    store = FakeStore({b'["c",{"t":1}]': b'{"o":5}', b'["other",{"t":2}]': b'{"o":6}', b'["c",{"t":3}]': b"null"})
    reader = OffsetReader(store, "c")
    assert reader.offsets([{"t": 2}, {"t": 1}, {"t": 3}]) == [None, {"o": 5}, None]
    assert store.reads == 1
    assert reader.offset({"t": 1}) == {"o": 5}


def test_a_reader_finds_a_partition_that_was_written_in_another_order_of_keys() -> None:
    store = memory({b'["c",{"b":2,"a":1}]': b'{"o":5}', b"rubbish": b"x"})
    assert OffsetReader(store, "c").offset({"a": 1, "b": 2}) == {"o": 5}


def test_the_exact_key_wins_over_another_spelling() -> None:
    store = memory({b'["c",{"b":2,"a":1}]': b'{"o":5}', b'["c",{"a":1,"b":2}]': b'{"o":7}'})
    assert OffsetReader(store, "c").offset({"a": 1, "b": 2}) == {"o": 7}


def test_the_offset_of_records_without_a_source_partition_can_be_read() -> None:
    store = FakeStore({b'["c",null]': b'{"o":5}'})
    nothing: Mapping[str, object] = None  # type: ignore[assignment]
    assert OffsetReader(store, "c").offsets([nothing, {"t": 1}]) == [{"o": 5}, None]


def test_unreadable_entries_count_as_no_offset() -> None:
    store = FakeStore({b'["c",{"t":1}]': b"[1]"})
    assert OffsetReader(store, "c").offsets([{"t": 1}, {"t": [1]}]) == [None, None]


def test_a_failed_read_and_a_closed_reader_raise_a_connect_exception() -> None:
    store = FakeStore()
    store.fail = OffsetStoreException("the disk is gone")
    reader = OffsetReader(store, "c")
    with pytest.raises(ConnectException, match="source offsets of c could not be read: the disk is gone"):
        reader.offset({"t": 1})
    reader.close()
    with pytest.raises(ConnectException, match="closed"):
        reader.offset({"t": 1})


def test_a_connectors_offsets_are_listed_without_foreign_and_broken_entries() -> None:
    store = FakeStore(
        {
            b'["c",{"t":1}]': b'{"o":1}',
            b'["c",null]': b'{"o":2}',
            b'["d",{"t":1}]': b'{"o":3}',
            b'["c",{"t":4}]': b"4",
            b"nonsense": b"{}",
        }
    )
    assert connector_offsets(store, "c") == [({"t": 1}, {"o": 1}), (None, {"o": 2})]


def test_a_writer_writes_the_newest_offset_of_each_partition_once() -> None:
    store = FakeStore()
    writer = OffsetWriter(store, "c")
    writer.put({"t": 1}, {"o": 1})
    writer.put({"t": 1}, {"o": 2})
    writer.put({"t": 2}, None)
    assert writer.flush(1) == 2
    assert store.writes == [{b'["c",{"t":1}]': b'{"o":2}', b'["c",{"t":2}]': None}]
    assert writer.flush(1) == 0
    assert len(store.writes) == 1


def test_a_writer_and_readers_that_order_keys_in_their_own_way_speak_of_one_offset() -> None:
    store = memory({b'["c",{"table":"t1","db":"x"}]': b'{"n":5}'})
    writer = OffsetWriter(store, "c")
    writer.put({"db": "x", "table": "t1"}, {"n": 2})
    writer.flush(1)
    assert connector_offsets(store, "c") == [({"table": "t1", "db": "x"}, {"n": 2})]
    assert OffsetReader(store, "c").offset({"table": "t1", "db": "x"}) == {"n": 2}
    assert OffsetReader(store, "c").offset({"db": "x", "table": "t1"}) == {"n": 2}
    writer.put({"db": "x", "table": "t1"}, None)
    writer.flush(1)
    assert OffsetReader(store, "c").offset({"table": "t1", "db": "x"}) is None


def test_bytes_in_a_partition_are_the_text_that_is_stored_for_them() -> None:
    store = memory({b'["c",{"id":"YWI=","db":"x"}]': b'{"n":5}'})
    writer = OffsetWriter(store, "c")
    writer.put({"db": "x", "id": b"ab"}, {"n": 9})
    writer.flush(1)
    assert store.entries() == {b'["c",{"id":"YWI=","db":"x"}]': b'{"n":9}'}


def test_offsets_of_a_failed_write_are_kept_and_newer_ones_win() -> None:
    store = FakeStore()
    store.fail = OffsetStoreException("full")
    writer = OffsetWriter(store, "c")
    writer.put({"t": 1}, {"o": 1})
    writer.put({"t": 2}, {"o": 1})
    with pytest.raises(OffsetStoreException):
        writer.flush(1)
    writer.put({"t": 2}, {"o": 9})
    store.fail = None
    assert writer.flush(1) == 2
    assert store.writes == [{b'["c",{"t":1}]': b'{"o":1}', b'["c",{"t":2}]': b'{"o":9}'}]


def test_an_offset_that_cannot_be_written_holds_the_others_until_a_better_one_comes() -> None:
    store = FakeStore()
    writer = OffsetWriter(store, "c")
    writer.put({"t": 1}, {"o": 1})
    writer.put({"t": 2}, {"o": [1]})
    with pytest.raises(DataException, match="field o"):
        writer.flush(1)
    assert store.writes == []
    writer.put({"t": 2}, {"o": 3})
    assert writer.flush(1) == 2


def test_a_fenced_writer_writes_nothing_more() -> None:
    store = FakeStore()
    writer = OffsetWriter(store, "c")
    writer.put({"t": 1}, {"o": 1})
    assert writer.fence(1) is True
    with pytest.raises(OffsetStoreException, match="cancelled"):
        writer.flush(1)
    assert store.writes == []
    assert writer.fenced


def test_fencing_waits_for_a_write_under_way_and_says_when_it_did_not_end() -> None:
    store = FakeStore()
    store.gate = threading.Event()
    writer = OffsetWriter(store, "c")
    writer.put({"t": 1}, {"o": 1})
    thread = threading.Thread(target=writer.flush)
    thread.start()
    assert store.entered.wait(10)
    assert writer.fence(0.01) is False
    with pytest.raises(OffsetStoreException, match="has not ended"):
        writer.flush(0.01)
    store.gate.set()
    thread.join(10)
    assert writer.fence(1) is True


def test_it_is_an_offset_store() -> None:
    assert isinstance(MemoryOffsetStore(), OffsetStore)


def test_written_entries_are_read_and_none_removes() -> None:
    store = MemoryOffsetStore({b"a": b"0"})
    store.start()

    store.set({b"a": b"1", b"b": b"2"})
    store.set({b"b": None, b"never": None})

    assert store.get([b"a", b"b"]) == {b"a": b"1", b"b": None}
    assert store.entries() == {b"a": b"1"}


def test_a_stopped_store_refuses_and_keeps_its_entries() -> None:
    store = MemoryOffsetStore()
    store.start()
    store.set({b"a": b"1"})
    store.stop()

    with pytest.raises(OffsetStoreException, match="not started"):
        store.get([b"a"])
    with pytest.raises(OffsetStoreException, match="not started"):
        store.set({})
    store.start()
    assert store.entries() == {b"a": b"1"}
