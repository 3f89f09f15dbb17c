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
from penstock.settings.connector_definitions import CONNECTOR, ISOLATION, SINK, SOURCE
from penstock.settings.faults import Fault, InvalidSettingsError
from penstock.settings.plugin_classes import InstalledPlugins, PluginClasses, kind_of_setting
from penstock.settings.topics import TopicCreation, TopicCreationGroup
from penstock.settings.worker import (
    ConverterSettings,
    ProviderSettings,
    StandaloneSettings,
    WorkerSettings,
    resolve_placeholders,
)
from penstock.settings.worker_definition import STANDALONE, WORKER

__all__ = [
    "CONNECTOR",
    "ISOLATION",
    "SINK",
    "SOURCE",
    "STANDALONE",
    "WORKER",
    "ConnectorSettings",
    "ConverterSettings",
    "Fault",
    "InstalledPlugins",
    "InvalidSettingsError",
    "PluginClasses",
    "PluginSpec",
    "PredicateSpec",
    "ProviderSettings",
    "SinkSettings",
    "SourceSettings",
    "StandaloneSettings",
    "TopicCreation",
    "TopicCreationGroup",
    "TransformSpec",
    "WorkerSettings",
    "kind_of_setting",
    "resolve_placeholders",
    "validate_connector",
    "with_prefix",
]
