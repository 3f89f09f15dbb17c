"""What transforms require of a key or value, with Java's messages.

Functions ``struct_fault`` and ``map_fault`` for columns, ``require_struct`` and ``require_map`` for one record.

Thread: pure functions.
Source: org.apache.kafka.connect.transforms.util.Requirements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.data import Schema, Struct, Type
from penstock.errors import DataException
from penstock.pipeline.java_classes import java_class, java_class_of_value
from penstock.pipeline.step import Fault, Side
from penstock.pipeline.types import Form

__all__ = [
    "ClassCastError",
    "NullPointerError",
    "UnknownFieldError",
    "is_struct",
    "java_class",
    "java_class_of_value",
    "map_fault",
    "no_map",
    "no_struct",
    "require_map",
    "require_struct",
    "struct_fault",
    "with_string_keys",
]

if TYPE_CHECKING:
    from pyspark.sql import Column

_ODD_KEY: Final = "A map in schemaless data has a key that is no string"


class UnknownFieldError(ValueError):
    """A field that a setting names is not in a schema."""

    java_name: ClassVar[str] = "java.lang.IllegalArgumentException"


class ClassCastError(TypeError):
    """A map has a key of another class than Java takes for granted."""

    java_name: ClassVar[str] = "java.lang.ClassCastException"


class NullPointerError(TypeError):
    """Something is null that Java dereferences."""

    java_name: ClassVar[str] = "java.lang.NullPointerException"


def no_struct(purpose: str) -> str:
    """How the message begins when a value with schema is no Struct."""
    return f"Only Struct objects supported for [{purpose}], found: "


def no_map(purpose: str) -> str:
    """How the message begins when a schemaless value is no Map."""
    return f"Only Map objects supported in absence of schema for [{purpose}], found: "


def is_struct(known: Side) -> bool:
    """Whether a column with schema holds Structs."""
    return known.schema is not None and known.schema.type is Type.STRUCT and known.physical.form is Form.STRUCT


def struct_fault(column: Column, known: Side, purpose: str) -> Fault | None:
    """The fault of values with schema that are no Struct, null included; None = there can be none."""
    if is_struct(known):
        return None if known.present else Fault(column.isNull(), f"{no_struct(purpose)}null", DataException.java_name)
    assert known.schema is not None, "a value without schema has to be a map"
    found = F.when(column.isNull(), "null").otherwise(java_class(known.schema))
    return Fault(None, F.concat(F.lit(no_struct(purpose)), found), DataException.java_name)


def map_fault(column: Column, known: Side, purpose: str, *, or_null: bool = False) -> Fault | None:
    """The fault of schemaless values that are no Map.

    Args:
        column: The values, all of one kind.
        known: What is known of them.
        purpose: What needs a map, for the message.
        or_null: Whether null passes.
    """
    exception = DataException.java_name
    if known.absent:
        return None if or_null else Fault(None, f"{no_map(purpose)}null", exception)
    start = F.lit(no_map(purpose))
    kind = java_class(known.carrier) if known.carrier is not None else "java.lang.String"
    found = F.when(column.isNull(), "null").otherwise(kind)
    return Fault(column.isNotNull() if or_null else None, F.concat(start, found), exception)


def require_struct(value: object, schema: Schema | None, purpose: str) -> Struct:
    """The value, which must be a Struct.

    Raises:
        DataException: It is none.
    """
    if not isinstance(value, Struct):
        raise DataException(f"{no_struct(purpose)}{java_class_of_value(value, schema)}")
    return value


def require_map(value: object, purpose: str) -> dict[object, object]:
    """The value, which must be a dict.

    Raises:
        DataException: It is none.
    """
    if not isinstance(value, dict):
        raise DataException(f"{no_map(purpose)}{java_class_of_value(value)}")
    return cast("dict[object, object]", value)


def with_string_keys(value: dict[object, object]) -> dict[str, object]:
    """The map, whose keys must be strings.

    Raises:
        ClassCastError: A key is none.
    """
    if not all(isinstance(key, str) for key in value):
        raise ClassCastError(_ODD_KEY)
    return cast("dict[str, object]", value)
