"""Which topics a worker creates for a source connector, and how.

Main types: `TopicCreation`, `TopicCreationGroup`. Values and pure functions; any thread.

Source: SourceConnectorConfig, TopicCreationConfig and TopicCreationGroup of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.config import NO_DEFAULT, ConfigDef, ConfigType, Importance, LambdaValidator, NonNull, Width
from penstock.config.java_pattern import JavaPattern
from penstock.config.java_regex import compile_java
from penstock.config.parse import invalid, java_text, parse_type
from penstock.errors import ConfigException

_log = logging.getLogger(__name__)

PREFIX: Final = "topic.creation."
DEFAULT_GROUP: Final = "default"
GROUPS_SETTING: Final = "topic.creation.groups"
_TITLE: Final = "Topic Creation"
_OWN: Final = ("include", "exclude", "replication.factor", "partitions")
_PATTERN_TITLES: Final = {"include": "Inclusion Topic Pattern", "exclude": "Exclusion Topic Pattern"}
_BROKER_DEFAULT: Final = -1


@dataclass(frozen=True)
class TopicCreationGroup:
    """How the topics of a group are created.

    Attributes:
        name: The group.
        include: Patterns; a topic is in the group when one matches its whole name.
        exclude: Patterns of topics that are not in it after all.
        partitions: The number of partitions; -1 for the broker's default.
        replication_factor: The number of replicas; -1 for the broker's default.
        configs: Settings of the topic.
    """

    name: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]

    def matches(self, topic: str) -> bool:
        """If a topic is in this group."""
        return _any_match(self.include, topic) and not _any_match(self.exclude, topic)


@dataclass(frozen=True)
class TopicCreation:
    """The rules of one connector.

    Attributes:
        groups: The groups in the order in which they are asked; the last is the default group, which takes all.
    """

    groups: tuple[TopicCreationGroup, ...]

    def group_for(self, topic: str) -> TopicCreationGroup:
        """The first group that a topic is in."""
        return next((group for group in self.groups[:-1] if group.matches(topic)), self.groups[-1])

    def group(self, name: str) -> TopicCreationGroup:
        """The group of this name.

        Raises:
            KeyError: There is none.
        """
        found = next((group for group in self.groups if group.name == name), None)
        if found is None:
            raise KeyError(name)
        return found


def uses_topic_creation(properties: Mapping[str, object]) -> bool:
    """If a connector's configuration has any rule for the creation of topics."""
    return any(name.startswith(PREFIX) for name in properties)


def parse_topic_creation(properties: Mapping[str, object]) -> TopicCreation:
    """The rules in a connector's configuration, which has at least one (see `uses_topic_creation`).

    Raises:
        ConfigException: The first fault found; partitions and replication factor of the default group are required.
    """
    defaults = _parse_group(default_group_definition(), properties, DEFAULT_GROUP)
    partitions, replication_factor = _number(defaults["partitions"]), _number(defaults["replication.factor"])
    groups = []
    for name in _listed_groups(properties):
        values = _parse_group(group_definition(partitions, replication_factor), properties, name)
        groups.append(
            TopicCreationGroup(
                name,
                _patterns(values["include"]),
                _patterns(values["exclude"]),
                _number(values["partitions"]),
                _number(values["replication.factor"]),
                _topic_configs(properties, name),
            )
        )
    configs = _topic_configs(properties, DEFAULT_GROUP)
    last = TopicCreationGroup(DEFAULT_GROUP, (".*",), (), partitions, replication_factor, configs)
    return TopicCreation((*groups, last))


def topic_creation_faults(properties: Mapping[str, object]) -> list[str]:
    """What is wrong with the rules in a connector's configuration, in Kafka's words.

    The groups are looked at when the default group, which they take their numbers from, is right.
    """
    definition = ConfigDef().embed(f"{PREFIX}{DEFAULT_GROUP}.", DEFAULT_GROUP, 0, default_group_definition())
    found = definition.validate_all(dict(properties))
    if not any(value.error_messages for value in found.values()):
        found = topic_creation_definition(ConfigDef(), properties).validate_all(dict(properties))
    faults = []
    for name, value in found.items():
        short = name.removeprefix(PREFIX).partition(".")[2]
        # What follows the first message of a setting is about the null that it left.
        for message in value.error_messages[:1]:
            faults.append(message.replace(f" for configuration {short}: ", f" for configuration {name}: "))
    return faults


def topic_creation_definition(base: ConfigDef, properties: Mapping[str, object]) -> ConfigDef:
    """A connector's definition with the settings of its topic creation groups.

    Raises:
        ConfigException: The list of groups, or the default group's numbers, are wrong.
    """
    definition = ConfigDef(base).embed(f"{PREFIX}{DEFAULT_GROUP}.", DEFAULT_GROUP, 0, default_group_definition())
    defaults = _parse_group(default_group_definition(), properties, DEFAULT_GROUP)
    group = group_definition(_number(defaults["partitions"]), _number(defaults["replication.factor"]))
    for name in _listed_groups(properties):
        definition.embed(f"{PREFIX}{name}.", f"{_TITLE}: {name}", 0, group)
    return definition


def default_group_definition() -> ConfigDef:
    """The settings of the default group; its patterns are accepted and not used, as it takes every topic."""
    definition = ConfigDef()
    for order, (name, default) in enumerate((("include", ".*"), ("exclude", "")), start=1):
        definition.define(
            name,
            ConfigType.LIST,
            default=default,
            validator=NonNull(),
            importance=Importance.LOW,
            doc="Not used: the default group takes every topic that is in no other group.",
            group=_TITLE,
            order=order,
            width=Width.LONG,
            display_name=f"{_PATTERN_TITLES[name]} for {DEFAULT_GROUP}",
        )
    return _define_numbers(definition, {})


def group_definition(partitions: int, replication_factor: int) -> ConfigDef:
    """The settings of a named group.

    Args:
        partitions: The default group's, which is used when the group has none.
        replication_factor: The same.
    """
    definition = ConfigDef()
    for order, (name, does) in enumerate((("include", "are"), ("exclude", "are not after all")), start=1):
        definition.define(
            name,
            ConfigType.LIST,
            default="",
            validator=LambdaValidator(_check_patterns, "list of Java regexes"),
            importance=Importance.LOW,
            doc=f"Regular expressions for the names of the topics that {does} in this group.",
            group=_TITLE,
            order=order,
            width=Width.LONG,
            display_name=_PATTERN_TITLES[name],
        )
    return _define_numbers(definition, {"partitions": partitions, "replication.factor": replication_factor})


def _define_numbers(definition: ConfigDef, defaults: Mapping[str, int]) -> ConfigDef:
    rows = (
        ("replication.factor", ConfigType.SHORT, _check_replication_factor, "Replication Factor", " not larger than "
         "the number of brokers in the Kafka cluster,"),
        ("partitions", ConfigType.INT, _check_partitions, "Partition Count", ","),
    )  # fmt: skip
    for order, (name, kind, check, title, limit) in enumerate(rows, start=3):
        accepted = f"Positive number{limit} or -1 to use the broker's default"
        definition.define(
            name,
            kind,
            default=defaults.get(name, NO_DEFAULT),
            validator=LambdaValidator(check, accepted),
            importance=Importance.LOW,
            doc=f"The {name.replace('.', ' ')} of the topics that are created. {accepted}.",
            group=_TITLE,
            order=order,
            width=Width.LONG,
            display_name=f"{title} for Topics in this Group",
        )
    return definition


def _check_partitions(name: str, value: object) -> None:
    _check_given(name, value)
    if isinstance(value, int) and value != _BROKER_DEFAULT and value < 1:
        raise invalid(name, value, "Number of partitions must be positive, or -1 to use the broker's default")


def _check_replication_factor(name: str, value: object) -> None:
    _check_given(name, value)
    if isinstance(value, int) and value != _BROKER_DEFAULT and value < 1:
        raise invalid(
            name,
            value,
            "Replication factor must be positive and not larger than the number of brokers in the Kafka cluster, or "
            "-1 to use the broker's default",
        )


def _check_given(name: str, value: object) -> None:
    if value is None:
        raise invalid(name, value, "Value must be non-null")


def _check_patterns(name: str, value: object) -> None:
    for pattern in _patterns(value):
        try:
            compile_java(pattern, name=name, what="Syntax error in regular expression")
        except ConfigException as error:
            reason = str(error.__cause__)
            raise invalid(name, value, f"Syntax error in regular expression: {reason}") from error


def _parse_group(definition: ConfigDef, properties: Mapping[str, object], group: str) -> dict[str, object]:
    """The values of one group, without its prefix; messages name settings as Kafka's do."""
    prefix = f"{PREFIX}{group}."
    parsed = ConfigDef().embed(prefix, "", 0, definition).parse(properties)
    return {name.removeprefix(prefix): value for name, value in parsed.items()}


def _listed_groups(properties: Mapping[str, object]) -> list[str]:
    listed = parse_type(GROUPS_SETTING, properties.get(GROUPS_SETTING), ConfigType.LIST)
    names = list(dict.fromkeys(map(str, listed if isinstance(listed, list) else ())))
    if DEFAULT_GROUP in names:
        _log.warning("The topic creation group %r is always there and need not be listed", DEFAULT_GROUP)
        names.remove(DEFAULT_GROUP)
    return names


def _topic_configs(properties: Mapping[str, object], group: str) -> dict[str, str]:
    prefix = f"{PREFIX}{group}."
    found = {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}
    return {name: java_text(value) for name, value in found.items() if name not in _OWN and value is not None}


def _any_match(patterns: Sequence[str], topic: str) -> bool:
    return bool(patterns) and _compiled("|".join(patterns)).matches(topic)


def _compiled(pattern: str) -> JavaPattern:
    return compile_java(pattern, name="include", what="Syntax error in regular expression")


def _patterns(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
