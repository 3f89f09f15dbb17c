"""The format of source offsets, and what the reader and the writer promise.

Source offsets in topics: those of all connectors, and those of a connector's own over them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import pytest
from testkit.doubles.memory_log import MemoryLog, MemoryTopic

from penstock.errors import (
    ConnectException,
    DataException,
    KafkaException,
    KafkaRetriableException,
    OffsetStoreException,
)
from penstock.kafka.topic_log.clients import LogRecord
from penstock.stores.interface import OffsetStore
from penstock.stores.offsets import (
    MemoryOffsetStore,
    MergedOffsetStore,
    OffsetReader,
    OffsetTopicStore,
    OffsetWriter,
    connector_offsets,
    key_bytes,
    parse_key,
    parse_value,
    partition_identity,
    value_bytes,
)
from penstock.telemetry import waits


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


KEY = b'["c-ref-src",{"filename":"/data/in.txt"}]'
TABLE_FIRST = b'["c",{"table":"t1","db":"x"}]'
DB_FIRST = b'["c",{"db":"x","table":"t1"}]'


@pytest.fixture
def topic():
    return MemoryTopic(25)


def worker(topic):
    log = MemoryLog(topic)
    store = OffsetTopicStore(log, "connect-offsets")
    store.start()
    return store, log


@pytest.fixture(params=["memory", "topic", "merged"])
def any_store(request, topic):
    store: MemoryOffsetStore | OffsetTopicStore | MergedOffsetStore
    match request.param:
        case "memory":
            store = MemoryOffsetStore()
        case "topic":
            store = OffsetTopicStore(MemoryLog(topic), "connect-offsets")
        case _:
            store = MergedOffsetStore(OffsetTopicStore(MemoryLog(topic), "own"), worker(MemoryTopic(25))[0])
    store.start()
    yield store
    store.stop()


# ---------------------------------------------------------------- what any store does
def test_offsets_are_read_as_they_were_written(any_store):
    assert isinstance(any_store, OffsetStore)
    writer = OffsetWriter(any_store, "c-ref-src")
    writer.put({"filename": "/data/in.txt"}, {"position": 10})
    writer.put({"filename": "/data/other.txt"}, {"position": 1})
    assert writer.flush(5) == 2
    writer.put({"filename": "/data/in.txt"}, {"position": 20})
    writer.put({"filename": "/data/other.txt"}, None)
    writer.flush()

    reader = OffsetReader(any_store, "c-ref-src")
    assert reader.offset({"filename": "/data/in.txt"}) == {"position": 20}
    assert reader.offset({"filename": "/data/other.txt"}) is None
    assert connector_offsets(any_store, "c-ref-src") == [({"filename": "/data/in.txt"}, {"position": 20})]
    assert any_store.get([KEY, b"unknown"], 5) == {KEY: b'{"position":20}', b"unknown": None}


def test_a_key_keeps_the_spelling_in_which_it_is_stored(any_store):
    any_store.set({TABLE_FIRST: b"1"})
    any_store.set({DB_FIRST: b"2"})

    assert any_store.entries() == {TABLE_FIRST: b"2"}
    assert any_store.get([TABLE_FIRST, DB_FIRST]) == {TABLE_FIRST: b"2", DB_FIRST: b"2"}
    any_store.set({DB_FIRST: None})
    assert any_store.entries() == {}


# ---------------------------------------------------------------- a cluster
def test_a_read_sees_what_another_worker_has_written(topic):
    (here, _), (there, _) = worker(topic), worker(topic)

    here.set({KEY: b'{"position":10}'})

    assert there.get([KEY]) == {KEY: b'{"position":10}'}
    there.set({KEY: None})
    assert here.entries() == {}
    # What is removed stays so for whoever starts later.
    assert worker(topic)[0].get([KEY]) == {KEY: None}


def test_of_two_spellings_in_two_partitions_a_write_leaves_one(topic, caplog):
    topic.append(TABLE_FIRST, b"1")
    topic.append(DB_FIRST, b"2")
    assert len([records for records in topic.partitions if records]) == 2

    store, _ = worker(topic)
    assert "connect-offsets holds 1 source partitions more than once" in caplog.text
    # Until then each is read as it is, as Java reads it.
    assert store.get([TABLE_FIRST, DB_FIRST]) == {TABLE_FIRST: b"1", DB_FIRST: b"2"}
    store.set({DB_FIRST: b"3"})

    assert len(topic.values()) == 1
    assert store.get([TABLE_FIRST, DB_FIRST]) == {TABLE_FIRST: b"3", DB_FIRST: b"3"}
    topic.compact()
    assert worker(topic)[0].get([TABLE_FIRST, DB_FIRST]) == {TABLE_FIRST: b"3", DB_FIRST: b"3"}


def test_the_records_of_a_write_are_there_for_a_transaction_of_the_task(topic):
    topic.append(TABLE_FIRST, b"1")
    store, _ = worker(topic)

    records = store.records({DB_FIRST: b"2", KEY: None})

    assert records == [(TABLE_FIRST, b"2"), (KEY, None)]
    for key, value in records:
        topic.append(key, value)
    assert store.get([DB_FIRST]) == {DB_FIRST: b"2"}


def test_after_partitions_were_added_the_newest_record_of_a_key_counts(topic, caplog):
    # In the order in which a fetch may bring them: the newer ones first.
    topic.partitions[1].append(LogRecord(1, 0, KEY, b"new", 9))
    topic.partitions[2].append(LogRecord(2, 0, DB_FIRST, None, 9))
    topic.partitions[3].append(LogRecord(3, 0, KEY, b"old", 5))
    topic.partitions[4].append(LogRecord(4, 0, DB_FIRST, b"old", 4))

    store, _ = worker(topic)

    assert store.get([KEY, DB_FIRST]) == {KEY: b"new", DB_FIRST: None}
    assert "holds 2 keys in two partitions: partitions were added" in caplog.text


def test_records_of_others_do_no_harm(topic):
    topic.append(b"", b"{}")
    topic.append(b"no json", b"\xff")
    topic.append(KEY, b"no json either")
    topic.partitions[0].append(LogRecord(0, 99, None, b"{}"))

    store, _ = worker(topic)

    assert store.get([KEY]) == {KEY: b"no json either"}
    assert connector_offsets(store, "c-ref-src") == []


def test_failures_are_told_in_the_words_of_offsets(topic):
    store, log = worker(topic)
    log.failures = [KafkaRetriableException("took longer than 5 s")]

    with pytest.raises(OffsetStoreException, match="could not be written: took longer than 5 s"):
        store.set({KEY: b"1"}, 5)
    log.stop()
    for call in (lambda: store.get([KEY]), store.entries, lambda: store.set({KEY: b"1"})):
        with pytest.raises(OffsetStoreException, match="closed"):
            call()


# ---------------------------------------------------------------- a topic of a connector's own
@pytest.fixture
def both(topic):
    own_topic = MemoryTopic(25)
    shared, shared_log = worker(topic)
    own, own_log = worker(own_topic)
    store = MergedOffsetStore(own, shared)
    store.start()
    order: list[str] = []
    for name, log in (("shared", shared_log), ("own", own_log)):
        for method in ("write", "write_async"):
            spy(log, method, order, f"{name} {method}")
    return store, own_topic, own_log, shared_log, order


def spy(log, method, order, name):
    call = getattr(log, method)

    def spied(*args, **kwargs):
        order.append(name)
        return call(*args, **kwargs)

    setattr(log, method, spied)


def test_what_is_in_the_own_topic_wins_over_what_all_share(topic, both):
    store, own_topic, *_ = both
    topic.append(TABLE_FIRST, b"shared")
    topic.append(KEY, b"shared")
    own_topic.append(DB_FIRST, b"own")

    assert store.get([TABLE_FIRST, KEY, b"x"]) == {TABLE_FIRST: b"own", KEY: b"shared", b"x": None}
    assert store.entries() == {DB_FIRST: b"own", KEY: b"shared"}


def test_offsets_are_written_to_the_own_topic_and_then_copied(topic, both):
    store, own_topic, _, _, order = both

    store.set({KEY: b"1"})

    assert order == ["own write", "shared write_async"]
    assert own_topic.values() == topic.values() == {KEY: b"1"}


def test_a_copy_that_fails_fails_nobody(topic, both, caplog):
    store, own_topic, _, shared_log, _ = both
    shared_log.failures = [KafkaException("no right to write")]

    store.set({KEY: b"1"})

    assert own_topic.values() == {KEY: b"1"}
    assert topic.values() == {}
    assert "could not be copied to connect-offsets" in caplog.text


def test_what_is_removed_is_removed_from_the_shared_topic_first(topic, both):
    store, own_topic, _, _, order = both
    store.set({KEY: b"1", DB_FIRST: b"1"})
    order.clear()

    store.set({KEY: None, DB_FIRST: b"2"})

    assert order == ["shared write", "own write", "shared write_async"]
    assert own_topic.values() == topic.values() == {DB_FIRST: b"2"}


def test_where_the_shared_topic_keeps_an_offset_the_own_one_keeps_it_too(both):
    store, own_topic, _, shared_log, _ = both
    store.set({KEY: b"1"})
    shared_log.failures = [KafkaRetriableException("not now")]

    with pytest.raises(OffsetStoreException):
        store.set({KEY: None})

    assert own_topic.values() == {KEY: b"1"}


def test_the_records_of_a_transaction_are_for_the_own_topic_in_the_same_order_of_writes(topic, both):
    store, own_topic, _, _, order = both
    store.set({KEY: b"1", DB_FIRST: b"1"})
    order.clear()

    records = store.records({KEY: None, DB_FIRST: b"2"})

    assert store.topic == "connect-offsets"
    assert records == [(KEY, None), (DB_FIRST, b"2")]
    assert order == ["shared write"], "what is removed is gone from the shared topic before the transaction counts"
    store.written({KEY: None, DB_FIRST: b"2"})
    assert order == ["shared write", "shared write_async"]
    assert topic.values() == {DB_FIRST: b"2"}
    assert own_topic.values() == {KEY: b"1", DB_FIRST: b"1"}, "that is the task's own producer's part"


def test_both_topics_share_one_time_limit(topic):
    now, limits = [100.0], []

    class Slow(OffsetTopicStore):
        def set(self, entries, timeout_s=None):
            limits.append(timeout_s)
            now[0] += 3

    store = MergedOffsetStore(Slow(MemoryLog(topic), "own"), Slow(MemoryLog(topic), "shared"), clock=lambda: now[0])
    store.set({KEY: None}, 5)

    assert limits == [5, 2]


def test_what_is_written_or_read_says_that_it_waits_for_kafka(topic):
    said = []

    class Slow(MemoryLog):
        def write(self, *args, **kwargs):
            said.append(waits().get(threading.get_ident()))
            super().write(*args, **kwargs)

        def read_to_end(self, timeout_s):
            said.append(waits().get(threading.get_ident()))
            super().read_to_end(timeout_s)

    store = OffsetTopicStore(Slow(topic), "connect-offsets")
    store.start()
    store.set({KEY: b"{}"})
    store.get([KEY])

    assert {(one.reason, one.detail) for one in said if one is not None} == {
        ("broker", "source offsets are written to the topic connect-offsets"),
        ("broker", "source offsets are read from the topic connect-offsets"),
    }
