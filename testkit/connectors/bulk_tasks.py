"""A source whose rows executors write themselves, or the worker does: for tests that compare and kill.

Main types: ``OrdersSource`` (orders of a made-up shop; ``form`` says who writes them), ``Marked`` (a stateless
transform), ``Counted`` (one that is not).

Thread: each task's; a Python worker's of Spark.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.api import FrameSourceTask, SourceConnector, SourceFrame, Transformation
from penstock.api.bulk import BulkFrame
from penstock.api.transform import R
from penstock.config import ConfigDef, ConfigType, ValidString
from penstock.data import ConnectHeaders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION: Final = {"shop": "orders"}
SETTINGS: Final = (
    ConfigDef()
    .define("topic", ConfigType.STRING, doc="Where the orders go.")
    .define("count", ConfigType.LONG, doc="How many there are.")
    .define("partitions", ConfigType.INT, default=2, doc="Spark partitions of a run.")
    .define("form", ConfigType.STRING, default="bulk", validator=ValidString("bulk", "stream"), doc="Who writes them.")
    .define("rows", ConfigType.LONG, default=1 << 40, doc="The most rows of a run or frame.")
    .define("transactions", ConfigType.BOOLEAN, default=True, doc="Whether executors use them.")
    .define("query", ConfigType.STRING, default="", doc="The notes of orders, in SQL.")
)


class OrdersSource(SourceConnector):
    """Orders from 0 on, in one run."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)

    def task_class(self) -> type[FrameSourceTask]:
        return OrdersTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self._props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return SETTINGS


class OrdersTask(FrameSourceTask):
    """Returns all orders, once."""

    def start(self, props: Mapping[str, str]) -> None:
        given: Any = SETTINGS.parse(props)
        self._topic, self._count, self._parts = given["topic"], given["count"], given["partitions"]
        self._rows = given["rows"]
        self._form, self._query, self._transactions = given["form"], given["query"], given["transactions"]
        offset = self.context.offset_storage_reader().offset(PARTITION)
        self._next = int(str(offset["next"])) if offset else 0

    def poll(self) -> Any:
        first, end = self._next, min(self._next + self._rows, self._count)
        if first >= end:
            self.context.stopping.wait(0.1)
            return None
        self._next = end

        def rows(session: SparkSession) -> DataFrame:
            return orders(session, first, end, self._parts, self._query)

        if self._form == "stream":
            return SourceFrame(rows, self._topic, None, PARTITION, {"next": end}, value_fields=FIELDS)
        return BulkFrame(
            data=rows,
            topic=self._topic,
            source_partition=PARTITION,
            source_offset={"next": end},
            run=f"orders-{first}-{end}",
            value_fields=FIELDS,
            transactions=self._transactions,
        )

    def stop(self) -> None: ...


FIELDS: Final = ("id", "customer", "amount", "at", "tags", "note")


def orders(session: SparkSession, first: int, end: int, partitions: int, more: str = "") -> DataFrame:
    """Orders with keys, timestamps and headers; row i of them is the same each time."""
    note = more or "if(id % 7 = 0, NULL, concat('note ', id, ' of \"some\" length'))"
    return session.range(first, end, 1, partitions).selectExpr(
        "id",
        "concat('customer ', id % 1000) AS customer",
        "cast(id * 1.25 AS decimal(12,2)) AS amount",
        "timestamp_millis(1700000000000 + id) AS at",
        "array('a', cast(id % 3 AS string)) AS tags",
        f"{note} AS note",
        "concat('k', id % 5000) AS key",
        "timestamp_millis(1600000000000 + id) AS timestamp",
        "array(named_struct('key', 'origin', 'value', cast(cast(id % 2 AS string) AS binary))) AS headers",
    )


class Marked(Transformation):
    """Adds a header to each record; fails those of one customer, and ends its process where a file says so."""

    stateless: ClassVar[bool] = True

    def configure(self, configs: Mapping[str, object]) -> None:
        """``refuse``: a note whose record fails. ``end``: a file with an id, at which the process is killed, once."""
        self._refuse = str(configs.get("refuse", ""))
        self._end = Path(str(configs["end"])) if configs.get("end") else None

    def apply(self, record: R) -> R | None:
        value: Any = record.value
        if self._refuse and value.get("customer") == self._refuse:
            raise ValueError(f"no {self._refuse} here")
        if self._end is not None and self._end.exists() and str(value.get("id")) == self._end.read_text():
            self._end.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        headers = ConnectHeaders(record.headers)
        headers.add("marked", "yes", None)
        made: Any = record.new_record(headers=headers)
        return made  # type: ignore[no-any-return]

    @staticmethod
    def config() -> ConfigDef:
        return ConfigDef()

    def close(self) -> None: ...


class Counted(Marked):
    """The same, and does not say that it is stateless."""

    stateless: ClassVar[bool] = False
