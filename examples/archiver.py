"""A sink that archives topics as files of Parquet or Avro, each record in one file, whatever is killed.

A file is of one partition and one schema. When files are closed, what they are called, and which offsets are safe is
``RollingFiles``; where they are, a directory or an object store, is ``open_store``.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import BinaryIO

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.api import FrameSinkTask, OffsetAndMetadata, SinkConnector, SinkFrame, TopicPartition
from penstock.config import Range, ValidString, setting
from penstock.data import Type
from penstock.errors import ConnectException, DataException
from penstock.files import FileNames, RollingFiles, Rotation, Rows, StoreConfig, open_store

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
AVRO = {"int64": "long", "int32": "int", "float": "float", "double": "double", "bool": "boolean", "string": "string"}


class ArchiverConfig(StoreConfig):
    format: str = setting(default="parquet", validator=ValidString("parquet", "avro"), doc="parquet or avro.")
    file_rows: int = setting(default=100_000, validator=Range.at_least(1), doc="A file is complete with so many rows.")
    file_seconds: int = setting(default=60, validator=Range.at_least(1), doc="Files are complete by the clock, too.")


def write_parquet(tables: Iterator[pa.Table], schema: pa.Schema, out: BinaryIO) -> None:
    with pq.ParquetWriter(out, schema) as writer:
        for table in tables:
            writer.write_table(table)


def write_avro(tables: Iterator[pa.Table], schema: pa.Schema, out: BinaryIO) -> None:
    if plain := [one.name for one in schema if str(one.type) not in AVRO]:
        raise ConnectException(f"The archiver writes plain fields to Avro, and not {plain[0]}: use format=parquet")
    fields = [{"name": one.name, "type": ["null", AVRO[str(one.type)]]} for one in schema]
    rows = (row for table in tables for row in table.to_pylist())
    fastavro.writer(out, {"type": "record", "name": "Row", "fields": fields}, rows)


class ArchiverTask(FrameSinkTask):
    config_class = ArchiverConfig

    def start(self, props: Mapping[str, str]) -> None:
        super().start(props)
        store = open_store(self.settings.location())
        rotation = Rotation(self.settings.file_rows, schedule_ms=self.settings.file_seconds * 1000)
        names = FileNames(extension=f".{self.settings.format}")
        write = write_avro if self.settings.format == "avro" else write_parquet
        self.files = RollingFiles(self.context, store, rotation, write, names)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        self.files.open(partitions)

    def put(self, frame: SinkFrame) -> None:
        self.files.put(frame, self.take)

    def take(self, place: TopicPartition, part: SinkFrame) -> None:
        is_struct = part.value_schema is not None and part.value_schema.type is Type.STRUCT
        gone = pc.or_(part.table["value"].is_null(), not is_struct).to_numpy()
        self.context.report(part, gone, DataException("The archiver takes structs with a schema"))
        if not gone.all():
            kept = part.take(~gone)
            table = pa.Table.from_struct_array(kept.table["value"])
            self.files.append(place, Rows.of(kept, table, schema=kept.value_schema))

    def pre_commit(self, offsets: Offsets) -> Offsets:
        return self.files.pre_commit(offsets)  # Complete files go to the store first, if `is_closing`.

    def close(self, partitions: Collection[TopicPartition]) -> None:
        self.files.close(partitions)

    def stop(self) -> None:
        if hasattr(self, "files"):  # Also a task whose start failed is stopped.
            self.files.stop()


class Archiver(SinkConnector):
    config_class, task_class = ArchiverConfig, ArchiverTask
