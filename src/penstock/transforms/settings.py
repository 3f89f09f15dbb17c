"""Settings that several transforms share.

Thread: constants and pure functions.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.config import setting
from penstock.config.java_regex import compile_java
from penstock.errors import ConfigException
from penstock.transforms.requirements import NullPointerError

#: Java's own words for a pattern that is missing; they stand beside the error that says so.
_NO_PATTERN: Final = 'Invalid regex: Cannot invoke "String.isEmpty()" because "this.pattern" is null'


def ensure_regex(name: str, value: object) -> None:
    """Checks a regular expression.

    Raises:
        ConfigException: It is null, or none that Java takes, or one that cannot be run here.
    """
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
    """Whether nulls become their defaults, by the value of that field.

    Raises:
        NullPointerError: The setting is there, and null.
    """
    if value is None:
        raise NullPointerError("replace.null.with.default is null: set it to true or false, or leave it out")
    return value
