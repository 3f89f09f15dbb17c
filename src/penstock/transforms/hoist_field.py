"""HoistField: wraps the whole key or value in a struct (with schema) or map (without) of one field.

Classes ``HoistFieldKey`` and ``HoistFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.HoistField.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import ConfigDef, ConfigType, Importance
from penstock.data import Schema, SchemaBuilder, Struct
from penstock.errors import DataException, SchemaBuilderException
from penstock.pipeline.objects import members_of, object_member, object_side
from penstock.pipeline.step import Bag, ColumnTransform, Fault, Keep, Made, Shape, Side, SideName, Step, StepPlan
from penstock.pipeline.types import Form, Physical
from penstock.pipeline.variant_columns import map_of_null, object_of
from penstock.transforms.struct_copies import null_in

CONFIG: Final = ConfigDef().define(
    "field",
    ConfigType.STRING,
    importance=Importance.MEDIUM,
    doc="Field name for the single field that will be created in the resulting Struct or Map.",
)


@lru_cache(maxsize=256)
def _hoisted(schema: Schema, field: str | None) -> Schema:
    if not field:
        raise SchemaBuilderException("fieldName cannot be null.")
    return SchemaBuilder.struct().field(field, schema).build()


@dataclass(frozen=True)
class Hoist(Step):
    """Wraps one side."""

    side: SideName
    field: str | None
    bounds_text: ClassVar[bool] = True

    def takes_objects(self, shape: Shape) -> bool:
        return self.field is not None

    @property
    def _name(self) -> str:
        assert self.field is not None, "a struct's field has a name"
        return self.field

    def plan(self, shape: Shape) -> StepPlan:
        known = shape.side(self.side)
        if known.is_object:
            return self._plan_members(shape, known)
        reads = frozenset() if known.absent else frozenset({self.side})
        writes = frozenset({self.side})
        if known.schema is None:
            return StepPlan(shape.with_side(self.side, Side.of(None)), self._make_object, reads, writes)
        schema = _hoisted(known.schema, self.field)
        # A null that is required fails here.
        complete = known.complete or not known.physical.children
        side = Side.of(schema, Physical(Form.STRUCT, (known.physical,)), present=True, complete=complete)
        checked = not known.schema.optional and not known.present
        make = partial(self._make_present, known.schema) if checked else self._make_struct
        return StepPlan(shape.with_side(self.side, side), make, reads, writes)

    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        member = object_member(members_of(known), optional=not known.present)
        names = frozenset({self.side})
        side = object_side({self._name: member}, present=True)
        return StepPlan(shape.with_side(self.side, side), self._make_struct, names, names)

    def _make_struct(self, bag: Bag, keep: Keep) -> Made:
        return Made({self.side: F.struct(bag.side(self.side).alias(self._name))})

    def _make_present(self, schema: Schema, bag: Bag, keep: Keep) -> Made:
        missing = Fault(bag.side(self.side).isNull(), null_in(self._name, schema), DataException.java_name)
        return Made(self._make_struct(bag, keep).columns, (missing,))

    def _make_object(self, bag: Bag, keep: Keep) -> Made:
        value = bag.side(self.side).cast("variant")
        return Made({self.side: map_of_null(value) if self.field is None else object_of({self.field: value})})


class _HoistField(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _field: str | None = None

    def configure(self, props: Mapping[str, object]) -> None:
        self._field = cast("str | None", CONFIG.parse(props)["field"])

    def config(self) -> ConfigDef:
        return CONFIG

    def step(self) -> Step:
        return Hoist(self.side, self._field)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema, value = (record.key_schema, record.key) if self.side == "key" else (record.value_schema, record.value)
        new_schema = None if schema is None else _hoisted(schema, self._field)
        if value is None and schema is not None and not schema.optional:
            raise DataException(null_in(str(self._field), schema))
        wrapped: object = {self._field: value} if new_schema is None else Struct.unchecked(new_schema, [value])
        if self.side == "key":
            return cast("R", record.new_record(key_schema=new_schema, key=wrapped))
        return cast("R", record.new_record(value_schema=new_schema, value=wrapped))


class HoistFieldKey(_HoistField):
    """HoistField on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.HoistField$Key"
    side: ClassVar[SideName] = "key"


class HoistFieldValue(_HoistField):
    """HoistField on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.HoistField$Value"
    side: ClassVar[SideName] = "value"
