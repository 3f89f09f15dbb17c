"""ByteArrayConverter: bytes as they are. Class ``ByteArrayConverter``, for keys, values and headers.

Thread: one instance a task; steps are built on its pipeline thread.
Source: org.apache.kafka.connect.converters.ByteArrayConverter.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
from pyspark.sql import functions as F

from penstock.api.arrow import one_array
from penstock.converters.plain import PlainConverter, WriteSide
from penstock.data import OPTIONAL_BYTES_SCHEMA, ConnectHeaders, Schema, SchemaAndValue, Type
from penstock.errors import DataException
from penstock.pipeline.columns.java_classes import java_class, java_class_of_value
from penstock.pipeline.columns.types import Form
from penstock.pipeline.plan.step import Fault, Keep, Shape, Side, SideName, Sorted, Step, StepPlan

if TYPE_CHECKING:
    from pyspark.sql import Column

_INCOMPATIBLE: Final = "ByteArrayConverter is not compatible with objects of type class "


class WriteBytes(WriteSide):
    """Writes one side, which must be bytes."""

    def check(self, known: Side) -> None:
        """See ``WriteSide``. A schema of another type fails the whole shape, null too."""
        if known.schema is not None and known.schema.type is not Type.BYTES:
            raise DataException(f"Invalid schema type for ByteArrayConverter: {known.schema.type.name}")

    def written(self, column: Column, known: Side, keep: Keep) -> tuple[Column, *tuple[Fault, ...]]:
        """See ``WriteSide``."""
        schema = known.carrier if known.schema is None else known.schema
        assert schema is not None, "values of one kind have a carrier"
        if schema.type is not Type.BYTES or known.physical.form is not Form.SCALAR:
            fault = Fault(column.isNotNull(), f"{_INCOMPATIBLE}{java_class(schema)}", DataException.java_name)
            return F.lit(None).cast("binary"), fault
        return (column,)


@dataclass(frozen=True)
class ReadBytes(Step):
    """Reads one side; the bytes stay as they are."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. The side gets the schema of optional bytes."""
        return StepPlan(shape.with_side(self.side, Side.of(OPTIONAL_BYTES_SCHEMA)), reads=frozenset({self.side}))


class ByteArrayConverter(PlainConverter):
    """Bytes as they are; other values are refused."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.ByteArrayConverter"
    #: Headers of frames need no look then.
    reads_any_bytes: ClassVar[bool] = True

    def writing(self, side: SideName) -> Step:
        """See ``ColumnConverter``."""
        return WriteBytes(side)

    def write_column(self, side: Side, column: pa.Array | pa.ChunkedArray) -> pa.Array | None:
        """See ``ColumnConverter``. Bytes of a schema are written as they are."""
        is_bytes = side.schema is not None and side.schema.type is Type.BYTES and side.physical.form is Form.SCALAR
        return one_array(column) if is_bytes and pa.types.is_binary(column.type) else None

    def reading(self, side: SideName, hint: Hashable) -> Step:
        """See ``ColumnConverter``. All messages are read alike, so there is no hint."""
        return ReadBytes(side)

    def sort(self, column: pa.ChunkedArray, *, worked_on: bool, beside_spark: bool) -> Sorted:
        """See ``ColumnConverter``. Nothing is to be read."""
        read = {0: (Side.of(OPTIONAL_BYTES_SCHEMA), column)} if beside_spark else {}
        return Sorted((None,), read=read)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """See ``Converter``. Raises ``DataException`` for a value that is not bytes."""
        if schema is not None and schema.type is not Type.BYTES:
            raise DataException(f"Invalid schema type for ByteArrayConverter: {schema.type.name}")
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise DataException(f"{_INCOMPATIBLE}{java_class_of_value(value, schema)}")

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        """See ``Converter``. The schema is OPTIONAL_BYTES_SCHEMA."""
        return SchemaAndValue(OPTIONAL_BYTES_SCHEMA, data)
