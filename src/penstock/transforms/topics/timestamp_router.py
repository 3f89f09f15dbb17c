"""TimestampRouter: builds a new topic name from the topic and the record's timestamp.

Class ``TimestampRouter``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.TimestampRouter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, Importance, LambdaValidator, Validator, setting
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.java_dates import (
    DatePatternError,
    PatternToken,
    compile_pattern,
    print_column,
    print_millis,
)
from penstock.pipeline.plan.step import Made, NameColumn, RecordColumns, Shape, StepFault, StepPlan
from penstock.transforms.definition import JAVA, Definition, StockTransform
from penstock.transforms.fields.requirements import NullPointerError

_TOPIC: Final = "${topic}"
_TIMESTAMP: Final = "${timestamp}"
_NO_TIMESTAMP: Final = "Timestamp missing on record: "


def check_date_pattern(name: str, value: object) -> None:
    """Rejects texts that are not patterns of ``SimpleDateFormat``.

    Raises:
        ConfigException: The pattern is invalid.
    """
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
        """Both settings. If one is null or wrong, each record fails with this error, because Java notices it only
        here.
        """
        if self.topic_format is None or self.pattern is None:
            name = "topic.format" if self.topic_format is None else "timestamp.format"
            raise NullPointerError(f'The setting "{name}" is null')
        return self.topic_format, compile_pattern(self.pattern)

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        topic_format, tokens = self._settings

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            text = print_column(tokens, record.timestamp, keep)
            named = F.replace(F.lit(topic_format), F.lit(_TOPIC), record.topic)
            message = F.concat(F.lit(f"{_NO_TIMESTAMP}topic "), record.topic)
            fault = StepFault(record.timestamp.isNull(), message, DataException.java_name)
            return Made({"topic": F.coalesce(F.replace(named, F.lit(_TIMESTAMP), text), record.topic)}, [fault])

        return StepPlan(shape, make, frozenset({"topic", "timestamp"}), frozenset({"topic"}))

    def apply(self, record: R) -> R | None:
        """See ``Definition``."""
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
        """See ``Transformation``."""
        return _Checked.definition()

    def define(self, config: TimestampRouterConfig) -> RouteByTime:
        """See ``StockTransform``."""
        return RouteByTime(config.topic_format, config.timestamp_format)
