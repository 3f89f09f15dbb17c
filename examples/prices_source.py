"""A plain table as a frame: the columns of a pandas DataFrame are the fields of the records."""

from collections.abc import Mapping

import pandas as pd

from penstock.api import FrameSourceTask, SourceConnector, SourceFrame
from penstock.config import AbstractConfig, ConfigDef, setting
from penstock.data import FLOAT64_SCHEMA, INT32_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder, Timestamp

PRICE = (
    SchemaBuilder.struct()
    .name("Price")
    .field("id", INT32_SCHEMA)
    .field("name", OPTIONAL_STRING_SCHEMA)
    .field("price", FLOAT64_SCHEMA)
    .field("changed", Timestamp.SCHEMA)
    .build()
)


class PricesConfig(AbstractConfig):
    topic: str = setting(doc="Where the prices go.")
    file: str = setting(doc="A CSV file with the columns id, name, price and changed.")


class PricesTask(FrameSourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        config = PricesConfig.parse(props)
        self.topic, self.file = config.topic, config.file
        self.partition = {"file": self.file}
        offset = self.context.offset_storage_reader().offset(self.partition)
        self.done = int(str(offset["rows"])) if offset else 0

    def poll(self) -> SourceFrame | None:
        prices = pd.read_csv(self.file, parse_dates=["changed"])
        new, first = prices[self.done :], self.done
        if new.empty:
            self.context.stopping.wait(1.0)
            return None
        self.done = len(prices)
        return SourceFrame(
            data=new,
            topic=self.topic,
            value_schema=PRICE,
            source_partition=self.partition,
            source_offset={"rows": self.done},
            offset_after=lambda row: {"rows": first + row + 1},
        )

    def stop(self) -> None: ...


class PricesSource(SourceConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)

    def task_class(self) -> type[PricesTask]:
        return PricesTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self.props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return PricesConfig.definition()
