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
from penstock.converters.settings import TYPE_CONFIG, ConverterConfig, use_of
from penstock.data import OPTIONAL_BYTES_SCHEMA, ConnectHeaders, Schema, SchemaAndValue, Type
from penstock.errors import DataException
from penstock.pipeline.columns.java_classes import java_class, java_class_of_value
from penstock.pipeline.columns.types import Form
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

_INCOMPATIBLE: Final = "ByteArrayConverter is not compatible with objects of type class "


@dataclass(frozen=True)
class WriteBytes(Step):
    """Writes one side, which must be bytes."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. A schema of another type fails the whole shape, null too."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        if known.schema is not None and known.schema.type is not Type.BYTES:
            raise DataException(f"Invalid schema type for ByteArrayConverter: {known.schema.type.name}")
        names = frozenset({self.side})

        def make(bag: Bag, keep: Keep) -> Made:
            column = bag.side(self.side)
            schema = known.carrier if known.schema is None else known.schema
            assert schema is not None, "values of one kind have a carrier"
            if schema.type is not Type.BYTES or known.physical.form is not Form.SCALAR:
                fault = Fault(column.isNotNull(), f"{_INCOMPATIBLE}{java_class(schema)}", DataException.java_name)
                return Made({self.side: F.lit(None).cast("binary")}, (fault,))
            return Made()

        return StepPlan(shape.with_side(self.side, RAW), make, names, names)


@dataclass(frozen=True)
class ReadBytes(Step):
    """Reads one side; the bytes stay as they are."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. The side gets the schema of optional bytes."""
        return StepPlan(shape.with_side(self.side, Side.of(OPTIONAL_BYTES_SCHEMA)), reads=frozenset({self.side}))


class ByteArrayConverter(ColumnConverter, Converter, HeaderConverter):
    """Bytes as they are; other values are refused."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.ByteArrayConverter"

    def configure(self, configs: Mapping[str, object], is_key: bool | None = None) -> None:
        """See ``Converter``. There is no setting but ``converter.type``."""
        ConverterConfig.parse({**configs, TYPE_CONFIG: use_of(is_key)})

    def config(self) -> ConfigDef:
        """See ``Converter``."""
        return ConverterConfig.definition()

    def writing(self, side: SideName) -> Step:
        """See ``ColumnConverter``."""
        return WriteBytes(side)

    def reading(self, side: SideName, hint: Hashable) -> Step:
        """See ``ColumnConverter``. All messages are read alike, so there is no hint."""
        return ReadBytes(side)

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

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        """See ``HeaderConverter``. The same as ``from_connect_data``."""
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """See ``HeaderConverter``. The same as ``to_connect_data``."""
        return self.to_connect_data(topic, data)
