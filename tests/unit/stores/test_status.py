"""States in the status topic: Kafka Connect's bytes, and who may say what."""

import random

import pytest
from testkit.doubles.memory_log import MemoryLog, MemoryTopic

from penstock.errors import KafkaException, KafkaRetriableException
from penstock.model import ConnectorStatus, ConnectorTaskId, State, TaskStatus
from penstock.stores.interface import StatusStore
from penstock.stores.status import (
    Gone,
    LocalStatusStore,
    StatusTopicStore,
    TopicUse,
    UnusableRecordError,
    key_of,
    parse,
    status_record,
    topic_record,
)

TASK = ConnectorTaskId("c-ref-src", 0)
HERE, THERE = "127.0.0.1:28300", "127.0.0.1:28301"


def connector(state=State.RUNNING, worker=HERE, generation=3, name="c-ref-src", trace=None):
    return ConnectorStatus(name, state, worker, trace, "4.3.0", generation)


def task(state=State.RUNNING, worker=HERE, generation=3, task=TASK):
    return TaskStatus(task, state, worker, None, "4.3.0", generation)


@pytest.fixture
def topic():
    return MemoryTopic(5)


def started(topic):
    log = MemoryLog(topic)
    store = StatusTopicStore(log, clock=lambda: 1795253743.68)
    store.start()
    return store, log


# ---------------------------------------------------------------- bytes
def test_records_have_the_bytes_that_java_writes():
    assert status_record(connector()) == (
        b"status-connector-c-ref-src",
        b'{"state":"RUNNING","trace":null,"worker_id":"127.0.0.1:28300","generation":3,"version":"4.3.0"}',
    )
    unassigned = TaskStatus(TASK, State.UNASSIGNED, HERE, generation=5)
    assert status_record(unassigned) == (
        b"status-task-c-ref-src-0",
        b'{"state":"UNASSIGNED","trace":null,"worker_id":"127.0.0.1:28300","generation":5,"version":null}',
    )
    assert topic_record(TopicUse("c-ref-src", "c-ref-t1"), 0, 1795253743680) == (
        b"status-topic-c-ref-t1:connector-c-ref-src",
        b'{"topic":{"name":"c-ref-t1","connector":"c-ref-src","task":0,"discoverTimestamp":1795253743680}}',
    )


@pytest.mark.parametrize("status", [connector(), connector(State.STOPPED, name="a-0:b"), task(), task(State.FAILED)])
def test_what_is_written_is_what_is_read(status):
    assert parse(*status_record(status)) == status


@pytest.mark.parametrize("what", ["c", "c-0", ConnectorTaskId("a-1", 12), TopicUse("c:connector-x", "t.1")])
def test_keys_name_what_they_are_about_and_tombstones_remove_it(what):
    assert parse(key_of(what), None) == Gone(what)


def test_records_of_workers_that_write_no_version_are_read():
    value = b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":7,"unknown":{}}'

    assert parse(b"status-task-c-1", value) == TaskStatus(ConnectorTaskId("c", 1), State.RUNNING, "w:1", None, None, 7)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff", b"{}"),
        (b"other", b"{}"),
        (b"status-connector-", b"{}"),
        (b"status-task-c", None),
        (b"status-task-c-x", None),
        (b"status-topic-t", None),
        (b"status-topic-:connector-c", None),
        (b"status-topic-t:connector-c", b"{}"),
        (b"status-connector-c", b"{"),
        (b"status-connector-c", b"[]"),
        (b"status-connector-c", b"[" * 100_000),
        (b"status-connector-c", b'{"state":"RUNNING"}'),
        (b"status-connector-c", b'{"state":"DANCING","worker_id":"w","generation":1}'),
        (b"status-connector-c", b'{"state":null,"worker_id":"w","generation":1}'),
        (b"status-connector-c", b'{"state":["RUNNING"],"worker_id":"w","generation":1}'),
        (b"status-connector-c", b'{"state":"RUNNING","worker_id":"w","generation":1,"trace":7}'),
    ],
)
def test_a_record_that_says_nothing_is_passed_over_with_a_warning(key, value, topic, caplog):
    with pytest.raises(UnusableRecordError):
        parse(key, value)
    topic.append(key or b"", value, 0)
    topic.append(*status_record(connector()))

    store, _ = started(topic)

    assert store.connector("c-ref-src") == connector()
    assert "of the status topic at 0-0: " in caplog.text


def test_a_trace_may_hold_anything_and_have_any_length():
    key, value = status_record(connector(State.FAILED, trace="\ud800\n\x00" + "x" * 3_000_000))

    read = parse(key, value)
    assert isinstance(read, ConnectorStatus)
    assert read.trace is not None
    assert read.trace.startswith("?\n\x00xxx")
    assert "2900003 more characters are in the worker's log" in read.trace
    assert len(value) < 200_000


# ---------------------------------------------------------------- what any store does
@pytest.fixture(params=["local", "topic"])
def any_store(request, topic):
    """A store of either kind; records that it has written are read when they are asked for."""
    if request.param == "local":
        yield LocalStatusStore()
        return
    store, log = started(topic)
    for name in ("put", "forget", "note_topics", "reset_topics"):
        method = getattr(store, name)

        def and_read(*args, method=method, **kwargs):
            method(*args, **kwargs)
            log.read_to_end(1)

        setattr(store, name, and_read)
    yield store


def test_states_are_kept_by_connector_and_task(any_store: StatusStore):
    told: list[str] = []
    any_store.listen(told.append)
    any_store.put(connector())
    for number in (10, 2, 0):
        any_store.put(task(task=ConnectorTaskId("c-ref-src", number)))
    any_store.put(task(task=ConnectorTaskId("other", 0)))

    assert any_store.connector("c-ref-src") == connector()
    assert [one.id.task for one in any_store.tasks("c-ref-src")] == [0, 2, 10]
    assert any_store.names() == {"c-ref-src", "other"}
    any_store.forget(ConnectorTaskId("c-ref-src", 2))
    any_store.forget(ConnectorTaskId("c-ref-src", 99))
    assert [one.id.task for one in any_store.tasks("c-ref-src")] == [0, 10]
    any_store.forget("c-ref-src")
    assert any_store.connector("c-ref-src") is None
    assert [one.id.task for one in any_store.tasks("c-ref-src")] == [0, 10]
    for number in (0, 10):
        any_store.forget(ConnectorTaskId("c-ref-src", number))
    assert any_store.names() == {"other"}
    assert told == ["c-ref-src"] * 4 + ["other"] + ["c-ref-src"] * 4


def test_topics_are_noted_until_they_are_reset(any_store: StatusStore):
    any_store.note_topics("a", ["t2", "t1"], 0)
    any_store.note_topics("a", ["t1"], 1)
    any_store.note_topics("b", ["t1"], 0)

    assert any_store.topics("a") == ["t1", "t2"]
    any_store.reset_topics("a")
    assert any_store.topics("a") == []
    assert any_store.topics("b") == ["t1"]
    any_store.note_topics("a", ["t2"], 0)
    assert any_store.topics("a") == ["t2"]


# ---------------------------------------------------------------- a cluster
def test_what_one_worker_says_all_come_to_know(topic):
    (here, _), (there, there_log) = started(topic), started(topic)

    here.put(connector())
    here.note_topics("c-ref-src", ["t"], 0)
    there_log.read_to_end(1)

    assert there.connector("c-ref-src") == connector()
    assert there.topics("c-ref-src") == ["t"]
    # Nothing counts before it was read back.
    assert here.connector("c-ref-src") is None


@pytest.mark.parametrize(
    ("known", "written"),
    [
        (None, True),
        (task(worker=HERE, generation=9), True),
        (task(worker=THERE, generation=5), True),
        (task(worker=THERE, generation=4), True),
        (task(worker=THERE, generation=6), False),
    ],
)
def test_a_safe_write_takes_nothing_back_that_another_worker_has_said_later(known, written, topic):
    if known is not None:
        topic.append(*status_record(known))
    store, log = started(topic)

    store.put(task(State.FAILED, generation=5), safe=True)
    log.read_to_end(1)

    assert (store.tasks("c-ref-src") == [task(State.FAILED, generation=5)]) is written
    store.put(task(State.FAILED, generation=5))
    log.read_to_end(1)
    assert store.tasks("c-ref-src") == [task(State.FAILED, generation=5)]


@pytest.mark.parametrize("unit", [task, connector])
@pytest.mark.parametrize(
    ("runs", "generation", "counts"),
    [(THERE, 4, False), (THERE, 5, False), (THERE, 6, True), (HERE, 5, True), (HERE, 6, True)],
)
def test_the_end_of_what_runs_elsewhere_by_now_is_passed_over(unit, runs, generation, counts, topic):
    topic.append(*status_record(unit(worker=runs, generation=5)))
    topic.append(*status_record(unit(State.UNASSIGNED, generation=generation)))

    store, _ = started(topic)

    shown = store.tasks("c-ref-src")[0] if unit is task else store.connector("c-ref-src")
    assert shown.state is (State.UNASSIGNED if counts else State.RUNNING)


# ---------------------------------------------------------------- writes that fail
PASSING = KafkaRetriableException("not now")


def test_a_write_that_failed_for_now_is_sent_again(topic):
    store, log = started(topic)
    log.failures = [PASSING, PASSING]

    store.put(task())
    log.send_again()
    log.send_again()
    log.read_to_end(1)

    assert store.tasks("c-ref-src") == [task()]


def test_a_write_is_not_sent_again_after_a_newer_one(topic):
    store, log = started(topic)
    log.failures = [PASSING]

    store.put(task(State.RESTARTING))
    store.put(task(State.RUNNING))
    log.send_again()
    log.read_to_end(1)

    assert store.tasks("c-ref-src") == [task(State.RUNNING)]


@pytest.mark.parametrize(("said", "shown"), [(None, HERE), (2, HERE), (3, HERE), (4, THERE)])
def test_a_write_is_sent_again_in_a_later_generation_unless_another_worker_has_said_something(said, shown, topic):
    (here, log), (there, _) = started(topic), started(topic)
    log.failures = [PASSING]

    here.put(task(generation=3))
    here.put(connector(generation=4))
    if said is not None:
        there.put(task(worker=THERE, generation=said))
    log.read_to_end(1)
    log.send_again()
    log.read_to_end(1)

    assert [one.worker_id for one in here.tasks("c-ref-src")] == [shown]


def test_a_worker_that_starts_knows_what_the_others_do_whatever_partition_it_reads_first():
    # Connectors are deleted and made again; a worker that starts reads each partition for itself.
    chance = random.Random(20)
    for _ in range(200):
        topic = MemoryTopic(5)
        store, log = started(topic)
        for _ in range(chance.randrange(2, 30)):
            name = chance.choice(["c", "d"])
            unit = chance.choice([name, *(ConnectorTaskId(name, number) for number in range(3))])
            if chance.random() < 0.3:
                store.forget(unit)
            elif isinstance(unit, str):
                store.put(connector(name=unit))
            else:
                store.put(task(task=unit))
            log.read_to_end(1)
        chance.shuffle(topic.partitions)
        other, _ = started(topic)
        for name in ("c", "d"):
            assert other.connector(name) == store.connector(name)
            assert other.tasks(name) == store.tasks(name)


def test_a_write_is_not_sent_again_after_another_worker_has_removed_it(topic):
    (here, log), (there, _) = started(topic), started(topic)
    log.failures = [PASSING]

    here.put(task())
    there.forget(TASK)
    log.read_to_end(1)
    log.send_again()

    assert topic.values() == {}


def test_a_write_is_sent_again_though_this_worker_had_removed_the_one_before(topic):
    store, log = started(topic)
    store.put(task())
    store.forget(TASK)
    log.failures = [PASSING]

    store.put(task(State.RUNNING))
    # Its own removal is read only now.
    log.read_to_end(1)
    log.send_again()
    log.read_to_end(1)

    assert store.tasks("c-ref-src") == [task(State.RUNNING)]


def test_a_safe_write_is_not_sent_again_when_another_worker_has_said_something_later(topic):
    (here, log), (there, _) = started(topic), started(topic)
    log.failures = [PASSING]

    here.put(task(State.FAILED, generation=3), safe=True)
    there.put(task(State.RUNNING, worker=THERE, generation=4))
    log.read_to_end(1)
    log.send_again()
    log.read_to_end(1)

    assert here.tasks("c-ref-src") == [task(State.RUNNING, worker=THERE, generation=4)]


def test_a_write_that_is_refused_for_good_is_an_error_in_the_log(topic, caplog):
    store, log = started(topic)
    log.failures = [KafkaException("no right to write")]

    store.put(task())

    assert "status-task-c-ref-src-0 is not shown to other workers: no right to write" in caplog.text
    assert log.later == []


# ---------------------------------------------------------------- topics in use
def test_a_topic_is_written_once_whatever_the_number_of_batches_and_workers(topic):
    (here, here_log), (there, there_log) = started(topic), started(topic)

    for _ in range(5):
        here.note_topics("c-ref-src", ["c-ref-t1"], 0)
    there_log.read_to_end(1)
    there.note_topics("c-ref-src", ["c-ref-t1"], 1)
    after_restart, _ = started(topic)
    after_restart.note_topics("c-ref-src", ["c-ref-t1"], 0)

    assert topic.keys() == ["status-topic-c-ref-t1:connector-c-ref-src"]
    here_log.read_to_end(1)
    assert here.topics("c-ref-src") == ["c-ref-t1"]


def test_a_topic_that_another_worker_has_reset_is_noted_again(topic):
    (here, here_log), (there, there_log) = started(topic), started(topic)
    here.note_topics("c", ["t1", "t2"], 0)
    there_log.read_to_end(1)

    there.reset_topics("c")
    here_log.read_to_end(1)
    assert here.topics("c") == []
    here.note_topics("c", ["t1"], 0)
    here_log.read_to_end(1)

    assert here.topics("c") == ["t1"]
    assert topic.values().keys() == {b"status-topic-t1:connector-c"}


def test_a_reset_that_failed_for_now_does_not_take_a_topic_that_came_later(topic):
    store, log = started(topic)
    store.note_topics("c", ["t"], 0)
    log.failures = [PASSING]

    store.reset_topics("c")
    store.note_topics("c", ["t"], 0)
    log.send_again()
    log.read_to_end(1)

    assert store.topics("c") == ["t"]


def test_a_stopped_store_says_nothing_more(topic, caplog):
    store, log = started(topic)
    store.stop()
    log.failures = [KafkaException("The log is closed")]

    store.put(task())

    assert topic.keys() == []
    assert "The log is closed" in caplog.text
