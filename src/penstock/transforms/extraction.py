"""ExtractField replaces the key or value by one of its fields; HoistField wraps it in a struct or map with one field.

``FieldPath`` names a field, in the syntax of ``field.syntax.version``. V1: the whole text is the name of a field at the
top. V2: dots separate the steps; a step in backticks may contain dots, and a backslash escapes a backtick before a dot.

Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: ExtractField, HoistField, field.SingleFieldPath and field.FieldSyntaxVersion of
org.apache.kafka.connect.transforms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from pyspark.sql import functions as F

from penstock.api.transform import R
from penstock.config import AbstractConfig, CaseInsensitiveValidString, Importance, setting
from penstock.data import Field, Schema, SchemaBuilder, Struct, Type
from penstock.errors import ConfigException, DataException, SchemaBuilderException, java_class_name
from penstock.pipeline.columns.java_text import java_class
from penstock.pipeline.columns.layout import Layout, LayoutKind, unbounded
from penstock.pipeline.plan.map_structs import ValueDescription, members_of, object_member, object_side
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
    NullPointerError,
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
from penstock.transforms.fields import field_column, null_in, side_of, with_side

if TYPE_CHECKING:
    from pyspark.sql import Column


NESTED: Final = "nested field access"


class NoStepsError(ValueError):
    """An empty path of version 2, in which Java finds no last step."""

    java_name: ClassVar[str] = "java.lang.IllegalArgumentException"


def field_syntax() -> Any:
    """The field ``field_syntax_version: str | None`` of an `AbstractConfig`."""
    return setting(
        default="V1",
        validator=CaseInsensitiveValidString("V1", "V2"),
        importance=Importance.HIGH,
        doc="Defines the version of the syntax to access fields. If set to `V1`, then the field paths are limited to "
        "access the elements at the root level of the struct or map. If set to `V2`, the syntax will support accessing "
        "nested elements. To access nested elements, dotted notation is used. If dots are already included in the "
        "field name, then backtick pairs can be used to wrap field names containing dots. E.g. to access the subfield "
        '`baz` from a field named "foo.bar" in a struct/map the following format can be used to access its elements: '
        '"`foo.bar`.baz".',
    )


def parse_path(text: str | None, version: object) -> FieldPath:
    """Parses a path in the syntax that a transform is configured for; raises NullPointerError for null."""
    if text is None:
        raise NullPointerError("The path of a field is null")
    if str(version).upper() == "V1":
        return FieldPath(text, (text,))
    return FieldPath(text, tuple(split_path(text)))


def split_path(path: str) -> Sequence[str]:
    r"""The steps of a path of version 2.

    >>> split_path("a.`b.c`.d"), split_path(r"`a\`.b`"), split_path("a.")
    (['a', 'b.c', 'd'], ['a`.b'], ['a', ''])
    """
    steps: list[str] = []
    at = 0
    while at < len(path):
        if path[at] == "`":
            step, at = _quoted(path, at)
            steps.append(step)
            continue
        dot = path.find(".", at)
        if dot < 0:
            steps.append(path[at:])
            break
        steps.append(path[at:dot])
        at = dot + 1
    if path.endswith("."):
        steps.append("")
    return steps


def _quoted(path: str, opening: int) -> tuple[str, int]:
    """The step in backticks that starts at ``opening``, and the start of the next step."""
    step = ""
    start = at = opening + 1
    while True:
        at = path.find("`", at)
        if at < 0:
            _incomplete(path, opening)
        escaped = path[at - 1] == "\\"
        if at == len(path) - 1:
            if escaped:
                _incomplete(path, opening)
            return step + path[start:at], at + 1
        if path[at + 1] != ".":
            # Not a closing backtick, but a part of the name.
            at += 1
        elif escaped:
            step += path[start : at - 1] + "`"
            at += 1
            start = at
        else:
            return step + path[start:at], at + 2


def _incomplete(path: str, opening: int) -> NoReturn:
    raise ConfigException(
        f"Incomplete backtick pair in path: [{path}], "
        f"consider adding a backslash before backtick at position {opening} to escape it"
    )


@dataclass(frozen=True)
class FieldPath:
    """The path to a field.

    Attributes:
        text: The path as written.
        steps: The names from the top down; empty only for an empty path of version 2, which cannot be used.
    """

    text: str
    steps: tuple[str, ...]

    def ensure_steps(self) -> None:
        if not self.steps:
            raise NoStepsError(f'fromIndex(0) > toIndex(-1): the path "{self.text}" names no field')

    def fields(self, schema: Schema) -> list[Field] | None:
        """The fields along the path, from the top down; None if one of them does not exist."""
        self.ensure_steps()
        found: list[Field] = []
        current = schema
        for step in self.steps:
            if current.type is not Type.STRUCT:
                raise DataException("Cannot look up fields on non-struct type")
            field = current.field(step)
            if field is None:
                return None
            found.append(field)
            current = field.schema
        return found

    def of_struct(self, value: Struct, *, defaults: bool) -> object:
        """The value at the end of the path; None if a struct on the way is null.

        A null on the way is always replaced by its default; ``defaults`` only applies to the last step.
        """
        for step in self.steps[:-1]:
            inner = value.get(step)
            if inner is None:
                return None
            value = require_struct(inner, None, NESTED)
        return value.get(self.steps[-1]) if defaults else value.get_without_default(self.steps[-1])

    def of_map(self, value: Mapping[object, object]) -> object:
        """The value at the end of the path; None if a map on the way is null or missing."""
        self.ensure_steps()
        for step in self.steps[:-1]:
            inner = value.get(step)
            if inner is None:
                return None
            value = require_map(inner, NESTED)
        return value.get(self.steps[-1])


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
        """Objects only if the path leads to a member."""
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
        schema, value = side_of(record, self.side)
        if schema is None:
            found = None if value is None else self.path.of_map(require_map(value, _PURPOSE))
            return with_side(record, self.side, None, found)
        struct = None if value is None else require_struct(value, schema, _PURPOSE)
        found_schema = self._fields(schema)[-1].schema
        found = None if struct is None else self.path.of_struct(struct, defaults=self.defaults)
        return with_side(record, self.side, found_schema, found)


class _ExtractField(StockTransform[ExtractFieldConfig]):
    """Replaces the key or value by one of its fields."""

    settings = ExtractFieldConfig

    def define(self, config: ExtractFieldConfig) -> Extract:
        path = parse_path(config.field, config.field_syntax_version)
        return Extract(self.side, path, replaces_nulls(config.replace_null_with_default))


ExtractFieldKey, ExtractFieldValue = pair(_ExtractField)


class HoistFieldConfig(AbstractConfig):
    """The settings of ``HoistField``."""

    field: str | None = setting(
        doc="Field name for the single field that will be created in the resulting Struct or Map."
    )


@lru_cache(maxsize=256)
def _hoisted(schema: Schema, field: str | None) -> Schema:
    if not field:
        raise SchemaBuilderException("fieldName cannot be null.")
    return SchemaBuilder.struct().field(field, schema).build()


@dataclass(frozen=True)
class Hoist(Definition):
    """Wraps a key or value."""

    side: SideName
    field: str | None
    bounds_text: ClassVar[bool] = True

    def takes(self, shape: Shape) -> bool:
        """Without a schema only if the field has a name."""
        known = shape.side(self.side)
        return known.schema is not None or (bool(self.field) and not known.is_variant)

    @property
    def _name(self) -> str:
        assert self.field is not None, "a struct's field has a name"
        return self.field

    def apply(self, record: R) -> R | None:
        schema, value = side_of(record, self.side)
        if schema is None:
            return with_side(record, self.side, None, {self.field: value})
        hoisted = _hoisted(schema, self.field)
        if value is None and not schema.optional:
            raise DataException(null_in(self._name, schema))
        return with_side(record, self.side, hoisted, Struct.unchecked(hoisted, [value]))

    def plan(self, shape: Shape) -> StepPlan:
        known = shape.side(self.side)
        if known.schema is None:
            return self._plan_members(shape, known)
        names = frozenset({self.side})
        schema = _hoisted(known.schema, self.field)
        # A required null fails here.
        complete = known.complete or not known.physical.children
        side = Side.of(schema, Layout(LayoutKind.STRUCT, (known.physical,)), present=True, complete=complete)
        checked = not known.schema.optional and not known.present
        make = partial(self._make_present, known.schema) if checked else self._make_struct
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        if known.is_object:
            member = object_member(members_of(known), optional=not known.present)
        else:
            member = (
                ValueDescription.of(Type.STRING)
                if known.carrier is None
                else ValueDescription(known.carrier, known.physical)
            )
        names = frozenset({self.side})
        side = object_side({self._name: member}, present=True)
        make = self._make_null if known.absent else self._make_struct
        return StepPlan(shape.with_side(self.side, side), make, frozenset() if known.absent else names, names)

    def _make_null(self, record: RecordColumns, keep: NameColumn) -> Made:
        return Made({self.side: F.struct(F.lit(None).cast("string").alias(self._name))})

    def _make_struct(self, record: RecordColumns, keep: NameColumn) -> Made:
        return Made({self.side: F.struct(record.side(self.side).alias(self._name))})

    def _make_present(self, schema: Schema, record: RecordColumns, keep: NameColumn) -> Made:
        missing = StepFault(record.side(self.side).isNull(), null_in(self._name, schema), DataException.java_name)
        return Made(self._make_struct(record, keep).columns, (missing,))


class _HoistField(StockTransform[HoistFieldConfig]):
    """Wraps the whole key or value in a struct (with schema) or map (without) with one field."""

    settings = HoistFieldConfig

    def define(self, config: HoistFieldConfig) -> Hoist:
        return Hoist(self.side, config.field)


HoistFieldKey, HoistFieldValue = pair(_HoistField)
