"""ExtractField: replaces the key or value by one of its fields.

Classes ``ExtractFieldKey`` and ``ExtractFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline
thread. Source: org.apache.kafka.connect.transforms.ExtractField.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, setting
from penstock.data import Field, Schema
from penstock.errors import DataException, java_class_name
from penstock.pipeline.java_classes import java_class
from penstock.pipeline.objects import Member, members_of
from penstock.pipeline.step import (
    NOTHING,
    Bag,
    ColumnTransform,
    Fault,
    Keep,
    Made,
    Shape,
    Side,
    SideName,
    Step,
    StepPlan,
)
from penstock.pipeline.text_bounds import unbounded
from penstock.pipeline.types import Physical
from penstock.transforms.field_path import FieldPath, field_syntax, parse_path
from penstock.transforms.requirements import (
    UnknownFieldError,
    is_struct,
    map_fault,
    no_struct,
    require_map,
    require_struct,
)
from penstock.transforms.settings import null_replacement, replaces_nulls
from penstock.transforms.struct_copies import field_column

if TYPE_CHECKING:
    from pyspark.sql import Column

_PURPOSE: Final = "field extraction"


class ExtractFieldConfig(AbstractConfig):
    """The settings of ``ExtractField``."""

    field: str | None = setting(doc="Field name to extract.")
    replace_null_with_default: bool | None = null_replacement()
    field_syntax_version: str | None = field_syntax()


@dataclass(frozen=True)
class Extract(Step):
    """Replaces one side by the field at the end of a path."""

    side: SideName
    path: FieldPath
    defaults: bool
    bounds_text: ClassVar[bool] = True

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Objects only where the path leads to a member."""
        known = shape.side(self.side)
        if known.is_object:
            return bool(self.path.steps) and self._found(known) is not None
        return not known.is_variant

    def _found(self, known: Side) -> Member | None:
        """The member at the end of the path; None = a step is missing, or leads into a scalar."""
        found = Member(known.carrier, known.physical) if known.carrier is not None else None
        for step in self.path.steps:
            if found is None or not found.is_object:
                return None
            found = members_of(Side(None, found.physical, found.schema)).get(step)
        return found

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        known = shape.side(self.side)
        if known.is_object:
            return self._plan_members(shape, known)
        if known.schema is None:
            return self._plan_kind(shape, known)
        try:
            fields = self.path.fields(known.schema)
            error: Exception | None = None if fields else UnknownFieldError(f"Unknown field: {self.path.text}")
        except Exception as failure:
            fields, error = None, failure
        if fields is None or error is not None:
            return self._plan_unknown(shape, known, known.schema, error)
        return self._plan_struct(shape, known, fields)

    def _plan_struct(self, shape: Shape, known: Side, fields: Sequence[Field]) -> StepPlan:
        physical = known.physical
        layouts: list[Physical] = []
        for field in fields:
            physical = physical.children[field.index]
            layouts.append(physical)
        # A null in a required field, or on the way to it, is possible: nothing is known of the field's nulls.
        side = Side.of(fields[-1].schema, unbounded(physical) if self._may_default(fields) else physical)

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            inner: Column = value
            for field, layout in zip(fields[:-1], layouts[:-1], strict=True):
                inner = field_column(inner, field, layout, defaults=True)
            last = field_column(inner, fields[-1], layouts[-1], defaults=self.defaults)
            if self._may_default(fields):
                # What is null at the top, or on the way, has no field that could be its default.
                last = F.when(value.isNotNull() & inner.isNotNull(), last)
            return Made({self.side: last})

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _may_default(self, fields: Sequence[Field]) -> bool:
        last = self.defaults and fields[-1].schema.default is not None
        return last or any(field.schema.default is not None for field in fields[:-1])

    def _plan_unknown(self, shape: Shape, known: Side, schema: Schema, error: Exception | None) -> StepPlan:
        """Every record fails: with the path, but a value that is no Struct comes first."""
        assert error is not None, "there is a reason"
        unknown = Fault(None, str(error), java_class_name(error))

        def make(bag: Bag, keep: Keep) -> Made:
            if is_struct(known):
                return Made(faults=(unknown,))
            wrong = f"{no_struct(_PURPOSE)}{java_class(schema)}"
            return Made(faults=(Fault(bag.side(self.side).isNotNull(), wrong, DataException.java_name), unknown))

        return StepPlan(shape, make, frozenset({self.side}))

    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        found = self._found(known)
        assert found is not None, "it takes no others"

        def make(bag: Bag, keep: Keep) -> Made:
            inner = bag.side(self.side)
            for step in self.path.steps:
                inner = inner.getField(step)
            return Made({self.side: inner})

        names = frozenset({self.side})
        side = Side(None, found.physical, found.schema)
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _plan_kind(self, shape: Shape, known: Side) -> StepPlan:
        """Values of one kind, which are no maps: null passes alone."""

        def make(bag: Bag, keep: Keep) -> Made:
            fault = map_fault(bag.side(self.side), known, _PURPOSE, or_null=True)
            return Made({self.side: F.lit(None)}, () if fault is None else (fault,))

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, NOTHING), make, frozenset() if known.absent else names, names)


class _ExtractField(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _path: FieldPath = FieldPath("", ())
    _defaults: bool = True

    def configure(self, props: Mapping[str, object]) -> None:
        config = ExtractFieldConfig.parse(props)
        self._path = parse_path(config.field, config.field_syntax_version)
        self._defaults = replaces_nulls(config.replace_null_with_default)

    def config(self) -> ConfigDef:
        return ExtractFieldConfig.definition()

    def step(self) -> Step:
        return Extract(self.side, self._path, self._defaults)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema, value = (record.key_schema, record.key) if self.side == "key" else (record.value_schema, record.value)
        new_schema: Schema | None = None
        found: object = None
        if schema is None:
            found = None if value is None else self._path.of_map(require_map(value, _PURPOSE))
        else:
            struct = None if value is None else require_struct(value, schema, _PURPOSE)
            fields = self._path.fields(schema)
            if fields is None:
                raise UnknownFieldError(f"Unknown field: {self._path.text}")
            new_schema = fields[-1].schema
            found = None if struct is None else self._path.of_struct(struct, defaults=self._defaults)
        if self.side == "key":
            return cast("R", record.new_record(key_schema=new_schema, key=found))
        return cast("R", record.new_record(value_schema=new_schema, value=found))


class ExtractFieldKey(_ExtractField):
    """ExtractField on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.ExtractField$Key"
    side: ClassVar[SideName] = "key"


class ExtractFieldValue(_ExtractField):
    """ExtractField on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.ExtractField$Value"
    side: ClassVar[SideName] = "value"
