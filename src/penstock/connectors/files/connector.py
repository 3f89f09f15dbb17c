"""File sink connector. Main type: `FileSink`, which the worker calls on the connector's thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.api import SinkConnector, Task, TopicPartition
from penstock.config import Config, ConfigValue
from penstock.connectors.files.settings import FileSinkConfig, refused
from penstock.connectors.files.stores import open_store
from penstock.errors import ConnectException


class FileSink(SinkConnector):
    """Writes topics into files of a directory or an object store.

    Source: io.confluent.connect.s3.S3SinkConnector and its like for Google Cloud Storage, Azure and HDFS; KIP-275.
    """

    config_class = FileSinkConfig

    def task_class(self) -> type[Task]:
        """The task that writes frames."""
        from penstock.connectors.files.task import FileSinkTask

        return FileSinkTask

    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        """Checks each setting, which of them fit together, and whether the store is there."""
        checked = super().validate(connector_configs)
        values = {value.name: value for value in checked.config_values}
        missing = refused(connector_configs)
        if missing:
            added = [ConfigValue(name, connector_configs[name]) for name, _ in missing]
            for value, (name, text) in zip(added, missing, strict=True):
                value.add_error_message(f"{name}: {text}")
            return Config([*checked.config_values, *added])
        if any(value.error_messages for value in values.values()):
            return checked
        config = FileSinkConfig.of(FileSinkConfig.definition().parse(connector_configs))
        for name, text in config.faults() or [("url", text) for text in _faults_of_store(config)]:
            values[name].add_error_message(f"{name}: {text}")
        return checked

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Says that the store cannot be used."""
        return _faults_of_store(FileSinkConfig.parse(props))

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Any offsets do: files from an earlier one on are written again, under the same names."""
        return True


def _faults_of_store(config: FileSinkConfig) -> list[str]:
    try:
        store = open_store(config.location().tried_once())
        try:
            store.check()
        finally:
            store.close()
    except ConnectException as error:
        return [str(error)]
    return []
