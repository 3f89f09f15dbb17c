"""The base of stock transforms: a definition, which is behaviour and settings as one value, and a class around it.

A definition implements the transform for columns (``plan``) and for one record (``apply``). The class reads the
settings and provides both. Most transforms of fields need only one implementation for both; see ``fields``.

Thread: definitions are immutable. A transform is configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.util.Requirements, for the checks of keys and values.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, setting
from penstock.config.java_pattern import compile_java
from penstock.data import Schema, Struct
from penstock.data.text import has_text_keys
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.java_text import java_class_of_value
from penstock.pipeline.plan.step import ColumnTransform, SideName, Step

_ODD_KEY: Final = "A map in schemaless data has a key that is no string"


class UnknownFieldError(ValueError):
    """A field that a setting names is not in a schema."""

    java_name: ClassVar[str] = "java.lang.IllegalArgumentException"


class ClassCastError(TypeError):
    """A map has a key of a class that Java does not expect."""

    java_name: ClassVar[str] = "java.lang.ClassCastException"


class NullPointerError(TypeError):
    """A value that Java dereferences is null."""

    java_name: ClassVar[str] = "java.lang.NullPointerException"


def no_struct(purpose: str) -> str:
    """Returns the beginning of the message for a value with a schema that is not a Struct."""
    return f"Only Struct objects supported for [{purpose}], found: "


def no_map(purpose: str) -> str:
    """Returns the beginning of the message for a schemaless value that is not a Map."""
    return f"Only Map objects supported in absence of schema for [{purpose}], found: "


def require_struct(value: object, schema: Schema | None, purpose: str) -> Struct:
    """Returns the value, or raises DataException if it is not a Struct."""
    if not isinstance(value, Struct):
        raise DataException(f"{no_struct(purpose)}{java_class_of_value(value, schema)}")
    return value


def require_map(value: object, purpose: str) -> dict[object, object]:
    """Returns the value, or raises DataException if it is not a dict."""
    if not isinstance(value, dict):
        raise DataException(f"{no_map(purpose)}{java_class_of_value(value)}")
    return cast("dict[object, object]", value)


def with_string_keys(value: dict[object, object]) -> dict[str, object]:
    """Returns the map, or raises ClassCastError if a key is not a string."""
    if not has_text_keys(value):
        raise ClassCastError(_ODD_KEY)
    return cast("dict[str, object]", value)


#: Java's own words for a missing pattern, which accompany the error.
_NO_PATTERN: Final = 'Invalid regex: Cannot invoke "String.isEmpty()" because "this.pattern" is null'


def ensure_regex(name: str, value: object) -> None:
    """Refuses null, and what is no regular expression of Java or is not supported here."""
    if value is None:
        raise ConfigException(name, value, _NO_PATTERN)
    compile_java(str(value), name=name)


def null_replacement() -> Any:
    """The field ``replace_null_with_default: bool | None`` of an `AbstractConfig`."""
    return setting(
        default=True,
        doc="Whether to replace fields that have a default value and that are null to the default value. "
        "When set to true, the default value is used, otherwise null is used.",
    )


def replaces_nulls(value: bool | None) -> bool:
    """Reads ``null_replacement``; raises NullPointerError if the setting is present and null."""
    if value is None:
        raise NullPointerError("replace.null.with.default is null: set it to true or false, or leave it out")
    return value


JAVA: Final = "org.apache.kafka.connect.transforms."
C = TypeVar("C", bound=AbstractConfig)
T = TypeVar("T")


class Definition(Step):
    """The behaviour of a transform: on columns (see ``Step``) and on one record."""

    @abstractmethod
    def apply(self, record: R) -> R | None:
        """Returns the changed record, None if it is dropped; raises the same error as ``plan`` for a bad record."""


class StockTransform(ColumnTransform, Transformation, Generic[C]):
    """A transform with a definition. ``settings`` is the class of its settings."""

    java_name: ClassVar[str]
    settings: type[C]
    #: The definition for the key or the value; see ``pair``.
    side: ClassVar[SideName] = "value"
    _definition: Definition

    @abstractmethod
    def define(self, config: C) -> Definition:
        """Makes the definition; raises ConfigException if settings conflict."""

    def configure(self, props: Mapping[str, object]) -> None:
        self._definition = self.define(self.settings.parse(props))
        # Called for each record on the row path: this saves one call.
        self.apply = self._definition.apply  # type: ignore[method-assign]

    def config(self) -> ConfigDef:
        return self.settings.definition()

    def step(self) -> Definition:
        return self._definition

    def apply(self, record: R) -> R | None:
        return self._definition.apply(record)


def pair(base: type[T]) -> tuple[type[T], type[T]]:
    """The classes of a transform for keys and for values, from a private base with Kafka's name of the transform."""
    name = base.__name__.lstrip("_")

    def of_side(suffix: str) -> type[T]:
        members = {
            "__module__": base.__module__,
            "__doc__": base.__doc__,
            "java_name": f"{JAVA}{name}${suffix}",
            "side": suffix.lower(),
        }
        return cast("type[T]", ABCMeta(f"{name}{suffix}", (base,), members))

    return of_side("Key"), of_side("Value")
