"""A source of many things: the CSV files of a folder, each with a position of its own."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv

from penstock.api import Chunk, PartitionedSource, PartitionedTask
from penstock.config import AbstractConfig, setting


class LogsConfig(AbstractConfig):
    folder: str = setting(doc="Where the CSV files are. They only grow.")
    topic: str = setting(doc="Where their rows go.")


class LogsTask(PartitionedTask):
    config_class = LogsConfig

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        done = offset["rows"] if offset else 0
        rows = csv.read_csv(Path(self.settings.folder, partition["file"])).slice(done)
        if rows.num_rows:
            number = pa.array(range(done + 1, done + rows.num_rows + 1))
            yield Chunk(rows.append_column("rows", number), self.settings.topic, offset_columns=["rows"], key=["rows"])


class LogsSource(PartitionedSource):
    config_class, task_class = LogsConfig, LogsTask
    interval_s = 1.0  # New files are looked for every second.

    def partitions(self) -> list[dict[str, Any]]:
        return [{"file": path.name} for path in sorted(Path(self.settings.folder).glob("*.csv"))]
