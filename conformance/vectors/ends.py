"""Our ends of a pipeline: converters and a transform that let records in and out as they are, and a consumer's batch.

Main types: ``LookUp`` and ``LookUpHeader`` (records in, by the number that stands in their bytes), ``Empty`` and
``EmptyHeader`` (null of everything), ``Capture`` (records out, behind a chain). Functions ``as_consumed`` and
``consumed``.

Owning thread: the one that runs the pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from penstock.api import ConnectRecord, Converter, HeaderConverter, SinkRecord, SourceRecord, Transformation
from penstock.data import ConnectHeaders, Header, Schema, SchemaAndValue
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PipelineSpec, TransformStage

if TYPE_CHECKING:
    from penstock.config import ConfigDef

R = TypeVar("R", bound=ConnectRecord)


class LookUp(Converter):
    """Finds a value by the number that stands in its bytes; null bytes are null."""

    def __init__(self, values: Sequence[tuple[Schema | None, object]]) -> None:
        self._values = values

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        raise NotImplementedError("only read")

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        return SchemaAndValue(None, None) if data is None else SchemaAndValue(*self._values[int(data)])


class LookUpHeader(HeaderConverter):
    """Finds a header's value by the number that stands in its bytes."""

    def __init__(self, headers: Sequence[Header]) -> None:
        self._headers = headers

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        raise NotImplementedError("only read")

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return SchemaAndValue(None, None)
        header = self._headers[int(data)]
        return SchemaAndValue(header.schema, header.value)


class Empty(Converter):
    """Makes null of everything."""

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        return None

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        return SchemaAndValue(None, None)


class EmptyHeader(HeaderConverter):
    """Makes null of every header."""

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        return None

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        return SchemaAndValue(None, None)


class _Own(Transformation):
    """A transform of ours, in Python, without settings."""

    def config(self) -> ConfigDef:
        from penstock.config import ConfigDef

        return ConfigDef()


class Capture(_Own):
    """Keeps every source record it sees, by its number."""

    def __init__(self) -> None:
        self.seen: dict[int, ConnectRecord] = {}

    def apply(self, record: R) -> R | None:
        source = cast("SourceRecord", record)
        assert source.source_offset is not None
        self.seen[cast("int", source.source_offset["seq"])] = record
        return record


def as_consumed(records: Sequence[SinkRecord], stages: Sequence[TransformStage]) -> tuple[PipelineSpec, pa.Table]:
    """Returns the pipeline specification and the batch that give these very records to a sink's chain."""
    keys = LookUp([(one.key_schema, one.key) for one in records])
    values = LookUp([(one.value_schema, one.value) for one in records])
    headers = LookUpHeader([header for one in records for header in one.headers])
    numbers = [_number(place) for place in range(len(records))]
    return PipelineSpec(keys, values, headers, stages, "vectors"), consumed(records, numbers, numbers)


def consumed(
    records: Sequence[SinkRecord],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None,
) -> pa.Table:
    """The batch a consumer would have fetched."""
    if headers is None:
        number = iter(range(sum(one.headers.size() for one in records)))
        headers = [[(header.key, _number(next(number))) for header in one.headers] for one in records]
    columns = {
        "topic": [one.topic for one in records],
        "partition": [one.kafka_partition for one in records],
        "offset": [one.kafka_offset for one in records],
        "timestamp": [one.timestamp for one in records],
        "timestamp_type": [-1 if one.timestamp is None else 0 for one in records],
        "key": keys,
        "value": values,
        "headers": [[{"key": key, "value": data} for key, data in one] or None for one in headers],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in CONSUMED_SCHEMA]
    return pa.table(arrays, schema=CONSUMED_SCHEMA)


def _number(number: int) -> bytes:
    return b"%d" % number
