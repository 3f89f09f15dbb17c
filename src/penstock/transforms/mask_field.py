"""MaskField: replaces fields by the empty value of their type, or by a fixed replacement.

Classes ``MaskFieldKey`` and ``MaskFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.MaskField.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AnyNonDuplicate, ConfigDef, ConfigType, Importance, NonEmptyString
from penstock.data import Decimal, Schema, Type, Values
from penstock.data.parser import parse_decimal
from penstock.errors import DataException
from penstock.pipeline.expressions import apart
from penstock.pipeline.json_columns import literal
from penstock.pipeline.objects import Member, members_of, object_column, object_side
from penstock.pipeline.step import Bag, ColumnTransform, Fault, Keep, Made, Shape, Side, SideName, Step, StepPlan
from penstock.pipeline.text_bounds import text_bound
from penstock.pipeline.types import CLEAN_SCALAR, UNSCALED, Form, Physical, logical_name
from penstock.pipeline.variant import DECIMAL_TAG, STRUCT_TAG, TIME_TAG
from penstock.pipeline.variant_building import variant_literal
from penstock.pipeline.variant_columns import get_field, put_field
from penstock.transforms.requirements import java_class, java_class_of_value, require_map, require_struct
from penstock.transforms.settings import define_null_replacement, replaces_nulls
from penstock.transforms.sides import Demand, null_variant, side_of, with_side
from penstock.transforms.struct_copies import copied_layout, field_column, field_value, filled, required_fault

if TYPE_CHECKING:
    from pyspark.sql import Column

_PURPOSE: Final = "mask fields"

CONFIG: Final = define_null_replacement(
    ConfigDef()
    .define(
        "fields",
        ConfigType.LIST,
        validator=AnyNonDuplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="Names of fields to mask.",
    )
    .define(
        "replacement",
        ConfigType.STRING,
        default=None,
        validator=NonEmptyString(),
        importance=Importance.LOW,
        doc="Custom value replacement, that will be applied to all 'fields' values "
        "(numeric or non-empty string values only).",
    )
)

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

    def takes_objects(self, shape: Shape) -> bool:
        known = shape.side(self.side)
        return not known.is_object or not any(
            one.is_object for name, one in members_of(known).items() if name in self.fields
        )

    def plan(self, shape: Shape) -> StepPlan:
        unfit = self._demand.unfit(shape, null_passes=False)
        if unfit is not None:
            return unfit
        names = frozenset({self.side})
        known = shape.side(self.side)
        if known.is_object:
            return self._plan_members(shape, known)
        if known.schema is None:
            return StepPlan(shape.with_side(self.side, Side.of(None)), self._make_object, names, names)
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

    def _make_object(self, bag: Bag, keep: Keep) -> Made:
        value = original = bag.side(self.side)
        faults: list[Fault] = []
        for name in self.fields:
            kind = keep(F.schema_of_variant(get_field(original, name)))
            # Together the kinds are more than the JVM compiles as one method: the usual ones stand here.
            rest = kind.isNotNull()
            usual = F.when(kind == "VOID", null_variant())
            for usual_kind, mask in self._usual():
                usual = usual.when(kind == usual_kind, mask)
                rest = rest & (kind != usual_kind)
            other = keep(F.when(rest, apart(kind, self._masked_variant)))
            value = put_field(value, name, F.coalesce(usual, other.getField("mask"), null_variant()))
            problem = other.getField("problem")
            faults.append(Fault(problem.isNotNull(), problem, DataException.java_name))
        value = keep(value)
        known = Side.of(None)
        return Made(
            {self.side: value},
            [self._demand.null_fault(original, known), self._demand.map_fault(original, value), *faults],
        )

    def _usual(self) -> Iterator[tuple[str, Column]]:
        """The masks of the usual kinds that can be masked."""
        for name, kind in _KINDS.items():
            try:
                yield name, F.lit(masked(Schema(kind), self.replacement)).cast("variant")
            except DataException:
                continue

    def _masked_variant(self, kind: Column) -> Column:
        """The mask of a schemaless value of a kind, or why the kind cannot be masked."""
        mask = F.when(kind == "VOID", null_variant())
        problem = F.when(kind == "VOID", F.lit(None).cast("string"))
        for name, kind_type in _KINDS.items():
            try:
                mask = mask.when(kind == name, F.lit(masked(Schema(kind_type), self.replacement)).cast("variant"))
                problem = problem.when(kind == name, F.lit(None))
            except DataException as error:
                problem = problem.when(kind == name, F.lit(str(error)))
        for condition, java, one in self._other_kinds(kind):
            mask = mask.when(condition, F.lit(None) if one is None else one)
            problem = problem.when(condition, F.lit(self._refusal(java) if one is None else None))
        return F.struct(mask.alias("mask"), problem.alias("problem"))

    def _other_kinds(self, kind: Column) -> list[tuple[Column, str, Column | None]]:
        """Conditions on the kind (earlier ones win), Java's class, and the mask; None = it cannot be masked."""
        plain = self.replacement is None
        number = self._decimal_variant()
        empty = F.parse_json(F.lit("{}")) if plain else None
        zero = F.parse_json(F.lit(f'{{"\\u0000{TIME_TAG[1:]}":0}}')) if plain else None
        moment = F.timestamp_millis(F.lit(0)).cast("variant") if plain else None
        return [
            (kind.startswith("ARRAY<"), "java.util.ArrayList", F.parse_json(F.lit("[]")) if plain else None),
            (_has_tag(kind, STRUCT_TAG), "org.apache.kafka.connect.data.Struct", None),
            (_has_tag(kind, TIME_TAG), "java.util.Date", zero),
            (_has_tag(kind, DECIMAL_TAG), "java.math.BigDecimal", number),
            (kind.startswith("OBJECT<"), "java.util.HashMap", empty),
            (kind.startswith("DECIMAL"), "java.math.BigDecimal", number),
            (kind == "DATE", "java.util.Date", F.date_from_unix_date(F.lit(0)).cast("variant") if plain else None),
            (kind.startswith("TIMESTAMP"), "java.util.Date", moment),
            (kind == "BINARY", "[B", None),
        ]

    def _decimal_variant(self) -> Column | None:
        number = decimal.Decimal(0) if self.replacement is None else parse_decimal(self.replacement)
        return None if number is None else variant_literal(number)

    def _refusal(self, java: str) -> str:
        if self.replacement is None:
            return f"Cannot mask value of type: class {java}"
        if java == "java.math.BigDecimal":
            return f"Unable to convert {self.replacement} (class java.lang.String) to number"
        return f"Cannot mask value of type class {java} with custom replacement."


def _has_tag(kind: Column, tag: str) -> Column:
    """Whether the kind of a value (``schema_of_variant``) is that of an object with a tag."""
    return kind.startswith(f"OBJECT<`{tag}`:") | kind.startswith(f"OBJECT<{tag}:")


_KINDS: Final = {
    "BIGINT": Type.INT64,
    "DOUBLE": Type.FLOAT64,
    "STRING": Type.STRING,
    "BOOLEAN": Type.BOOLEAN,
    "FLOAT": Type.FLOAT64,
}


class _MaskField(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _fields: tuple[str, ...] = ()
    _replacement: str | None = None
    _defaults: bool = True

    def configure(self, props: Mapping[str, object]) -> None:
        values = CONFIG.parse(props)
        self._fields = tuple(cast("list[str]", values["fields"]))
        self._replacement = cast("str | None", values["replacement"])
        self._defaults = replaces_nulls(values)

    def config(self) -> ConfigDef:
        return CONFIG

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
                return masked(Decimal.schema(0), self._replacement)
            case date() | time() if self._replacement is None:
                return _EPOCH if isinstance(value, datetime) else _EPOCH.date() if isinstance(value, date) else time()
        for python, kind in _PYTHON_TYPES:
            if isinstance(value, python):
                return masked(Schema(kind), self._replacement)
        how = ": class " if self._replacement is None else " class "
        end = "" if self._replacement is None else " with custom replacement."
        raise DataException(f"Cannot mask value of type{how}{java_class_of_value(value)}{end}")


_PYTHON_TYPES: Final[tuple[tuple[type, Type], ...]] = (
    (bool, Type.BOOLEAN),
    (int, Type.INT64),
    (float, Type.FLOAT64),
    (str, Type.STRING),
    (list, Type.ARRAY),
    (dict, Type.MAP),
)


class MaskFieldKey(_MaskField):
    """MaskField on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.MaskField$Key"
    side: ClassVar[SideName] = "key"


class MaskFieldValue(_MaskField):
    """MaskField on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.MaskField$Value"
    side: ClassVar[SideName] = "value"
