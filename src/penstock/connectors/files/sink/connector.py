"""File sink connector. Main type: `FileSink`, which the worker calls on the connector's thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.api import SinkConnector, Task, TopicPartition
from penstock.connectors.files.sink.settings import FileSinkConfig
from penstock.errors import ConnectException
from penstock.files import open_store


class FileSink(SinkConnector):
    """Writes topics into files of a directory or an object store.

    Source: io.confluent.connect.s3.S3SinkConnector and its like for Google Cloud Storage, Azure and HDFS; KIP-275.
    """

    config_class = FileSinkConfig
    has_positions = True

    def task_class(self) -> type[Task]:
        """The task that writes frames."""
        from penstock.connectors.files.sink.task import FileSinkTask

        return FileSinkTask

    def faults(self, settings: FileSinkConfig) -> Iterable[tuple[str, str]]:
        """Checks that the store exists."""
        return [("url", text) for text in _faults_of_store(settings)]

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Reports a store that cannot be used."""
        return _faults_of_store(FileSinkConfig.parse(props))

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Accepts any offsets: later files are written again, under the same names.

        Raises:
            ConnectException: The layout has manifests, whose files would be duplicated.
        """
        if FileSinkConfig.parse(props).layout == "manifest" and offsets:
            raise ConnectException(
                "With layout=manifest the offsets are those of the manifests, so that nothing is doubled: to write "
                "records again give the connector another topics.dir"
            )
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
