"""ByteArrayConverter: bytes as they are. Class ``ByteArrayConverter``, for keys, values and headers.

Thread: one instance a task; steps are built on its pipeline thread.
Source: org.apache.kafka.connect.converters.ByteArrayConverter.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.sql import functions as F

from penstock.api import Converter, HeaderConverter
from penstock.config import ConfigDef
from penstock.converters.settings import TYPE_CONFIG, define_type, use_of
from penstock.data import OPTIONAL_BYTES_SCHEMA, ConnectHeaders, Schema, SchemaAndValue, Type
from penstock.errors import DataException
from penstock.pipeline.java_classes import java_class_of_value
from penstock.pipeline.step import (
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
from penstock.pipeline.types import Form
from penstock.pipeline.variant_columns import java_class_of

CONFIG: Final = define_type(ConfigDef())
_INCOMPATIBLE: Final = "ByteArrayConverter is not compatible with objects of type class "


@dataclass(frozen=True)
class WriteBytes(Step):
    """Writes one side, which must be bytes."""

    side: SideName

    def takes_objects(self, shape: Shape) -> bool:
        return not shape.side(self.side).is_object

    def plan(self, shape: Shape) -> StepPlan:
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        if known.schema is not None and known.schema.type is not Type.BYTES:
            raise DataException(f"Invalid schema type for ByteArrayConverter: {known.schema.type.name}")
        names = frozenset({self.side})

        def make(bag: Bag, keep: Keep) -> Made:
            column = bag.side(self.side)
            if known.is_variant:
                kind = F.schema_of_variant(column)
                bad = column.isNotNull() & ~kind.isin("BINARY", "VOID")
                message = F.concat(F.lit(_INCOMPATIBLE), java_class_of(column))
                fault = Fault(bad, message, DataException.java_name)
                return Made({self.side: F.when(kind == "BINARY", F.try_variant_get(column, "$", "binary"))}, (fault,))
            if known.schema is None or known.physical.form is not Form.SCALAR:
                found = "java.lang.String" if known.schema is None else "java.math.BigDecimal"
                fault = Fault(column.isNotNull(), f"{_INCOMPATIBLE}{found}", DataException.java_name)
                return Made({self.side: F.lit(None).cast("binary")}, (fault,))
            return Made()

        return StepPlan(shape.with_side(self.side, RAW), make, names, names)


@dataclass(frozen=True)
class ReadBytes(Step):
    """Reads one side: it stays as it is."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:
        return StepPlan(shape.with_side(self.side, Side.of(OPTIONAL_BYTES_SCHEMA)), reads=frozenset({self.side}))


class ByteArrayConverter(ColumnConverter, Converter, HeaderConverter):
    """Bytes as they are; other values are refused."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.ByteArrayConverter"

    def configure(self, configs: Mapping[str, object], is_key: bool | None = None) -> None:
        CONFIG.parse({**configs, TYPE_CONFIG: use_of(is_key)})

    def config(self) -> ConfigDef:
        return CONFIG

    def writing(self, side: SideName) -> Step:
        return WriteBytes(side)

    def reading(self, side: SideName, hint: Hashable) -> Step:
        return ReadBytes(side)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        if schema is not None and schema.type is not Type.BYTES:
            raise DataException(f"Invalid schema type for ByteArrayConverter: {schema.type.name}")
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise DataException(f"{_INCOMPATIBLE}{java_class_of_value(value, schema)}")

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        return SchemaAndValue(OPTIONAL_BYTES_SCHEMA, data)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        return self.to_connect_data(topic, data)
