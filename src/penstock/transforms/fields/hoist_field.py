"""HoistField: wraps the whole key or value in a struct (with schema) or map (without) with one field.

Classes ``HoistFieldKey`` and ``HoistFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.HoistField.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar

from pyspark.sql import functions as F

from penstock.api.transform import R
from penstock.config import AbstractConfig, setting
from penstock.data import Schema, SchemaBuilder, Struct, Type
from penstock.errors import DataException, SchemaBuilderException
from penstock.pipeline.columns.layout import Layout, LayoutKind
from penstock.pipeline.plan.map_structs import ValueDescription, members_of, object_member, object_side
from penstock.pipeline.plan.step import Made, NameColumn, RecordColumns, Shape, Side, SideName, StepFault, StepPlan
from penstock.transforms.definition import Definition, StockTransform, pair
from penstock.transforms.fields.definition import side_of, with_side
from penstock.transforms.fields.selection import null_in


class HoistFieldConfig(AbstractConfig):
    """The settings of ``HoistField``."""

    field: str | None = setting(
        doc="Field name for the single field that will be created in the resulting Struct or Map."
    )


@lru_cache(maxsize=256)
def _hoisted(schema: Schema, field: str | None) -> Schema:
    if not field:
        raise SchemaBuilderException("fieldName cannot be null.")
    return SchemaBuilder.struct().field(field, schema).build()


@dataclass(frozen=True)
class Hoist(Definition):
    """Wraps a key or value."""

    side: SideName
    field: str | None
    bounds_text: ClassVar[bool] = True

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Without a schema only if the field has a name."""
        known = shape.side(self.side)
        return known.schema is not None or (bool(self.field) and not known.is_variant)

    @property
    def _name(self) -> str:
        assert self.field is not None, "a struct's field has a name"
        return self.field

    def apply(self, record: R) -> R | None:
        """See ``Definition``."""
        schema, value = side_of(record, self.side)
        if schema is None:
            return with_side(record, self.side, None, {self.field: value})
        hoisted = _hoisted(schema, self.field)
        if value is None and not schema.optional:
            raise DataException(null_in(self._name, schema))
        return with_side(record, self.side, hoisted, Struct.unchecked(hoisted, [value]))

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        known = shape.side(self.side)
        if known.schema is None:
            return self._plan_members(shape, known)
        names = frozenset({self.side})
        schema = _hoisted(known.schema, self.field)
        # A required null fails here.
        complete = known.complete or not known.physical.children
        side = Side.of(schema, Layout(LayoutKind.STRUCT, (known.physical,)), present=True, complete=complete)
        checked = not known.schema.optional and not known.present
        make = partial(self._make_present, known.schema) if checked else self._make_struct
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        if known.is_object:
            member = object_member(members_of(known), optional=not known.present)
        else:
            member = (
                ValueDescription.of(Type.STRING)
                if known.carrier is None
                else ValueDescription(known.carrier, known.physical)
            )
        names = frozenset({self.side})
        side = object_side({self._name: member}, present=True)
        make = self._make_null if known.absent else self._make_struct
        return StepPlan(shape.with_side(self.side, side), make, frozenset() if known.absent else names, names)

    def _make_null(self, record: RecordColumns, keep: NameColumn) -> Made:
        return Made({self.side: F.struct(F.lit(None).cast("string").alias(self._name))})

    def _make_struct(self, record: RecordColumns, keep: NameColumn) -> Made:
        return Made({self.side: F.struct(record.side(self.side).alias(self._name))})

    def _make_present(self, schema: Schema, record: RecordColumns, keep: NameColumn) -> Made:
        missing = StepFault(record.side(self.side).isNull(), null_in(self._name, schema), DataException.java_name)
        return Made(self._make_struct(record, keep).columns, (missing,))


class _HoistField(StockTransform[HoistFieldConfig]):
    settings = HoistFieldConfig

    def define(self, config: HoistFieldConfig) -> Hoist:
        return Hoist(self.side, config.field)


HoistFieldKey, HoistFieldValue = pair(_HoistField)
