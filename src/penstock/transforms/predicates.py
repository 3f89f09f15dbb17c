"""The stock predicates HasHeaderKey, RecordIsTombstone and TopicNameMatches, and Filter, which drops records.

Each predicate works as a column, for stock transforms in a plan, and as a ``Predicate`` of single records for others.

Thread: configured once; ``condition``, ``test``, ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.predicates; org.apache.kafka.connect.transforms.Filter.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import functions as F

from penstock.api import ConnectRecord, Predicate
from penstock.api.transform import R
from penstock.config import (
    AbstractConfig,
    CompositeValidator,
    ConfigDef,
    LambdaValidator,
    NonEmptyString,
    setting,
)
from penstock.config.java_pattern import compile_java
from penstock.pipeline.batch.headers import has_header
from penstock.pipeline.plan.step import (
    ColumnPredicate,
    Made,
    RecordColumns,
    Shape,
    StepPlan,
    TopicPredicate,
)
from penstock.transforms.definition import JAVA, Definition, StockTransform, ensure_regex

if TYPE_CHECKING:
    from pyspark.sql import Column

_NO_SETTINGS: Final = ConfigDef()


class _HeaderConfig(AbstractConfig):
    name: str | None = setting(validator=NonEmptyString(), doc="The header name.")


class _TopicConfig(AbstractConfig):
    pattern: str = setting(
        validator=CompositeValidator(NonEmptyString(), LambdaValidator(ensure_regex, "valid regex")),
        doc="A Java regular expression for matching against the name of a record's topic.",
    )


class HasHeaderKey(ColumnPredicate, Predicate):
    """True for records with at least one header with the configured name."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"
    reads = frozenset({"headers"})
    _key: str | None = None

    def configure(self, props: Mapping[str, object]) -> None:
        self._key = _HeaderConfig.parse(props).name

    def config(self) -> ConfigDef:
        return _HeaderConfig.definition()

    def identity(self) -> Hashable:
        """The name of the header."""
        return self._key

    def condition(self, record: RecordColumns, shape: Shape) -> Column:
        return has_header(record.headers, self._key)

    def test(self, record: ConnectRecord) -> bool:
        headers = record.raw_headers
        return headers is not None and any(header.key == self._key for header in headers)


class RecordIsTombstone(ColumnPredicate, Predicate):
    """True for records whose value is null."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"
    reads = frozenset({"value"})

    def configure(self, props: Mapping[str, object]) -> None:
        """Takes no settings."""

    def config(self) -> ConfigDef:
        """There is no setting."""
        return _NO_SETTINGS

    def identity(self) -> Hashable:
        """All instances are equal."""
        return None

    def takes(self, shape: Shape) -> bool:
        """Not values of mixed kinds."""
        return not shape.value.is_variant

    def condition(self, record: RecordColumns, shape: Shape) -> Column:
        return record.value.isNull()

    def test(self, record: ConnectRecord) -> bool:
        return record.value is None


class TopicNameMatches(TopicPredicate, Predicate):
    """True for records whose whole topic name matches a Java regular expression."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
    _pattern: str = ""

    def configure(self, props: Mapping[str, object]) -> None:
        self._pattern = _TopicConfig.parse(props).pattern

    def config(self) -> ConfigDef:
        return _TopicConfig.definition()

    def identity(self) -> Hashable:
        """The pattern."""
        return self._pattern

    def of_topic(self, topic: str) -> bool:
        return compile_java(self._pattern, name="pattern").matches(topic)

    def test(self, record: ConnectRecord) -> bool:
        return record.topic is not None and self.of_topic(record.topic)


class FilterConfig(AbstractConfig):
    """``Filter`` has no settings."""


@dataclass(frozen=True)
class DropAll(Definition):
    """Drops every record."""

    def plan(self, shape: Shape) -> StepPlan:
        return StepPlan(shape, lambda record, keep: Made(drops=F.lit(True)))

    def apply(self, record: R) -> R | None:
        return None


class Filter(StockTransform[FilterConfig]):
    """Drops all records; normally used with a predicate."""

    java_name: ClassVar[str] = f"{JAVA}Filter"
    settings = FilterConfig

    def define(self, config: FilterConfig) -> DropAll:
        return DropAll()
