"""Flatten: brings the fields of nested structs (with schema) or maps (without) to the top.

Classes ``FlattenKey`` and ``FlattenValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.Flatten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, setting
from penstock.data import Field, Schema, SchemaBuilder, Struct, Type
from penstock.errors import DataException
from penstock.pipeline.objects import Member, Members, members_of, object_column, object_side
from penstock.pipeline.step import Bag, ColumnTransform, Keep, Made, Shape, Side, SideName, Split, Step, StepPlan
from penstock.pipeline.text_bounds import unbounded
from penstock.pipeline.types import Form, Physical, spark_type
from penstock.transforms.requirements import (
    java_class_of_value,
    require_map,
    require_struct,
    with_string_keys,
)
from penstock.transforms.sides import Demand, copy_basics, side_of, with_side
from penstock.transforms.struct_copies import field_column

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_PURPOSE: Final = "flattening"


class FlattenConfig(AbstractConfig):
    """The settings of ``Flatten``."""

    delimiter: str | None = setting(
        default=".",
        doc="Delimiter to insert between field names from the input record when generating field names for the "
        "output record",
    )


@dataclass(frozen=True)
class Leaf:
    """A field of the flat struct: its path in the nested one, the fields' layouts, and its schema there and here."""

    path: tuple[str, ...]
    physical: Physical
    original: Schema
    schema: Schema
    name: str


def _unsupported(kind: str, name: str) -> DataException:
    return DataException(f"Flatten transformation does not support {kind} for record with schemas (for field {name}).")


def _unknown(java: str) -> str:
    return (
        f"Flatten transformation was passed a value of type class {java} which is not supported by Connect's data API"
    )


def _joined(prefix: str, delimiter: str, name: str) -> str:
    return f"{prefix}{delimiter}{name}" if prefix else name


def _leaves(
    schema: Schema,
    physical: Physical | None,
    delimiter: str,
    path: tuple[str, ...] = (),
    prefix: str = "",
    *,
    optional: bool,
    default: Struct | None,
) -> Iterator[Leaf]:
    """The leaves of a struct. Parents that may be missing make them optional, defaults of parents are theirs."""
    for one in schema.fields:
        name = _joined(prefix, delimiter, one.name)
        may_miss = optional or one.schema.optional
        own = one.schema.default
        if own is None and default is not None:
            own = default.get(one.name)
        layout = None if physical is None else physical.children[one.index]
        here = (*path, one.name)
        if one.schema.type is Type.STRUCT:
            if layout is not None and layout.form is not Form.STRUCT:
                raise _unsupported("values that deny their schema", name)
            inner = cast("Struct | None", own)
            yield from _leaves(one.schema, layout, delimiter, here, name, optional=may_miss, default=inner)
        elif one.schema.type is Type.MAP:
            raise _unsupported(one.schema.type.name, name)
        else:
            yield Leaf(here, layout or Physical(Form.SCALAR), one.schema, _leaf_schema(one.schema, may_miss, own), name)


def _leaf_schema(schema: Schema, optional: bool, default: object) -> Schema:
    if schema.type is Type.ARRAY:
        builder = SchemaBuilder.untyped_array(schema.value_schema)
    else:
        builder = SchemaBuilder.type(schema.type)
    copy_basics(schema, builder)
    if optional:
        builder.optional()
    if default is not None:
        builder.default_value(default)
    return builder.build()


def _member_leaves(members: Members, delimiter: str, path: tuple[str, ...] = (), prefix: str = "") -> Iterator[Leaf]:
    """The leaves of schemaless maps; a map that may be null is one."""
    for key, one in members.items():
        name, here = _joined(prefix, delimiter, key), (*path, key)
        if one.is_object and not one.schema.optional:
            inner = members_of(Side(None, one.physical, one.schema))
            yield from _member_leaves(inner, delimiter, here, name)
        else:
            yield Leaf(here, one.physical, one.schema, one.schema, name)


@lru_cache(maxsize=256)
def flattened(schema: Schema, physical: Physical | None, delimiter: str) -> tuple[Schema, tuple[Leaf, ...]]:
    """The flat schema of a struct schema, and its leaves.

    Raises:
        DataException: it has a map, or two fields that get one name.
    """
    default = schema.default if isinstance(schema.default, Struct) else None
    leaves = tuple(_leaves(schema, physical, delimiter, optional=schema.optional, default=default))
    builder = copy_basics(schema, SchemaBuilder.struct())
    for leaf in leaves:
        builder.field(leaf.name, leaf.schema)
    return builder.build(), leaves


@dataclass(frozen=True)
class Flat(Step):
    """Flattens one side."""

    side: SideName
    delimiter: str
    bounds_text: ClassVar[bool] = True

    @property
    def _demand(self) -> Demand:
        return Demand(_PURPOSE, self.side)

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Objects only where all records have the same leaves, and no two of them one name."""
        known = shape.side(self.side)
        if not known.is_object:
            return super().takes(shape)
        leaves = list(_member_leaves(members_of(known), self.delimiter))
        names = {leaf.name for leaf in leaves}
        # A map that is null is a leaf itself, so which leaves there are depends on the record.
        return len(names) == len(leaves) and all(leaf.schema.type is not Type.STRUCT for leaf in leaves)

    def plan(self, shape: Shape) -> StepPlan | Split:
        """See ``Step``."""
        unfit = self._demand.unfit(shape, null_passes=True)
        if unfit is not None:
            return unfit
        names = frozenset({self.side})
        known = shape.side(self.side)
        if known.schema is None:
            return self._plan_members(shape, known)
        try:
            schema, leaves = flattened(known.schema, known.physical, self.delimiter)
        except DataException as error:
            return self._demand.failing(shape, str(error), error.java_name, null_passes=True)
        # A default that takes the place of null is not what was seen of the text.
        layouts = [leaf.physical if leaf.original.default is None else unbounded(leaf.physical) for leaf in leaves]
        physical = Physical(Form.STRUCT, tuple(layouts))
        side = Side.of(schema, physical, present=True, complete=known.complete)
        after = shape.with_side(self.side, side)
        return self._demand.unless_null(
            shape, StepPlan(after, lambda bag, keep: self._make_struct(bag, schema, physical, leaves), names, names)
        )

    # ------------------------------------------------------------------ with schema
    def _make_struct(self, bag: Bag, schema: Schema, physical: Physical, leaves: tuple[Leaf, ...]) -> Made:
        value = bag.side(self.side)
        if not leaves:
            return Made({self.side: F.from_json(F.lit("{}"), cast("StructType", spark_type(schema, physical)))})
        columns = []
        for leaf in leaves:
            parent = value
            for name in leaf.path[:-1]:
                parent = parent.getField(name)
            column = parent.getField(leaf.path[-1])
            if leaf.original.default is not None:
                one = Field(leaf.path[-1], 0, leaf.original)
                column = field_column(parent, one, leaf.physical, defaults=True)
                if len(leaf.path) > 1:
                    # The default stands for a null leaf, not for the leaf of a null parent.
                    column = F.when(parent.isNotNull(), column)
            columns.append(column.alias(leaf.name))
        return Made({self.side: F.struct(*columns)})

    # ------------------------------------------------------------------ without
    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        leaves = list(_member_leaves(members_of(known), self.delimiter))

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            columns: dict[str, Column] = {}
            for leaf in leaves:
                column = value
                for name in leaf.path:
                    column = column.getField(name)
                columns[leaf.name] = column
            return Made({self.side: object_column(value, known, columns)})

        names = frozenset({self.side})
        members = {leaf.name: Member(leaf.schema, leaf.physical) for leaf in leaves}
        side = object_side(members, present=known.present)
        return StepPlan(shape.with_side(self.side, side), make, names, names)


class _Flatten(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _delimiter: str = "."

    def configure(self, props: Mapping[str, object]) -> None:
        delimiter = FlattenConfig.parse(props).delimiter
        # Java puts a null delimiter together with names as text.
        self._delimiter = "null" if delimiter is None else delimiter

    def config(self) -> ConfigDef:
        return FlattenConfig.definition()

    def step(self) -> Step:
        return Flat(self.side, self._delimiter)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema, value = side_of(record, self.side)
        if value is None:
            return record
        if schema is None:
            flat: dict[str, object] = {}
            self._flatten(require_map(value, _PURPOSE), "", flat)
            return with_side(record, self.side, None, flat)
        struct = require_struct(value, schema, _PURPOSE)
        flat_schema, leaves = flattened(struct.schema, None, self._delimiter)
        return with_side(
            record, self.side, flat_schema, Struct.unchecked(flat_schema, [_leaf_of(struct, leaf) for leaf in leaves])
        )

    def _flatten(self, nested: dict[object, object], prefix: str, flat: dict[str, object]) -> None:
        for key, value in with_string_keys(nested).items():
            name = _joined(prefix, self._delimiter, key)
            match value:
                case dict():
                    self._flatten(value, name, flat)
                case Struct():
                    java = java_class_of_value(value)
                    raise DataException(
                        f"Flatten transformation does not support class {java} for record without schemas "
                        f"(for field {name})."
                    )
                case None | bool() | int() | float() | str() | bytes() | bytearray() | list() | tuple():
                    flat[name] = value
                case _:
                    raise DataException(_unknown(java_class_of_value(value)))


def _leaf_of(struct: Struct, leaf: Leaf) -> object:
    parent: object = struct
    for name in leaf.path[:-1]:
        if not isinstance(parent, Struct):
            return None
        parent = parent.get_without_default(name)
    return parent.get(leaf.path[-1]) if isinstance(parent, Struct) else None


class FlattenKey(_Flatten):
    """Flatten on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.Flatten$Key"
    side: ClassVar[SideName] = "key"


class FlattenValue(_Flatten):
    """Flatten on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.Flatten$Value"
    side: ClassVar[SideName] = "value"
