"""Connectors that use Spark themselves, slowly while a file is there: for tests that end its JVM under them.

Main types: ``RowsSource`` (numbers, as DataFrames of the form that its setting says), ``RowsSink`` (collects what it is
given with Spark, and appends it to a file), ``Same`` (a user's transform that changes nothing). Thread: each task's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.api import (
    Connector,
    FrameSinkTask,
    FrameSourceTask,
    SinkConnector,
    SinkFrame,
    SourceConnector,
    SourceFrame,
    Transformation,
)
from penstock.api.transform import R
from penstock.config import ConfigDef, ConfigType, ValidString
from penstock.data import INT64_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows of a frame.
ROWS: Final = 20
#: Spark sleeps in each row: what a job takes then is far longer than it takes to kill it.
_SLOWLY: Final = "if(reflect('java.lang.Thread', 'sleep', 500L) IS NULL, NULL, {0})"
_PARTITION: Final = {"sequence": "rows"}

SOURCE = (
    ConfigDef()
    .define("topic", ConfigType.STRING, doc="Where the numbers go.")
    .define("count", ConfigType.LONG, doc="How many there are.")
    .define("form", ConfigType.STRING, validator=ValidString("function", "dataframe", "kept"), doc="Of the frames.")
    .define("slow", ConfigType.STRING, doc="The file that makes queries slow.")
)
SINK = (
    ConfigDef()
    .define("file", ConfigType.STRING, doc="Where the values go.")
    .define("slow", ConfigType.STRING, doc="The file that makes queries slow.")
)


def _query(column: str, slow: Path) -> str:
    return _SLOWLY.format(column) if slow.exists() else column


class _OneTask(Connector):
    """Gives its one task its own settings."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self._props]

    def stop(self) -> None: ...


class RowsSource(_OneTask, SourceConnector):
    """Numbers from 0 on."""

    def task_class(self) -> type[FrameSourceTask]:
        return RowsSourceTask

    def config(self) -> ConfigDef:
        return SOURCE


class RowsSourceTask(FrameSourceTask):
    """Returns functions, DataFrames, or parts of one DataFrame that it keeps."""

    def start(self, props: Mapping[str, str]) -> None:
        self._topic, self._form, self._end = props["topic"], props["form"], int(props["count"])
        self._slow = Path(props["slow"])
        offset = self.context.offset_storage_reader().offset(_PARTITION)
        self._next = int(str(offset["next"])) if offset else 0
        if self._form == "kept":
            self._all = self.context.spark().range(self._end)

    def poll(self) -> SourceFrame | None:
        if self._next >= self._end:
            self.context.stopping.wait(0.1)
            return None
        first, self._next = self._next, min(self._next + ROWS, self._end)
        end = self._next

        def rows(session: SparkSession) -> DataFrame:
            return session.range(first, end).selectExpr(f"{_query('id', self._slow)} AS value")

        data: DataFrame | Callable[[SparkSession], DataFrame] = rows
        if self._form == "kept":
            part = self._all.filter(f"id >= {first} AND id < {end}")
            data = part.selectExpr(f"{_query('id', self._slow)} AS value")
        elif self._form == "dataframe":
            data = rows(self.context.spark())
        return SourceFrame(data, self._topic, INT64_SCHEMA, _PARTITION, {"next": end})

    def stop(self) -> None: ...


class RowsSink(_OneTask, SinkConnector):
    """Writes values to a file, one a line."""

    def task_class(self) -> type[FrameSinkTask]:
        return RowsSinkTask

    def config(self) -> ConfigDef:
        return SINK


class RowsSinkTask(FrameSinkTask):
    """Collects each frame with Spark. ``<file>.putting`` is there from the first slow query on."""

    def start(self, props: Mapping[str, str]) -> None:
        self._file, self._slow = Path(props["file"]), Path(props["slow"])

    def put(self, frame: SinkFrame) -> None:
        query = frame.dataframe().selectExpr(f"{_query('value', self._slow)} AS value")
        if self._slow.exists():
            self._file.with_suffix(".putting").touch()
        values = [row["value"] for row in query.collect()]
        with self._file.open("a") as out:
            out.writelines(f"{value}\n" for value in values)

    def stop(self) -> None: ...


class Same(Transformation):
    """Record by record, so that frames become records in front of it."""

    def configure(self, props: Mapping[str, object]) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: R) -> R | None:
        return record
