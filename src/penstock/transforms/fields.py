"""The base of transforms of fields: a transform defines its result once, for columns and for single records.

``FieldSelection`` builds a struct from fields (``Pick``) of another one, with a ``Change`` of each value. ``OfFields``
is the transform: subclasses select the fields (``select``) and transform schemaless maps (``members`` for columns of
maps of the same form, ``of_map`` for one map); subclasses of ``OfChanges`` need only ``Change``s. Java's checks and
messages for keys and values are here, too.

Thread: definitions are immutable; columns are built on a pipeline thread.
Source: org.apache.kafka.connect.transforms.util.Requirements; org.apache.kafka.connect.data.Struct.put.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

from pyspark.sql import functions as F

from penstock.api import ConnectRecord
from penstock.api.transform import R
from penstock.data import Field, Schema, SchemaBuilder, Struct, Type
from penstock.data.structs import null_refused
from penstock.errors import DataException, java_class_name
from penstock.pipeline.columns.expressions import rare
from penstock.pipeline.columns.java_text import java_class
from penstock.pipeline.columns.json_text import literal
from penstock.pipeline.columns.layout import Layout, LayoutKind, spark_type, unbounded
from penstock.pipeline.plan.map_structs import Members, ValueDescription, members_of, object_column, object_side
from penstock.pipeline.plan.step import (
    Branch,
    Made,
    NameColumn,
    RecordColumns,
    Shape,
    Side,
    SideName,
    Split,
    StepFault,
    StepPlan,
)
from penstock.transforms.definition import Definition, no_map, no_struct, require_map, require_struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column
    from pyspark.sql.types import StructType


class Change(ABC):
    """A change of a value: of a column, and of a single value. Changes compare by value, like steps."""

    @abstractmethod
    def layout(self, schema: Schema, physical: Layout) -> Layout:
        """The layout of changed values."""

    @abstractmethod
    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        """The changed values and the possible errors; an error without a condition also applies to null."""

    @abstractmethod
    def value(self, schema: Schema | None, value: object) -> object:
        """The changed value; ``schema`` is that of the value before. Raises ConnectException for a bad value."""

    def member(self, known: ValueDescription | None) -> ValueDescription:
        """Returns the known type of schemaless values of one kind after the change; None if null replaces a field."""
        raise NotImplementedError


@dataclass(frozen=True)
class Pick:
    """A field of the new struct: its name there, the path of its value from the top down, and the change."""

    name: str
    path: tuple[Field, ...]
    change: Change | None = None

    @property
    def field(self) -> Field:
        """The original field of the value."""
        return self.path[-1]

    def physical(self, known: Layout) -> Layout:
        """The layout of the field in structs of this layout."""
        return reduce(lambda layout, one: layout.children[one.index], self.path, known)


@dataclass(frozen=True)
class FieldSelection:
    """A struct built from fields of another one.

    Attributes:
        schema: Its schema.
        picks: Its fields, in the order of the schema. Other fields may follow, whose values come from elsewhere.
        defaults: True if a null is replaced by its field's default.
        checked: True if a null is rejected when the schema requires a value.
    """

    schema: Schema
    picks: tuple[Pick, ...]
    defaults: bool
    checked: bool = True

    @classmethod
    def of_all(cls, schema: Schema, fields: Sequence[Field], defaults: bool, *, checked: bool = True) -> FieldSelection:
        """A selection of these fields without changes, for a struct of this schema."""
        picks = zip(schema.fields, fields, strict=False)
        return cls(schema, tuple(Pick(new.name, (old,)) for new, old in picks), defaults, checked)

    def _default(self, pick: Pick) -> object:
        return pick.field.schema.default if self.defaults else None

    def _has_default(self, pick: Pick) -> bool:
        return self._default(pick) is not None

    @cached_property
    def _required(self) -> list[tuple[int, str]]:
        """The fields that may be null but must not be: their positions, and their error messages."""
        if not self.checked:
            return []
        return [
            (new.index, null_in(new.name, new.schema))
            for new, pick in zip(self.schema.fields, self.picks, strict=False)
            # Struct.put rejects null for a required field even if it has a default.
            if not new.schema.optional and not self._has_default(pick)
        ]

    # ------------------------------------------------------------------ columns
    def layout(self, known: Layout) -> Layout:
        """The layout of the new structs, given the layout of the original ones."""
        return Layout(LayoutKind.STRUCT, tuple(self._layout(pick, pick.physical(known)) for pick in self.picks))

    def _layout(self, pick: Pick, physical: Layout) -> Layout:
        # The properties of a text do not hold for the default that replaces null.
        copied = unbounded(physical) if self._has_default(pick) else physical
        return copied if pick.change is None else pick.change.layout(pick.field.schema, copied)

    def column(self, value: Column, known: Side, keep: NameColumn) -> tuple[Column, list[StepFault]]:
        """The new structs for a column, null or not, and the possible errors."""
        columns, faults = self.columns(value, known, keep)
        if self._is_all_of(known):
            return value, faults
        if not columns:
            return F.from_json(
                F.lit("{}"), cast("StructType", spark_type(self.schema, Layout(LayoutKind.STRUCT)))
            ), faults
        return F.struct(*columns), faults

    def _is_all_of(self, known: Side) -> bool:
        """True if only the schema changes."""
        fields = () if known.schema is None else known.schema.fields
        if any(pick.change or self._has_default(pick) for pick in self.picks):
            return False
        return [(one.name, one.path) for one in self.picks] == [(one.name, (one,)) for one in fields]

    def columns(self, value: Column, known: Side, keep: NameColumn) -> tuple[list[Column], list[StepFault]]:
        """The fields of ``column``, one column each."""
        columns: list[Column] = []
        faults: list[StepFault] = []
        for pick in self.picks:
            column = self._found(pick, value, known.physical)
            if pick.change is not None:
                column, found = pick.change.column(column, pick.field.schema, pick.physical(known.physical), keep)
                there = value.isNotNull()
                faults += [replace(one, condition=there) if one.condition is None else one for one in found]
            columns.append(column.alias(pick.name))
        if self._required and not known.complete:
            faults.append(self._null_fault(value))
        return columns, faults

    def _found(self, pick: Pick, value: Column, known: Layout) -> Column:
        parent = reduce(lambda column, one: column.getField(one.name), pick.path[:-1], value)
        column = field_column(parent, pick.field, pick.physical(known), defaults=self.defaults)
        if len(pick.path) > 1 and self._has_default(pick):
            # The default replaces a null field, not the field of a null parent.
            return F.when(parent.isNotNull(), column)
        return column

    def _null_fault(self, value: Column) -> StepFault:
        required = [(self.picks[at].field.name, message) for at, message in self._required]

        def text(struct: Column) -> Column:
            found = F.lit(None).cast("string")
            for name, message in reversed(required):
                found = F.when(struct.getField(name).isNull(), message).otherwise(found)
            return found

        missing = reduce(or_, [value.getField(name).isNull() for name, _ in required])
        return StepFault(value.isNotNull() & missing, rare(value, text), _FAILED)

    # ------------------------------------------------------------------ one value
    @cached_property
    def _places(self) -> list[int]:
        return [pick.path[0].index for pick in self.picks]

    @cached_property
    def _below(self) -> list[tuple[int, tuple[int, ...], int, object]]:
        """The picks below the top level: position, positions on the way and at the end, and the default there."""
        return [
            (at, tuple(one.index for one in pick.path[:-1]), pick.field.index, self._default(pick))
            for at, pick in enumerate(self.picks)
            if len(pick.path) > 1
        ]

    @cached_property
    def _defaults(self) -> list[tuple[int, object]]:
        """The defaults of the top-level picks, with their positions."""
        found = enumerate(self.picks)
        return [(at, one.field.schema.default) for at, one in found if self._has_default(one) and len(one.path) == 1]

    @cached_property
    def _changes(self) -> list[tuple[int, Callable[[object], object]]]:
        found = enumerate(self.picks)
        return [(at, partial(one.change.value, one.field.schema)) for at, one in found if one.change is not None]

    def struct(self, value: Struct) -> Struct:
        """Builds the new struct; raises DataException for null in a required field."""
        old = value.values
        made = [old[place] for place in self._places]
        for at, way, end, default in self._below:
            parent: Any = value
            for place in way:
                parent = parent.values[place]
                if parent is None:
                    break
            else:
                found = parent.values[end]
                made[at] = default if found is None else found
                continue
            made[at] = None
        for at, default in self._defaults:
            if made[at] is None:
                made[at] = default
        for at, change in self._changes:
            made[at] = change(made[at])
        for at, message in self._required:
            if made[at] is None:
                raise DataException(message)
        return Struct.unchecked(self.schema, made)


def field_column(value: Column, field: Field, physical: Layout, *, defaults: bool) -> Column:
    """A field of a struct column; with ``defaults`` a null becomes the field's default."""
    column = value.getField(field.name)
    if defaults and field.schema.default is not None:
        return F.coalesce(column, literal(field.schema.default, field.schema, physical))
    return column


def field_value(value: Struct, field: str | Field, *, defaults: bool) -> object:
    """The same for one Struct."""
    return value.get(field) if defaults else value.get_without_default(field)


def schema_like(schema: Schema, fields: Sequence[tuple[str, Schema]]) -> Schema:
    """A struct schema with these fields and the name, version, doc and parameters of another."""
    builder = copy_basics(schema, SchemaBuilder.struct())
    for name, field_schema in fields:
        builder.field(name, field_schema)
    return builder.build()


def copy_basics(schema: Schema, builder: SchemaBuilder) -> SchemaBuilder:
    """Copies name, version, doc and parameters of a schema to a new one, but neither optionality nor default."""
    builder.name(schema.name).version(schema.version).doc(schema.doc)
    return builder if schema.parameters is None else builder.parameters(schema.parameters)


def null_in(name: str, schema: Schema) -> str:
    """Returns the message of Java's ``Struct.put`` for a null in a required field."""
    return null_refused(schema, f'field: "{name}"')


_FAILED: Final = DataException.java_name
#: Java lists the fields of every schema, but only structs have fields.
NO_FIELDS: Final = "Cannot list fields on non-struct type"
_MAX_KNOWN: Final = 256
Making: TypeAlias = Callable[[RecordColumns, NameColumn], Made]


class Nulls(enum.Enum):
    """The treatment of a key or value that is null."""

    FAIL = "it is refused"
    STAY = "it stays as it is, its schema too"
    CHANGE = "it gets the schema that values get"


@dataclass(frozen=True)
class MapMember:
    """A member of the resulting maps: its known type, its path in the original, and its change.

    An empty path: the field does not exist, and is null.
    """

    member: ValueDescription
    path: tuple[str, ...]
    change: Change | None = None
    before: ValueDescription | None = None

    def column(self, value: Column, keep: NameColumn) -> tuple[Column, Sequence[StepFault]]:
        """The member as a column of the resulting maps, and the possible errors."""
        if not self.path:
            return F.lit(None).cast(spark_type(self.member.schema)), ()
        column = reduce(lambda one, name: one.getField(name), self.path, value)
        if self.change is None or self.before is None:
            return column, ()
        column, faults = self.change.column(column, self.before.schema, self.before.physical, keep)
        same = self.before.schema.type is self.member.schema.type
        return column if same else column.cast(spark_type(self.member.schema)), faults


def side_of(record: ConnectRecord, side: SideName) -> tuple[Schema | None, object]:
    """Schema and value of a record's key or value."""
    return (record.key_schema, record.key) if side == "key" else (record.value_schema, record.value)


def with_side(record: R, side: SideName, schema: Schema | None, value: object) -> R:
    """The record with its key or value replaced."""
    if side == "key":
        return cast("R", record.new_record(key_schema=schema, key=value))
    return cast("R", record.new_record(value_schema=schema, value=value))


class OfFields(Definition):
    """Builds a struct or map from fields of another one. Subclasses are frozen dataclasses.

    Attributes:
        side: The key or the value.
        purpose: The operation that needs a Struct or Map, for messages.
        whole: The change of the whole key or value; None = its fields change.
        nulls: The treatment of null.
        schema_first: True if it checks the schema before it checks that the value is a Struct.
    """

    side: SideName
    nulls: ClassVar[Nulls] = Nulls.STAY
    schema_first: ClassVar[bool] = False
    bounds_text: ClassVar[bool] = True

    @property
    @abstractmethod
    def purpose(self) -> str:
        """See the class."""

    @cached_property
    def whole(self) -> Change | None:
        """See the class."""
        return None

    @cached_property
    def target(self) -> SideName:
        """The part of the record that it replaces."""
        return self.side

    @abstractmethod
    def select(self, schema: Schema) -> FieldSelection:
        """Selects the fields of structs of a schema; raises an error if every struct of this schema fails."""

    def members(self, before: Members) -> Mapping[str, MapMember]:
        """Returns the result for schemaless maps of the same form, if it ``takes`` them; by default the same maps."""
        return {name: MapMember(one, (name,)) for name, one in before.items()}

    def of_map(self, value: dict[object, object]) -> dict[object, object]:
        """Returns the result for a schemaless map, which must not be changed in place; by default the same map."""
        return value

    @cached_property
    def _known(self) -> dict[Schema, FieldSelection]:
        return {}

    def selected(self, schema: Schema) -> FieldSelection:
        """The cached result of ``select`` for a schema."""
        found = self._known.get(schema)
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[schema] = self.select(schema)
        return found

    # ------------------------------------------------------------------ one record
    def apply(self, record: R) -> R | None:
        schema, value = side_of(record, self.side)
        if value is None and self.nulls is not Nulls.FAIL:
            if schema is None or self.nulls is Nulls.STAY:
                return record
            return with_side(record, self.target, self.selected(schema).schema, None)
        if self.whole is not None:
            made = None if schema is None else self.selected(schema).schema
            return with_side(record, self.target, made, self.whole.value(schema, value))
        if schema is None:
            return with_side(record, self.target, None, self.of_map(require_map(value, self.purpose)))
        if self.schema_first:
            self.selected(schema)
        struct = require_struct(value, schema, self.purpose)
        selection = self.selected(struct.schema)
        return with_side(record, self.target, selection.schema, selection.struct(struct))

    # ------------------------------------------------------------------ columns
    def plan(self, shape: Shape) -> StepPlan | Split:
        known = shape.side(self.side)
        if self.whole is None or known.absent:
            unfit = None if known.schema is not None and self.schema_first else self.unfit(shape)
            if unfit is not None:
                return unfit
        if known.schema is None:
            return (
                self.plan_members(shape, known)
                if self.whole is None
                else self._plan_whole(shape, known, self.whole, None)
            )
        try:
            selection = self.selected(known.schema)
        except Exception as error:
            if self.nulls is Nulls.CHANGE:
                raise
            return self.failing(shape, str(error), java_class_name(error))
        if self.whole is not None:
            return self._plan_whole(shape, known, self.whole, selection.schema)
        return self.unfit(shape) or self.plan_struct(shape, known, selection)

    def unfit(self, shape: Shape) -> StepPlan | None:
        """The plan if a value is not a Struct, or without a schema not a map; None if all are (or null)."""
        known = shape.side(self.side)
        if known.absent:
            if self.nulls is not Nulls.FAIL:
                return StepPlan(shape)
            raise DataException(f"{no_map(self.purpose)}null")
        if known.schema is not None:
            if known.schema.type is Type.STRUCT and known.physical.form is LayoutKind.STRUCT:
                return None
            return self.failing(shape, f"{no_struct(self.purpose)}{java_class(known.schema)}")
        if known.is_object:
            return None
        found = "java.lang.Object" if known.carrier is None else java_class(known.carrier)
        return self.failing(shape, f"{no_map(self.purpose)}{found}")

    def failing(self, shape: Shape, message: str, exception: str = _FAILED) -> StepPlan:
        """The plan if every value fails."""
        known = shape.side(self.side)

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            column = record.side(self.side)
            return Made(faults=[StepFault(column.isNotNull(), message, exception), *self._null_faults(column, known)])

        return StepPlan(shape, make, frozenset({self.side}))

    def _null_faults(self, column: Column, known: Side) -> list[StepFault]:
        if known.present or self.nulls is Nulls.STAY:
            return []
        if self.nulls is Nulls.CHANGE:
            # A null gets the schema that structs get, but only structs have one.
            fits = known.schema is None or known.schema.type is Type.STRUCT
            return [] if fits else [StepFault(column.isNull(), NO_FIELDS, _FAILED)]
        start = no_map(self.purpose) if known.schema is None else no_struct(self.purpose)
        return [StepFault(column.isNull(), f"{start}null", _FAILED)]

    def unless_null(self, shape: Shape, plan: StepPlan) -> StepPlan | Split:
        """The plan for values; if a null keeps its schema, nulls are separated from other records here."""
        if shape.side(self.side).present or self.nulls is not Nulls.STAY:
            return plan
        same = Branch(lambda record: record.side(self.side).isNull(), StepPlan(shape), frozenset({self.side}))
        return Split([same, Branch(None, plan)])

    def plan_struct(self, shape: Shape, known: Side, selection: FieldSelection) -> StepPlan | Split:
        """The plan for structs of one schema."""
        present = known.present or self.nulls is not Nulls.CHANGE
        layout = selection.layout(known.physical)
        side = Side.of(selection.schema, layout, present=present, complete=known.complete)

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            value = record.side(self.side)
            struct, faults = selection.column(value, known, keep)
            # The result of a null is only its schema.
            made = struct if present or struct is value else F.when(value.isNotNull(), struct)
            return Made({self.target: made}, [*self._null_faults(value, known), *faults])

        return self.unless_null(shape, self.planned(shape, side, make))

    def plan_members(self, shape: Shape, known: Side) -> StepPlan | Split:
        """The plan for schemaless maps of the same form."""
        found = self.members(members_of(known))

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            value = record.side(self.side)
            faults = self._null_faults(value, known)
            columns: dict[str, Column] = {}
            for name, one in found.items():
                columns[name], more = one.column(value, keep)
                faults += more
            return Made({self.target: object_column(value, known, columns)}, faults)

        side = object_side({name: one.member for name, one in found.items()}, present=known.present)
        return self.planned(shape, side, make)

    def _plan_whole(self, shape: Shape, known: Side, whole: Change, schema: Schema | None) -> StepPlan | Split:
        """The plan for a change of the whole; ``schema`` is the new schema, None = the values of one kind have none."""
        before = known.carrier
        assert before is not None, "values of mixed kinds do not come here"
        kind = whole.member(ValueDescription(before, known.physical)).schema if schema is None else None
        layout = whole.layout(before, known.physical)
        side = Side(None, layout, kind)
        if schema is not None:
            side = Side.of(schema, layout, present=known.present or self.nulls is Nulls.STAY)

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            column, faults = whole.column(record.side(self.side), before, known.physical, keep)
            return Made({self.target: column if kind is None else column.cast(spark_type(kind, layout))}, faults)

        plan = self.planned(shape, side, make)
        return plan if schema is None else self.unless_null(shape, plan)

    def planned(self, shape: Shape, side: Side, make: Making) -> StepPlan:
        """The plan for the target, from the changed key or value."""
        return StepPlan(shape.with_side(self.target, side), make, frozenset({self.side}), frozenset({self.target}))


class OfChanges(OfFields):
    """Changes the values of some fields, or the ``whole``. Subclasses are frozen dataclasses."""

    defaults: bool

    @property
    @abstractmethod
    def changes(self) -> Mapping[str, Change]:
        """See the class."""

    @abstractmethod
    def updated(self, schema: Schema) -> Schema:
        """The schema of the changed values; raises ConnectException if such values cannot be changed."""

    def select(self, schema: Schema) -> FieldSelection:
        picks = self.picks(schema) if self.whole is None else ()
        return FieldSelection(self.updated(schema), picks, self.defaults)

    def picks(self, schema: Schema) -> tuple[Pick, ...]:
        """The fields of a struct, with some of them changed."""
        return tuple(Pick(one.name, (one,), self.changes.get(one.name)) for one in schema.fields)

    def takes(self, shape: Shape) -> bool:
        """Not if a map would be changed, whole or as a field."""
        known = shape.side(self.side)
        if not known.is_object:
            return super().takes(shape)
        before = members_of(known)
        return self.whole is None and not any(name in before and before[name].is_object for name in self.changes)

    def members(self, before: Members) -> Mapping[str, MapMember]:
        """A missing field is changed as null, and then exists."""
        after = dict(super().members(before))
        for name, change in self.changes.items():
            old = before.get(name)
            after[name] = MapMember(change.member(old), () if old is None else (name,), change, old)
        return after

    def of_map(self, value: dict[object, object]) -> dict[object, object]:
        changed = dict(value)
        for name, change in self.changes.items():
            changed[name] = change.value(None, changed.get(name))
        return changed
