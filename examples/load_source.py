"""A bulk load: Spark's executors read a folder of Parquet files, and write its rows to Kafka themselves."""

from collections.abc import Mapping

from penstock.api import FrameSourceTask, SourceConnector
from penstock.api.bulk import BulkFrame
from penstock.config import AbstractConfig, ConfigDef, setting


class LoadConfig(AbstractConfig):
    topic: str = setting(doc="Where the rows go.")
    path: str = setting(doc="A folder of Parquet files that does not change.")


class LoadTask(FrameSourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        self.config = LoadConfig.parse(props)
        self.partition = {"path": self.config.path}
        self.loaded = self.context.offset_storage_reader().offset(self.partition) is not None

    def poll(self) -> BulkFrame | None:
        if self.loaded:
            self.context.stopping.wait(1.0)
            return None
        self.loaded = True
        return BulkFrame(
            data=lambda session: session.read.parquet(self.config.path),
            topic=self.config.topic,
            source_partition=self.partition,
            source_offset={"loaded": True},
            run="all",
        )

    def stop(self) -> None: ...


class LoadSource(SourceConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)

    def task_class(self) -> type[LoadTask]:
        return LoadTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self.props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return LoadConfig.definition()
