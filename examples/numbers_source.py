"""A columnar source: counts, a hundred thousand numbers at a time; no number ever becomes a record object."""

from collections.abc import Mapping

import pyarrow as pa

from penstock.api import FrameSourceTask, SourceConnector, SourceFrame
from penstock.config import AbstractConfig, ConfigDef, ConfigType, Range, setting
from penstock.data import INT64_SCHEMA

ROWS = 100_000
PARTITION = {"sequence": "numbers"}


class NumbersConfig(AbstractConfig):
    topic: str = setting(doc="Where the numbers go.")
    count: int = setting(type=ConfigType.LONG, validator=Range.at_least(0), doc="How many there are.")


class NumbersTask(FrameSourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        config = NumbersConfig.parse(props)
        self.topic, self.end = config.topic, config.count
        offset = self.context.offset_storage_reader().offset(PARTITION)
        self.next = int(str(offset["next"])) if offset else 0

    def poll(self) -> SourceFrame | None:
        if self.next >= self.end:
            self.context.stopping.wait(1.0)
            return None
        first, self.next = self.next, min(self.next + ROWS, self.end)
        return SourceFrame(
            data=pa.table({"value": pa.array(range(first, self.next), pa.int64())}),
            topic=self.topic,
            value_schema=INT64_SCHEMA,
            source_partition=PARTITION,
            source_offset={"next": self.next},
            offset_after=lambda row: {"next": first + row + 1},
        )

    def stop(self) -> None: ...


class NumbersSource(SourceConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)

    def task_class(self) -> type[NumbersTask]:
        return NumbersTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self.props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return NumbersConfig.definition()
