"""RegexRouter: renames the topic of records whose topic matches a regular expression.

Class ``RegexRouter``. Both the expression and the references of the replacement are Java's.
Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.RegexRouter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from penstock.api.transform import R
from penstock.config import AbstractConfig, Importance, LambdaValidator, setting
from penstock.config.java_regex import compile_java
from penstock.errors import ConfigException
from penstock.pipeline.plan.topics import Raises, TopicRoute
from penstock.transforms.definition import JAVA, Definition, StockTransform
from penstock.transforms.java_replacement import NoSuchGroupError, ReplacementError, parse_replacement, replace_first
from penstock.transforms.requirements import NullPointerError
from penstock.transforms.settings import ensure_regex


class _References:
    """Checks the replacement against the expression where a configuration is validated."""

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> list[object]:
        regex, replacement = parsed.get("regex"), parsed.get(name)
        if isinstance(regex, str) and isinstance(replacement, str):
            try:
                parse_replacement(replacement, compile_java(regex))
            except ConfigException:
                pass  # the fault is that of "regex"
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
    """Renames the topic where all of it matches."""

    regex: str
    replacement: str | None

    @property
    def raises(self) -> Raises:
        """See ``TopicRoute``. A replacement may name a group that the pattern does not have."""
        return (*super().raises, NullPointerError, NoSuchGroupError, ReplacementError)

    def of_topic(self, topic: str) -> str:
        """See ``TopicRoute``."""
        pattern = compile_java(self.regex)
        if not pattern.matches(topic):
            return topic
        if self.replacement is None:
            raise NullPointerError("replacement")
        return replace_first(pattern, topic, self.replacement)

    def apply(self, record: R) -> R | None:
        """See ``Definition``."""
        topic: str | None = record.topic
        return record if topic is None else cast("R", record.new_record(topic=self.of_topic(topic)))


class RegexRouter(StockTransform[RegexRouterConfig]):
    """Renames topics."""

    java_name: ClassVar[str] = f"{JAVA}RegexRouter"
    settings = RegexRouterConfig

    def define(self, config: RegexRouterConfig) -> Route:
        """See ``StockTransform``."""
        return Route(config.regex, config.replacement)
