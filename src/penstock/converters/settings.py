"""What the settings of all stock converters share.

Thread: constants and pure functions.
Source: org.apache.kafka.connect.storage.ConverterConfig.
"""

from __future__ import annotations

from typing import ClassVar, Final

from penstock.config import ConfigDef, ConfigType, Importance, ValidString

#: The setting every converter has; the worker, or the converter itself, sets it.
TYPE_CONFIG: Final = "converter.type"


def define_type(definition: ConfigDef) -> ConfigDef:
    """Adds ``converter.type``."""
    return definition.define(
        TYPE_CONFIG,
        ConfigType.STRING,
        validator=ValidString("key", "value", "header"),
        importance=Importance.LOW,
        doc="How this converter will be used.",
    )


def use_of(is_key: bool | None) -> str:
    """The value of ``converter.type``; None = for headers."""
    return "header" if is_key is None else "key" if is_key else "value"


class NullSettingError(TypeError):
    """A setting is null that Java unboxes."""

    java_name: ClassVar[str] = "java.lang.NullPointerException"
