"""A source that reads a log file and keeps only its errors: its position moves past the other lines, too."""

import os

from penstock.api import SourceConnector, SourceRecord, SourceTask
from penstock.config import AbstractConfig, setting

LINES = 1000


class ErrorsConfig(AbstractConfig):
    file: str = setting(doc="The log file.")
    topic: str = setting(doc="Where its errors go.")


class ErrorsTask(SourceTask):
    config_class = ErrorsConfig

    def poll(self) -> list[SourceRecord] | None:
        partition = {"file": self.settings.file}
        if not hasattr(self, "position"):
            offset = self.context.offset_storage_reader().offset(partition)
            self.position = offset["position"] if offset else 0
        before, records = self.position, []
        with open(self.settings.file, "rb") as log:
            log.seek(self.position)
            for line in (log.readline() for _ in range(LINES)):
                if not line.endswith(b"\n"):
                    break
                self.position += len(line)
                if b"ERROR" in line:
                    text = line.decode(errors="replace").rstrip()
                    records.append(SourceRecord(partition, {"position": self.position}, self.settings.topic, text))
        if self.position > before:
            self.context.advance(partition, {"position": self.position})
            self.context.progress(self.position, os.path.getsize(self.settings.file), "bytes")
        else:
            self.context.stopping.wait(1.0)
        return records


class ErrorsSource(SourceConnector):
    config_class, task_class = ErrorsConfig, ErrorsTask
