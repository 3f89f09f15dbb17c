"""The internal topics of a Java worker, record by record: read, and written again with the same bytes."""

import json
from pathlib import Path

import pytest
from testkit.doubles.memory_log import MemoryLog, MemoryTopic

from penstock.model import ConnectorStatus, ConnectorTaskId, State, TargetState, TaskStatus
from penstock.model.cluster_config import (
    ClusterConfig,
    ConfigRecord,
    LoggerLevelAsked,
    RecordSkipped,
    RestartAsked,
    connector_entries,
    deletion_entries,
    fencing_entries,
    fold,
    logger_entries,
    restart_entries,
    session_key_entries,
    target_entries,
    task_entries,
)
from penstock.stores.offsets import OffsetTopicStore, connector_offsets, key_bytes, parse_key, parse_value, value_bytes
from penstock.stores.status import Gone, StatusTopicStore, TopicUse, key_of, parse, status_record, topic_record

FILE = Path(__file__).parents[2] / "data/cluster/topics.jsonl"
RECORDS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def records(topic):
    """Offset, key and value of the records of a topic."""
    return [
        (one["offset"], one["key"], None if one["value"] is None else one["value"].encode())
        for one in RECORDS
        if one["topic"] == topic
    ]


def written_again(key, value, config):
    """What we write to say the same."""
    body = {} if value is None else json.loads(value)
    kinds = {
        "target-state-": lambda name: target_entries(name, TargetState(body["state.v2"])),
        "connector-": lambda name: connector_entries(name, body["properties"]),
        "task-": lambda name: task_entries(name.rpartition("-")[0], [body["properties"]] * 2)[int(name[-1]) :],
        "commit-": lambda name: task_entries(name, [{}] * body["tasks"])[-1:],
        "restart-connector-": lambda name: restart_entries(
            name, include_tasks=body["include-tasks"], only_failed=body["only-failed"]
        ),
        "tasks-fencing-": lambda name: fencing_entries(name, body["task-count"]),
        "session-key": lambda name: session_key_entries(config.session_key),
        "logger-cluster-": lambda name: logger_entries(name, body["level"]),
    }
    prefix = next(prefix for prefix in kinds if key.startswith(prefix))
    if value is None:
        return next(entry for entry in deletion_entries(key.removeprefix(prefix), config) if entry[0] == key)
    return kinds[prefix](key.removeprefix(prefix))[0]


def test_every_record_of_the_config_topic_is_written_again_with_its_bytes():
    config = ClusterConfig()
    kinds = set()
    for offset, key, value in records("config"):
        config, changes = fold(config, [ConfigRecord(offset, key, value)])
        assert not any(isinstance(change, RecordSkipped) for change in changes)
        assert written_again(key, value, config) == (key, value)
        kinds.add((key.partition("-c-ref")[0].partition("-org")[0], value is None))

    # None of the kinds is missing in the recording.
    assert {kind for kind, gone in kinds if not gone} == {
        *("session-key", "connector", "task", "commit", "tasks-fencing", "target-state", "restart-connector"),
        "logger-cluster",
    }
    assert {kind for kind, gone in kinds if gone} == {"connector", "target-state"}


def test_the_config_topic_says_what_the_worker_was_asked_for():
    config, changes = fold(ClusterConfig(), [ConfigRecord(*one) for one in records("config")])

    assert config.connectors.keys() == {"c-ref-src", "c-ref-sink"}
    assert config.target("c-ref-src") is TargetState.STOPPED
    assert config.task_ids("c-ref-src") == ()
    assert config.task_ids("c-ref-sink") == (ConnectorTaskId("c-ref-sink", 0), ConnectorTaskId("c-ref-sink", 1))
    assert config.connectors["c-ref-sink"].config["odd"] == 'é € \U0001d11e / " \\ \t \x01\x1f\x7f\u2028'
    assert config.fenced == {"c-ref-src": 0}
    assert config.session_key is not None
    # What the Java worker has left of a deleted connector, ours remove.
    assert config.recorded["c-ref-bad"] == {0, 1}
    assert RestartAsked("c-ref-sink", True, False) in changes
    assert LoggerLevelAsked("org.apache.kafka.connect.runtime.WorkerSinkTask", "DEBUG") in changes


def test_every_record_of_the_offsets_topic_is_written_again_with_its_bytes():
    for _, key, value in records("offset"):
        parsed = parse_key(key.encode())
        assert parsed is not None
        assert key_bytes(*parsed) == key.encode()
        assert value_bytes(parse_value(value)) == value


@pytest.mark.parametrize("until", [1, 2, 3, 4])
def test_the_offsets_topic_says_where_the_source_is(until):
    topic = MemoryTopic(25)
    for _, key, value in records("offset")[:until]:
        topic.append(key.encode(), value)
    store = OffsetTopicStore(MemoryLog(topic), "c-ref-offsets")
    store.start()

    position = [14, 4, 14, None][until - 1]
    expected = [] if position is None else [({"filename": "in.txt"}, {"position": position})]
    assert connector_offsets(store, "c-ref-src") == expected


def test_every_record_of_the_status_topic_is_written_again_with_its_bytes():
    states = set()
    for _, key, value in records("status"):
        said = parse(key.encode(), value)
        again: tuple[bytes, bytes | None]
        match said:
            case Gone(of):
                again = key_of(of), None
            case TopicUse():
                body = json.loads(value)["topic"]
                again = topic_record(said, body["task"], body["discoverTimestamp"])
            case ConnectorStatus() | TaskStatus():
                states.add(said.state)
                again = status_record(said)
        assert again == (key.encode(), value)

    assert states == set(State)


def test_the_status_topic_says_what_was_last_said():
    topic = MemoryTopic(5)
    for _, key, value in records("status"):
        topic.append(key.encode(), value)
    store = StatusTopicStore(MemoryLog(topic))
    store.start()

    # The worker was stopped in the end. That its sink's tasks ended came in a later generation than that they run.
    assert store.names() == {"c-ref-src", "c-ref-sink"}
    assert [one.state for one in store.tasks("c-ref-sink")] == [State.UNASSIGNED] * 2
    assert store.topics("c-ref-sink") == ["c-ref-t1"]
    assert store.topics("c-ref-src") == []
