"""Cast: turns fields, or the whole key or value, into another primitive type.

Classes ``CastKey`` and ``CastValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.Cast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, Importance, LambdaValidator, setting
from penstock.data import Schema, Type
from penstock.errors import ConfigException, DataException
from penstock.pipeline.objects import Member, members_of, object_column, object_side
from penstock.pipeline.step import Bag, ColumnTransform, Fault, Keep, Made, Shape, Side, SideName, Split, Step, StepPlan
from penstock.pipeline.types import CLEAN_SCALAR, SCALAR, Form, Physical
from penstock.transforms.cast_columns import SPARK_TYPES, Casted, cast_typed, casted_layout
from penstock.transforms.cast_values import cast_schema, cast_value, casts_of, parse_spec
from penstock.transforms.requirements import require_map, require_struct
from penstock.transforms.settings import null_replacement, replaces_nulls
from penstock.transforms.sides import Demand, side_of, with_side
from penstock.transforms.struct_copies import copied_layout, field_column, field_value, filled, required_fault

if TYPE_CHECKING:
    from pyspark.sql import Column

_PURPOSE: Final = "cast types"
#: Schemaless integers have 64 bits.
_SCHEMALESS: Final = {Type.INT8: Type.INT64, Type.INT16: Type.INT64, Type.INT32: Type.INT64}


def _check_spec(name: str, value: object) -> None:
    if not value:
        raise ConfigException("Must specify at least one field to cast.")
    parse_spec(cast("list[str]", value))


class CastConfig(AbstractConfig):
    """The settings of ``Cast``."""

    spec: tuple[str, ...] = setting(
        validator=LambdaValidator(_check_spec, "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"),
        importance=Importance.HIGH,
        doc="List of fields and the type to cast them to of the form field1:type,field2:type to cast fields of Maps "
        "or Structs. A single type to cast the entire value. Valid types are int8, int16, int32, int64, float32, "
        "float64, boolean, and string. Note that binary fields can only be cast to string.",
    )
    replace_null_with_default: bool | None = null_replacement()


@dataclass(frozen=True)
class CastTo(Step):
    """Casts one side."""

    side: SideName
    casts: tuple[tuple[str | None, Type], ...]
    defaults: bool
    bounds_text: ClassVar[bool] = True

    @property
    def _demand(self) -> Demand:
        return Demand(_PURPOSE, self.side)

    @property
    def _whole(self) -> Type | None:
        return dict(self.casts).get(None)

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Not when a whole object is cast, nor when a map inside of it is."""
        known = shape.side(self.side)
        if not known.is_object:
            return super().takes(shape)
        members = members_of(known)
        named = [members[name] for name, _ in self.casts if name is not None and name in members]
        return self._whole is None and not any(one.is_object for one in named)

    def plan(self, shape: Shape) -> StepPlan | Split:
        """See ``Step``. Values without a schema have the type of their kind."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape)
        if known.is_object:
            return self._plan_members(shape, known)
        if known.schema is None:
            return self._plan_kind(shape, known)
        try:
            schema = cast_schema(known.schema, self.casts)
        except DataException as error:
            return self._demand.failing(shape, str(error), error.java_name, null_passes=True)
        if self._whole is not None:
            return self._plan_whole(shape, known, known.schema, schema, self._whole)
        unfit = self._demand.unfit(shape, null_passes=True)
        return self._plan_struct(shape, known, known.schema, schema) if unfit is None else unfit

    # ------------------------------------------------------------------ with schema
    def _plan_whole(self, shape: Shape, known: Side, before: Schema, schema: Schema, target: Type) -> StepPlan | Split:
        names = frozenset({self.side})

        def make(bag: Bag, keep: Keep) -> Made:
            casted = cast_typed(bag.side(self.side), before, known.physical, target, keep)
            return Made({self.side: casted.column}, _faults(casted))

        side = Side.of(schema, casted_layout(before, known.physical, target), present=True)
        return self._demand.unless_null(shape, StepPlan(shape.with_side(self.side, side), make, names, names))

    def _plan_struct(self, shape: Shape, known: Side, before: Schema, schema: Schema) -> StepPlan | Split:
        wanted = dict(self.casts)
        layouts = []
        for one, child in zip(before.fields, known.physical.children, strict=True):
            copied = copied_layout(one, child, defaults=self.defaults)
            layouts.append(casted_layout(one.schema, copied, wanted[one.name]) if one.name in wanted else copied)

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            columns: list[Column] = []
            faults: list[Fault] = []
            for one, child in zip(before.fields, known.physical.children, strict=True):
                column = field_column(value, one, child, defaults=self.defaults)
                if one.name in wanted:
                    casted = cast_typed(column, one.schema, child, wanted[one.name], keep)
                    column = casted.column
                    faults += _faults(casted)
                columns.append(column.alias(one.name))
            required = required_fault(
                value, [(one.name, one) for one in before.fields], defaults=self.defaults, complete=known.complete
            )
            return Made({self.side: F.struct(*columns)}, faults if required is None else [*faults, required])

        names = frozenset({self.side})
        side = Side.of(schema, Physical(Form.STRUCT, tuple(layouts)), present=True, complete=known.complete)
        return self._demand.unless_null(shape, StepPlan(shape.with_side(self.side, side), make, names, names))

    # ------------------------------------------------------------------ without
    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        before = members_of(known)
        after = dict(before)
        for name, target in self.casts:
            old = before.get(name or "")
            layout = CLEAN_SCALAR if old is None else casted_layout(old.schema, old.physical, target)
            after[name or ""] = Member(Schema(_SCHEMALESS.get(target, target), optional=True), layout)
        side = object_side(after, present=known.present)

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            columns = {name: value.getField(name) for name in before}
            faults: list[Fault] = []
            for key, target in self.casts:
                name = key or ""
                if name not in before:
                    columns[name] = F.lit(None).cast(SPARK_TYPES[_SCHEMALESS.get(target, target)])
                    continue
                casted = cast_typed(columns[name], before[name].schema, SCALAR, target, keep)
                columns[name] = casted.column.cast(SPARK_TYPES[_SCHEMALESS.get(target, target)])
                faults += _faults(casted)
            return Made({self.side: object_column(value, known, columns)}, faults)

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _plan_kind(self, shape: Shape, known: Side) -> StepPlan:
        """Values of one kind: they are what the cast makes of it, or no maps."""
        unfit = self._demand.unfit(shape, null_passes=True)
        carrier, target = known.carrier, self._whole
        assert unfit is not None, "maps do not come here"
        assert carrier is not None, "nor do values of mixed kinds"
        if target is None:
            return unfit
        kind = _SCHEMALESS.get(target, target)

        def make(bag: Bag, keep: Keep) -> Made:
            casted = cast_typed(bag.side(self.side), carrier, known.physical, target, keep)
            return Made({self.side: casted.column.cast(SPARK_TYPES[kind])}, _faults(casted))

        names = frozenset({self.side})
        side = Side(None, casted_layout(carrier, known.physical, target), Schema(kind, optional=True))
        return StepPlan(shape.with_side(self.side, side), make, names, names)


def _faults(casted: Casted) -> list[Fault]:
    if casted.problem is None:
        return []
    return [Fault(casted.problem.isNotNull(), casted.problem, DataException.java_name)]


class _Cast(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _casts: tuple[tuple[str | None, Type], ...] = ()
    _wanted: Mapping[str | None, Type] = MappingProxyType({})
    _defaults: bool = True

    def configure(self, props: Mapping[str, object]) -> None:
        config = CastConfig.parse(props)
        self._casts = casts_of(parse_spec(config.spec))
        self._wanted = dict(self._casts)
        self._defaults = replaces_nulls(config.replace_null_with_default)

    def config(self) -> ConfigDef:
        return CastConfig.definition()

    def step(self) -> Step:
        return CastTo(self.side, self._casts, self._defaults)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema, value = side_of(record, self.side)
        if value is None:
            return record
        wanted = self._wanted
        updated = None if schema is None else cast_schema(schema, self._casts)
        if None in wanted:
            return with_side(record, self.side, updated, cast_value(schema, value, wanted[None]))
        if schema is None or updated is None:
            changed = dict(require_map(value, _PURPOSE))
            for name, target in self._casts:
                changed[name] = cast_value(None, changed.get(name), target)
            return with_side(record, self.side, None, changed)
        struct = require_struct(value, schema, _PURPOSE)
        values = [field_value(struct, one, defaults=self._defaults) for one in struct.schema.fields]
        for one in struct.schema.fields:
            if one.name in wanted:
                values[one.index] = cast_value(one.schema, values[one.index], wanted[one.name])
        return with_side(record, self.side, updated, filled(updated, values))


class CastKey(_Cast):
    """Cast on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.Cast$Key"
    side: ClassVar[SideName] = "key"


class CastValue(_Cast):
    """Cast on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.Cast$Value"
    side: ClassVar[SideName] = "value"
