"""Settings that several transforms share.

Thread: constants and pure functions.
"""

from __future__ import annotations

from penstock.config import ConfigDef, ConfigType, Importance


def define_null_replacement(definition: ConfigDef) -> ConfigDef:
    """Adds ``replace.null.with.default``."""
    return definition.define(
        "replace.null.with.default",
        ConfigType.BOOLEAN,
        default=True,
        importance=Importance.MEDIUM,
        doc="Whether to replace fields that have a default value and that are null to the default value. "
        "When set to true, the default value is used, otherwise null is used.",
    )
