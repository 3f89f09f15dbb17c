"""ExtractField: replaces the key or value by one of its fields.

Classes ``ExtractFieldKey`` and ``ExtractFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline
thread. Source: org.apache.kafka.connect.transforms.ExtractField.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import functions as F

from penstock.api.transform import R
from penstock.config import AbstractConfig, setting
from penstock.data import Field, Schema, Type
from penstock.errors import DataException, java_class_name
from penstock.pipeline.columns.java_classes import java_class
from penstock.pipeline.columns.layout import Layout, LayoutKind, unbounded
from penstock.pipeline.plan.map_structs import ValueDescription, members_of
from penstock.pipeline.plan.step import (
    NOTHING,
    Made,
    NameColumn,
    RecordColumns,
    Shape,
    Side,
    SideName,
    StepFault,
    StepPlan,
)
from penstock.transforms.definition import (
    Definition,
    StockTransform,
    UnknownFieldError,
    no_map,
    no_struct,
    null_replacement,
    pair,
    replaces_nulls,
    require_map,
    require_struct,
)
from penstock.transforms.fields.definition import side_of, with_side
from penstock.transforms.fields.paths import FieldPath, field_syntax, parse_path
from penstock.transforms.fields.selection import field_column

if TYPE_CHECKING:
    from pyspark.sql import Column

_PURPOSE: Final = "field extraction"


class ExtractFieldConfig(AbstractConfig):
    """The settings of ``ExtractField``."""

    field: str | None = setting(doc="Field name to extract.")
    replace_null_with_default: bool | None = null_replacement()
    field_syntax_version: str | None = field_syntax()


@dataclass(frozen=True)
class Extract(Definition):
    """Replaces a key or value by the field at the end of a path."""

    side: SideName
    path: FieldPath
    defaults: bool
    bounds_text: ClassVar[bool] = True

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Objects only if the path leads to a member."""
        known = shape.side(self.side)
        if known.is_object:
            return bool(self.path.steps) and self._found(known) is not None
        return not known.is_variant

    def _found(self, known: Side) -> ValueDescription | None:
        """The member at the end of the path; None = a step is missing, or leads into a scalar."""
        found = ValueDescription(known.carrier, known.physical) if known.carrier is not None else None
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
            fields = self._fields(known.schema)
        except Exception as error:
            if known.schema.type is Type.STRUCT and known.physical.form is LayoutKind.STRUCT:
                raise
            return self._plan_no_struct(shape, known.schema, error)
        return self._plan_struct(shape, known, fields)

    def _fields(self, schema: Schema) -> Sequence[Field]:
        fields = self.path.fields(schema)
        if fields is None:
            raise UnknownFieldError(f"Unknown field: {self.path.text}")
        return fields

    def _plan_struct(self, shape: Shape, known: Side, fields: Sequence[Field]) -> StepPlan:
        physical = known.physical
        layouts: list[Layout] = []
        for field in fields:
            physical = physical.children[field.index]
            layouts.append(physical)
        # A required field, or a field on the way to it, may still be null: nothing is known about the field's nulls.
        side = Side.of(fields[-1].schema, unbounded(physical) if self._may_default(fields) else physical)

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            value = record.side(self.side)
            inner: Column = value
            for field, layout in zip(fields[:-1], layouts[:-1], strict=True):
                inner = field_column(inner, field, layout, defaults=True)
            last = field_column(inner, fields[-1], layouts[-1], defaults=self.defaults)
            if self._may_default(fields):
                # If the top, or a field on the way, is null, there is no field whose default could apply.
                last = F.when(value.isNotNull() & inner.isNotNull(), last)
            return Made({self.side: last})

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _may_default(self, fields: Sequence[Field]) -> bool:
        last = self.defaults and fields[-1].schema.default is not None
        return last or any(field.schema.default is not None for field in fields[:-1])

    def _plan_no_struct(self, shape: Shape, schema: Schema, error: Exception) -> StepPlan:
        """Every record fails: nulls with the path, values because they are not Structs."""
        wrong, unknown = (
            f"{no_struct(_PURPOSE)}{java_class(schema)}",
            StepFault(None, str(error), java_class_name(error)),
        )

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            return Made(faults=(StepFault(record.side(self.side).isNotNull(), wrong, DataException.java_name), unknown))

        return StepPlan(shape, make, frozenset({self.side}))

    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        found = self._found(known)
        assert found is not None, "it takes no others"

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            inner = record.side(self.side)
            for step in self.path.steps:
                inner = inner.getField(step)
            return Made({self.side: inner})

        names = frozenset({self.side})
        side = Side(None, found.physical, found.schema)
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _plan_kind(self, shape: Shape, known: Side) -> StepPlan:
        """Values of one kind that are not maps: only null passes."""
        after = shape.with_side(self.side, NOTHING)
        if known.carrier is None:
            return StepPlan(after, lambda record, keep: Made({self.side: F.lit(None)}), writes=frozenset({self.side}))
        message = f"{no_map(_PURPOSE)}{java_class(known.carrier)}"

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            fault = StepFault(record.side(self.side).isNotNull(), message, DataException.java_name)
            return Made({self.side: F.lit(None)}, (fault,))

        names = frozenset({self.side})
        return StepPlan(after, make, names, names)

    def apply(self, record: R) -> R | None:
        """See ``Definition``."""
        schema, value = side_of(record, self.side)
        if schema is None:
            found = None if value is None else self.path.of_map(require_map(value, _PURPOSE))
            return with_side(record, self.side, None, found)
        struct = None if value is None else require_struct(value, schema, _PURPOSE)
        found_schema = self._fields(schema)[-1].schema
        found = None if struct is None else self.path.of_struct(struct, defaults=self.defaults)
        return with_side(record, self.side, found_schema, found)


class _ExtractField(StockTransform[ExtractFieldConfig]):
    settings = ExtractFieldConfig

    def define(self, config: ExtractFieldConfig) -> Extract:
        path = parse_path(config.field, config.field_syntax_version)
        return Extract(self.side, path, replaces_nulls(config.replace_null_with_default))


ExtractFieldKey, ExtractFieldValue = pair(_ExtractField)
