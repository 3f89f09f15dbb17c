"""Transforms that rename the topic of a record: by a regular expression (RegexRouter), or by its timestamp.

Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.RegexRouter and TimestampRouter, java.util.regex.Matcher.appendReplacement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, Importance, LambdaValidator, Validator, setting
from penstock.config.java_pattern import JavaPattern, compile_java
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.java_dates import (
    DatePatternError,
    PatternToken,
    compile_pattern,
    print_column,
    print_millis,
)
from penstock.pipeline.plan.step import Made, NameColumn, Raises, RecordColumns, Shape, StepFault, StepPlan, TopicRoute
from penstock.transforms.definition import JAVA, Definition, NullPointerError, StockTransform, ensure_regex

#: Text, the number of a group, or (in a tuple) its name.
Part = str | int | tuple[str]


class ReplacementError(ValueError):
    """A replacement that Java rejects, with Java's text."""

    java_name: ClassVar[str] = "java.lang.IllegalArgumentException"


class UncertainGroupError(ReplacementError):
    """A replacement refers to a group whose text here may differ from Java's."""


class NoSuchGroupError(ReplacementError):
    """A replacement refers to a group that the expression does not have."""

    java_name: ClassVar[str] = "java.lang.IndexOutOfBoundsException"


def replace_first(pattern: JavaPattern, text: str, replacement: str) -> str:
    """Replaces the first match in a text; raises ReplacementError if Java would reject the replacement."""
    match = pattern.find(text)
    if match is None:
        return text
    parts = parse_replacement(replacement, pattern)
    return text[: match.start()] + _expand(parts, match) + text[match.end() :]


def parse_replacement(text: str, pattern: JavaPattern) -> list[Part]:
    """Splits a replacement into texts and references to groups of a pattern.

    >>> from penstock.config.java_pattern import compile_java
    >>> parse_replacement("a$12\\\\$${n}", compile_java("(?<n>x)"))
    ['a', 1, '2', '$', ('n',)]
    """
    groups, names = pattern.groups, pattern.groupindex
    parts: list[Part] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            if at == len(text):
                raise ReplacementError("character to be escaped is missing")
            parts.append(text[at])
            at += 1
        elif char == "$":
            part, at = _reference(text, at, groups, names)
            parts.append(part)
        else:
            parts.append(char)
    for part in parts:
        number = names[part[0]] if isinstance(part, tuple) else part
        if number in pattern.uncertain_groups:
            raise UncertainGroupError(
                f"Group {number} is not supported here: it is in look-around, in an independent group or in a "
                "repetition, where it holds in Java what it took last, perhaps in a try that failed"
            )
    return parts


def _reference(text: str, at: int, groups: int, names: Mapping[str, int]) -> tuple[Part, int]:
    if at == len(text):
        raise ReplacementError("Illegal group reference: group index is missing")
    if text[at] == "{":
        return _named(text, at + 1, names)
    if not "0" <= text[at] <= "9":
        raise ReplacementError("Illegal group reference")
    number = int(text[at])
    at += 1
    # Digits belong to the number as long as such a group exists.
    while at < len(text) and "0" <= text[at] <= "9" and number * 10 + int(text[at]) <= groups:
        number = number * 10 + int(text[at])
        at += 1
    if number > groups:
        raise NoSuchGroupError(f"No group {number}")
    return number, at


def _named(text: str, at: int, names: Mapping[str, int]) -> tuple[Part, int]:
    match = re.compile(r"[a-zA-Z0-9]*").match(text, at)
    name = "" if match is None else match.group()
    end = at + len(name)
    if not name:
        raise ReplacementError("named capturing group is missing trailing '}'")
    if text[end : end + 1] != "}":
        raise ReplacementError("named capturing group is missing trailing '}'")
    if name[0].isdigit():
        raise ReplacementError(f"capturing group name {{{name}}} starts with digit character")
    if name not in names:
        raise ReplacementError(f"No group with name {{{name}}}")
    return (name,), end + 1


def _expand(parts: Sequence[Part], match: re.Match[str]) -> str:
    """The text of a replacement for one match; a group that did not take part is empty."""
    texts = [part if isinstance(part, str) else match[part[0] if isinstance(part, tuple) else part] for part in parts]
    return "".join(text or "" for text in texts)


class _References:
    """Checks the replacement against the expression during validation."""

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> list[object]:
        regex, replacement = parsed.get("regex"), parsed.get(name)
        if isinstance(regex, str) and isinstance(replacement, str):
            try:
                parse_replacement(replacement, compile_java(regex))
            except ConfigException:
                pass  # The fault belongs to "regex".
            except ReplacementError as error:
                rule = f"{error}. Groups of the regular expression are named $1 or ${{name}}; \\$ is a dollar sign"
                raise ConfigException(name, replacement, rule) from error
        return []

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        return True


class RegexRouterConfig(AbstractConfig):
    """The settings of ``RegexRouter``."""

    regex: str = setting(
        validator=LambdaValidator(ensure_regex, "valid regex"),
        importance=Importance.HIGH,
        doc="Regular expression to use for matching.",
    )
    replacement: str | None = setting(importance=Importance.HIGH, doc="Replacement string.", recommender=_References())


@dataclass(frozen=True)
class Route(TopicRoute, Definition):
    """Renames a topic if the whole name matches."""

    regex: str
    replacement: str | None

    @property
    def raises(self) -> Raises:
        """A replacement may name a group that the pattern does not have."""
        return (*super().raises, NullPointerError, NoSuchGroupError, ReplacementError)

    def of_topic(self, topic: str) -> str:
        pattern = compile_java(self.regex)
        if not pattern.matches(topic):
            return topic
        if self.replacement is None:
            raise NullPointerError("replacement")
        return replace_first(pattern, topic, self.replacement)

    def apply(self, record: R) -> R | None:
        topic: str | None = record.topic
        return record if topic is None else cast("R", record.new_record(topic=self.of_topic(topic)))


class RegexRouter(StockTransform[RegexRouterConfig]):
    """Renames topics."""

    java_name: ClassVar[str] = f"{JAVA}RegexRouter"
    settings = RegexRouterConfig

    def define(self, config: RegexRouterConfig) -> Route:
        return Route(config.regex, config.replacement)


_TOPIC: Final = "${topic}"
_TIMESTAMP: Final = "${timestamp}"
_NO_TIMESTAMP: Final = "Timestamp missing on record: "


def check_date_pattern(name: str, value: object) -> None:
    """Refuses what is no pattern of ``SimpleDateFormat``."""
    try:
        compile_pattern(str(value or ""))
    except DatePatternError as error:
        rule = f"{error}. Patterns are those of java.text.SimpleDateFormat; other letters stand in single quotes"
        raise ConfigException(name, value, rule) from error


def _format(validator: Validator | None) -> Any:
    return setting(
        default="yyyyMMdd",
        validator=validator,
        importance=Importance.HIGH,
        doc="Format string for the timestamp that is compatible with <code>java.text.SimpleDateFormat</code>.",
    )


class TimestampRouterConfig(AbstractConfig):
    """The settings of ``TimestampRouter``. As in Java, a wrong pattern fails the records."""

    topic_format: str | None = setting(
        default="${topic}-${timestamp}",
        importance=Importance.HIGH,
        doc="Format string which can contain <code>${topic}</code> and <code>${timestamp}</code> as placeholders "
        "for the topic and timestamp, respectively.",
    )
    timestamp_format: str | None = _format(None)


class _Checked(TimestampRouterConfig):
    """The same settings with a check of the pattern, for validation."""

    timestamp_format: str | None = _format(LambdaValidator(check_date_pattern))


@dataclass(frozen=True)
class RouteByTime(Definition):
    """Builds topic names."""

    changes_topic = True

    topic_format: str | None
    pattern: str | None

    @cached_property
    def _settings(self) -> tuple[str, Sequence[PatternToken]]:
        """Both settings. Java notices a null or wrong one only here, so each record fails with its error."""
        if self.topic_format is None or self.pattern is None:
            name = "topic.format" if self.topic_format is None else "timestamp.format"
            raise NullPointerError(f'The setting "{name}" is null')
        return self.topic_format, compile_pattern(self.pattern)

    def plan(self, shape: Shape) -> StepPlan:
        topic_format, tokens = self._settings

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            text = print_column(tokens, record.timestamp, keep)
            named = F.replace(F.lit(topic_format), F.lit(_TOPIC), record.topic)
            message = F.concat(F.lit(f"{_NO_TIMESTAMP}topic "), record.topic)
            fault = StepFault(record.timestamp.isNull(), message, DataException.java_name)
            return Made({"topic": F.coalesce(F.replace(named, F.lit(_TIMESTAMP), text), record.topic)}, [fault])

        return StepPlan(shape, make, frozenset({"topic", "timestamp"}), frozenset({"topic"}))

    def apply(self, record: R) -> R | None:
        if record.timestamp is None:
            raise DataException(f"{_NO_TIMESTAMP}topic {record.topic}")
        topic_format, tokens = self._settings
        text = print_millis(tokens, record.timestamp)
        topic = topic_format.replace(_TOPIC, record.topic or "").replace(_TIMESTAMP, text)
        return cast("R", record.new_record(topic=topic))


class TimestampRouter(StockTransform[TimestampRouterConfig]):
    """Builds topic names from timestamps."""

    java_name: ClassVar[str] = f"{JAVA}TimestampRouter"
    settings = TimestampRouterConfig

    def config(self) -> ConfigDef:
        return _Checked.definition()

    def define(self, config: TimestampRouterConfig) -> RouteByTime:
        return RouteByTime(config.topic_format, config.timestamp_format)
