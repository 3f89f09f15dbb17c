"""The common base of transforms of the fields of a key or value, for columns and for single records.

Main types: ``OfFields``, whose subclasses choose the fields of the new struct (``select``) and transform schemaless
maps (``members`` for columns of maps of the same form, ``of_map`` for one map); ``OfChanges``, whose subclasses need
only ``Change``s; ``Nulls``. Each checks its key or value as Java does, with Java's messages.

Thread: definitions are immutable; columns are built on a pipeline thread.
Source: org.apache.kafka.connect.transforms.util.Requirements.
"""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, cast

from pyspark.sql import functions as F

from penstock.api import ConnectRecord
from penstock.api.transform import R
from penstock.data import Schema, Type
from penstock.errors import DataException, java_class_name
from penstock.pipeline.columns.java_classes import java_class
from penstock.pipeline.columns.layout import LayoutKind, spark_type
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
from penstock.transforms.fields.selection import Change, FieldSelection, Pick

if TYPE_CHECKING:
    from pyspark.sql import Column

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
        """Returns the selection for structs of a schema.

        Raises:
            Exception: Every struct of this schema fails.
        """

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
        """See ``Definition``."""
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
        """See ``Step``."""
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
    """Changes the values of some fields. Subclasses are frozen dataclasses.

    Attributes:
        defaults: True if a null is replaced by its field's default.
        changes: The change of each field, unless ``whole`` is changed.
    """

    defaults: bool

    @property
    @abstractmethod
    def changes(self) -> Mapping[str, Change]:
        """See the class."""

    @abstractmethod
    def updated(self, schema: Schema) -> Schema:
        """The schema of the changed values.

        Raises:
            ConnectException: Values of this schema cannot be changed.
        """

    def select(self, schema: Schema) -> FieldSelection:
        """See ``OfFields``."""
        picks = self.picks(schema) if self.whole is None else ()
        return FieldSelection(self.updated(schema), picks, self.defaults)

    def picks(self, schema: Schema) -> tuple[Pick, ...]:
        """The fields of a struct, with some of them changed."""
        return tuple(Pick(one.name, (one,), self.changes.get(one.name)) for one in schema.fields)

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Not if a map would be changed, whole or as a field."""
        known = shape.side(self.side)
        if not known.is_object:
            return super().takes(shape)
        before = members_of(known)
        return self.whole is None and not any(name in before and before[name].is_object for name in self.changes)

    def members(self, before: Members) -> Mapping[str, MapMember]:
        """See ``OfFields``. A missing field is changed as null, and then exists."""
        after = dict(super().members(before))
        for name, change in self.changes.items():
            old = before.get(name)
            after[name] = MapMember(change.member(old), () if old is None else (name,), change, old)
        return after

    def of_map(self, value: dict[object, object]) -> dict[object, object]:
        """See ``OfFields``."""
        changed = dict(value)
        for name, change in self.changes.items():
            changed[name] = change.value(None, changed.get(name))
        return changed
