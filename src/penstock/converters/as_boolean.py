"""BooleanConverter: one byte, 0 or 1. Class ``BooleanConverter``, for keys, values and headers.

Thread: one instance a task; steps are built on its pipeline thread.
Source: org.apache.kafka.connect.converters.BooleanConverter.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import functions as F

from penstock.converters.plain import PlainConverter, ReadSide, WriteSide
from penstock.data import OPTIONAL_BOOLEAN_SCHEMA, ConnectHeaders, Schema, SchemaAndValue, Type
from penstock.errors import DataException
from penstock.pipeline.columns.java_classes import java_class, java_class_of_value
from penstock.pipeline.plan.step import Fault, Keep, Side, SideName, Step

if TYPE_CHECKING:
    from pyspark.sql import Column

_INCOMPATIBLE: Final = "BooleanConverter is not compatible with objects of type class "
_UNREADABLE: Final = "Failed to deserialize boolean: "


class WriteBoolean(WriteSide):
    """Writes one side, which must be boolean."""

    def check(self, known: Side) -> None:
        """See ``WriteSide``. A schema of another type fails the whole shape, null too."""
        if known.schema is not None and known.schema.type is not Type.BOOLEAN:
            raise DataException(f"Invalid schema type for BooleanConverter: {known.schema.type.name}")

    def written(self, column: Column, known: Side, keep: Keep) -> tuple[Column, *tuple[Fault, ...]]:
        """See ``WriteSide``."""
        faults: tuple[Fault, ...] = ()
        carrier = known.carrier
        if carrier is not None and carrier.type is not Type.BOOLEAN:
            faults = (Fault(column.isNotNull(), f"{_INCOMPATIBLE}{java_class(carrier)}", DataException.java_name),)
            column = F.lit(None).cast("boolean")
        return F.when(column, F.unhex(F.lit("01"))).when(~column, F.unhex(F.lit("00"))), *faults


class ReadBoolean(ReadSide):
    """Reads one side: one byte, 0 or 1. Every other byte is a fault of its record."""

    schema = OPTIONAL_BOOLEAN_SCHEMA

    def values(self, data: Column, known: Side) -> tuple[Column, *tuple[Fault, ...]]:
        """See ``ReadSide``."""
        true, false = data == F.unhex(F.lit("01")), data == F.unhex(F.lit("00"))
        fault = Fault(~(true | false), _UNREADABLE, DataException.java_name)
        return F.when(true, F.lit(True)).when(false, F.lit(False)), fault


class BooleanConverter(PlainConverter):
    """BOOLEAN as one byte."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.BooleanConverter"

    def writing(self, side: SideName) -> Step:
        """See ``ColumnConverter``."""
        return WriteBoolean(side)

    def reading(self, side: SideName, hint: Hashable) -> Step:
        """See ``ColumnConverter``. All messages are read alike, so there is no hint."""
        return ReadBoolean(side)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """See ``Converter``. Raises ``DataException`` for a value that is not a boolean."""
        if schema is not None and schema.type is not Type.BOOLEAN:
            raise DataException(f"Invalid schema type for BooleanConverter: {schema.type.name}")
        if value is None:
            return None
        if not isinstance(value, bool):
            raise DataException(f"{_INCOMPATIBLE}{java_class_of_value(value)}")
        return b"\x01" if value else b"\x00"

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        """See ``Converter``. The schema is OPTIONAL_BOOLEAN_SCHEMA."""
        if data is not None and data not in (b"\x00", b"\x01"):
            raise DataException(_UNREADABLE)
        return SchemaAndValue(OPTIONAL_BOOLEAN_SCHEMA, None if data is None else data == b"\x01")
