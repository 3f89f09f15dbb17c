"""File source connector. Main type: ``FileSource``, which the worker calls on the connector's thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.api import ExactlyOnceSupport, SourceConnector, Task
from penstock.connectors.files.source.ledger import LOGS, is_offset
from penstock.connectors.files.source.settings import FileSourceConfig
from penstock.errors import BadRequestException, ConnectException
from penstock.files import open_store

#: The settings by which the connector assigns files to a task.
TASK, TASKS = "task.id", "task.count"


class FileSource(SourceConnector):
    """Reads files of a directory or an object store into topics.

    Source: com.github.jcustenborder.kafka.connect.spooldir.SpoolDirCsvSourceConnector and its like,
    io.streamthoughts.kafka.connect.filepulse.source.FilePulseSourceConnector, and
    io.confluent.connect.s3.source.S3SourceConnector.
    """

    config_class = FileSourceConfig

    def task_class(self) -> type[Task]:
        """The task that reads files as frames."""
        from penstock.connectors.files.source.task import FileSourceTask

        return FileSourceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Returns up to 64 tasks: files are assigned by their names."""
        count = min(max_tasks, LOGS)
        return [{**self.props, TASK: str(number), TASKS: str(count)} for number in range(count)]

    def faults(self, settings: FileSourceConfig) -> Iterable[tuple[str, str]]:
        """Checks that the store exists."""
        return [("url", text) for text in _faults_of_store(settings)]

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Reports a store that cannot be read."""
        return _faults_of_store(FileSourceConfig.parse(props))

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """SUPPORTED: positions in files are exact."""
        return ExactlyOnceSupport.SUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None],
    ) -> bool:
        """Checks new offsets. Removing is always allowed.

        Raises:
            BadRequestException: An offset is not one that this connector has written.
        """
        for partition, offset in offsets.items():
            if offset is not None and not is_offset(dict(partition or ()), offset):
                raise BadRequestException(
                    "An offset of FileSource is a list of files by their hashes: it can be removed, so that files are "
                    "read again, or be one that a FileSource has written; "
                    f"{dict(partition or ())} with {dict(offset)} is neither"
                )
        return True


def _faults_of_store(config: FileSourceConfig) -> list[str]:
    try:
        store = open_store(config.place().tried_once())
        try:
            store.check_reading()
        finally:
            store.close()
    except ConnectException as error:
        return [str(error)]
    return []
