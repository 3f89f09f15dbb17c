"""The settings of workers, connectors and topics: their definitions and their parsed values.

Start from:

- ``WorkerSettings``, ``StandaloneSettings`` (``worker``), ``DistributedSettings`` (``distributed``): a field for each
  setting that a worker's file may have, with its default and text. ``WORKER``, ``STANDALONE`` and ``DISTRIBUTED`` are
  their definitions.
- ``ConnectorConfig``, ``SourceConnectorConfig``, ``SinkConnectorConfig`` (``connector_definitions``): the same for the
  settings that every connector has. ``ConnectorSettings``, ``SourceSettings``, ``SinkSettings`` (``connector``) extend
  them; ``CONNECTOR``, ``SOURCE`` and ``SINK`` are their definitions.
- ``enrich`` (``connector``): adds the settings of a connector's transforms and predicates.
- ``TopicCreation`` (``topics``): the topics that a worker creates for a source; ``check_topics`` next to it: the topics
  that a sink reads.
- ``SettingFault``, ``InvalidSettingsError`` (``plugin_classes``): all faults of a configuration, at once.

``penstock.config`` parses single settings. Settings of Kafka's clients are in ``penstock.kafka.settings.table``; those
of a connector, transform or converter are next to its class.
"""

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
from penstock.settings.connector_definitions import (
    CONNECTOR,
    FRAMES,
    ISOLATION,
    OF_SINKS,
    OF_SOURCES,
    SINK,
    SOURCE,
    SOURCE_RETRY,
)
from penstock.settings.distributed import DISTRIBUTED, DistributedSettings, ExactlyOnceSourceSupport, KeySettings
from penstock.settings.plugin_classes import (
    InstalledPlugins,
    InvalidSettingsError,
    SettingFault,
    kind_of_setting,
)
from penstock.settings.topics import TopicCreation, TopicCreationGroup
from penstock.settings.worker import (
    STANDALONE,
    WORKER,
    ConverterSettings,
    ProviderSettings,
    StandaloneSettings,
    WorkerSettings,
    resolve_placeholders,
)

__all__ = [
    "CONNECTOR",
    "DISTRIBUTED",
    "FRAMES",
    "ISOLATION",
    "OF_SINKS",
    "OF_SOURCES",
    "SINK",
    "SOURCE",
    "SOURCE_RETRY",
    "STANDALONE",
    "WORKER",
    "ConnectorSettings",
    "ConverterSettings",
    "DistributedSettings",
    "ExactlyOnceSourceSupport",
    "InstalledPlugins",
    "InvalidSettingsError",
    "KeySettings",
    "PluginSpec",
    "PredicateSpec",
    "ProviderSettings",
    "SettingFault",
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
