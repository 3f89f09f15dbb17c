"""Records in the config topic that no worker of the group has written: broken, foreign, newer, forged."""

import json

import pytest
from testkit.simulated_cluster import SimulatedCluster
from tests.unit.herder.cluster.test_simulated_cluster import cluster, moved_since, tasks

from penstock.model import TargetState
from penstock.model.cluster_config import (
    ClusterConfig,
    ConfigRecord,
    connector_entries,
    fold,
    session_key_entries,
    task_entries,
)


def js(value):
    return json.dumps(value).encode()


BROKEN = [
    ("connector-x", b"{"),
    ("connector-x", js({"properties": {"a": 1}})),
    ("connector-x", js([])),
    ("task-x-0", js({"properties": "none"})),
    ("task-x-zero", js({"properties": {}})),
    ("commit-x", js({"tasks": -1})),
    ("commit-x", js({"tasks": 2.5})),
    ("target-state-x", js({"state": "DANCING"})),
    ("tasks-fencing-x", js({"task-count": "two"})),
    ("session-key", js({"key": "?", "algorithm": "HmacSHA256", "creation-timestamp": 1})),
    ("restart-connector-x", b"\xff\xfe"),
    ("logger-cluster-a", js({"level": 3})),
    ("target-state-x", b"[" * 100_000),
    ("task-x-0", b'{"properties": {"a": ' + b"9" * 5_000 + b"}}"),
]
#: Among them keys that begin as ours do, and name nothing.
FOREIGN = [
    ("orders", js({"amount": 5})),
    ("", b""),
    ("connect", None),
    ("connector-", js({"properties": {}})),
    ("commit-", js({"tasks": 0})),
    ("target-state-", js({"state": "PAUSED"})),
    ("restart-connector-", js({"include-tasks": True})),
]


@pytest.mark.parametrize("record", BROKEN + FOREIGN, ids=lambda record: record[0])
def test_a_record_that_says_nothing_stops_moves_and_loses_nothing(record):
    with cluster("a", "b", "c") as made:
        made.put("x", 3)
        made.put("y", 3)
        made.settle()
        mark, before = len(made.story), made.log.fold()
        made.log.append([record])
        made.loop.run_for(30)

        made.settle()
        after = made.log.fold()
        assert moved_since(made, mark) == set()
        assert (after.connectors, after.targets, after.session_key) == (
            before.connectors,
            before.targets,
            before.session_key,
        )
        # And the group goes on to serve.
        made.put("z", 2)
        made.settle()


def test_what_a_newer_version_adds_to_records_is_passed_over():
    with cluster("a", "b") as made:
        made.put("x", 2)
        made.settle()
        newer = [
            ("task-new-0", js({"properties": {"part": "0", "seed": ""}, "priority": 7})),
            ("connector-new", js({"properties": {"connector.class": "Simulated", "tasks.max": "1"}, "labels": ["a"]})),
            ("target-state-new", js({"state": "STARTED", "state.v2": "STARTED", "state.v3": "HIBERNATED"})),
            ("commit-new", js({"tasks": 1, "checksum": "abc"})),
            ("quota-new", js({"bytes": 1})),
        ]
        made.log.append(newer)
        made.loop.run_for(30)

        assert {"x", "new", *tasks("x", 0, 1), *tasks("new", 0)} == made.configured()
        made.until(made.stable)


def test_a_connector_without_a_known_state_is_not_taken_for_a_stopped_one():
    config, changes = fold(
        ClusterConfig(),
        [
            ConfigRecord(number, key, value)
            for number, (key, value) in enumerate(
                [*connector_entries("x", {"a": "b"}), ("target-state-x", js({"state": "HIBERNATED"}))]
            )
        ],
    )

    assert config.target("x") is TargetState.STARTED
    assert "HIBERNATED" in str(changes[-1])


def test_task_configurations_that_its_connector_has_not_given_are_asked_for_again():
    with cluster("a", "b") as made:
        made.put("x", 2, seed="right")
        made.settle()
        right = made.log.fold().connectors["x"].tasks
        # As a worker that was frozen while it had the connector, or somebody who sends again what he has overheard.
        made.log.append(task_entries("x", [{"part": "0", "seed": "forged"}, {"part": "1", "seed": "forged"}]))
        assert made.log.fold().connectors["x"].tasks != right

        made.until(lambda: made.log.fold().connectors["x"].tasks == right)

        def seeds():
            running = {unit: config for node in made.present() for unit, config in node.worker.running.items()}
            return {running.get(task, {}).get("seed") for task in tasks("x", 0, 1)}

        made.until(lambda: seeds() == {"right"})
        made.settle()


def test_half_a_set_of_task_configurations_starts_no_wrong_task_and_is_made_whole():
    with cluster("a", "b") as made:
        made.put("x", 2)
        made.settle()
        # The commit says three, and only two are there: what a crash between two writes may leave.
        made.log.append([("commit-x", js({"tasks": 3}))])
        assert made.log.fold().connectors["x"].tasks == ()

        made.until(lambda: len(made.log.fold().connectors["x"].tasks) == 2)
        made.settle()


def test_a_worker_with_an_old_clock_that_leads_keeps_no_key_for_ever():
    with SimulatedClosing() as made:
        key = made.log.fold().session_key
        assert key is not None
        # As written by a leader whose clock is an hour ahead.
        ahead = type(key)(key.key, key.algorithm, key.created_ms + 3_600_000)
        made.log.append(session_key_entries(ahead))
        made.loop.run_for(2 * 3_600 + 60)

        assert made.log.fold().session_key != ahead


class SimulatedClosing:
    """A group of two that is settled, and closed in the end."""

    def __enter__(self):
        self._made = SimulatedCluster(0)
        for name in ("a", "b"):
            self._made.add(name)
        self._made.settle()
        self._made.loop.run_for(1)
        return self._made

    def __exit__(self, *_):
        self._made.close()
