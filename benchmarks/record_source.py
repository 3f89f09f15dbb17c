"""A plain record task for the benchmark: `poll` returns SourceRecord objects, acknowledged one by one.

Main types: `RecordFileSource`, `RecordFileTask`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path

from penstock.api import SourceConnector, SourceRecord, SourceTask, Task
from penstock.config import ConfigDef, ConfigType, Importance
from penstock.data import STRING_SCHEMA

CONFIG = (
    ConfigDef()
    .define("file", ConfigType.STRING, importance=Importance.HIGH, doc="The file to read.")
    .define("topic", ConfigType.STRING, importance=Importance.HIGH, doc="Where its lines go.")
)


class RecordFileSource(SourceConnector):
    """Reads a finished file, line by line."""

    def start(self, props: Mapping[str, str]) -> None:
        """Keeps the settings."""
        self._props = dict(props)

    def task_class(self) -> type[Task]:
        """The record task."""
        return RecordFileTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task."""
        return [self._props]

    def stop(self) -> None:
        """Nothing to do."""

    def config(self) -> ConfigDef:
        """`file` and `topic`."""
        return CONFIG


class RecordFileTask(SourceTask):
    """Makes a record object of every line and counts those that are done."""

    def start(self, props: Mapping[str, str]) -> None:
        """Goes to the committed position."""
        self._partition = {"filename": props["file"]}
        self._topic = props["topic"]
        offset = self.context.offset_storage_reader().offset(self._partition) or {}
        self._file: BufferedReader = Path(props["file"]).open("rb")  # noqa: SIM115 - closed in stop
        position = offset.get("position", 0)
        self._position = position if isinstance(position, int) else 0
        self._file.seek(self._position)
        self.committed = 0

    def poll(self) -> list[SourceRecord] | None:
        """The next 2,000 lines or so."""
        lines = self._file.readlines(2000 * 95)
        if not lines:
            self.context.stopping.wait(0.05)
            return None
        topic, partition, position = self._topic, self._partition, self._position
        now = int(time.time() * 1000)
        records = []
        for line in lines:
            position += len(line)
            records.append(
                SourceRecord(
                    partition,
                    {"position": position},
                    topic,
                    line[:-1].decode(),
                    value_schema=STRING_SCHEMA,
                    timestamp=now,
                )
            )
        self._position = position
        return records

    def commit_record(self, record: SourceRecord) -> None:
        """Counts a record that is done with."""
        self.committed += 1

    def stop(self) -> None:
        """Closes the file."""
        self._file.close()
