"""The rules by which a worker creates topics for a source connector, and the checks of a sink's topics.

Values and pure functions; any thread.
Source: SourceConnectorConfig, SinkConnectorConfig.validate, TopicCreationConfig and TopicCreationGroup of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from penstock.config import (
    AbstractConfig,
    ConfigDef,
    ConfigType,
    ConfigValue,
    Importance,
    LambdaValidator,
    NonNull,
    Width,
    setting,
)
from penstock.config.java_pattern import compile_java
from penstock.config.parse import invalid, java_text, java_trim, parse_type
from penstock.config.properties import Prefixed
from penstock.errors import ConfigException, PatternTimeoutException

_log = logging.getLogger(__name__)

PREFIX: Final = "topic.creation."
DEFAULT_GROUP: Final = "default"
GROUPS_SETTING: Final = "topic.creation.groups"
_TITLE: Final = "Topic Creation"
_BROKER_DEFAULT: Final = -1


@dataclass(frozen=True)
class TopicCreationGroup:
    """A group of topics that are created with the same settings: names match a pattern as a whole; -1 is the broker's
    default.
    """

    name: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]

    def matches(self, topic: str) -> bool:
        """True if a topic is in this group."""
        return _any_match(self.include, topic) and not _any_match(self.exclude, topic)


@dataclass(frozen=True)
class TopicCreation:
    """The rules of a connector; the first group that matches counts, and the last one takes all topics."""

    groups: tuple[TopicCreationGroup, ...]

    def group_for(self, topic: str) -> TopicCreationGroup:
        """The first group that a topic is in."""
        return next((group for group in self.groups[:-1] if group.matches(topic)), self.groups[-1])

    def group(self, name: str) -> TopicCreationGroup:
        """The group of this name; raises KeyError."""
        found = next((group for group in self.groups if group.name == name), None)
        if found is None:
            raise KeyError(name)
        return found


def uses_topic_creation(properties: Mapping[str, object]) -> bool:
    """True if a connector's configuration has any rule for the creation of topics."""
    return any(name.startswith(PREFIX) for name in properties)


def parse_topic_creation(properties: Mapping[str, object]) -> TopicCreation:
    """The rules of a configuration that `uses_topic_creation`; raises the first fault."""
    defaults = _parse_group(DEFAULT_GROUP_SETTINGS, properties, DEFAULT_GROUP)
    named = group_definition(defaults.partitions, defaults.replication_factor)
    rules = Prefixed(properties)
    groups = [_group(name, _parse_group(named, properties, name), rules) for name in _listed_groups(properties)]
    last = replace(_group(DEFAULT_GROUP, defaults, rules), include=(".*",), exclude=())
    return TopicCreation((*groups, last))


def _group(name: str, config: GroupConfig, rules: Prefixed[object]) -> TopicCreationGroup:
    others = _topic_configs(rules, name)
    return TopicCreationGroup(
        name, config.include, config.exclude, config.partitions, config.replication_factor, others
    )


def topic_creation_faults(properties: Mapping[str, object]) -> list[str]:
    """Returns the errors in the rules of a connector's configuration, in Kafka's words.

    The named groups are checked only if the default group, which has their default numbers, is valid.
    """
    definition = ConfigDef().embed(f"{PREFIX}{DEFAULT_GROUP}.", DEFAULT_GROUP, 0, DEFAULT_GROUP_SETTINGS)
    found = definition.validate_all(dict(properties))
    if not any(value.error_messages for value in found.values()):
        found = topic_creation_definition(ConfigDef(), properties).validate_all(dict(properties))
    faults = []
    for name, value in found.items():
        short = name.removeprefix(PREFIX).partition(".")[2]
        # Later messages of a setting are about the null that its first fault has left.
        for message in value.error_messages[:1]:
            faults.append(message.replace(f" for configuration {short}: ", f" for configuration {name}: "))
    return faults


def topic_creation_definition(base: ConfigDef, properties: Mapping[str, object]) -> ConfigDef:
    """A connector's definition with the settings of its topic creation groups."""
    definition = ConfigDef(base).embed(f"{PREFIX}{DEFAULT_GROUP}.", DEFAULT_GROUP, 0, DEFAULT_GROUP_SETTINGS)
    defaults = _parse_group(DEFAULT_GROUP_SETTINGS, properties, DEFAULT_GROUP)
    group = group_definition(defaults.partitions, defaults.replication_factor)
    for name in _listed_groups(properties):
        definition.embed(f"{PREFIX}{name}.", f"{_TITLE}: {name}", 0, group)
    return definition


def group_definition(partitions: int, replication_factor: int) -> ConfigDef:
    """The settings of a named group; the numbers are those of the default group."""
    defaults = {"partitions": partitions, "replication.factor": replication_factor}
    definition = ConfigDef()
    for key in GroupConfig.definition().keys.values():
        definition.define_key(replace(key, default=defaults.get(key.name, key.default)))
    return definition


def _number_of(what: str, rule: str) -> LambdaValidator:
    def check(name: str, value: object) -> None:
        if value is None:
            raise invalid(name, value, "Value must be non-null")
        if isinstance(value, int) and value != _BROKER_DEFAULT and value < 1:
            raise invalid(name, value, f"{what} must be positive{rule}, or -1 to use the broker's default")

    return LambdaValidator(check, f"Positive number{rule.removeprefix(' and')}, or -1 to use the broker's default")


def _check_patterns(name: str, value: object) -> None:
    for pattern in value if isinstance(value, list) else ():
        try:
            compile_java(pattern, name=name, what="Syntax error in regular expression")
        except ConfigException as error:
            reason = str(error.__cause__)
            raise invalid(name, value, f"Syntax error in regular expression: {reason}") from error


PARTITIONS: Final = _number_of("Number of partitions", "")
REPLICAS: Final = _number_of("Replication factor", " and not larger than the number of brokers in the Kafka cluster")
_setting: Final = partial(setting, importance=Importance.LOW, group=_TITLE, width=Width.LONG)
_unused: Final = partial(
    _setting,
    validator=NonNull(),
    doc="Not used: the default group takes every topic that is in no other group.",
)
_patterns: Final = partial(_setting, default=(), validator=LambdaValidator(_check_patterns, "list of Java regexes"))


class GroupConfig(AbstractConfig):
    """The settings of a named group; the last two have defaults from the default group."""

    include: tuple[str, ...] = _patterns(
        doc="Regular expressions for the names of the topics that are in this group.",
        order=1,
        display_name="Inclusion Topic Pattern",
    )
    exclude: tuple[str, ...] = _patterns(
        doc="Regular expressions for the names of the topics that are not after all in this group.",
        order=2,
        display_name="Exclusion Topic Pattern",
    )
    replication_factor: int = _setting(
        type=ConfigType.SHORT,
        validator=REPLICAS,
        doc=f"The replication factor of the topics that are created. {REPLICAS}.",
        order=3,
        display_name="Replication Factor for Topics in this Group",
    )
    partitions: int = _setting(
        validator=PARTITIONS,
        doc=f"The partitions of the topics that are created. {PARTITIONS}.",
        order=4,
        display_name="Partition Count for Topics in this Group",
    )


class _DefaultGroupConfig(GroupConfig):
    """The settings of the default group; its patterns are accepted but unused, because it takes every topic."""

    include: tuple[str, ...] = _unused(
        default=(".*",), order=1, display_name=f"Inclusion Topic Pattern for {DEFAULT_GROUP}"
    )
    exclude: tuple[str, ...] = _unused(default=(), order=2, display_name=f"Exclusion Topic Pattern for {DEFAULT_GROUP}")


DEFAULT_GROUP_SETTINGS: Final = _DefaultGroupConfig.definition()


def _parse_group(definition: ConfigDef, properties: Mapping[str, object], group: str) -> GroupConfig:
    """The values of one group; messages name settings as Kafka does."""
    prefix = f"{PREFIX}{group}."
    return GroupConfig.of(ConfigDef().embed(prefix, "", 0, definition).parse(properties), prefix)


def _listed_groups(properties: Mapping[str, object]) -> list[str]:
    listed = parse_type(GROUPS_SETTING, properties.get(GROUPS_SETTING), ConfigType.LIST)
    names = list(dict.fromkeys(map(str, listed if isinstance(listed, list) else ())))
    if DEFAULT_GROUP in names:
        _log.warning("The topic creation group %r is always there and need not be listed", DEFAULT_GROUP)
        names.remove(DEFAULT_GROUP)
    return names


def _topic_configs(rules: Prefixed[object], group: str) -> dict[str, str]:
    found = rules.below(f"{PREFIX}{group}.")
    return {name: java_text(value) for name, value in found.items() if name not in DEFAULT_GROUP_SETTINGS.keys}


def _any_match(patterns: Sequence[str], topic: str) -> bool:
    what = "Syntax error in regular expression"
    return bool(patterns) and compile_java("|".join(patterns), name="include", what=what).matches(topic)


TOPICS: Final = "topics"
TOPICS_REGEX: Final = "topics.regex"
DLQ_TOPIC: Final = "errors.deadletterqueue.topic.name"
PATTERN_REFUSED: Final = "No topic can have a name that begins with ^; patterns go into topics.regex"


def is_pattern(topic: str) -> bool:
    """True if the Kafka client would treat the name of a topic as a pattern, and compile it without any limit.

    >>> is_pattern("^orders"), is_pattern("orders")
    (True, False)
    """
    return topic.startswith("^")


def check_topics(properties: Mapping[str, object], found: MutableMapping[str, ConfigValue]) -> None:
    """Adds the faults of a sink's topics to the results for its settings; missing settings are added."""
    topics, regex = _given(properties, TOPICS), _given(properties, TOPICS_REGEX)
    dead_letter = java_trim(_given(properties, DLQ_TOPIC) or "")

    def add(setting: str, message: str) -> None:
        value = found.setdefault(setting, ConfigValue(setting, properties.get(setting)))
        value.add_error_message(message)

    if bool(topics) == bool(regex):
        message = (
            f"{TOPICS} and {TOPICS_REGEX} are mutually exclusive options, but both are set."
            if topics
            else f"Must configure one of {TOPICS} or {TOPICS_REGEX}"
        )
        add(TOPICS, message)
        add(TOPICS_REGEX, message)
    listed = parse_topics_list(properties) if topics else []
    if any(map(is_pattern, listed)):
        add(TOPICS, str(invalid(TOPICS, next(filter(is_pattern, listed)), PATTERN_REFUSED)))
    if not dead_letter:
        return
    if dead_letter in listed:
        add(
            TOPICS,
            f"The DLQ topic '{dead_letter}' may not be included in the list of topics ('{TOPICS}={java_text(listed)}') "
            "consumed by the connector",
        )
    try:
        is_read = regex is not None and _matches(regex, dead_letter)
    except PatternTimeoutException as error:
        add(TOPICS_REGEX, str(error))
        return
    if is_read:
        add(
            TOPICS_REGEX,
            f"The DLQ topic '{dead_letter}' may not be matched by the regex for the topics ('{TOPICS_REGEX}={regex}') "
            "consumed by the connector",
        )


def require_valid_topics(properties: Mapping[str, object]) -> None:
    """Raises the first fault that `check_topics` finds."""
    found: dict[str, ConfigValue] = {}
    check_topics(properties, found)
    for value in found.values():
        raise invalid(value.name, value.value, value.error_messages[0])


def parse_topics_list(properties: Mapping[str, object]) -> list[str]:
    """The topics that a sink names, each once, without empty names."""
    topics = parse_type(TOPICS, properties.get(TOPICS), ConfigType.LIST)
    return [str(topic) for topic in dict.fromkeys(topics) if topic] if isinstance(topics, list) else []


def _given(properties: Mapping[str, object], setting: str) -> str | None:
    """The text of a setting; None if it is missing or blank."""
    value = properties.get(setting)
    return value if isinstance(value, str) and java_trim(value) else None


def _matches(regex: str, topic: str) -> bool:
    try:
        return compile_java(regex).matches(topic)
    except ConfigException:
        # An invalid pattern is a fault of its own setting, which the definition reports.
        return False
