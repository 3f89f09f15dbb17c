"""Records of the config topic: in Kafka Connect's bytes, and read back as what they were made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.errors import DataException
from penstock.model import ConnectorTaskId, TargetState
from penstock.model.cluster_config import (
    ClusterConfig,
    ConfigRecord,
    SessionKey,
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

CONFIG = {
    "connector.class": "FileStreamSource",
    "tasks.max": "1",
    "file": "/data/in.txt",
    "topic": "c-ref-t1",
    "name": "c-ref-src",
}


NOTHING = ClusterConfig()


def folded(*entries, before=NOTHING):
    start = max(before.offset, 0)
    return fold(before, [ConfigRecord(start + i, key, value) for i, (key, value) in enumerate(entries)])[0]


def test_a_connector_has_the_bytes_that_java_writes():
    assert connector_entries("c-ref-src", CONFIG) == [
        (
            "connector-c-ref-src",
            b'{"properties":{"connector.class":"FileStreamSource","tasks.max":"1","file":"/data/in.txt",'
            b'"topic":"c-ref-t1","name":"c-ref-src"}}',
        )
    ]


def test_the_state_to_begin_in_stands_in_front_of_the_connector():
    keys = [key for key, _ in connector_entries("c", CONFIG, TargetState.PAUSED)]

    assert keys == ["target-state-c", "connector-c"]


@pytest.mark.parametrize(
    ("target", "value"),
    [
        (TargetState.STARTED, b'{"state":"STARTED","state.v2":"STARTED"}'),
        (TargetState.PAUSED, b'{"state":"PAUSED","state.v2":"PAUSED"}'),
        (TargetState.STOPPED, b'{"state":"PAUSED","state.v2":"STOPPED"}'),
    ],
)
def test_a_target_state_has_a_field_for_old_workers(target, value):
    assert target_entries("c-ref-sink", target) == [("target-state-c-ref-sink", value)]


def test_task_configurations_come_with_their_commit():
    assert task_entries("a-b", [{"task.class": "x"}, {}]) == [
        ("task-a-b-0", b'{"properties":{"task.class":"x"}}'),
        ("task-a-b-1", b'{"properties":{}}'),
        ("commit-a-b", b'{"tasks":2}'),
    ]
    assert task_entries("a-b", []) == [("commit-a-b", b'{"tasks":0}')]


def test_the_other_records_have_the_bytes_that_java_writes():
    key = SessionKey(b"\xca\x0a^\x5f", "HmacSHA256", 1795253699756)

    assert session_key_entries(key) == [
        ("session-key", b'{"key":"ygpeXw==","algorithm":"HmacSHA256","creation-timestamp":1795253699756}')
    ]
    assert fencing_entries("c-ref-src", 1) == [("tasks-fencing-c-ref-src", b'{"task-count":1}')]
    assert restart_entries("c-ref-sink", include_tasks=True, only_failed=False) == [
        ("restart-connector-c-ref-sink", b'{"include-tasks":true,"only-failed":false}')
    ]
    assert logger_entries("org.apache.kafka.connect.runtime.WorkerSinkTask", "DEBUG") == [
        ("logger-cluster-org.apache.kafka.connect.runtime.WorkerSinkTask", b'{"level":"DEBUG"}')
    ]


def test_texts_are_escaped_as_jackson_does():
    ((_, value),) = connector_entries("c", {"k": 'é € 𝄞 / " \\ \b\f\n\r\t \x00\x1f\x7f\u2028'})

    # Non-ASCII stays as it is unless it takes two characters in Java; control characters have upper-case digits, and
    # neither / nor DEL is escaped.
    assert value == (
        '{"properties":{"k":"é € \\uD834\\uDD1E / \\" \\\\ \\b\\f\\n\\r\\t \\u0000\\u001F\x7f\u2028"}}'.encode()
    )


@pytest.mark.parametrize(
    "made", [lambda: connector_entries("c", {"k": "\ud800"}), lambda: connector_entries("\ud800", {})]
)
def test_a_text_that_is_no_unicode_is_refused_with_the_records_key(made):
    with pytest.raises(DataException, match=r"record 'connector-.*no valid Unicode"):
        made()


def test_a_deletion_takes_everything_that_the_topic_has_of_the_connector():
    # Three tasks, then one, then none because it was stopped: their records are still there.
    config = folded(
        *connector_entries("c", CONFIG, TargetState.STARTED),
        *task_entries("c", [{}, {}, {}]),
        *fencing_entries("c", 3),
        *task_entries("c", [{}]),
        *task_entries("c", []),
        *connector_entries("other", CONFIG),
        *task_entries("other", [{}]),
    )

    deletion = deletion_entries("c", config)

    assert deletion == [
        (key, None) for key in ("connector-c", "target-state-c", "task-c-0", "task-c-1", "task-c-2", "commit-c")
    ]
    after = folded(*deletion, before=config)
    assert set(after.connectors) == {"other"}
    assert "c" not in after.targets
    assert "c" not in after.recorded
    # How many producers there may be stays known until they were fenced.
    assert after.fenced == {"c": 3}


def test_a_deletion_takes_what_a_java_worker_has_left_behind_under_the_name():
    left = folded(
        *task_entries("c", [{"old": "1"}, {"old": "2"}]),
        *connector_entries("c", CONFIG),
        *task_entries("c", [{"new": "1"}]),
    )

    assert ("task-c-1", None) in deletion_entries("c", left)


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NAMES = TEXT.filter(bool)
PROPERTIES = st.dictionaries(TEXT, st.none() | TEXT, max_size=4)


@examples(30)
@given(NAMES, PROPERTIES, st.none() | st.sampled_from(TargetState), st.lists(PROPERTIES, max_size=3))
def test_what_is_written_is_what_is_read(name, config, target, tasks):
    found = folded(*connector_entries(name, config, target), *task_entries(name, tasks))

    assert found.connectors[name].config == config
    assert found.target(name) is (target or TargetState.STARTED)
    assert list(found.connectors[name].tasks) == tasks
    assert found.task_ids(name) == tuple(ConnectorTaskId(name, number) for number in range(len(tasks)))


@examples(30)
@given(st.binary(max_size=40), TEXT, st.integers(0, 2**62))
def test_a_session_key_is_read_as_it_was(key, algorithm, created_ms):
    before = SessionKey(key, algorithm, created_ms)

    assert folded(*session_key_entries(before)).session_key == before
