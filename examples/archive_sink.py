"""A bulk sink: Spark's executors write ranges of topics as files, and a list names those that count."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.api import SinkConnector, SinkFrame, TopicPartition
from penstock.api.bulk import BulkSinkTask, TopicRange, WrittenRange
from penstock.config import AbstractConfig, setting


class ArchiveConfig(AbstractConfig):
    directory: str = setting(doc="A directory that the worker and all executors see.")


class ArchiveTask(BulkSinkTask):
    config_class = ArchiveConfig
    range_rows = 100_000

    def start(self, props: Mapping[str, str]) -> None:
        super().start(props)
        self.directory = Path(self.settings.directory).absolute()
        self.directory.mkdir(exist_ok=True)

    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> str:
        """Writes a file on an executor; readers see it once it is listed."""
        name = f"{topic_range.name}-{topic_range.attempt}.txt"
        with open(self.directory / name, "w") as file:
            for frame in batches:
                file.writelines(f"{value}\n" for value in frame.table.column("value").to_pylist())
        return name

    def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        listed = self._listed()
        return {one: listed[str(one)]["end"] for one in partitions if str(one) in listed}

    def commit(self, files: Sequence[WrittenRange], ends: Mapping[TopicPartition, int]) -> None:
        """On the worker: one rename makes the files count, and says where the next job begins."""
        listed = self._listed()
        for place, end in ends.items():
            before = listed.get(str(place), {"files": []})["files"]
            listed[str(place)] = {"end": end, "files": before + [one.file for one in files if one.range.place == place]}
        (self.directory / "list.new").write_text(json.dumps(listed))
        os.replace(self.directory / "list.new", self.directory / "list.json")

    def _listed(self) -> dict[str, Any]:
        path = self.directory / "list.json"
        listed: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return listed

    def stop(self) -> None: ...


class ArchiveSink(SinkConnector):
    config_class = ArchiveConfig
    task_class = ArchiveTask
