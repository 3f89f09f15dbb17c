"""ReplaceField: removes or renames fields.

If several fields get the same name, a record with a schema fails. Without a schema the last of these fields counts, in
the order of the message (in Java: the order of a HashMap).

Classes ``ReplaceFieldKey`` and ``ReplaceFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline
thread. Source: org.apache.kafka.connect.transforms.ReplaceField.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.config import AbstractConfig, AnyNonDuplicate, LambdaValidator, setting
from penstock.data import Field, Schema, Type
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.java_classes import java_class
from penstock.pipeline.columns.layout import Layout, default_physical, logical_name, spark_type
from penstock.pipeline.plan.map_structs import Members, members_of
from penstock.pipeline.plan.step import NameColumn, Shape, SideName, StepFault
from penstock.transforms.definition import StockTransform, null_replacement, pair, replaces_nulls, with_string_keys
from penstock.transforms.fields.definition import MapMember, OfFields
from penstock.transforms.fields.selection import Change, FieldSelection, Pick, schema_like

if TYPE_CHECKING:
    from pyspark.sql import Column


def parse_renames(mappings: Sequence[str]) -> dict[str, str]:
    """The renames of the setting: old name to new name; the last entry of a repeated old name counts.

    Raises:
        ConfigException: An entry is not of the form ``old:new``.
    """
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
        """See ``Change``."""
        return default_physical(self.field.schema)

    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        """See ``Change``."""
        nothing = F.lit(None).cast(spark_type(self.field.schema))
        return nothing, [StepFault(column.isNotNull(), self._message(schema), DataException.java_name)]

    def value(self, schema: Schema | None, value: object) -> object:
        """See ``Change``."""
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
        """See ``OfFields``."""
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
        """See ``Step``. Objects only if a member is left, and the new names differ."""
        known = shape.side(self.side)
        if not known.is_object:
            return super().takes(shape)
        kept = [self.renamed(name) for name in members_of(known) if self.keeps(name)]
        return 0 < len(kept) == len(set(kept))

    def members(self, before: Members) -> Mapping[str, MapMember]:
        """See ``OfFields``."""
        return {self.renamed(name): MapMember(one, (name,)) for name, one in before.items() if self.keeps(name)}

    def of_map(self, value: dict[object, object]) -> dict[object, object]:
        """See ``OfFields``."""
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
    settings = ReplaceFieldConfig

    def define(self, config: ReplaceFieldConfig) -> Replace:
        renames = tuple(parse_renames(config.renames).items())
        defaults = replaces_nulls(config.replace_null_with_default)
        return Replace(self.side, config.exclude, config.include, renames, defaults)


ReplaceFieldKey, ReplaceFieldValue = pair(_ReplaceField)
