"""Classes of settings that cannot be used: what their refusal says."""

from __future__ import annotations

import pytest

from penstock.config import ConfigDef
from penstock.plugins import Plugins
from penstock.settings.connector import validate_connector
from penstock.settings.connector_definitions import SINK
from penstock.settings.plugin_classes import InstalledPlugins


@pytest.mark.parametrize("name", ["org.apache.kafka.connect.transforms.Flatten", "Flatten"])
def test_a_transform_without_its_side_is_refused_with_the_names_of_both(name: str) -> None:
    config = {"name": "c", "connector.class": "FileStreamSink", "topics": "t", "transforms": "a"}

    _, found = validate_connector(
        ConfigDef(SINK), {**config, "transforms.a.type": name}, InstalledPlugins(Plugins.discover())
    )

    assert found["transforms.a.type"].error_messages == [
        "This class is abstract and cannot be created. Did you mean "
        "org.apache.kafka.connect.transforms.Flatten$Key, org.apache.kafka.connect.transforms.Flatten$Value?"
    ]
