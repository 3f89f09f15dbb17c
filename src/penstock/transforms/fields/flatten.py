"""Flatten: moves the fields of nested structs (with schema) or maps (without) to the top level.

If several fields get the same name, a record with a schema fails. Without a schema the last of these fields counts, in
the order of the message (in Java: the order of a HashMap).

Classes ``FlattenKey`` and ``FlattenValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.Flatten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.config import AbstractConfig, setting
from penstock.data import Field, Schema, SchemaBuilder, Struct, Type
from penstock.errors import DataException
from penstock.pipeline.columns.java_classes import java_class_of_value
from penstock.pipeline.columns.layout import Layout, LayoutKind
from penstock.pipeline.plan.map_structs import Members, members_of
from penstock.pipeline.plan.step import Shape, Side, SideName, StepPlan
from penstock.transforms.definition import StockTransform, pair, with_string_keys
from penstock.transforms.fields.definition import MapMember, OfFields
from penstock.transforms.fields.selection import FieldSelection, Pick, copy_basics, schema_like


class FlattenConfig(AbstractConfig):
    """The settings of ``Flatten``."""

    delimiter: str | None = setting(
        default=".",
        doc="Delimiter to insert between field names from the input record when generating field names for the "
        "output record",
    )


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
    delimiter: str,
    path: tuple[Field, ...] = (),
    prefix: str = "",
    *,
    optional: bool,
    default: object,
) -> Iterator[tuple[Pick, Schema]]:
    """The leaves of a struct, and their schemas.

    Leaves of optional parents are optional, and get the defaults of their parents.
    """
    for one in schema.fields:
        name = _joined(prefix, delimiter, one.name)
        may_miss = optional or one.schema.optional
        own = one.schema.default
        if own is None and isinstance(default, Struct):
            own = default.get(one.name)
        here = (*path, one)
        if one.schema.type is Type.STRUCT:
            yield from _leaves(one.schema, delimiter, here, name, optional=may_miss, default=own)
        elif one.schema.type is Type.MAP:
            raise _unsupported(one.schema.type.name, name)
        else:
            yield Pick(name, here), _leaf_schema(one.schema, may_miss, own)


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


def _denied(schema: Schema, physical: Layout, delimiter: str, prefix: str = "") -> str | None:
    """The first field whose schema is a struct although its values are not structs."""
    for one, child in zip(schema.fields, physical.children, strict=True):
        name = _joined(prefix, delimiter, one.name)
        if one.schema.type is Type.STRUCT:
            found = name if child.form is not LayoutKind.STRUCT else _denied(one.schema, child, delimiter, name)
            if found is not None:
                return found
    return None


def _member_leaves(
    members: Members, delimiter: str, path: tuple[str, ...] = (), prefix: str = ""
) -> Iterator[tuple[str, MapMember]]:
    """The leaves of schemaless maps, with their names; a map that may be null is itself a leaf."""
    for key, one in members.items():
        name, here = _joined(prefix, delimiter, key), (*path, key)
        if one.is_object and not one.schema.optional:
            inner = members_of(Side(None, one.physical, one.schema))
            yield from _member_leaves(inner, delimiter, here, name)
        else:
            yield name, MapMember(one, here)


@dataclass(frozen=True)
class Flat(OfFields):
    """Flattens a key or value."""

    side: SideName
    delimiter: str
    purpose: ClassVar[str] = "flattening"

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Objects only if all records have the same leaves with different names."""
        known = shape.side(self.side)
        if not known.is_object:
            return super().takes(shape)
        leaves = list(_member_leaves(members_of(known), self.delimiter))
        # A null map is a leaf itself, so the set of leaves depends on the record.
        return len(dict(leaves)) == len(leaves) and not any(one.member.is_object for _, one in leaves)

    def unfit(self, shape: Shape) -> StepPlan | None:
        """See ``OfFields``. Also if a field's schema is a struct although its values are not structs."""
        known = shape.side(self.side)
        found = super().unfit(shape)
        if found is None and known.schema is not None:
            denied = _denied(known.schema, known.physical, self.delimiter)
            if denied is not None:
                return self.failing(shape, str(_unsupported("values that deny their schema", denied)))
        return found

    def select(self, schema: Schema) -> FieldSelection:
        """See ``OfFields``."""
        leaves = list(_leaves(schema, self.delimiter, optional=schema.optional, default=schema.default))
        flat = schema_like(schema, [(pick.name, leaf) for pick, leaf in leaves])
        return FieldSelection(flat, tuple(pick for pick, _ in leaves), defaults=True, checked=False)

    def members(self, before: Members) -> Mapping[str, MapMember]:
        """See ``OfFields``."""
        return dict(_member_leaves(before, self.delimiter))

    def of_map(self, value: dict[object, object]) -> dict[object, object]:
        """See ``OfFields``."""
        flat: dict[object, object] = {}
        self._flatten(value, "", flat)
        return flat

    def _flatten(self, nested: dict[object, object], prefix: str, flat: dict[object, object]) -> None:
        for key, value in with_string_keys(nested).items():
            name = _joined(prefix, self.delimiter, key)
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


class _Flatten(StockTransform[FlattenConfig]):
    settings = FlattenConfig

    def define(self, config: FlattenConfig) -> Flat:
        # Java concatenates a null delimiter as the text "null".
        return Flat(self.side, "null" if config.delimiter is None else config.delimiter)


FlattenKey, FlattenValue = pair(_Flatten)
