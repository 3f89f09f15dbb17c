"""A sink that archives topics as files of Parquet or Avro, each record in one file, whatever is killed.

A file is of one partition and one schema. Offsets are committed behind complete files. Later ones, which a killed task
has left behind, are removed when the records come again.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.api import FrameSinkTask, OffsetAndMetadata, SinkConnector, SinkFrame, TopicPartition
from penstock.config import AbstractConfig, Range, ValidString, setting
from penstock.data import Field, Type
from penstock.errors import ConnectException, DataException

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class ArchiverConfig(AbstractConfig):
    directory: str = setting(doc="Where the files go.")
    format: str = setting(default="parquet", validator=ValidString("parquet", "avro"), doc="parquet or avro.")
    file_rows: int = setting(default=100_000, validator=Range.at_least(1), doc="A file is complete with so many rows.")
    file_seconds: int = setting(default=60, validator=Range.at_least(1), doc="A file is complete after so long.")


def avro_field(field: Field) -> dict[str, object]:
    names = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double"}
    name = names.get(kind := field.schema.type.value, kind)
    if name in ("array", "map", "struct") or field.schema.name:
        raise ConnectException(f"The archiver writes plain fields to Avro, and not {field}: use format=parquet")
    return {"name": field.name, "type": ["null", name] if field.schema.optional else name}


class ArchiverTask(FrameSinkTask):
    config_class = ArchiverConfig

    def start(self, props: Mapping[str, str]) -> None:
        super().start(props)
        self.waiting: dict[TopicPartition, list[SinkFrame]] = {}
        self.opened: set[TopicPartition] = set()
        Path(self.settings.directory).mkdir(parents=True, exist_ok=True)
        self.context.every(self.settings.file_seconds, self.write_all)

    def put(self, frame: SinkFrame) -> None:
        is_struct = frame.value_schema is not None and frame.value_schema.type is Type.STRUCT
        gone = pc.or_(frame.table["value"].is_null(), not is_struct).to_numpy()
        self.context.report(frame, gone, DataException("The archiver takes structs with a schema"))
        for place, part in frame.take(~gone).by_partition().items():
            if place in self.waiting and self.waiting[place][-1].value_schema != part.value_schema:
                self.write(place)
            if place not in self.opened:
                self.remove_files_from(place, part.origin["offset"][0].as_py())
            self.opened.add(place)
            self.waiting.setdefault(place, []).append(part)
            if sum(one.num_rows for one in self.waiting[place]) >= self.settings.file_rows:
                self.write(place)

    def remove_files_from(self, place: TopicPartition, offset: int) -> None:
        for file in Path(self.settings.directory).glob(f"{place.topic}+{place.partition}+*"):
            if int(file.stem.rpartition("+")[2]) >= offset:
                file.unlink()

    def write_all(self) -> None:
        for place in list(self.waiting):
            self.write(place)

    def write(self, place: TopicPartition) -> None:
        frames = self.waiting.pop(place)
        rows = pa.chunked_array(chunk for one in frames for chunk in one.table["value"].chunks)
        name = f"{place.topic}+{place.partition}+{frames[0].origin['offset'][0].as_py():020}.{self.settings.format}"
        final, temporary = Path(self.settings.directory, name), Path(self.settings.directory, f".{name}")
        try:
            if self.settings.format == "parquet":
                pq.write_table(pa.Table.from_struct_array(rows), temporary)
            else:
                fields = [avro_field(one) for one in getattr(frames[0].value_schema, "fields", ())]
                with temporary.open("wb") as file:
                    fastavro.writer(file, {"type": "record", "name": "Row", "fields": fields}, rows.to_pylist())
            temporary.replace(final)
        except OSError as error:
            raise ConnectException(f"{final} cannot be written: {error}") from error

    def pre_commit(self, offsets: Offsets) -> Offsets:
        if self.context.is_closing:
            self.write_all()  # No later commit comes: the work on what waits would be lost.
        first = {place: frames[0].origin["offset"][0].as_py() for place, frames in self.waiting.items()}
        return {place: OffsetAndMetadata(first.get(place, end.offset)) for place, end in offsets.items()}

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for place in partitions:
            self.waiting.pop(place, None)
            self.opened.discard(place)


class Archiver(SinkConnector):
    config_class, task_class = ArchiverConfig, ArchiverTask
