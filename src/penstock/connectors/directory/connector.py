"""Directory source connector: divides the files of watched directories among tasks.

Main type: `DirectorySourceConnector`. The worker calls it on the connector's thread; what goes on in the background is
`DirectoryMonitor`, which it starts and stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.api import ExactlyOnceSupport, SourceConnector, Task
from penstock.config import Config, ConfigDef
from penstock.connectors.directory.monitor import Assignment, DirectoryMonitor, scan_directories
from penstock.connectors.directory.planning import (
    BYTES_FIELD,
    FILENAME_FIELD,
    POSITION_FIELD,
    SIZE_FIELD,
    is_count,
)
from penstock.connectors.directory.settings import (
    TASK_FILES_CONFIG,
    DirectorySourceConfig,
    TaskFiles,
    encode_files,
    stall_fault,
)
from penstock.connectors.directory.task import DirectorySourceTask
from penstock.errors import BadRequestException


class DirectorySourceConnector(SourceConnector):
    """Streams the lines of all files in some directories, and follows its tasks through their committed offsets.

    It asks for new tasks when files appear, grow after they were finished, or are finished (no tasks at all when there
    is nothing to read), and restarts tasks that commit nothing although they have something to read.

    Source: KIP-131, Motivation.
    """

    def __init__(self) -> None:
        self._props: dict[str, str] = {}
        self._assignment = Assignment()
        self._monitor: DirectoryMonitor | None = None

    def start(self, props: Mapping[str, str]) -> None:
        """Begins to watch.

        Raises:
            ConfigException: the settings are wrong.
        """
        self.stop()
        config = DirectorySourceConfig.parse(props)
        self._props = dict(props)
        self._monitor = DirectoryMonitor(config, self.context(), self._assignment)
        self._monitor.start()

    def task_class(self) -> type[Task]:
        """The columnar reader of many files."""
        return DirectorySourceTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The files that are to be read, spread over at most `max_tasks` tasks; none when there is nothing to read."""
        if self._monitor is None:
            return []
        assignment = self._monitor.plan(max_tasks)
        configs = []
        for paths in assignment.groups:
            stale = {path: assignment.stale[path] for path in paths if path in assignment.stale}
            configs.append({**self._props, TASK_FILES_CONFIG: encode_files(TaskFiles(paths, stale))})
        return configs

    def stop(self) -> None:
        """Ends the watching; which task has which file is remembered for the next start."""
        if self._monitor is not None:
            self._monitor.stop()
            self._assignment = self._monitor.assignment
            self._monitor = None

    def config(self) -> ConfigDef:
        """The settings."""
        return DirectorySourceConfig.definition()

    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        """Checks each setting, and that the times fit together."""
        checked = super().validate(connector_configs)
        values = {value.name: value for value in checked.config_values}
        fault = stall_fault(values["idle.ms"].value, values["stall.timeout.ms"].value)
        if fault is not None:
            values["stall.timeout.ms"].add_error_message(f"stall.timeout.ms {fault}")
        return checked

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Says which directories are missing or cannot be read, and that none of them has a file."""
        config, complaints = DirectorySourceConfig.parse(props), dict[str, str]()
        scan = scan_directories(config, complaints.__setitem__)
        if complaints:
            return [text.partition(". ")[0] for text in complaints.values()]
        none = f"no file in {', '.join(config.paths)} matches file.pattern={config.file_pattern}"
        return [] if scan.files else [none]

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """Positions in files can be found again."""
        return ExactlyOnceSupport.SUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None],
    ) -> bool:
        """Checks new offsets. Removing is always allowed, also of entries that make no sense.

        Raises:
            BadRequestException: an offset is not a position in a file.
        """
        for partition, offset in offsets.items():
            if offset is not None:
                _check_offset(None if partition is None else dict(partition), offset)
        return True


def _check_offset(partition: Mapping[str, object] | None, offset: Mapping[str, object]) -> None:
    if partition is None or not isinstance(partition.get(FILENAME_FIELD), str):
        raise BadRequestException(f"A source partition has to hold the path of a file as '{FILENAME_FIELD}'")
    if not is_count(offset.get(POSITION_FIELD)):
        raise BadRequestException(
            f"The '{POSITION_FIELD}' in the offset of {partition[FILENAME_FIELD]} has to be a whole number of bytes, "
            f"0 or more, got {offset.get(POSITION_FIELD)!r}"
        )
    for name in (SIZE_FIELD, BYTES_FIELD):
        if name in offset and not is_count(offset[name]):
            raise BadRequestException(
                f"The '{name}' in the offset of {partition[FILENAME_FIELD]} has to be a whole number of bytes, 0 or "
                f"more, or to be left out, got {offset[name]!r}"
            )
