"""RegexRouter: renames the topic of records whose topic matches a regular expression.

Class ``RegexRouter``. Both the expression and the references of the replacement are Java's; they run in the JVM.
Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.RegexRouter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import ConfigDef, ConfigType, Importance, LambdaValidator
from penstock.config.java_regex import JavaRegexError, compile_java
from penstock.errors import ConfigException
from penstock.pipeline.step import Bag, ColumnTransform, Fault, Keep, Made, Shape, Step, StepPlan
from penstock.transforms.java_replacement import ReplacementError, expand, group_count, group_names, parse_replacement
from penstock.transforms.requirements import NullPointerError
from penstock.transforms.settings import NO_PATTERN

if TYPE_CHECKING:
    from pyspark.sql import Column

#: What a pattern is refused with that is right in Java; the JVM runs it all the same.
_UNTRANSLATED: Final = "Not supported here"


def _check_regex(name: str, value: object) -> None:
    if value is None:
        raise ConfigException(name, None, NO_PATTERN)
    try:
        compile_java(str(value), name=name)
    except ConfigException as error:
        if not (isinstance(error.__cause__, JavaRegexError) and str(error.__cause__).startswith(_UNTRANSLATED)):
            raise


class _References:
    """Checks the replacement against the expression where a configuration is validated."""

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> list[object]:
        regex, replacement = parsed.get("regex"), parsed.get(name)
        if isinstance(regex, str) and isinstance(replacement, str):
            try:
                parse_replacement(replacement, group_count(regex), group_names(regex))
            except ReplacementError as error:
                rule = f"{error}. Groups of the regular expression are named $1 or ${{name}}; \\$ is a dollar sign"
                raise ConfigException(name, replacement, rule) from error
        return []

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        return True


CONFIG: Final = (
    ConfigDef()
    .define(
        "regex",
        ConfigType.STRING,
        validator=LambdaValidator(_check_regex, "valid regex"),
        importance=Importance.HIGH,
        doc="Regular expression to use for matching.",
    )
    .define(
        "replacement",
        ConfigType.STRING,
        importance=Importance.HIGH,
        doc="Replacement string.",
        recommender=_References(),
    )
)


@dataclass(frozen=True)
class Route(Step):
    """Renames the topic where all of it matches."""

    regex: str
    replacement: str | None

    def takes_objects(self, shape: Shape) -> bool:
        return True

    def plan(self, shape: Shape) -> StepPlan:
        topic = frozenset({"topic"})
        return StepPlan(shape, self._make, topic, topic)

    def _make(self, bag: Bag, keep: Keep) -> Made:
        whole = bag.topic.rlike(f"\\A(?:{_closed(self.regex)})\\z")
        problem = self._problem()
        if problem is not None:
            return Made(faults=[Fault(whole, str(problem), problem.java_name)])
        return Made({"topic": F.when(whole, self._renamed(bag.topic)).otherwise(bag.topic)})

    def _renamed(self, topic: Column) -> Column:
        # The first thing to be found in a topic that matches as a whole begins where the topic does.
        return F.regexp_replace(topic, f"\\A(?:{_closed(self.regex)})", F.lit(self.replacement))

    def _problem(self) -> ReplacementError | NullPointerError | None:
        if self.replacement is None:
            return NullPointerError("replacement")
        try:
            parse_replacement(self.replacement, group_count(self.regex), group_names(self.regex))
        except ReplacementError as error:
            return error
        return None


def _closed(regex: str) -> str:
    """The expression with its last quotation ended and its last comment on a line of its own."""
    if regex.rfind("\\Q") > regex.rfind("\\E"):
        regex += "\\E"
    return f"{regex}\n" if re.search(r"\(\?[a-wyz]*x", regex) else regex


class RegexRouter(ColumnTransform, Transformation):
    """Renames topics."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.RegexRouter"
    _regex: str = ""
    _replacement: str | None = None

    def configure(self, props: Mapping[str, object]) -> None:
        values = CONFIG.parse(props)
        self._regex = cast("str", values["regex"])
        self._replacement = cast("str | None", values["replacement"])

    def config(self) -> ConfigDef:
        return CONFIG

    def step(self) -> Step:
        return Route(self._regex, self._replacement)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        pattern = compile_java(self._regex)
        if record.topic is None or not pattern.matches(record.topic):
            return record
        if self._replacement is None:
            raise NullPointerError("replacement")
        parts = parse_replacement(self._replacement, pattern.groups, frozenset(pattern.groupindex))
        match = pattern.find(record.topic)
        assert match is not None, "what matches as a whole is found"
        renamed = expand(parts, match) + record.topic[match.end() :]
        return cast("R", record.new_record(topic=renamed))
