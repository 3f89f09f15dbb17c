"""Transforms that build a struct or map from fields of another one: ReplaceField, Flatten and ValueToKey.

If several fields get the same name, a record with a schema fails. Without a schema the last of these fields counts, in
the order of the message (in Java: the order of a HashMap).

Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: the classes of the same names in org.apache.kafka.connect.transforms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.config import AbstractConfig, AnyNonDuplicate, Importance, LambdaValidator, ValidList, setting
from penstock.data import Field, Schema, SchemaBuilder, Struct, Type
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.java_text import java_class, java_class_of_value
from penstock.pipeline.columns.layout import Layout, LayoutKind, default_physical, logical_name, spark_type
from penstock.pipeline.plan.map_structs import Members, ValueDescription, members_of
from penstock.pipeline.plan.step import NameColumn, Shape, Side, SideName, StepFault, StepPlan
from penstock.transforms.definition import (
    JAVA,
    StockTransform,
    null_replacement,
    pair,
    replaces_nulls,
    with_string_keys,
)
from penstock.transforms.fields import (
    Change,
    FieldSelection,
    MapMember,
    Nulls,
    OfFields,
    Pick,
    copy_basics,
    schema_like,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


def parse_renames(mappings: Sequence[str]) -> dict[str, str]:
    """The renames by old name; the last entry of a repeated old name counts."""
    renames: dict[str, str] = {}
    for mapping in mappings:
        # Java's split drops empty parts at the end.
        parts = mapping.rstrip(":").split(":") if mapping.strip(":") else []
        if len(parts) != 2:
            raise ConfigException("renames", list(mappings), f"Invalid rename mapping: {mapping}")
        renames[parts[0]] = parts[1]
    return renames


def _ensure_renames(name: str, value: object) -> None:
    if value is None:
        raise ConfigException(f"Configuration '{name}' values must not be null.")
    parse_renames(cast("list[str]", value))


_LIST: Final = AnyNonDuplicate(empty_allowed=True, null_allowed=False)


class ReplaceFieldConfig(AbstractConfig):
    """The settings of ``ReplaceField``."""

    exclude: tuple[str, ...] = setting(
        default=(),
        validator=_LIST,
        doc="Fields to exclude. This takes precedence over the fields to include.",
    )
    include: tuple[str, ...] = setting(
        default=(),
        validator=_LIST,
        doc="Fields to include. If specified, only these fields will be used.",
    )
    renames: tuple[str, ...] = setting(
        default=(),
        validator=LambdaValidator(_ensure_renames, "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"),
        doc="Field rename mappings.",
    )
    replace_null_with_default: bool | None = null_replacement()


@dataclass(frozen=True)
class Misfit(Change):
    """An error for the values of a field whose new schema does not accept them."""

    field: Field

    def layout(self, schema: Schema, physical: Layout) -> Layout:
        return default_physical(self.field.schema)

    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        nothing = F.lit(None).cast(spark_type(self.field.schema))
        return nothing, [StepFault(column.isNotNull(), self._message(schema), DataException.java_name)]

    def value(self, schema: Schema | None, value: object) -> object:
        if value is not None and schema is not None:
            raise DataException(self._message(schema))
        return value

    def _message(self, schema: Schema) -> str:
        kind, found = self.field.schema.type.name, java_class(schema)
        return f'Invalid Java object for schema with type {kind}: class {found} for field: "{self.field.name}"'


@dataclass(frozen=True)
class Replace(OfFields):
    """Removes some fields of a key or value and renames others."""

    side: SideName
    exclude: tuple[str, ...]
    include: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    defaults: bool
    purpose: ClassVar[str] = "field replacement"

    @cached_property
    def _new_names(self) -> Mapping[str, str]:
        return dict(self.renames)

    def keeps(self, name: str) -> bool:
        """True if the field with this (old) name stays."""
        return name not in self.exclude and (not self.include or name in self.include)

    def renamed(self, name: str) -> str:
        """The new name of a field."""
        return self._new_names.get(name, name)

    def select(self, schema: Schema) -> FieldSelection:
        kept = [one for one in schema.fields if self.keeps(one.name)]
        chosen = schema_like(schema, [(self.renamed(one.name), one.schema) for one in kept])
        # As in Java, only the renames are checked: a field that already has the new name of another is mistaken for it.
        old_names = {new: old for old, new in self.renames}
        picks = []
        for field in chosen.fields:
            name = old_names.get(field.name, field.name)
            old = schema.field(name)
            if old is None:
                raise DataException(f"{name} is not a valid field name")
            fits = _same_values(old.schema, field.schema)
            picks.append(Pick(field.name, (old,), None if fits else Misfit(field)))
        return FieldSelection(chosen, tuple(picks), self.defaults)

    def takes(self, shape: Shape) -> bool:
        """Objects only if a member is left, and the new names differ."""
        known = shape.side(self.side)
        if not known.is_object:
            return super().takes(shape)
        kept = [self.renamed(name) for name in members_of(known) if self.keeps(name)]
        return 0 < len(kept) == len(set(kept))

    def members(self, before: Members) -> Mapping[str, MapMember]:
        return {self.renamed(name): MapMember(one, (name,)) for name, one in before.items() if self.keeps(name)}

    def of_map(self, value: dict[object, object]) -> dict[object, object]:
        return {self.renamed(key): one for key, one in with_string_keys(value).items() if self.keeps(key)}


def _same_values(one: Schema, other: Schema) -> bool:
    """True if every non-null value of one schema is also a value of the other."""
    if one.type is not other.type or logical_name(one) != logical_name(other):
        return False
    match one.type:
        case Type.ARRAY:
            return one.value_schema == other.value_schema
        case Type.MAP:
            return (one.key_schema, one.value_schema) == (other.key_schema, other.value_schema)
        case Type.STRUCT:
            return one.fields == other.fields
        case _:
            return True


class _ReplaceField(StockTransform[ReplaceFieldConfig]):
    """Removes or renames fields."""

    settings = ReplaceFieldConfig

    def define(self, config: ReplaceFieldConfig) -> Replace:
        renames = tuple(parse_renames(config.renames).items())
        defaults = replaces_nulls(config.replace_null_with_default)
        return Replace(self.side, config.exclude, config.include, renames, defaults)


ReplaceFieldKey, ReplaceFieldValue = pair(_ReplaceField)


class ValueToKeyConfig(AbstractConfig):
    """The settings of ``ValueToKey``."""

    fields: tuple[str, ...] = setting(
        validator=ValidList.any_non_duplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="Field names on the record value to extract as the record key.",
    )
    replace_null_with_default: bool | None = null_replacement()


@dataclass(frozen=True)
class FieldsToKey(OfFields):
    """Builds the key from fields of the value."""

    names: tuple[str, ...]
    defaults: bool
    side: SideName = "value"
    target: SideName = "key"
    purpose: ClassVar[str] = "copying fields from value to key"
    nulls: ClassVar[Nulls] = Nulls.FAIL

    def select(self, schema: Schema) -> FieldSelection:
        builder = SchemaBuilder.struct()
        fields = []
        for name in self.names:
            field = schema.field(name)
            if field is None:
                raise DataException(f"Field does not exist: {name}")
            builder.field(name, field.schema)
            fields.append(field)
        return FieldSelection.of_all(builder.build(), fields, self.defaults)

    def members(self, before: Members) -> Mapping[str, MapMember]:
        missing = MapMember(ValueDescription.of(Type.STRING), ())
        return {name: MapMember(before[name], (name,)) if name in before else missing for name in self.names}

    def of_map(self, value: dict[object, object]) -> dict[object, object]:
        return {name: value.get(name) for name in self.names}


class ValueToKey(StockTransform[ValueToKeyConfig]):
    """Replaces the key by a Struct or Map built from fields of the value."""

    java_name: ClassVar[str] = f"{JAVA}ValueToKey"
    settings = ValueToKeyConfig

    def define(self, config: ValueToKeyConfig) -> FieldsToKey:
        return FieldsToKey(config.fields, replaces_nulls(config.replace_null_with_default))


class FlattenConfig(AbstractConfig):
    """The settings of ``Flatten``."""

    delimiter: str | None = setting(
        default=".",
        doc="Delimiter to insert between field names from the input record when generating field names for the "
        "output record",
    )


def _unsupported(kind: str, name: str) -> DataException:
    return DataException(f"Flatten transformation does not support {kind} for record with schemas (for field {name}).")


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
    """The leaves of a struct, and their schemas: optional and with defaults as their parents are."""
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
        """Objects only if all records have the same leaves with different names."""
        known = shape.side(self.side)
        if not known.is_object:
            return super().takes(shape)
        leaves = list(_member_leaves(members_of(known), self.delimiter))
        # A null map is a leaf itself, so the set of leaves depends on the record.
        return len(dict(leaves)) == len(leaves) and not any(one.member.is_object for _, one in leaves)

    def unfit(self, shape: Shape) -> StepPlan | None:
        """Also if a field's schema is a struct although its values are not structs."""
        known = shape.side(self.side)
        found = super().unfit(shape)
        if found is None and known.schema is not None:
            denied = _denied(known.schema, known.physical, self.delimiter)
            if denied is not None:
                return self.failing(shape, str(_unsupported("values that deny their schema", denied)))
        return found

    def select(self, schema: Schema) -> FieldSelection:
        leaves = list(_leaves(schema, self.delimiter, optional=schema.optional, default=schema.default))
        flat = schema_like(schema, [(pick.name, leaf) for pick, leaf in leaves])
        return FieldSelection(flat, tuple(pick for pick, _ in leaves), defaults=True, checked=False)

    def members(self, before: Members) -> Mapping[str, MapMember]:
        return dict(_member_leaves(before, self.delimiter))

    def of_map(self, value: dict[object, object]) -> dict[object, object]:
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
                    raise DataException(
                        f"Flatten transformation was passed a value of type class {java_class_of_value(value)} which "
                        "is not supported by Connect's data API"
                    )


class _Flatten(StockTransform[FlattenConfig]):
    """Moves the fields of nested structs (with schema) or maps (without) to the top level."""

    settings = FlattenConfig

    def define(self, config: FlattenConfig) -> Flat:
        # Java concatenates a null delimiter as the text "null".
        return Flat(self.side, "null" if config.delimiter is None else config.delimiter)


FlattenKey, FlattenValue = pair(_Flatten)
