"""Checks the converters that a connector names: each must be usable, and take its settings.

Main function: ``check_converters``. Makes an instance of each converter, so it runs users' code; stateless.

Source: org.apache.kafka.connect.runtime.AbstractHerder.validateConverterConfig.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from penstock.api import Converter, HeaderConverter
from penstock.config import ConfigDef, ConfigValue
from penstock.plugins import PluginKind
from penstock.settings import PluginClasses, with_prefix
from penstock.validation.config_infos import Finding

log = logging.getLogger(__name__)

_CONVERTERS: Final = (
    ("key.converter", PluginKind.CONVERTER, "key"),
    ("value.converter", PluginKind.CONVERTER, "value"),
    ("header.converter", PluginKind.HEADER_CONVERTER, "header"),
)


def check_converters(
    config: Mapping[str, str], found: Mapping[str, ConfigValue], classes: PluginClasses
) -> tuple[list[Finding], list[ConfigDef]]:
    """Checks the settings below each converter's name.

    Args:
        config: The connector's, placeholders resolved.
        found: What is known about its settings; errors of a converter's own setting are added.
        classes: Where classes come from.

    Returns:
        What was found about the converters' settings, and the converters' definitions.
    """
    findings: list[Finding] = []
    definitions: list[ConfigDef] = []
    for setting, kind, converter_type in _CONVERTERS:
        text, named = config.get(setting), found.get(setting)
        if text is None or named is None or named.error_messages:
            continue
        definition = _definition(text, kind, named, classes)
        if definition is None:
            continue
        own = {"converter.type": converter_type, **with_prefix(config, f"{setting}.")}
        try:
            values = definition.validate(own)
        except Exception as error:
            named.add_error_message(f"Failed to perform config validation for {text}{_reason(error)}")
            continue
        definitions.append(definition)
        keys = definition.keys
        findings += [
            Finding(keys.get(value.name), value, f"{setting}.", config.get(f"{setting}.{value.name}"))
            for value in values
        ]
    return findings, definitions


def _definition(text: str, kind: PluginKind, named: ConfigValue, classes: PluginClasses) -> ConfigDef | None:
    """The settings that a converter knows; None when it has none or cannot be used, which is noted then."""
    try:
        instance: object = classes.find_class(kind, text)()
    except Exception as error:
        named.add_error_message(f"Failed to load class {text}{_reason(error)}")
        return None
    if not isinstance(instance, (Converter, HeaderConverter)):
        named.add_error_message(f"Failed to load class {text}: it is no {kind.noun}")
        return None
    try:
        definition: object = instance.config()
    except Exception as error:
        named.add_error_message(f"Failed to load ConfigDef from {text}{_reason(error)}")
        return None
    if not isinstance(definition, ConfigDef):
        log.warning("%s.config() has not returned a ConfigDef; its settings are not checked", text)
        return None
    return definition


def _reason(error: Exception) -> str:
    return f": {error}" if str(error) else f": {type(error).__name__}"
