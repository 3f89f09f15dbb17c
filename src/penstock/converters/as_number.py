"""The converters of single numbers: Kafka's big-endian bytes.

Classes ``ShortConverter``, ``IntegerConverter``, ``LongConverter``, ``FloatConverter``, ``DoubleConverter``, for keys,
values and headers. Nothing is widened or narrowed: a value must be of the very type.

Thread: one instance a task; steps are built on its pipeline thread.
Source: org.apache.kafka.connect.converters.NumberConverter and its subclasses.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import functions as F

from penstock.api import Converter, HeaderConverter
from penstock.config import ConfigDef
from penstock.converters.number_bits import (
    DOUBLE,
    FLOAT,
    FloatLayout,
    bytes_of_float,
    bytes_of_integer,
    float_of_bytes,
    integer_of_bytes,
)
from penstock.converters.settings import TYPE_CONFIG, ConverterConfig, use_of
from penstock.data import ConnectHeaders, Schema, SchemaAndValue, Type
from penstock.errors import DataException
from penstock.pipeline.columns.java_classes import java_class, java_class_of_value
from penstock.pipeline.columns.types import Form, logical_name, spark_type
from penstock.pipeline.plan.step import (
    NOTHING,
    RAW,
    Bag,
    ColumnConverter,
    Fault,
    Keep,
    Made,
    Shape,
    Side,
    SideName,
    Step,
    StepPlan,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class NumberKind:
    """One type of number.

    Attributes:
        name: What messages call it.
        type: Its Connect type.
        size: Its bytes.
        code: Its letter in ``struct``.
        layout: Its bits, for floating point.
    """

    name: str
    type: Type
    size: int
    code: str
    layout: FloatLayout | None = None

    def schema(self) -> Schema:
        """What is read."""
        return Schema(self.type, optional=True)

    def fits(self, schema: Schema | None) -> bool:
        """Whether all values of a schema are of this type."""
        return schema is not None and schema.type is self.type and logical_name(schema) is None

    def refusal(self, found: str) -> str:
        """How the message of a wrong value reads."""
        return f"Failed to serialize to {self.name} (was class {found}): "


_SHORT: Final = NumberKind("short", Type.INT16, 2, ">h")
_INTEGER: Final = NumberKind("integer", Type.INT32, 4, ">i")
_LONG: Final = NumberKind("long", Type.INT64, 8, ">q")
_FLOAT: Final = NumberKind("float", Type.FLOAT32, 4, ">f", FLOAT)
_DOUBLE: Final = NumberKind("double", Type.FLOAT64, 8, ">d", DOUBLE)


@dataclass(frozen=True)
class WriteNumber(Step):
    """Writes one side, which must hold numbers of one type."""

    side: SideName
    kind: NumberKind

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        names = frozenset({self.side})

        def make(bag: Bag, keep: Keep) -> Made:
            column = bag.side(self.side)
            schema = known.schema if known.schema is not None else known.carrier
            if self.kind.fits(schema) and known.physical.form is Form.SCALAR:
                return Made({self.side: self._bytes(column)})
            assert schema is not None, "values of one kind have a carrier"
            refusal = self.kind.refusal(java_class(schema))
            fault = Fault(column.isNotNull(), refusal, DataException.java_name)
            return Made({self.side: F.lit(None).cast("binary")}, (fault,))

        return StepPlan(shape.with_side(self.side, RAW), make, names, names)

    def _bytes(self, column: Column) -> Column:
        if self.kind.layout is not None:
            return bytes_of_float(column, self.kind.layout)
        return bytes_of_integer(column, self.kind.size)


@dataclass(frozen=True)
class ReadNumber(Step):
    """Reads one side."""

    side: SideName
    kind: NumberKind

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. A message of another size than the type's is a fault of its record."""

        def make(bag: Bag, keep: Keep) -> Made:
            data = bag.side(self.side)
            kind = self.kind
            if kind.layout is not None:
                number = float_of_bytes(data, kind.layout)
            else:
                number = integer_of_bytes(data, kind.size).try_cast(spark_type(kind.schema()))
            whole = F.octet_length(data) == kind.size
            fault = Fault(~whole, f"Failed to deserialize {kind.name}: ", DataException.java_name)
            return Made({self.side: F.when(whole, number)}, (fault,))

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, Side.of(self.kind.schema())), make, names, names)


class _NumberConverter(ColumnConverter, Converter, HeaderConverter):
    kind: ClassVar[NumberKind]

    def configure(self, configs: Mapping[str, object], is_key: bool | None = None) -> None:
        ConverterConfig.parse({**configs, TYPE_CONFIG: use_of(is_key)})

    def config(self) -> ConfigDef:
        return ConverterConfig.definition()

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

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        return self.to_connect_data(topic, data)


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
