"""The base of the converters that are Spark columns, and those of primitive values: bytes, booleans and numbers.

Numbers are neither widened nor narrowed: a value must have exactly the converter's type. Spark has no function for the
bits of a floating point number, so columns call Java's.

Source: org.apache.kafka.connect.storage.ConverterConfig; org.apache.kafka.connect.converters.ByteArrayConverter,
BooleanConverter, NumberConverter and its subclasses.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
from pyspark.sql import functions as F

from penstock.api import Converter, HeaderConverter
from penstock.config import AbstractConfig, ConfigDef, Importance, ValidString, setting
from penstock.data import OPTIONAL_BOOLEAN_SCHEMA, OPTIONAL_BYTES_SCHEMA, ConnectHeaders, Schema, SchemaAndValue, Type
from penstock.errors import DataException
from penstock.pipeline.columns.java_text import java_class, java_class_of_value
from penstock.pipeline.columns.layout import LayoutKind, logical_name, spark_type
from penstock.pipeline.plan.step import (
    NOTHING,
    RAW,
    ColumnConverter,
    Made,
    NameColumn,
    RecordColumns,
    Shape,
    Side,
    SideName,
    Sorted,
    Step,
    StepFault,
    StepPlan,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


#: The setting of every converter; the worker, or the converter itself, sets it.
TYPE_CONFIG: Final = "converter.type"


class ConverterConfig(AbstractConfig):
    """The settings of every stock converter."""

    converter_type: str = setting(
        validator=ValidString("key", "value", "header"),
        importance=Importance.LOW,
        doc="How this converter will be used.",
    )


def use_of(is_key: bool | None) -> str:
    """The value of ``converter.type``; None = for headers."""
    return "header" if is_key is None else "key" if is_key else "value"


@dataclass(frozen=True)
class WriteSide(Step):
    """Writes keys or values; a key or value that is null in all records stays null."""

    side: SideName
    #: The side after the step.
    result: ClassVar[Side] = RAW

    def plan(self, shape: Shape) -> StepPlan:
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        self.check(known)

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            column, *faults = self.written(record.side(self.side), known, keep)
            return Made({self.side: column}, faults)

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, self.result), make, names, names)

    def check(self, known: Side) -> None:
        """Raises ``DataException`` for a key or value of which nothing can be written, not even null."""

    @abstractmethod
    def written(self, column: Column, known: Side, keep: NameColumn) -> tuple[Column, *tuple[StepFault, ...]]:
        """The bytes and the possible errors."""


@dataclass(frozen=True)
class ReadSide(Step):
    """Reads keys or values."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            column, *faults = self.values(record.side(self.side), shape.side(self.side))
            return Made({self.side: column}, faults)

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, Side.of(self.schema)), make, names, names)

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The schema of the values that are read."""

    @abstractmethod
    def values(self, data: Column, known: Side) -> tuple[Column, *tuple[StepFault, ...]]:
        """The values and the possible errors."""


class PlainConverter(ColumnConverter, Converter, HeaderConverter):
    """Converts headers like values; the only setting is ``converter.type``, unless ``settings`` adds others."""

    settings: ClassVar[type[ConverterConfig]] = ConverterConfig

    def configure(self, configs: Mapping[str, object], is_key: bool | None = None) -> None:
        """See ``Converter``; without ``is_key`` it is for headers."""
        self.take(self.settings.parse({**configs, TYPE_CONFIG: use_of(is_key)}))

    def take(self, config: ConverterConfig) -> None:
        """Takes its settings."""

    def config(self) -> ConfigDef:
        return self.settings.definition()

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        return self.to_connect_data(topic, data)


def _check_type(schema: Schema | None, kind: Type, converter: str) -> None:
    if schema is not None and schema.type is not kind:
        raise DataException(f"Invalid schema type for {converter}: {schema.type.name}")


_INCOMPATIBLE: Final = "ByteArrayConverter is not compatible with objects of type class "


class WriteBytes(WriteSide):
    """Writes keys or values, which must be bytes."""

    def check(self, known: Side) -> None:
        _check_type(known.schema, Type.BYTES, "ByteArrayConverter")

    def written(self, column: Column, known: Side, keep: NameColumn) -> tuple[Column, *tuple[StepFault, ...]]:
        schema = known.carrier if known.schema is None else known.schema
        assert schema is not None, "values of one kind have a carrier"
        if schema.type is not Type.BYTES or known.physical.form is not LayoutKind.SCALAR:
            fault = StepFault(column.isNotNull(), f"{_INCOMPATIBLE}{java_class(schema)}", DataException.java_name)
            return F.lit(None).cast("binary"), fault
        return (column,)


@dataclass(frozen=True)
class ReadBytes(Step):
    """Reads keys or values; the bytes stay unchanged."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:
        return StepPlan(shape.with_side(self.side, Side.of(OPTIONAL_BYTES_SCHEMA)), reads=frozenset({self.side}))


class ByteArrayConverter(PlainConverter):
    """Bytes, unchanged; rejects other values."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.ByteArrayConverter"
    #: Headers of frames then need no check.
    reads_any_bytes: ClassVar[bool] = True

    def writing(self, side: SideName) -> Step:
        return WriteBytes(side)

    def write_column(self, side: Side, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
        """See ``ColumnConverter``. Bytes with a schema are written unchanged, in the pieces in which they come."""
        is_bytes = (
            side.schema is not None and side.schema.type is Type.BYTES and side.physical.form is LayoutKind.SCALAR
        )
        return column if is_bytes and pa.types.is_binary(column.type) else None

    def reading(self, side: SideName, hint: Hashable) -> Step:
        return ReadBytes(side)

    def sort(self, column: pa.ChunkedArray, *, worked_on: bool, beside_spark: bool) -> Sorted:
        read = {0: (Side.of(OPTIONAL_BYTES_SCHEMA), column)} if beside_spark else {}
        return Sorted((None,), read=read)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        _check_type(schema, Type.BYTES, "ByteArrayConverter")
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise DataException(f"{_INCOMPATIBLE}{java_class_of_value(value, schema)}")

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        return SchemaAndValue(OPTIONAL_BYTES_SCHEMA, data)


_NOT_BOOLEAN: Final = "BooleanConverter is not compatible with objects of type class "
_UNREADABLE: Final = "Failed to deserialize boolean: "


class WriteBoolean(WriteSide):
    """Writes keys or values, which must be booleans."""

    def check(self, known: Side) -> None:
        _check_type(known.schema, Type.BOOLEAN, "BooleanConverter")

    def written(self, column: Column, known: Side, keep: NameColumn) -> tuple[Column, *tuple[StepFault, ...]]:
        faults: tuple[StepFault, ...] = ()
        carrier = known.carrier
        if carrier is not None and carrier.type is not Type.BOOLEAN:
            faults = (StepFault(column.isNotNull(), f"{_NOT_BOOLEAN}{java_class(carrier)}", DataException.java_name),)
            column = F.lit(None).cast("boolean")
        return F.when(column, F.unhex(F.lit("01"))).when(~column, F.unhex(F.lit("00"))), *faults


class ReadBoolean(ReadSide):
    """Reads keys or values: one byte, 0 or 1. Every other byte is an error of its record."""

    schema = OPTIONAL_BOOLEAN_SCHEMA

    def values(self, data: Column, known: Side) -> tuple[Column, *tuple[StepFault, ...]]:
        true, false = data == F.unhex(F.lit("01")), data == F.unhex(F.lit("00"))
        fault = StepFault(~(true | false), _UNREADABLE, DataException.java_name)
        return F.when(true, F.lit(True)).when(false, F.lit(False)), fault


class BooleanConverter(PlainConverter):
    """BOOLEAN as one byte."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.BooleanConverter"

    def writing(self, side: SideName) -> Step:
        return WriteBoolean(side)

    def reading(self, side: SideName, hint: Hashable) -> Step:
        return ReadBoolean(side)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        _check_type(schema, Type.BOOLEAN, "BooleanConverter")
        if value is None:
            return None
        if not isinstance(value, bool):
            raise DataException(f"{_NOT_BOOLEAN}{java_class_of_value(value)}")
        return b"\x01" if value else b"\x00"

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        if data is not None and data not in (b"\x00", b"\x01"):
            raise DataException(_UNREADABLE)
        return SchemaAndValue(OPTIONAL_BOOLEAN_SCHEMA, None if data is None else data == b"\x01")


@dataclass(frozen=True)
class NumberKind:
    """One type of number, with its name in messages, its bytes, and its letter in ``struct``."""

    name: str
    type: Type
    size: int
    code: str
    #: For floating point: the class, and the methods for the bits of a number and the number of bits.
    java: tuple[str, str, str] | None = None

    def schema(self) -> Schema:
        """Returns the schema of the values that are read."""
        return Schema(self.type, optional=True)

    def fits(self, schema: Schema | None) -> bool:
        """True if all values of a schema are of this type."""
        return schema is not None and schema.type is self.type and logical_name(schema) is None

    def refusal(self, found: str) -> str:
        """Returns the beginning of the message for a value of a wrong type."""
        return f"Failed to serialize to {self.name} (was class {found}): "

    def bytes_of(self, column: Column) -> Column:
        """The bytes of a number: the last ones of the two's complement of an integer, or of the bits of a float."""
        bits = column if self.java is None else _call(self.java[0], self.java[1], column)
        return F.unhex(F.right(F.lpad(F.hex(bits.cast("bigint")), 16, "0"), F.lit(2 * self.size)))

    def of_bytes(self, data: Column) -> Column:
        """The number of bytes; undefined or null for another number of bytes."""
        digits = F.hex(F.substring(data, 1, self.size))
        if self.size == 8:
            bits = F.conv(digits, 16, -10).try_cast("bigint")
        else:
            number = F.conv(digits, 16, 10).try_cast("bigint")
            limit = 1 << (8 * self.size - 1)
            bits = F.when(number >= limit, number - F.lit(2 * limit)).otherwise(number)
            bits = bits.try_cast("int")
        return (bits if self.java is None else _call(self.java[0], self.java[2], bits)).try_cast(
            spark_type(self.schema())
        )


def _call(name: str, method: str, column: Column) -> Column:
    """The text of what a method of Java returns; null for null."""
    return F.when(column.isNotNull(), F.java_method(F.lit(f"java.lang.{name}"), F.lit(method), column))


_SHORT: Final = NumberKind("short", Type.INT16, 2, ">h")
_INTEGER: Final = NumberKind("integer", Type.INT32, 4, ">i")
_LONG: Final = NumberKind("long", Type.INT64, 8, ">q")
_FLOAT: Final = NumberKind("float", Type.FLOAT32, 4, ">f", ("Float", "floatToIntBits", "intBitsToFloat"))
_DOUBLE: Final = NumberKind("double", Type.FLOAT64, 8, ">d", ("Double", "doubleToLongBits", "longBitsToDouble"))


@dataclass(frozen=True)
class WriteNumber(WriteSide):
    """Writes keys or values, which must be numbers of one type."""

    kind: NumberKind

    def written(self, column: Column, known: Side, keep: NameColumn) -> tuple[Column, *tuple[StepFault, ...]]:
        schema = known.schema if known.schema is not None else known.carrier
        if self.kind.fits(schema) and known.physical.form is LayoutKind.SCALAR:
            return (self.kind.bytes_of(column),)
        assert schema is not None, "values of one kind have a carrier"
        refusal = self.kind.refusal(java_class(schema))
        return F.lit(None).cast("binary"), StepFault(column.isNotNull(), refusal, DataException.java_name)


@dataclass(frozen=True)
class ReadNumber(ReadSide):
    """Reads keys or values. A message of another size than the type's is an error of its record."""

    kind: NumberKind

    @property
    def schema(self) -> Schema:
        return self.kind.schema()

    def values(self, data: Column, known: Side) -> tuple[Column, *tuple[StepFault, ...]]:
        kind = self.kind
        whole = F.octet_length(data) == kind.size
        return F.when(whole, kind.of_bytes(data)), StepFault(
            ~whole, f"Failed to deserialize {kind.name}: ", DataException.java_name
        )


class _NumberConverter(PlainConverter):
    kind: ClassVar[NumberKind]

    def writing(self, side: SideName) -> Step:
        return WriteNumber(side, self.kind)

    def reading(self, side: SideName, hint: Hashable) -> Step:
        return ReadNumber(side, self.kind)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        if value is None:
            return None
        found = java_class_of_value(value, schema)
        if found != java_class(self.kind.schema()):
            raise DataException(self.kind.refusal(found))
        try:
            return struct.pack(self.kind.code, value)
        except (struct.error, OverflowError) as error:
            raise DataException(f"Failed to serialize to {self.kind.name}: {error}") from error

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        if data is None:
            return SchemaAndValue(self.kind.schema(), None)
        try:
            return SchemaAndValue(self.kind.schema(), struct.unpack(self.kind.code, data)[0])
        except struct.error as error:
            raise DataException(f"Failed to deserialize {self.kind.name}: ") from error


class ShortConverter(_NumberConverter):
    """INT16 as two bytes."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.ShortConverter"
    kind = _SHORT


class IntegerConverter(_NumberConverter):
    """INT32 as four bytes."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.IntegerConverter"
    kind = _INTEGER


class LongConverter(_NumberConverter):
    """INT64 as eight bytes."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.LongConverter"
    kind = _LONG


class FloatConverter(_NumberConverter):
    """FLOAT32 as four bytes."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.FloatConverter"
    kind = _FLOAT


class DoubleConverter(_NumberConverter):
    """FLOAT64 as eight bytes."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.DoubleConverter"
    kind = _DOUBLE
