"""Settings that several transforms share.

Thread: constants and pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.config import ConfigDef, ConfigType, Importance
from penstock.transforms.requirements import NullPointerError

#: Java's own words for a pattern that is missing; they stand beside the error that says so.
NO_PATTERN: Final = 'Invalid regex: Cannot invoke "String.isEmpty()" because "this.pattern" is null'
_NULL_REPLACEMENT: Final = "replace.null.with.default"


def define_null_replacement(definition: ConfigDef) -> ConfigDef:
    """Adds ``replace.null.with.default``."""
    return definition.define(
        _NULL_REPLACEMENT,
        ConfigType.BOOLEAN,
        default=True,
        importance=Importance.MEDIUM,
        doc="Whether to replace fields that have a default value and that are null to the default value. "
        "When set to true, the default value is used, otherwise null is used.",
    )


def replaces_nulls(values: Mapping[str, object]) -> bool:
    """Whether nulls become their defaults, by parsed settings.

    Raises:
        NullPointerError: The setting is there, and null.
    """
    value = values[_NULL_REPLACEMENT]
    if value is None:
        raise NullPointerError(f"{_NULL_REPLACEMENT} is null: set it to true or false, or leave it out")
    return bool(value)
