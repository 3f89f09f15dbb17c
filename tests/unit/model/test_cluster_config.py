"""The config topic, record by record: as workers of Java Kafka Connect 4.3 wrote it, and as compaction leaves it."""

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.model import ConnectorTaskId, TargetState
from penstock.model.cluster_config import (
    ClusterConfig,
    ConfigRecord,
    ConnectorChanged,
    LoggerLevelAsked,
    RecordSkipped,
    RestartAsked,
    SessionKeyChanged,
    TargetChanged,
    TasksCommitted,
    fold,
)

SOURCE = {"connector.class": "FileStreamSource", "tasks.max": "1", "topic": "t1", "name": "src"}
TASK = {**SOURCE, "task.class": "org.apache.kafka.connect.file.FileStreamSourceTask"}


def records(*pairs):
    """Records from key and JSON value; a value of bytes stays as it is."""
    return [
        ConfigRecord(offset, key, value if value is None or isinstance(value, bytes) else json.dumps(value).encode())
        for offset, (key, value) in enumerate(pairs)
    ]


CREATED = [
    ("connector-src", {"properties": SOURCE}),
    ("task-src-0", {"properties": TASK}),
    ("commit-src", {"tasks": 1}),
]


def test_the_life_of_a_connector():
    config, changes = fold(
        ClusterConfig(),
        records(
            ("session-key", {"key": "a2V5", "algorithm": "HmacSHA256", "creation-timestamp": 1795253699756}),
            *CREATED,
            ("tasks-fencing-src", {"task-count": 1}),
            ("target-state-src", {"state": "PAUSED", "state.v2": "PAUSED"}),
            ("commit-src", {"tasks": 0}),
            ("target-state-src", {"state": "PAUSED", "state.v2": "STOPPED"}),
        ),
    )

    assert config.offset == 8
    assert config.session_key is not None
    assert (config.session_key.key, config.session_key.algorithm) == (b"key", "HmacSHA256")
    assert "key'" not in repr(config.session_key)
    assert config.target("src") is TargetState.STOPPED
    assert config.connectors["src"].config == SOURCE
    assert config.connectors["src"].generation == 1
    assert config.task_ids("src") == ()
    assert config.fenced == {"src": 1}
    assert config.unfenced == {"src"}
    assert changes == [
        SessionKeyChanged(),
        ConnectorChanged("src", None, SOURCE),
        TasksCommitted("src"),
        TargetChanged("src", TargetState.PAUSED),
        TasksCommitted("src"),
        TargetChanged("src", TargetState.STOPPED),
    ]


def test_tasks_are_in_force_from_their_commit_on():
    before, _ = fold(ClusterConfig(), records(*CREATED[:2]))
    after, _ = fold(before, records(*CREATED)[2:])

    assert before.task_ids("src") == ()
    assert after.task_ids("src") == (ConnectorTaskId("src", 0),)
    assert after.connectors["src"].tasks == (TASK,)
    assert after.connectors["src"].applied == SOURCE


def test_a_name_may_end_in_a_number():
    config, _ = fold(
        ClusterConfig(),
        records(
            ("connector-a-0", {"properties": {"name": "a-0"}}),
            ("task-a-0-0", {"properties": {"n": "0"}}),
            ("commit-a-0", {"tasks": 1}),
        ),
    )
    assert config.connectors["a-0"].tasks == ({"n": "0"},)


def test_a_commit_without_all_of_its_tasks_leaves_none():
    config, changes = fold(
        ClusterConfig(), records(*CREATED, ("task-src-1", {"properties": {"n": "1"}}), ("commit-src", {"tasks": 2}))
    )
    assert config.connectors["src"].inconsistent
    assert config.task_ids("src") == ()
    assert changes[-1] == TasksCommitted("src")

    mended, _ = fold(config, records(*CREATED[1:]))
    assert not mended.connectors["src"].inconsistent
    assert mended.task_ids("src") == (ConnectorTaskId("src", 0),)


def test_a_commit_in_front_of_its_connector_as_compaction_leaves_it_gives_no_tasks():
    config, changes = fold(ClusterConfig(), records(*CREATED[1:], CREATED[0]))
    assert config.task_ids("src") == ()
    assert config.connectors["src"].applied is None
    assert changes == [ConnectorChanged("src", None, SOURCE)]


def test_deletion_takes_everything_with_it():
    config, changes = fold(
        ClusterConfig(), records(*CREATED, ("connector-src", None), ("target-state-src", None), *CREATED[1:])
    )
    assert not config.connectors
    assert not config.targets
    assert not config.uncommitted
    assert ConnectorChanged("src", SOURCE, None) in changes


def test_a_target_state_may_come_before_its_connector():
    config, _ = fold(ClusterConfig(), records(("target-state-src", {"state": "STOPPED"}), CREATED[0]))
    assert config.target("src") is TargetState.STOPPED


def test_requests_that_leave_no_state():
    config, changes = fold(
        ClusterConfig(),
        records(
            ("restart-connector-src", {"include-tasks": True, "only-failed": False}),
            ("restart-connector-src", {"include-tasks": "yes"}),
            ("logger-cluster-org.apache", {"level": "DEBUG"}),
        ),
    )
    assert changes == [
        RestartAsked("src", True, False),
        RestartAsked("src", False, False),
        LoggerLevelAsked("org.apache", "DEBUG"),
    ]
    assert config == ClusterConfig(offset=3)


def test_records_that_say_nothing_are_named_and_passed_over():
    bad = [
        ("mystery", {}),
        ("connector-src", b"{"),
        ("connector-src", {"properties": {"a": 1}}),
        ("connector-src", ["properties"]),
        ("task-src", {"properties": {}}),
        ("task-src-x", {"properties": {}}),
        ("commit-src", {"tasks": -1}),
        ("commit-src", {"tasks": True}),
        ("target-state-src", {"state": "DANCING"}),
        ("tasks-fencing-src", {}),
        ("session-key", {"key": "?", "algorithm": "HmacSHA256", "creation-timestamp": 1}),
        ("session-key", {}),
        ("logger-cluster-a", None),
    ]
    good, _ = fold(ClusterConfig(), records(*CREATED))

    config, changes = fold(good, records(*bad))

    assert len(changes) == len(bad)
    assert all(isinstance(one, RecordSkipped) and one.reason for one in changes)
    assert config.connectors == good.connectors
    assert config.targets == good.targets


_names = st.sampled_from(["a", "a-0", "b"])
_any_record = st.one_of(
    st.tuples(_names.map("connector-{}".format), st.sampled_from([None, {"properties": {"x": "1"}}])),
    st.tuples(
        st.builds("task-{}-{}".format, _names, st.integers(0, 2)), st.sampled_from([None, {"properties": {"t": "1"}}])
    ),
    st.tuples(_names.map("commit-{}".format), st.sampled_from([None, {"tasks": 0}, {"tasks": 1}, {"tasks": 3}])),
    st.tuples(
        _names.map("target-state-{}".format), st.sampled_from([None, {"state": "PAUSED"}, {"state.v2": "STOPPED"}])
    ),
    st.tuples(_names.map("tasks-fencing-{}".format), st.sampled_from([None, {"task-count": 2}])),
)


@examples(60)
@given(st.lists(_any_record, max_size=30), st.data())
def test_whatever_the_records_a_snapshot_holds_whole_sets_and_pieces_make_the_whole(pairs, data):
    all_records = records(*pairs)
    # What compaction may remove: any record that a later one of its key follows.
    later = {record.key: record.offset for record in all_records}
    kept = [one for one in all_records if one.offset == later[one.key] or data.draw(st.booleans())]

    whole, _ = fold(ClusterConfig(), kept)
    cut = data.draw(st.integers(0, len(kept)))
    pieces, _ = fold(fold(ClusterConfig(), kept[:cut])[0], kept[cut:])

    assert pieces == whole
    for name, connector in whole.connectors.items():
        assert connector.config is not None
        assert all(task is not None for task in connector.tasks)
        assert not (connector.inconsistent and connector.tasks)
        assert len(whole.task_ids(name)) == len(connector.tasks)
