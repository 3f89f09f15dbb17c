"""A source of many things: the CSV files of a folder, each with a position of its own."""

from pathlib import Path

import pyarrow.csv as csv

from penstock.api import Chunk, PartitionedSource
from penstock.config import AbstractConfig, setting


class LogsConfig(AbstractConfig):
    folder: str = setting(doc="Where the CSV files are. They only grow.")
    topic: str = setting(doc="Where their rows go.")


class LogsSource(PartitionedSource):
    config_class = LogsConfig
    interval_s = 1.0  # New files are looked for every second.

    def partitions(self):
        return [{"file": path.name} for path in sorted(Path(self.settings.folder).glob("*.csv"))]

    def read(self, partition, offset):
        done = offset["rows"] if offset else 0
        rows = csv.read_csv(Path(self.settings.folder, partition["file"])).slice(done)
        if rows.num_rows:
            yield Chunk(rows, self.settings.topic, offset_after=lambda row: {"rows": done + row + 1})
