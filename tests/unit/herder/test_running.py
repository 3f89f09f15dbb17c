"""What is to run, out of what is configured."""

import json

import pytest

from penstock.herder.running import AssignedConnector, AssignedTask, spec_of
from penstock.model import ConnectorTaskId, TargetState
from penstock.model.cluster_config import (
    ClusterConfig,
    ConfigRecord,
    connector_entries,
    fold,
    target_entries,
    task_entries,
)
from penstock.model.states import all_units

A = {"name": "a", "connector.class": "X"}
T0, T1 = ConnectorTaskId("a", 0), ConnectorTaskId("a", 1)


def folded(*entries):
    records = [ConfigRecord(offset, key, value) for offset, (key, value) in enumerate(entries)]
    config, _ = fold(ClusterConfig(), records)
    return config


def configured(*more):
    return folded(*connector_entries("a", A), *task_entries("a", [{"n": "0"}, {"n": "1"}]), *more)


def test_connectors_and_tasks_have_their_settings():
    config = configured()
    assert spec_of(config, "a", 0) == AssignedConnector(A)
    assert spec_of(config, T1, 0) == AssignedTask({"n": "1"}, A)
    assert list(all_units(config.task_counts)) == ["a", T0, T1]


@pytest.mark.parametrize("unit", ["b", ConnectorTaskId("b", 0), ConnectorTaskId("a", 2)])
def test_what_is_not_configured_is_not_to_run(unit):
    assert spec_of(configured(), unit, 0) is None


def test_a_stopped_connector_has_no_tasks_and_a_paused_one_keeps_them():
    stopped = configured(*target_entries("a", TargetState.STOPPED))
    assert spec_of(stopped, T0, 0) is None
    assert spec_of(stopped, "a", 0) == AssignedConnector(A)
    assert spec_of(configured(*target_entries("a", TargetState.PAUSED)), T0, 0) == spec_of(configured(), T0, 0)


def test_another_turn_asks_for_another_instance():
    config = configured()
    assert spec_of(config, "a", 1) != spec_of(config, "a", 0)
    assert spec_of(config, T0, 1) != spec_of(config, T0, 0)


def test_only_tasks_whose_settings_changed_are_others():
    before, after = configured(), configured(*task_entries("a", [{"n": "0"}, {"n": "9"}]))
    assert spec_of(after, T0, 0) == spec_of(before, T0, 0)
    assert spec_of(after, T1, 0) != spec_of(before, T1, 0)


def test_more_tasks_leave_those_that_were_there_alone():
    before, after = configured(), configured(*task_entries("a", [{"n": "0"}, {"n": "1"}, {"n": "2"}]))
    assert spec_of(after, T0, 0) == spec_of(before, T0, 0)


def test_settings_of_the_connector_count_for_tasks_from_the_next_commit_on():
    other = {**A, "value.converter": "Y"}
    before, changed = configured(), configured(*connector_entries("a", other))
    assert spec_of(changed, T0, 0) == spec_of(before, T0, 0)
    assert spec_of(changed, "a", 0) != spec_of(before, "a", 0)
    committed = configured(*connector_entries("a", other), *task_entries("a", [{"n": "0"}, {"n": "1"}]))
    assert spec_of(committed, T0, 0) == AssignedTask({"n": "0"}, other)


def test_where_commits_fence_every_commit_makes_other_tasks():
    before, after = configured(), configured(*task_entries("a", [{"n": "0"}, {"n": "1"}]))
    assert spec_of(after, T0, 0) == spec_of(before, T0, 0)
    assert spec_of(after, T0, 0, fenced=True) != spec_of(before, T0, 0, fenced=True)


def test_a_connector_whose_task_configurations_are_not_whole_has_no_tasks():
    broken = configured(("commit-a", json.dumps({"tasks": 3}).encode()))
    assert list(all_units(broken.task_counts)) == ["a"]
    assert spec_of(broken, T0, 0) is None
