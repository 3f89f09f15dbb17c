"""BooleanConverter: one byte, 0 or 1. Class ``BooleanConverter``, for keys, values and headers.

Thread: one instance a task; steps are built on its pipeline thread.
Source: org.apache.kafka.connect.converters.BooleanConverter.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.sql import functions as F

from penstock.api import Converter, HeaderConverter
from penstock.config import ConfigDef
from penstock.converters.settings import TYPE_CONFIG, ConverterConfig, use_of
from penstock.data import OPTIONAL_BOOLEAN_SCHEMA, ConnectHeaders, Schema, SchemaAndValue, Type
from penstock.errors import DataException
from penstock.pipeline.columns.java_classes import java_class, java_class_of_value
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

_INCOMPATIBLE: Final = "BooleanConverter is not compatible with objects of type class "
_UNREADABLE: Final = "Failed to deserialize boolean: "


@dataclass(frozen=True)
class WriteBoolean(Step):
    """Writes one side, which must be boolean."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. A schema of another type fails the whole shape, null too."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        if known.schema is not None and known.schema.type is not Type.BOOLEAN:
            raise DataException(f"Invalid schema type for BooleanConverter: {known.schema.type.name}")
        names = frozenset({self.side})

        def make(bag: Bag, keep: Keep) -> Made:
            column = bag.side(self.side)
            faults: tuple[Fault, ...] = ()
            carrier = known.carrier
            if carrier is not None and carrier.type is not Type.BOOLEAN:
                faults = (Fault(column.isNotNull(), f"{_INCOMPATIBLE}{java_class(carrier)}", DataException.java_name),)
                column = F.lit(None).cast("boolean")
            return Made({self.side: F.when(column, F.unhex(F.lit("01"))).when(~column, F.unhex(F.lit("00")))}, faults)

        return StepPlan(shape.with_side(self.side, RAW), make, names, names)


@dataclass(frozen=True)
class ReadBoolean(Step):
    """Reads one side: one byte, 0 or 1."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. Every other byte than 0 and 1 is a fault of its record."""

        def make(bag: Bag, keep: Keep) -> Made:
            data = bag.side(self.side)
            true, false = data == F.unhex(F.lit("01")), data == F.unhex(F.lit("00"))
            fault = Fault(~(true | false), _UNREADABLE, DataException.java_name)
            return Made({self.side: F.when(true, F.lit(True)).when(false, F.lit(False))}, (fault,))

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, Side.of(OPTIONAL_BOOLEAN_SCHEMA)), make, names, names)


class BooleanConverter(ColumnConverter, Converter, HeaderConverter):
    """BOOLEAN as one byte."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.converters.BooleanConverter"

    def configure(self, configs: Mapping[str, object], is_key: bool | None = None) -> None:
        """See ``Converter``. There is no setting but ``converter.type``."""
        ConverterConfig.parse({**configs, TYPE_CONFIG: use_of(is_key)})

    def config(self) -> ConfigDef:
        """See ``Converter``."""
        return ConverterConfig.definition()

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

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        """See ``HeaderConverter``. The same as ``from_connect_data``."""
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """See ``HeaderConverter``. The same as ``to_connect_data``."""
        return self.to_connect_data(topic, data)
