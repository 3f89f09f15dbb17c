"""The settings of workers, connectors and topics: their definitions, and what they are parsed to."""

from penstock.settings.connector import (
    ConnectorSettings,
    PluginSpec,
    PredicateSpec,
    SinkSettings,
    SourceSettings,
    TransformSpec,
    validate_connector,
    with_prefix,
)
from penstock.settings.connector_definitions import CONNECTOR, SINK, SOURCE
from penstock.settings.plugin_classes import InstalledPlugins, PluginClasses
from penstock.settings.topics import TopicCreation, TopicCreationGroup

__all__ = [
    "CONNECTOR",
    "SINK",
    "SOURCE",
    "ConnectorSettings",
    "InstalledPlugins",
    "PluginClasses",
    "PluginSpec",
    "PredicateSpec",
    "SinkSettings",
    "SourceSettings",
    "TopicCreation",
    "TopicCreationGroup",
    "TransformSpec",
    "validate_connector",
    "with_prefix",
]
