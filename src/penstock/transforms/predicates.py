"""The stock predicates: HasHeaderKey, RecordIsTombstone, TopicNameMatches.

Each is both a column and, record by record, a ``Predicate``: the column guards stock transforms inside of a plan, the
test guards a user's own transform.

Thread: configured once; ``condition`` and ``test`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.predicates.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import ConnectRecord, Predicate
from penstock.config import CompositeValidator, ConfigDef, ConfigType, Importance, LambdaValidator, NonEmptyString
from penstock.config.java_pattern import JavaPattern
from penstock.config.java_regex import compile_java
from penstock.errors import ConfigException
from penstock.pipeline.header_columns import has_header
from penstock.pipeline.regex_columns import matches
from penstock.pipeline.step import Bag, ColumnPredicate, Shape
from penstock.transforms.settings import NO_PATTERN

if TYPE_CHECKING:
    from pyspark.sql import Column

_NO_SETTINGS: Final = ConfigDef()
_HEADER_SETTINGS: Final = ConfigDef().define(
    "name", ConfigType.STRING, validator=NonEmptyString(), importance=Importance.MEDIUM, doc="The header name."
)


def _ensure_regex(name: str, value: object) -> None:
    if value is None:
        raise ConfigException(name, value, NO_PATTERN)
    compile_java(str(value), name=name)


_TOPIC_SETTINGS: Final = ConfigDef().define(
    "pattern",
    ConfigType.STRING,
    validator=CompositeValidator(NonEmptyString(), LambdaValidator(_ensure_regex, "valid regex")),
    importance=Importance.MEDIUM,
    doc="A Java regular expression for matching against the name of a record's topic.",
)


class HasHeaderKey(ColumnPredicate, Predicate):
    """True for records with at least one header of the configured name."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"
    reads = frozenset({"headers"})
    _key: str | None = None

    def configure(self, props: Mapping[str, object]) -> None:
        self._key = cast("str | None", _HEADER_SETTINGS.parse(props)["name"])

    def config(self) -> ConfigDef:
        return _HEADER_SETTINGS

    def identity(self) -> Hashable:
        return self._key

    def condition(self, bag: Bag, shape: Shape) -> Column:
        return has_header(bag.headers, self._key)

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
        return _NO_SETTINGS

    def identity(self) -> Hashable:
        return None

    def condition(self, bag: Bag, shape: Shape) -> Column:
        missing = bag.value.isNull()
        return missing | F.coalesce(F.is_variant_null(bag.value), F.lit(False)) if shape.value.is_variant else missing

    def test(self, record: ConnectRecord) -> bool:
        return record.value is None


class TopicNameMatches(ColumnPredicate, Predicate):
    """True for records whose topic name matches a Java regular expression from end to end."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
    reads = frozenset({"topic"})
    _text: str = ""
    _pattern: JavaPattern | None = None

    def configure(self, props: Mapping[str, object]) -> None:
        self._text = cast("str", _TOPIC_SETTINGS.parse(props)["pattern"])
        self._pattern = compile_java(self._text, name="pattern")

    def config(self) -> ConfigDef:
        return _TOPIC_SETTINGS

    def identity(self) -> Hashable:
        return self._text

    def condition(self, bag: Bag, shape: Shape) -> Column:
        return matches(bag.topic, self._text)

    def test(self, record: ConnectRecord) -> bool:
        return self._pattern is not None and record.topic is not None and self._pattern.matches(record.topic)
