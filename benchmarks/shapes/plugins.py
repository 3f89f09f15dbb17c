"""The connectors of `bin/bench shapes` for Penstock's worker; Java's has the same in Java.

Main types: `CountingRecordSink` and `CountingFrameSink`, which count what they are given; `RecordShapeSource` and
`FrameShapeSource`, which give the messages of a file, JSON with schemas, again and again.

Thread: each task's own.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa

from penstock.api import (
    Connector,
    FrameSinkTask,
    FrameSourceTask,
    SinkConnector,
    SinkFrame,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceFrame,
    SourceRecord,
    SourceTask,
    Task,
)
from penstock.config import ConfigDef, ConfigType, Importance
from penstock.converters.json.converter import JsonConverter
from penstock.data import Schema, Struct, Type

_BATCH: Final = 2_000
_ARROW: Final[Mapping[Type, pa.DataType]] = {
    Type.INT64: pa.int64(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
}
_PARTITION: Final[Mapping[str, object]] = {"part": 0}


def _config(*names: str) -> ConfigDef:
    made = ConfigDef()
    for name in names:
        made.define(name, ConfigType.STRING, importance=Importance.HIGH, doc=f"The {name}.")
    return made


class _Counter:
    """The file that holds how many records there were, as eight bytes."""

    def __init__(self, props: Mapping[str, str]) -> None:
        self._fd = os.open(props["file"], os.O_RDWR | os.O_CREAT)
        self._count = 0

    def add(self, records: int) -> None:
        self._count += records
        os.pwrite(self._fd, struct.pack(">q", self._count), 0)

    def close(self) -> None:
        os.close(self._fd)


class _Connector(Connector):
    """What both kinds of connectors do."""

    task: ClassVar[type[Task]]

    def start(self, props: Mapping[str, str]) -> None:
        """Keeps the settings."""
        self._props = dict(props)

    def task_class(self) -> type[Task]:
        """The task."""
        return self.task

    def stop(self) -> None:
        """Nothing to do."""


class CountingRecordSink(_Connector, SinkConnector):
    """Counts the records that its tasks are given, each in a file of its own."""

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """As many as may be."""
        return [{**self._props, "file": f"{self._props['file']}.{number}"} for number in range(max_tasks)]

    def config(self) -> ConfigDef:
        """`file`."""
        return _config("file")


class CountingFrameSink(CountingRecordSink):
    """The same with frames."""


class CountingRecordTask(SinkTask):
    """Takes records."""

    def start(self, props: Mapping[str, str]) -> None:
        """Opens the file."""
        self._counter = _Counter(props)

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Counts."""
        self._counter.add(len(records))

    def stop(self) -> None:
        """Closes the file."""
        self._counter.close()


class CountingFrameTask(FrameSinkTask):
    """Takes frames of typed columns."""

    def start(self, props: Mapping[str, str]) -> None:
        """Opens the file."""
        self._counter = _Counter(props)

    def put(self, frame: SinkFrame) -> None:
        """Counts."""
        self._counter.add(frame.num_rows)

    def stop(self) -> None:
        """Closes the file."""
        self._counter.close()


CountingRecordSink.task = CountingRecordTask
CountingFrameSink.task = CountingFrameTask


class RecordShapeSource(_Connector, SourceConnector):
    """One task."""

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One."""
        return [self._props]

    def config(self) -> ConfigDef:
        """`file` and `topic`."""
        return _config("file", "topic")


class FrameShapeSource(RecordShapeSource):
    """The same with frames."""


def _messages(file: str) -> tuple[list[Any], list[Any]]:
    """The keys and values of the messages in a file, with their schemas."""
    converter = JsonConverter()
    converter.configure({}, False)
    pairs = [line.split(b"\t") for line in Path(file).read_bytes().splitlines()]
    sides = [[converter.to_connect_data("", one or None) for one in side] for side in zip(*pairs, strict=True)]
    return sides[0], sides[1]


class RecordShapeTask(SourceTask):
    """Makes each record and its Struct anew."""

    def start(self, props: Mapping[str, str]) -> None:
        """Reads the messages."""
        self._topic = props["topic"]
        self._keys, self._values = _messages(props["file"])
        self._given = 0

    def poll(self) -> list[SourceRecord]:
        """The next ones."""
        made: list[SourceRecord] = []
        for _ in range(_BATCH):
            row = self._given % len(self._values)
            self._given += 1
            key, value = self._keys[row], self._values[row]
            made.append(
                SourceRecord(
                    _PARTITION,
                    {"given": self._given},
                    self._topic,
                    _anew(value.value),
                    value_schema=value.schema,
                    key=key.value,
                    key_schema=key.schema,
                )
            )
        return made

    def stop(self) -> None:
        """Nothing to do."""


def _anew(value: Struct) -> Struct:
    made = Struct(value.schema)
    for field in value.schema.fields:
        one = value.get(field.name)
        made.put(field.name, _anew(one) if isinstance(one, Struct) else one)
    return made


class FrameShapeTask(FrameSourceTask):
    """Gives one table."""

    def start(self, props: Mapping[str, str]) -> None:
        """Makes the table."""
        self._topic = props["topic"]
        keys, values = _messages(props["file"])
        self._schema: Schema = values[0].schema
        columns = {"value": pa.array([_plain(one.value) for one in values], _arrow(self._schema))}
        self._key_schema: Schema | None = keys[0].schema
        if self._key_schema is not None:
            columns["key"] = pa.array([one.value for one in keys], pa.string())
        self._table = pa.table(columns)
        self._given = 0

    def poll(self) -> SourceFrame:
        """The table once more."""
        self._given += self._table.num_rows
        return SourceFrame(
            self._table,
            topic=self._topic,
            value_schema=self._schema,
            key_schema=self._key_schema,
            source_partition=_PARTITION,
            source_offset={"given": self._given},
        )

    def stop(self) -> None:
        """Nothing to do."""


RecordShapeSource.task = RecordShapeTask
FrameShapeSource.task = FrameShapeTask


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return {field.name: _plain(value.get(field.name)) for field in value.schema.fields}
    return value


def _arrow(schema: Schema) -> pa.DataType:
    if schema.type is Type.STRUCT:
        return pa.struct([pa.field(one.name, _arrow(one.schema)) for one in schema.fields])
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None, "an array has items"
        return pa.list_(_arrow(schema.value_schema))
    return _ARROW[schema.type]
