"""Configurations, in a topic and on one worker: the same records, the same snapshots, the same order of events."""

import pytest
from testkit.doubles.memory_log import MemoryLog, MemoryTopic

from penstock.errors import (
    ConnectException,
    DataException,
    KafkaException,
    KafkaRetriableException,
    ProducerFencedException,
)
from penstock.model import TargetState
from penstock.model.cluster_config import (
    ConnectorChanged,
    RestartAsked,
    TargetChanged,
    TasksCommitted,
    connector_entries,
    deletion_entries,
    restart_entries,
    target_entries,
    task_entries,
)
from penstock.stores.config import ConfigTopicStore, FileConnectorStore, LocalConfigStore, StoredConnector

CONFIG = {"name": "c", "connector.class": "FileStreamSource", "topic": "t"}
TASK = {**CONFIG, "task.class": "org.apache.kafka.connect.file.FileStreamSourceTask"}


class Listener:
    """Keeps what it is told."""

    def __init__(self):
        self.changes = []
        self.offsets = []

    def __call__(self, config, changes):
        self.offsets.append(config.offset)
        self.changes += changes


@pytest.fixture
def topic():
    return MemoryTopic()


@pytest.fixture
def listener():
    return Listener()


def worker(topic, listener=None, *, transactional=False):
    log = MemoryLog(topic)
    store = ConfigTopicStore(log, transactional=transactional)
    store.start(listener or Listener())
    return store, log


@pytest.fixture(params=["local", "topic"])
def any_store(request, topic, listener):
    if request.param == "topic":
        return worker(topic, listener)[0]
    store = LocalConfigStore()
    store.start(listener)
    return store


# ---------------------------------------------------------------- what any store does
def test_a_write_is_in_the_snapshot_and_was_told_when_it_is_answered(any_store, listener):
    written = any_store.write([*connector_entries("c", CONFIG, TargetState.PAUSED), *task_entries("c", [TASK])])

    assert written is any_store.snapshot
    assert written is any_store.refresh(1)
    assert written.connectors["c"].config == CONFIG
    assert written.connectors["c"].tasks == (TASK,)
    assert written.target("c") is TargetState.PAUSED
    assert written.offset == listener.offsets[-1] == 4
    assert listener.changes == [
        TargetChanged("c", TargetState.PAUSED),
        ConnectorChanged("c", None, CONFIG),
        TasksCommitted("c"),
    ]
    any_store.write(restart_entries("c", include_tasks=True, only_failed=False))
    assert listener.changes[3:] == [RestartAsked("c", True, False)]
    assert any_store.snapshot.offset == 5


def test_a_deletion_leaves_nothing(any_store):
    any_store.write(connector_entries("c", CONFIG, TargetState.STOPPED))
    any_store.write(task_entries("c", [TASK, TASK]))

    after = any_store.write(deletion_entries("c", any_store.snapshot))

    assert (dict(after.connectors), dict(after.targets), dict(after.recorded)) == ({}, {}, {})


def test_nobody_but_a_leader_needs_a_claim(any_store):
    any_store.claim()
    any_store.write(connector_entries("c", CONFIG), leading=True)

    assert "c" in any_store.snapshot.connectors


def test_writing_nothing_is_nothing(any_store, listener):
    before = any_store.snapshot.offset
    assert any_store.write([]).offset == before


# ---------------------------------------------------------------- a cluster
def test_workers_see_each_others_writes_in_one_order(topic):
    told = Listener()
    here, _ = worker(topic)
    there, _ = worker(topic, told)
    here.write(connector_entries("c", CONFIG))
    there.write(target_entries("c", TargetState.PAUSED))
    here.write(task_entries("c", [TASK]))

    assert there.refresh(1) == here.refresh(1)
    assert [type(change) for change in told.changes] == [ConnectorChanged, TargetChanged, TasksCommitted]


def test_what_was_there_at_the_start_is_not_told(topic, listener):
    first, _ = worker(topic)
    first.write([*connector_entries("c", CONFIG), *restart_entries("c", include_tasks=True, only_failed=True)])

    late, _ = worker(topic, listener)

    assert late.snapshot.connectors.keys() == {"c"}
    assert listener.changes == []


def test_the_record_that_makes_others_count_is_written_after_them(topic):
    store, log = worker(topic)
    store.write(connector_entries("c", CONFIG))
    store.write(task_entries("c", [{**TASK, "old": "1"}, {**TASK, "old": "2"}]))
    parts = []
    write = log.write

    def spied(entries, *args, **kwargs):
        parts.append([key for key, _ in entries])
        if len(parts) == 2:
            raise KafkaRetriableException("the broker went away")
        write(entries, *args, **kwargs)

    log.write = spied
    with pytest.raises(KafkaRetriableException):
        store.write(task_entries("c", [{**TASK, "new": "1"}, {**TASK, "new": "2"}]))

    assert parts == [[b"task-c-0", b"task-c-1"], [b"commit-c"]]
    # The old set counts, on every worker, until the new one is committed.
    assert [task["old"] for task in store.snapshot.connectors["c"].tasks] == ["1", "2"]
    fresh, _ = worker(topic)
    assert [task["old"] for task in fresh.snapshot.connectors["c"].tasks] == ["1", "2"]


def test_a_write_and_its_parts_share_one_time_limit(topic, monkeypatch):
    now = [100.0]
    log, limits = MemoryLog(topic), []
    store = ConfigTopicStore(log, transactional=False, clock=lambda: now[0])
    store.start(Listener())

    def slow(entries, timeout_s, *, transactional=False):
        limits.append(timeout_s)
        now[0] += 4

    monkeypatch.setattr(log, "write", slow)
    store.write(task_entries("c", [TASK]), timeout_s=5)

    assert limits == [5, 1]


def test_what_a_leader_writes_is_one_transaction_that_only_the_leader_may_write(topic):
    (old, log), (new, _) = worker(topic, transactional=True), worker(topic, transactional=True)
    calls = []
    write = log.write

    def spied(entries, *args, **kwargs):
        calls.append((len(entries), kwargs.get("transactional", False)))
        write(entries, *args, **kwargs)

    log.write = spied
    with pytest.raises(ProducerFencedException):
        old.write(connector_entries("c", CONFIG), leading=True)
    old.claim()
    old.write([*connector_entries("c", CONFIG), *task_entries("c", [TASK])], leading=True)
    new.claim()
    with pytest.raises(ProducerFencedException):
        old.write(task_entries("c", []), leading=True)
    old.write(target_entries("c", TargetState.PAUSED))
    old.claim()
    old.write(task_entries("c", []), leading=True)

    assert calls == [(1, True), (3, True), (1, True), (1, False), (1, True)]
    assert new.refresh(1).target("c") is TargetState.PAUSED


def test_after_a_compaction_no_task_is_without_a_configuration(topic):
    store, _ = worker(topic)
    store.write(connector_entries("c", CONFIG))
    store.write(task_entries("c", [TASK]))
    store.write(connector_entries("c", {**CONFIG, "topic": "u"}))
    topic.compact()
    assert topic.keys() == ["task-c-0", "commit-c", "connector-c"]

    fresh, _ = worker(topic)

    # Whether the tasks are this connector's or a deleted one's of its name cannot be known: its owner writes them anew.
    assert fresh.snapshot.connectors["c"].tasks == ()
    assert fresh.snapshot.connectors["c"].applied is None
    assert fresh.write(task_entries("c", [TASK])).connectors["c"].tasks == (TASK,)


def test_a_new_connector_never_has_the_tasks_of_a_deleted_one_of_its_name(topic):
    # As a Java worker leaves it: the tombstone is compacted away, the task records are there.
    store, _ = worker(topic)
    store.write(connector_entries("c", CONFIG))
    store.write(task_entries("c", [{**TASK, "old": "1"}] * 2))
    store.write([("connector-c", None), ("target-state-c", None)])
    topic.compact()
    fresh, _ = worker(topic)

    assert fresh.write(connector_entries("c", CONFIG)).connectors["c"].tasks == ()
    assert fresh.write(task_entries("c", [TASK])).connectors["c"].tasks == (TASK,)
    assert worker(topic)[0].snapshot == fresh.snapshot
    # And its deletion takes what was left behind too.
    assert ("task-c-1", None) in deletion_entries("c", fresh.snapshot)


def test_records_that_say_nothing_are_passed_over_with_a_warning(topic, caplog):
    for key, value in ((b"connector-c", b"{"), (b"\xff\xfe", b"{}"), (b"other", None)):
        topic.append(key, value)
    topic.append(b"connector-d", b'{"properties":{"name":"d"}}')

    store, _ = worker(topic)

    assert store.snapshot.connectors.keys() == {"d"}
    assert "Ignoring the record connector-c of the config topic at offset 0: its value is no JSON" in caplog.text
    assert store.snapshot.offset == 4


def test_a_key_that_is_no_unicode_is_refused(topic):
    store, _ = worker(topic)

    with pytest.raises(DataException, match="its key is no valid Unicode"):
        store.write([("connector-\ud800", b"{}")])


def test_a_stopped_store_writes_nothing(topic):
    store, _ = worker(topic)
    store.stop()

    with pytest.raises(KafkaException, match="closed"):
        store.write(connector_entries("c", CONFIG))
    assert topic.keys() == []


# ---------------------------------------------------------------- one worker and its file
@pytest.fixture
def file(tmp_path):
    store = FileConnectorStore(tmp_path / "connectors.json")
    store.start()
    yield store
    store.stop()


def local(file, **options):
    store = LocalConfigStore(file, **options)
    store.start(Listener())
    return store


def test_connectors_and_target_states_outlive_the_worker_and_tasks_do_not(file):
    store = local(file)
    store.write(connector_entries("c", {**CONFIG, "gone": None}, TargetState.STOPPED))
    store.write(task_entries("c", [TASK]))
    store.write(connector_entries("d", {"name": "d"}))
    store.write(target_entries("d", TargetState.PAUSED))
    store.write(connector_entries("e", {"name": "e"}))
    store.write(deletion_entries("e", store.snapshot))

    assert file.connectors() == {
        "c": StoredConnector(CONFIG, TargetState.STOPPED),
        "d": StoredConnector({"name": "d"}, TargetState.PAUSED),
    }
    after = local(file).snapshot
    assert after.connectors["c"].config == CONFIG
    assert after.connectors["c"].tasks == ()
    assert after.targets == {"c": TargetState.STOPPED, "d": TargetState.PAUSED}


def test_what_the_disk_refuses_has_not_happened(file, monkeypatch):
    told = Listener()
    store = LocalConfigStore(file)
    store.start(told)
    store.write(connector_entries("c", CONFIG))
    before = store.snapshot

    def refuse(name, connector):
        raise ConnectException("the disk is full")

    monkeypatch.setattr(file, "put", refuse)
    with pytest.raises(ConnectException, match="disk is full"):
        store.write(target_entries("c", TargetState.PAUSED))

    assert store.snapshot is before
    assert len(told.changes) == 1


def test_a_connector_of_the_command_line_is_not_stored_and_what_was_stored_goes_when_it_is_written(file):
    file.put("c", StoredConnector({"name": "c", "old": "1"}, TargetState.PAUSED))
    store = local(file, except_for=["c"])
    assert store.snapshot.connectors == {}

    store.in_memory("c")
    # Its validation may fail; what is stored is there until it is written.
    assert "c" in file.connectors()
    store.write(connector_entries("c", CONFIG))
    store.write(target_entries("c", TargetState.STOPPED))

    assert file.connectors() == {}
    assert store.snapshot.target("c") is TargetState.STOPPED
    # Deleted, it is not the one of the command line any more.
    store.write(deletion_entries("c", store.snapshot))
    store.write(connector_entries("c", CONFIG))
    assert file.connectors() == {"c": StoredConnector(CONFIG)}


def test_what_was_stored_meanwhile_under_a_name_of_the_command_line_goes(file):
    store = local(file)
    store.write(connector_entries("c", CONFIG))

    store.in_memory("c")
    store.write(connector_entries("c", CONFIG))

    assert file.connectors() == {}


def test_a_stored_connector_with_text_that_is_no_unicode_stays_in_the_file(file, caplog):
    file.put("bad", StoredConnector({"k": "\ud800"}))
    file.put("good", StoredConnector(CONFIG))

    store = local(file)

    assert store.snapshot.connectors.keys() == {"good"}
    assert "stored connector 'bad' does not come back" in caplog.text
    assert "bad" in file.connectors()
