"""The rules by which topics are created."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigException
from penstock.settings import SOURCE
from penstock.settings.topics import parse_topic_creation, topic_creation_definition, uses_topic_creation

DEFAULTS = {"topic.creation.default.replication.factor": "3", "topic.creation.default.partitions": "-1"}
GROUPS = {
    **DEFAULTS,
    "topic.creation.groups": "logs, tables, default",
    "topic.creation.default.include": "(ignored",
    "topic.creation.default.cleanup.policy": "delete",
    "topic.creation.logs.include": "log-.*, audit",
    "topic.creation.logs.exclude": r".*-\p{Digit}+",
    "topic.creation.logs.partitions": "8",
    "topic.creation.logs.retention.ms": "1000",
    "topic.creation.tables.include": ".*",
    "topic.creation.tables.exclude": "log.*",
    "topic.creation.tables.replication.factor": "1",
}


@pytest.mark.parametrize(
    ("topic", "group"),
    [("log-a", "logs"), ("audit", "logs"), ("log-1", "default"), ("audit2", "tables"), ("orders", "tables")],
)
def test_the_first_group_that_takes_a_topic_wins(topic: str, group: str) -> None:
    assert parse_topic_creation(GROUPS).group_for(topic).name == group


def test_groups_fall_back_to_the_default_groups_numbers_and_keep_their_topic_settings() -> None:
    creation = parse_topic_creation(GROUPS)
    assert [group.name for group in creation.groups] == ["logs", "tables", "default"]
    logs, tables, default = creation.groups
    assert (logs.partitions, logs.replication_factor, logs.configs) == (8, 3, {"retention.ms": "1000"})
    assert (tables.partitions, tables.replication_factor, tables.configs) == (-1, 1, {})
    assert (default.partitions, default.replication_factor) == (-1, 3)
    assert default.configs == {"cleanup.policy": "delete"}


def test_a_group_without_patterns_takes_nothing() -> None:
    creation = parse_topic_creation({**DEFAULTS, "topic.creation.groups": "g"})
    assert creation.group_for("anything").name == "default"
    assert not creation.group("g").matches("")


def test_a_group_that_is_not_there_is_not_found() -> None:
    with pytest.raises(KeyError):
        parse_topic_creation(DEFAULTS).group("gone")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topic.creation.default.partitions": "0"}, "configuration partitions: Number of partitions must be positive"),
        ({"topic.creation.default.partitions": None}, "null for configuration partitions: Value must be non-null"),
        (
            {"topic.creation.default.replication.factor": "-2"},
            "replication.factor: Replication factor must be positive",
        ),
        (
            {"topic.creation.default.replication.factor": "x"},
            "configuration topic.creation.default.replication.factor: Not a number of type SHORT",
        ),
        ({"topic.creation.groups": "g", "topic.creation.g.partitions": "0"}, "configuration partitions: Number of"),
        (
            {"topic.creation.groups": "g", "topic.creation.g.include": "a,[b"},
            "Invalid value [a, [b] for configuration include: Syntax error in regular expression: Unclosed character "
            "class near index 1\n[b\n ^",
        ),
    ],
)
def test_a_wrong_rule_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigException) as refused:
        parse_topic_creation({**DEFAULTS, **change})
    assert message in str(refused.value)


@pytest.mark.parametrize("missing", list(DEFAULTS))
def test_the_default_groups_numbers_are_required(missing: str) -> None:
    config = {name: value for name, value in DEFAULTS.items() if name != missing}
    with pytest.raises(ConfigException, match=f'Missing required configuration "{missing}"'):
        parse_topic_creation(config)


def test_rules_count_as_soon_as_there_is_one() -> None:
    assert uses_topic_creation({"topic.creation.groups": ""})
    assert not uses_topic_creation({"name": "c"})


def test_the_definition_has_the_settings_of_each_group() -> None:
    definition = topic_creation_definition(SOURCE, GROUPS)
    added = [name for name in definition.names() if name not in SOURCE.keys]
    assert added == [
        f"topic.creation.{group}.{name}"
        for group in ("default", "logs", "tables")
        for name in ("include", "exclude", "replication.factor", "partitions")
    ]
    assert definition.keys["topic.creation.logs.partitions"].default == -1
    assert not definition.keys["topic.creation.default.partitions"].has_default
    found = definition.validate_all({**GROUPS, "topic.creation.logs.include": "("})
    assert [name for name, value in found.items() if name in added and value.error_messages] == [
        "topic.creation.logs.include"
    ]
