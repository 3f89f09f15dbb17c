"""The common settings of all stock converters. Source: org.apache.kafka.connect.storage.ConverterConfig."""

from __future__ import annotations

from typing import ClassVar, Final, TypeVar

from penstock.config import AbstractConfig, Importance, ValidString, setting

T = TypeVar("T")

#: The setting of every converter; the worker, or the converter itself, sets it.
TYPE_CONFIG: Final = "converter.type"


class ConverterConfig(AbstractConfig):
    """The settings of every stock converter."""

    converter_type: str = setting(
        validator=ValidString("key", "value", "header"),
        importance=Importance.LOW,
        doc="How this converter will be used.",
    )


def use_of(is_key: bool | None) -> str:
    """The value of ``converter.type``; None = for headers."""
    return "header" if is_key is None else "key" if is_key else "value"


class NullSettingError(TypeError):
    """A setting that Java unboxes is null."""

    java_name: ClassVar[str] = "java.lang.NullPointerException"


def not_null(name: str, value: T | None) -> T:
    """Returns the value of a setting that Java unboxes.

    Raises:
        NullSettingError: The value is null.
    """
    if value is None:
        raise NullSettingError(f"{name} must not be null")
    return value
