"""Cast: turns fields, or the whole key or value, into another primitive type.

Classes ``CastKey`` and ``CastValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.Cast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final, cast

from penstock.config import AbstractConfig, Importance, LambdaValidator, setting
from penstock.data import Schema, Type
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.layout import CLEAN_SCALAR, Layout
from penstock.pipeline.plan.map_structs import ValueDescription
from penstock.pipeline.plan.step import NameColumn, SideName, StepFault
from penstock.transforms.definition import StockTransform, null_replacement, pair, replaces_nulls
from penstock.transforms.fields.definition import OfChanges
from penstock.transforms.fields.selection import Change
from penstock.transforms.types.cast_values import cast_schema, cast_typed, cast_value, casted_layout, parse_spec

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Schemaless integers have 64 bits.
_SCHEMALESS: Final = {Type.INT8: Type.INT64, Type.INT16: Type.INT64, Type.INT32: Type.INT64}


def _check_spec(name: str, value: object) -> None:
    if not value:
        raise ConfigException("Must specify at least one field to cast.")
    parse_spec(cast("list[str]", value))


class CastConfig(AbstractConfig):
    """The settings of ``Cast``."""

    spec: tuple[str, ...] = setting(
        validator=LambdaValidator(_check_spec, "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"),
        importance=Importance.HIGH,
        doc="List of fields and the type to cast them to of the form field1:type,field2:type to cast fields of Maps "
        "or Structs. A single type to cast the entire value. Valid types are int8, int16, int32, int64, float32, "
        "float64, boolean, and string. Note that binary fields can only be cast to string.",
    )
    replace_null_with_default: bool | None = null_replacement()


@dataclass(frozen=True)
class CastTo(Change):
    """Converts a value to another type."""

    target: Type

    def layout(self, schema: Schema, physical: Layout) -> Layout:
        """See ``Change``."""
        return casted_layout(schema, physical, self.target)

    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        """See ``Change``."""
        casted = cast_typed(column, schema, physical, self.target, keep)
        if casted.problem is None:
            return casted.column, ()
        return casted.column, [StepFault(casted.problem.isNotNull(), casted.problem, DataException.java_name)]

    def member(self, known: ValueDescription | None) -> ValueDescription:
        """See ``Change``."""
        schema = Schema(_SCHEMALESS.get(self.target, self.target), optional=True)
        return ValueDescription(schema, CLEAN_SCALAR if known is None else self.layout(known.schema, known.physical))

    def value(self, schema: Schema | None, value: object) -> object:
        """See ``Change``."""
        return cast_value(schema, value, self.target)


@dataclass(frozen=True)
class Casts(OfChanges):
    """Casts a key or value, or fields of it."""

    side: SideName
    casts: tuple[tuple[str | None, Type], ...]
    defaults: bool
    purpose: ClassVar[str] = "cast types"
    schema_first: ClassVar[bool] = True

    @cached_property
    def whole(self) -> Change | None:
        """See ``OfChanges``."""
        return next((CastTo(kind) for name, kind in self.casts if name is None), None)

    @cached_property
    def changes(self) -> Mapping[str, Change]:
        """See ``OfChanges``."""
        return {name: CastTo(kind) for name, kind in self.casts if name is not None}

    def updated(self, schema: Schema) -> Schema:
        """See ``OfChanges``."""
        return cast_schema(schema, self.casts)


class _Cast(StockTransform[CastConfig]):
    settings = CastConfig

    def define(self, config: CastConfig) -> Casts:
        casts = tuple(parse_spec(config.spec).items())
        return Casts(self.side, casts, replaces_nulls(config.replace_null_with_default))


CastKey, CastValue = pair(_Cast)
