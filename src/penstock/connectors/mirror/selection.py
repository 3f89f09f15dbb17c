"""Selects the topics and settings to mirror, and computes the changes on the target. Pure functions; any thread.

Main types: ``TopicSelection``, ``NamePatterns``; ``settings_changes``, ``rules_to_add`` compute the changes.

Source: org.apache.kafka.connect.mirror.{DefaultTopicFilter, DefaultGroupFilter, DefaultConfigPropertyFilter},
MirrorSourceConnector (shouldReplicateTopic, targetConfig, incrementalAlterConfigs, shouldReplicateAcl,
targetAclBinding).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.clients import AccessRule, TopicSetting
from penstock.config.java_pattern import compile_java
from penstock.connectors.mirror.policy import ReplicationPolicy


class NamePatterns:
    """Selects names by lists of Java patterns: names that match one of ``include``, and none of ``exclude``.

    Args:
        include: Patterns, each for a whole name.
        exclude: Patterns that take precedence.
        setting: The setting with ``include``, for errors; the setting with ``exclude`` ends with ``.exclude``.

    Raises:
        ConfigException: A pattern is invalid; the text names the setting and the pattern.

    >>> some = NamePatterns(["orders.*", "people"], [".*_tmp"], "topics")
    >>> [some.have(name) for name in ("orders_1", "orders_tmp", "people", "peoples")]
    [True, False, True, False]
    """

    def __init__(self, include: Iterable[str], exclude: Iterable[str], setting: str) -> None:
        self._include = [compile_java(one, name=setting) for one in include]
        self._exclude = [compile_java(one, name=f"{setting}.exclude") for one in exclude]

    def have(self, name: str) -> bool:
        """True if a name is among them."""
        return any(one.matches(name) for one in self._include) and not self.excludes(name)

    def excludes(self, name: str) -> bool:
        """True if a name is left out, whether included or not."""
        return any(one.matches(name) for one in self._exclude)


@dataclass(frozen=True)
class TopicSelection:
    """The mirrored topics of the source cluster, and their names on the target.

    Attributes:
        patterns: The patterns of the user.
        policy: Names on the target.
        source: The alias of the source cluster.
        target: The alias of the target cluster.
        heartbeats: True if heartbeats of the source are mirrored regardless of the patterns.
    """

    patterns: NamePatterns
    policy: ReplicationPolicy
    source: str
    target: str
    heartbeats: bool = True

    def has(self, topic: str) -> bool:
        """True if a topic is mirrored: it matches, is not internal, and does not come from the target itself."""
        wanted = self.patterns.have(topic) or (self.heartbeats and self.policy.is_heartbeats_topic(topic))
        return wanted and not self.policy.is_internal_topic(topic) and not self.policy.is_cycle(topic, self.target)

    def remote(self, topic: str) -> str:
        """Its name on the target."""
        return self.policy.remote_topic(self.source, topic)


def settings_to_copy(
    source: Mapping[str, TopicSetting], excluded: NamePatterns, *, with_defaults: bool = False
) -> dict[str, str]:
    """The settings that a new topic copies from the source topic.

    Args:
        source: Those of the topic on the source.
        excluded: Settings that are not copied.
        with_defaults: True if defaults of the source are copied as well (``use.defaults.from=source``).
    """
    return {
        name: one.value
        for name, one in source.items()
        if one.value is not None
        and not one.is_fixed
        and (with_defaults or not one.is_default)
        and not excluded.excludes(name)
    }


def settings_changes(
    source: Mapping[str, TopicSetting],
    target: Mapping[str, TopicSetting],
    excluded: NamePatterns,
    *,
    with_defaults: bool = False,
) -> tuple[dict[str, str], list[str]]:
    """Compares a topic on the target with the source: returns settings to change, and settings to remove.

    Args:
        source: Those of the topic on the source.
        target: Those of the topic on the target.
        excluded: Settings that are left as they are.
        with_defaults: See ``settings_to_copy``; without it, a default on the source becomes the default on the target.
    """
    wanted = settings_to_copy(source, excluded, with_defaults=with_defaults)
    changed = {
        name: text
        for name, text in wanted.items()
        if name in target and (target[name].value != text or target[name].is_default != source[name].is_default)
    }
    removed = [
        name
        for name, one in target.items()
        if name in source
        and source[name].is_default
        and name not in wanted
        and not one.is_default
        and not one.is_fixed
        and not excluded.excludes(name)
    ]
    return changed, removed


def rules_to_add(rules: Iterable[AccessRule], selection: TopicSelection) -> list[AccessRule]:
    """The access rules of the source's topics for the target's topics, without write permissions.

    >>> from penstock.connectors.mirror.policy import ReplicationPolicy
    >>> selection = TopicSelection(NamePatterns(["t"], [], "topics"), ReplicationPolicy(), "a", "b")
    >>> [(one.topic, one.operation) for one in rules_to_add([AccessRule("t", "User:x", "*", "ALL")], selection)]
    [('a.t', 'READ')]
    """
    found: list[AccessRule] = []
    for one in rules:
        if selection.has(one.topic) and not (one.allows and one.operation == "WRITE"):
            operation = "READ" if one.allows and one.operation == "ALL" else one.operation
            found.append(replace(one, topic=selection.remote(one.topic), operation=operation))
    return found


def source_partitions(alias: str, partitions: Mapping[str, int]) -> list[dict[str, object]]:
    """The source partitions of topics, as MirrorMaker 2 names them, partitions of one topic apart from each other.

    Args:
        alias: Of the source cluster.
        partitions: How many each topic has.
    """
    most = max(partitions.values(), default=0)
    return [
        {"cluster": alias, "partition": number, "topic": topic}
        for number in range(most)
        for topic, count in sorted(partitions.items())
        if number < count
    ]


def changed_ids(before: Mapping[str, str], now: Mapping[str, str]) -> Sequence[str]:
    """The topics that were deleted and created again, so that their id has changed.

    >>> changed_ids({"a": "1", "b": "1", "c": ""}, {"a": "2", "b": "1", "c": "3"})
    ['a']
    """
    return sorted(name for name, known in before.items() if known and now.get(name, known) != known)
