"""The checks of a sink's topics: one of `topics` and `topics.regex`, and a dead letter queue that is not read.

Main functions: `check_topics`, `require_valid_topics`, `parse_topics_list`, `is_pattern`. Pure functions; any thread.

Source: SinkConnectorConfig.validate of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Final

from penstock.config import ConfigType, ConfigValue
from penstock.config.java_regex import compile_java
from penstock.config.parse import invalid, java_text, java_trim, parse_type
from penstock.errors import ConfigException, PatternTimeoutException

TOPICS: Final = "topics"
TOPICS_REGEX: Final = "topics.regex"
DLQ_TOPIC: Final = "errors.deadletterqueue.topic.name"
PATTERN_REFUSED: Final = "No topic can have a name that begins with ^; patterns go into topics.regex"


def is_pattern(topic: str) -> bool:
    """True if the Kafka client would take the name of a topic for a pattern, and compile it without any limit.

    >>> is_pattern("^orders"), is_pattern("orders")
    (True, False)
    """
    return topic.startswith("^")


def check_topics(properties: Mapping[str, object], found: MutableMapping[str, ConfigValue]) -> None:
    """Adds the faults of a sink's topics to what is known about its settings.

    Args:
        properties: The configuration.
        found: The outcome of the validation so far, by setting; settings that are missing in it are added.
    """
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
    """Does the checks of `check_topics` before a sink is started.

    Raises:
        ConfigException: The first fault.
    """
    found: dict[str, ConfigValue] = {}
    check_topics(properties, found)
    for value in found.values():
        raise invalid(value.name, value.value, value.error_messages[0])


def parse_topics_list(properties: Mapping[str, object]) -> list[str]:
    """The topics that a sink names, each once, without empty names."""
    topics = parse_type(TOPICS, properties.get(TOPICS), ConfigType.LIST)
    return [str(topic) for topic in dict.fromkeys(topics) if topic] if isinstance(topics, list) else []


def _given(properties: Mapping[str, object], setting: str) -> str | None:
    """The text of a setting; None when there is none or it is blank."""
    value = properties.get(setting)
    return value if isinstance(value, str) and java_trim(value) else None


def _matches(regex: str, topic: str) -> bool:
    try:
        return compile_java(regex).matches(topic)
    except ConfigException:
        # A pattern that is wrong is a fault of its own setting, which the definition reports.
        return False
