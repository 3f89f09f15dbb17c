"""MaskField: replaces fields by the empty value of their type, or by a fixed replacement.

Classes ``MaskFieldKey`` and ``MaskFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.MaskField.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, AnyNonDuplicate, ConfigDef, Importance, NonEmptyString, setting
from penstock.data import Decimal, Schema, Type, Values
from penstock.data.parser import parse_decimal
from penstock.errors import DataException
from penstock.pipeline.json_columns import literal
from penstock.pipeline.objects import Member, members_of, object_column, object_side
from penstock.pipeline.step import Bag, ColumnTransform, Fault, Keep, Made, Shape, Side, SideName, Step, StepPlan
from penstock.pipeline.text_bounds import text_bound
from penstock.pipeline.types import CLEAN_SCALAR, UNSCALED, Form, Physical, logical_name
from penstock.transforms.requirements import java_class, java_class_of_value, require_map, require_struct
from penstock.transforms.settings import null_replacement, replaces_nulls
from penstock.transforms.sides import Demand, side_of, with_side
from penstock.transforms.struct_copies import copied_layout, field_column, field_value, filled, required_fault

if TYPE_CHECKING:
    pass

_PURPOSE: Final = "mask fields"


class MaskFieldConfig(AbstractConfig):
    """The settings of ``MaskField``."""

    fields: tuple[str, ...] = setting(
        validator=AnyNonDuplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="Names of fields to mask.",
    )
    replacement: str | None = setting(
        default=None,
        validator=NonEmptyString(),
        importance=Importance.LOW,
        doc="Custom value replacement, that will be applied to all 'fields' values "
        "(numeric or non-empty string values only).",
    )
    replace_null_with_default: bool | None = null_replacement()


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZEROS: Final[Mapping[Type, object]] = {
    Type.INT8: 0,
    Type.INT16: 0,
    Type.INT32: 0,
    Type.INT64: 0,
    Type.FLOAT32: 0.0,
    Type.FLOAT64: 0.0,
    Type.BOOLEAN: False,
    Type.STRING: "",
    Type.ARRAY: [],
    Type.MAP: {},
}
_REPLACED: Final[Mapping[Type, Callable[[Schema | None, object], object]]] = {
    Type.INT8: Values.convert_to_byte,
    Type.INT16: Values.convert_to_short,
    Type.INT32: Values.convert_to_integer,
    Type.INT64: Values.convert_to_long,
    Type.FLOAT32: Values.convert_to_float,
    Type.FLOAT64: Values.convert_to_double,
    Type.STRING: lambda _, text: text,
}


@lru_cache(maxsize=256)
def masked(schema: Schema, replacement: str | None) -> object:
    """What a value of a schema becomes that is not null.

    Raises:
        DataException: values of this schema cannot be masked (so).
    """
    logical = logical_name(schema)
    if logical == Decimal.LOGICAL_NAME:
        return decimal.Decimal(0) if replacement is None else _decimal(replacement)
    if replacement is None:
        if logical is None and schema.type not in _ZEROS:
            raise DataException(f"Cannot mask value of type: class {java_class(schema)}")
        return 0 if logical is not None else _ZEROS[schema.type]
    convert = _REPLACED.get(schema.type) if logical is None else None
    if convert is None:
        raise DataException(f"Cannot mask value of type class {java_class(schema)} with custom replacement.")
    try:
        return convert(None, replacement)
    except DataException:
        raise _no_number(replacement) from None


def _decimal(replacement: str) -> decimal.Decimal:
    number = parse_decimal(replacement)
    if number is None:
        raise DataException(f"Unable to convert {replacement} (class java.lang.String) to number")
    return number


def _no_number(replacement: str) -> DataException:
    return DataException(f"Unable to convert {replacement} (class java.lang.String) to a number")


def _masked_layout(layout: Physical, mask: object) -> Physical:
    return replace(layout, text=text_bound(mask)) if isinstance(mask, str) else layout


@dataclass(frozen=True)
class Mask(Step):
    """Masks fields of one side."""

    side: SideName
    fields: tuple[str, ...]
    replacement: str | None
    defaults: bool
    bounds_text: ClassVar[bool] = True

    @property
    def _demand(self) -> Demand:
        return Demand(_PURPOSE, self.side)

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Not when a field of an object that is to be masked is a map."""
        known = shape.side(self.side)
        if not known.is_object:
            return super().takes(shape)
        return not any(one.is_object for name, one in members_of(known).items() if name in self.fields)

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        unfit = self._demand.unfit(shape, null_passes=False)
        if unfit is not None:
            return unfit
        known = shape.side(self.side)
        if known.schema is None:
            return self._plan_members(shape, known)
        return self._plan_struct(shape, known, known.schema)

    # ------------------------------------------------------------------ with schema
    def _plan_struct(self, shape: Shape, known: Side, schema: Schema) -> StepPlan:
        pairs = zip(schema.fields, known.physical.children, strict=True)
        layouts = [copied_layout(one, child, defaults=self.defaults) for one, child in pairs]
        values: dict[str, object] = {}
        problems: dict[str, str] = {}
        for one in schema.fields:
            if one.name not in self.fields:
                continue
            try:
                values[one.name] = masked(one.schema, self.replacement)
            except DataException as error:
                problems[one.name] = str(error)
                continue
            if layouts[one.index].form is Form.DECIMAL:
                # The mask has a scale of its own.
                layouts[one.index] = UNSCALED
            else:
                layouts[one.index] = _masked_layout(layouts[one.index], values[one.name])
        side = Side.of(schema, Physical(Form.STRUCT, tuple(layouts)), present=True, complete=known.complete)

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            faults = [] if known.present else [self._demand.null_fault(value, known)]
            columns = []
            for one, before, after in zip(schema.fields, known.physical.children, layouts, strict=True):
                column = field_column(value, one, before, defaults=self.defaults)
                if one.name in values:
                    column = F.when(column.isNotNull(), literal(values[one.name], one.schema, after))
                elif one.name in problems:
                    faults.append(Fault(column.isNotNull(), problems[one.name], DataException.java_name))
                columns.append(column.alias(one.name))
            required = required_fault(
                value, [(one.name, one) for one in schema.fields], defaults=self.defaults, complete=known.complete
            )
            return Made({self.side: F.struct(*columns)}, [*faults, required] if required is not None else faults)

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    # ------------------------------------------------------------------ without
    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        before = members_of(known)
        # A field that is not there is masked as null, and then it is there.
        after = {**before, **{name: self._masked_member(before.get(name)) for name in self.fields}}
        side = object_side(after, present=known.present)

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            faults = [] if known.present else [self._demand.null_fault(value, known)]
            columns = {name: value.getField(name) for name in before}
            for name in self.fields:
                if name not in before:
                    columns[name] = F.lit(None).cast("string")
                    continue
                column, schema = columns[name], before[name].schema
                try:
                    mask = literal(masked(schema, self.replacement), schema, before[name].physical)
                    columns[name] = F.when(column.isNotNull(), mask)
                except DataException as error:
                    faults.append(Fault(column.isNotNull(), str(error), DataException.java_name))
            return Made({self.side: object_column(value, known, columns)}, faults)

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _masked_member(self, member: Member | None) -> Member:
        if member is None:
            return Member(Schema(Type.STRING, optional=True), CLEAN_SCALAR)
        try:
            mask = masked(member.schema, self.replacement)
        except DataException:
            return member
        return replace(member, physical=_masked_layout(member.physical, mask))


class _MaskField(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _fields: tuple[str, ...] = ()
    _replacement: str | None = None
    _defaults: bool = True

    def configure(self, props: Mapping[str, object]) -> None:
        config = MaskFieldConfig.parse(props)
        self._fields, self._replacement = config.fields, config.replacement
        self._defaults = replaces_nulls(config.replace_null_with_default)

    def config(self) -> ConfigDef:
        return MaskFieldConfig.definition()

    def step(self) -> Step:
        return Mask(self.side, self._fields, self._replacement, self._defaults)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema, value = side_of(record, self.side)
        if schema is None:
            found = require_map(value, _PURPOSE)
            changed = dict(found)
            changed.update((name, self._masked_value(found.get(name))) for name in self._fields)
            return with_side(record, self.side, None, changed)
        struct = require_struct(value, schema, _PURPOSE)
        values = [field_value(struct, one, defaults=self._defaults) for one in struct.schema.fields]
        for one in struct.schema.fields:
            if one.name in self._fields and values[one.index] is not None:
                values[one.index] = masked(one.schema, self._replacement)
        return with_side(record, self.side, schema, filled(struct.schema, values))

    def _masked_value(self, value: object) -> object:
        match value:
            case None:
                return None
            case decimal.Decimal():
                return masked(_DECIMAL_SCHEMA, self._replacement)
            case date() | time() if self._replacement is None:
                return _EPOCH if isinstance(value, datetime) else _EPOCH.date() if isinstance(value, date) else time()
        for python, schema in _PYTHON_TYPES:
            if isinstance(value, python):
                return masked(schema, self._replacement)
        how = ": class " if self._replacement is None else " class "
        end = "" if self._replacement is None else " with custom replacement."
        raise DataException(f"Cannot mask value of type{how}{java_class_of_value(value)}{end}")


_DECIMAL_SCHEMA: Final = Decimal.schema(0)
_PYTHON_TYPES: Final[tuple[tuple[type, Schema], ...]] = (
    (bool, Schema(Type.BOOLEAN)),
    (int, Schema(Type.INT64)),
    (float, Schema(Type.FLOAT64)),
    (str, Schema(Type.STRING)),
    (list, Schema(Type.ARRAY)),
    (dict, Schema(Type.MAP)),
)


class MaskFieldKey(_MaskField):
    """MaskField on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.MaskField$Key"
    side: ClassVar[SideName] = "key"


class MaskFieldValue(_MaskField):
    """MaskField on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.MaskField$Value"
    side: ClassVar[SideName] = "value"
