"""The converters that a worker's file names, checked before any task is made of them."""

import pytest

from penstock.plugins import Plugins
from penstock.settings import InvalidSettingsError, StandaloneSettings
from penstock.worker.task_parts import check_worker_converters

STRING = "org.apache.kafka.connect.storage.StringConverter"
MINIMUM = {
    "bootstrap.servers": "h:1",
    "key.converter": STRING,
    "value.converter": STRING,
    "offset.storage.file.filename": "offsets",
}


def check(**changes: str) -> None:
    """Checks a worker's file; ``key_converter`` stands for ``key.converter``."""
    given = {name.replace("_", "."): text for name, text in changes.items()}
    check_worker_converters(StandaloneSettings.parse({**MINIMUM, **given}), Plugins())


def test_java_names_aliases_and_settings_that_fit_are_accepted() -> None:
    check()
    check(key_converter="Json", key_converter_schemas_enable="false", header_converter=STRING)


def test_every_converter_that_cannot_be_used_is_named_with_the_reason_and_the_closest_name() -> None:
    with pytest.raises(InvalidSettingsError) as refused:
        check(
            key_converter="JsonConvertr",
            value_converter="JsonConverter",
            value_converter_schemas_cache_size="many",
            header_converter="FileStreamSource",
        )
    key, value, header = refused.value.faults
    assert (key.key, key.value) == ("key.converter", "JsonConvertr")
    assert key.rule.startswith("Invalid value JsonConvertr for configuration key.converter: Failed to find any class")
    assert key.rule.endswith("Did you mean JsonConverter?")
    assert "value.converter cannot be configured: Invalid value many for configuration schemas.cache.size" in value.rule
    assert "which name matches FileStreamSource" in header.rule
