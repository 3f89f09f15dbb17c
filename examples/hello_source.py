"""A source that greets once a second, and goes on counting after a restart."""

from collections.abc import Mapping

from penstock.api import SourceConnector, SourceRecord, SourceTask
from penstock.config import AbstractConfig, ConfigDef, setting

PARTITION = {"greeter": "hello"}


class HelloConfig(AbstractConfig):
    topic: str = setting(doc="Where the greetings go.")


class HelloTask(SourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        self.topic = HelloConfig.parse(props).topic
        offset = self.context.offset_storage_reader().offset(PARTITION) or {"count": 0}
        self.count = int(str(offset["count"]))

    def poll(self) -> list[SourceRecord] | None:
        if self.context.stopping.wait(1.0):
            return None
        self.count += 1
        return [SourceRecord(PARTITION, {"count": self.count}, self.topic, f"hello {self.count}")]

    def stop(self) -> None: ...


class HelloSource(SourceConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)

    def task_class(self) -> type[HelloTask]:
        return HelloTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self.props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return HelloConfig.definition()
