"""Selections of fields from one struct for another: one definition for a column of structs and for one ``Struct``.

Main types: ``FieldSelection`` (the fields, as ``Pick``s, and the schema of the new struct) and ``Change`` (a change of
a field's value).

Thread: immutable; columns are built on a pipeline thread.
Source: org.apache.kafka.connect.data.Struct.put, for the values that it rejects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql import functions as F

from penstock.data import Field, Schema, SchemaBuilder, Struct
from penstock.data.structs import null_refused
from penstock.errors import DataException
from penstock.pipeline.columns.expressions import rare
from penstock.pipeline.columns.layout import Layout, LayoutKind, spark_type, unbounded
from penstock.pipeline.columns.texts.json import literal
from penstock.pipeline.plan.map_structs import ValueDescription
from penstock.pipeline.plan.step import NameColumn, Side, StepFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_FAILED: Final = DataException.java_name


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
        """A changed value; ``schema`` is that of the value as it was.

        Raises:
            ConnectException: The value cannot be changed.
        """

    def member(self, known: ValueDescription | None) -> ValueDescription:
        """Returns the known type of schemaless values of one kind after the change; None if null replaces a field."""
        raise NotImplementedError


@dataclass(frozen=True)
class Pick:
    """One field of the new struct.

    Attributes:
        name: Its name there.
        path: The path of its value, from the top down.
        change: The change of the value.
    """

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
                faults += [StepFault(value.isNotNull(), *_said(one)) if one.condition is None else one for one in found]
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
        """Builds the new struct from one struct.

        Raises:
            DataException: A required field is null.
            ConnectException: A value cannot be changed.
        """
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


def _said(fault: StepFault) -> tuple[Column | str, str]:
    return fault.message, fault.exception


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
    """A struct schema with these fields and the name, version, doc and parameters of another.

    Raises:
        SchemaBuilderException: Two fields have the same name.
    """
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
