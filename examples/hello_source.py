"""A source that greets once a second, and goes on counting after a restart."""

from penstock.api import SourceConnector, SourceRecord, SourceTask
from penstock.config import AbstractConfig, setting

PARTITION = {"greeter": "hello"}


class HelloConfig(AbstractConfig):
    topic: str = setting(doc="Where the greetings go.")


class HelloTask(SourceTask):
    config_class = HelloConfig

    def poll(self) -> list[SourceRecord] | None:
        if self.context.stopping.wait(1.0):
            return None
        if not hasattr(self, "count"):
            offset = self.context.offset_storage_reader().offset(PARTITION)
            self.count = offset["count"] if offset else 0
        self.count += 1
        return [SourceRecord(PARTITION, {"count": self.count}, self.settings.topic, f"hello {self.count}")]


class HelloSource(SourceConnector):
    config_class, task_class = HelloConfig, HelloTask
