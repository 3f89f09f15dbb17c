"""The requirements of transforms on a key or value, with Java's messages.

Functions ``require_struct`` and ``require_map`` for one record; ``OfFields`` (``definition``) checks columns in the
same way.

Thread: pure functions.
Source: org.apache.kafka.connect.transforms.util.Requirements.
"""

from __future__ import annotations

from typing import ClassVar, Final, cast

from penstock.data import Schema, Struct
from penstock.data.text import has_text_keys
from penstock.errors import DataException
from penstock.pipeline.columns.java_classes import java_class, java_class_of_value

__all__ = [
    "ClassCastError",
    "NullPointerError",
    "UnknownFieldError",
    "java_class",
    "java_class_of_value",
    "no_map",
    "no_struct",
    "require_map",
    "require_struct",
    "with_string_keys",
]

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
    """The value, which must be a Struct.

    Raises:
        DataException: The value is not a Struct.
    """
    if not isinstance(value, Struct):
        raise DataException(f"{no_struct(purpose)}{java_class_of_value(value, schema)}")
    return value


def require_map(value: object, purpose: str) -> dict[object, object]:
    """The value, which must be a dict.

    Raises:
        DataException: The value is not a dict.
    """
    if not isinstance(value, dict):
        raise DataException(f"{no_map(purpose)}{java_class_of_value(value)}")
    return cast("dict[object, object]", value)


def with_string_keys(value: dict[object, object]) -> dict[str, object]:
    """The map, whose keys must be strings.

    Raises:
        ClassCastError: A key is not a string.
    """
    if not has_text_keys(value):
        raise ClassCastError(_ODD_KEY)
    return cast("dict[str, object]", value)
