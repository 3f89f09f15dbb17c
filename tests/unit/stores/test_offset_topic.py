"""Source offsets in topics: those of all connectors, and those of a connector's own over them."""

import threading

import pytest
from testkit.doubles.memory_log import MemoryLog, MemoryTopic

from penstock.errors import KafkaException, KafkaRetriableException, OffsetStoreException
from penstock.kafka.topic_log.reader import LogRecord
from penstock.stores.interface import OffsetStore
from penstock.stores.offset_topic import MergedOffsetStore, OffsetTopicStore
from penstock.stores.offsets import MemoryOffsetStore, OffsetReader, OffsetWriter, connector_offsets
from penstock.telemetry import waits

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
