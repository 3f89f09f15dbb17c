"""ValueToKey: makes a new key of fields of the value.

Class ``ValueToKey``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.ValueToKey.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, Importance, ValidList, setting
from penstock.data import Schema, SchemaBuilder, Struct, Type
from penstock.errors import DataException
from penstock.pipeline.objects import Member, members_of, object_column, object_side
from penstock.pipeline.step import Bag, ColumnTransform, Fault, Keep, Made, Shape, Side, Step, StepPlan
from penstock.pipeline.types import Form, Physical
from penstock.transforms.requirements import is_struct, map_fault, no_map, require_map, require_struct, struct_fault
from penstock.transforms.settings import null_replacement, replaces_nulls
from penstock.transforms.struct_copies import copied_layout, field_column, field_value, required_fault

_PURPOSE: Final = "copying fields from value to key"


class ValueToKeyConfig(AbstractConfig):
    """The settings of ``ValueToKey``."""

    fields: tuple[str, ...] = setting(
        validator=ValidList.any_non_duplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="Field names on the record value to extract as the record key.",
    )
    replace_null_with_default: bool | None = null_replacement()


@lru_cache(maxsize=256)
def _key_schema(schema: Schema, names: tuple[str, ...]) -> Schema:
    builder = SchemaBuilder.struct()
    for name in names:
        field = schema.field(name)
        if field is None:
            raise DataException(f"Field does not exist: {name}")
        builder.field(name, field.schema)
    return builder.build()


@dataclass(frozen=True)
class FieldsToKey(Step):
    """Makes the key of fields of the value."""

    names: tuple[str, ...]
    defaults: bool
    bounds_text: ClassVar[bool] = True

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. The key is made of members of an object."""
        return not shape.value.is_variant

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        known = shape.value
        if known.is_object:
            return self._plan_members(shape, known)
        if known.schema is not None and is_struct(known):
            return self._plan_struct(shape, known.schema)

        def fail(bag: Bag, keep: Keep) -> Made:
            of = struct_fault if known.schema is not None else map_fault
            fault = of(bag.value, known, _PURPOSE)
            return Made(faults=() if fault is None else (fault,))

        return StepPlan(shape, fail, frozenset() if known.absent else frozenset({"value"}))

    def _plan_struct(self, shape: Shape, schema: Schema) -> StepPlan:
        known = shape.value
        try:
            key_schema = _key_schema(schema, self.names)
        except DataException as error:
            unknown = Fault(None, str(error), DataException.java_name)

            def fail(bag: Bag, keep: Keep) -> Made:
                fault = struct_fault(bag.value, known, _PURPOSE)
                return Made(faults=(unknown,) if fault is None else (fault, unknown))

            return StepPlan(shape, fail, frozenset({"value"}))
        fields = [field for field in map(schema.field, self.names) if field is not None]
        layouts = [known.physical.children[field.index] for field in fields]
        pairs = zip(fields, layouts, strict=True)
        copied = [copied_layout(field, layout, defaults=self.defaults) for field, layout in pairs]
        key = Side.of(key_schema, Physical(Form.STRUCT, tuple(copied)), present=True, complete=known.complete)

        def make(bag: Bag, keep: Keep) -> Made:
            copied = [
                field_column(bag.value, field, layout, defaults=self.defaults).alias(field.name)
                for field, layout in zip(fields, layouts, strict=True)
            ]
            faults = (
                struct_fault(bag.value, known, _PURPOSE),
                required_fault(
                    bag.value,
                    [(field.name, field) for field in fields],
                    defaults=self.defaults,
                    complete=known.complete,
                ),
            )
            return Made({"key": F.struct(*copied)}, [fault for fault in faults if fault is not None])

        return StepPlan(shape.with_side("key", key), make, frozenset({"value"}), frozenset({"key"}))

    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        members = members_of(known)
        chosen = {name: members.get(name, Member.of(Type.STRING)) for name in self.names}

        def make(bag: Bag, keep: Keep) -> Made:
            copied = {
                name: bag.value.getField(name) if name in members else F.lit(None).cast("string") for name in chosen
            }
            fault = Fault(bag.value.isNull(), f"{no_map(_PURPOSE)}null", DataException.java_name)
            return Made({"key": object_column(bag.value, key, copied)}, () if known.present else (fault,))

        key = object_side(chosen, present=True)
        return StepPlan(shape.with_side("key", key), make, frozenset({"value"}), frozenset({"key"}))


class ValueToKey(ColumnTransform, Transformation):
    """Replaces the key by a Struct or Map of fields of the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.ValueToKey"
    _names: tuple[str, ...] = ()
    _defaults: bool = True

    def configure(self, props: Mapping[str, object]) -> None:
        """See ``Transformation``."""
        config = ValueToKeyConfig.parse(props)
        self._names, self._defaults = config.fields, replaces_nulls(config.replace_null_with_default)

    def config(self) -> ConfigDef:
        """See ``Transformation``."""
        return ValueToKeyConfig.definition()

    def step(self) -> Step:
        """See ``ColumnTransform``."""
        return FieldsToKey(self._names, self._defaults)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema = record.value_schema
        if schema is None:
            members = require_map(record.value, _PURPOSE)
            return cast("R", record.new_record(key_schema=None, key={name: members.get(name) for name in self._names}))
        value = require_struct(record.value, schema, _PURPOSE)
        key = Struct(_key_schema(value.schema, self._names))
        for name in self._names:
            key.put(name, field_value(value, name, defaults=self._defaults))
        return cast("R", record.new_record(key_schema=key.schema, key=key))
