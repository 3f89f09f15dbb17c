"""TimestampRouter: makes the topic from the topic and the record's timestamp.

Class ``TimestampRouter``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.TimestampRouter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, Importance, LambdaValidator, Validator, setting
from penstock.errors import ConfigException, DataException
from penstock.pipeline.java_dates import DatePatternError, compile_pattern, print_column, print_millis
from penstock.pipeline.step import Bag, ColumnTransform, Fault, Keep, Made, Shape, Step, StepPlan
from penstock.transforms.requirements import NullPointerError

_TOPIC: Final = "${topic}"
_TIMESTAMP: Final = "${timestamp}"
_NO_TIMESTAMP: Final = "Timestamp missing on record: "


def check_date_pattern(name: str, value: object) -> None:
    """Refuses what is no pattern of ``SimpleDateFormat``.

    Raises:
        ConfigException: it is none.
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
    """The same with a check of the pattern, for validation."""

    timestamp_format: str | None = _format(LambdaValidator(check_date_pattern))


@dataclass(frozen=True)
class RouteByTime(Step):
    """Makes topics."""

    changes_topic = True

    topic_format: str
    pattern: str

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        return StepPlan(shape, self._make, frozenset({"topic", "timestamp"}), frozenset({"topic"}))

    def _make(self, bag: Bag, keep: Keep) -> Made:
        text = print_column(compile_pattern(self.pattern), bag.timestamp, keep)
        named = F.replace(F.lit(self.topic_format), F.lit(_TOPIC), bag.topic)
        message = F.concat(F.lit(f"{_NO_TIMESTAMP}topic "), bag.topic)
        fault = Fault(bag.timestamp.isNull(), message, DataException.java_name)
        return Made({"topic": F.coalesce(F.replace(named, F.lit(_TIMESTAMP), text), bag.topic)}, [fault])


@dataclass(frozen=True)
class _Failing(Step):
    """Fails every record: a setting is missing or wrong, which Java finds out here."""

    error: Exception

    def plan(self, shape: Shape) -> StepPlan:
        raise self.error


class TimestampRouter(ColumnTransform, Transformation):
    """Makes topics from timestamps."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.TimestampRouter"
    _topic_format: str | None = None
    _pattern: str | None = None

    def configure(self, props: Mapping[str, object]) -> None:
        """See ``Transformation``."""
        config = TimestampRouterConfig.parse(props)
        self._topic_format, self._pattern = config.topic_format, config.timestamp_format

    def config(self) -> ConfigDef:
        """See ``Transformation``."""
        return _Checked.definition()

    def _settings(self) -> tuple[str, str]:
        if self._topic_format is None or self._pattern is None:
            name = "topic.format" if self._topic_format is None else "timestamp.format"
            raise NullPointerError(f'The setting "{name}" is null')
        compile_pattern(self._pattern)
        return self._topic_format, self._pattern

    def step(self) -> Step:
        """See ``ColumnTransform``. With a setting that is null or wrong, the step fails each record."""
        try:
            return RouteByTime(*self._settings())
        except (NullPointerError, DatePatternError) as error:
            return _Failing(error)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        if record.timestamp is None:
            raise DataException(f"{_NO_TIMESTAMP}topic {record.topic}")
        topic_format, pattern = self._settings()
        text = print_millis(compile_pattern(pattern), record.timestamp)
        topic = topic_format.replace(_TOPIC, record.topic or "").replace(_TIMESTAMP, text)
        return cast("R", record.new_record(topic=topic))
