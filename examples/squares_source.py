"""A source that reads with Spark: each frame is a query, which is run together with the connector's transforms."""

from collections.abc import Mapping

from penstock.api import FrameSourceTask, SourceConnector, SourceFrame
from penstock.config import AbstractConfig, ConfigDef, ConfigType, Range, setting
from penstock.data import INT64_SCHEMA

ROWS = 100_000
PARTITION = {"sequence": "squares"}


class SquaresConfig(AbstractConfig):
    topic: str = setting(doc="Where the squares go.")
    count: int = setting(type=ConfigType.LONG, validator=Range.at_least(0), doc="How many there are.")


class SquaresTask(FrameSourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        config = SquaresConfig.parse(props)
        self.topic, self.end = config.topic, config.count
        offset = self.context.offset_storage_reader().offset(PARTITION)
        self.next = int(str(offset["next"])) if offset else 0

    def poll(self) -> SourceFrame | None:
        if self.next >= self.end:
            self.context.stopping.wait(1.0)
            return None
        first, self.next = self.next, min(self.next + ROWS, self.end)
        end = self.next
        return SourceFrame(
            # Called again when the Spark session was lost: it must make the same rows in the same order.
            data=lambda session: session.range(first, end).selectExpr("id * id AS value"),
            topic=self.topic,
            value_schema=INT64_SCHEMA,
            source_partition=PARTITION,
            source_offset={"next": end},
            offset_after=lambda row: {"next": first + row + 1},
        )

    def stop(self) -> None: ...


class SquaresSource(SourceConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)

    def task_class(self) -> type[SquaresTask]:
        return SquaresTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self.props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return SquaresConfig.definition()
