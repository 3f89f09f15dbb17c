"""Typed columns and Python values as VARIANT expressions.

The bytes are the same as those of ``penstock.pipeline.columns.variant.writing``.

Main functions: ``variant_of`` (a column with a schema; the schema is kept elsewhere) and ``variant_literal``. Main
type: ``AsVariant`` (the last step of a pipeline whose task takes frames).

Thread: pure functions that build expressions.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.data import Schema, Struct
from penstock.data.text import has_text_keys
from penstock.data.variant_format import MAP_TAG
from penstock.pipeline.columns.layout import Layout, LayoutKind
from penstock.pipeline.columns.temporal import millis_of_time
from penstock.pipeline.columns.variant.reading import DECIMAL_TAG, TAGS, TIME_TAG
from penstock.pipeline.columns.variant.writing import unscale, unscaled_bytes
from penstock.pipeline.plan.step import Made, NameColumn, RecordColumns, Shape, Side, SideName, Step, StepPlan

if TYPE_CHECKING:
    from pyspark.sql import Column


def null_variant() -> Column:
    """The VARIANT that holds null (which is not NULL)."""
    return F.parse_json(F.lit("null"))


def variant_of(column: Column, schema: Schema | None, physical: Layout) -> Column:
    """A typed column as VARIANT; NULL for null. A Struct becomes an object, temporal values their raw integers."""
    if schema is None or physical.form is LayoutKind.VARIANT:
        return column
    match physical.form:
        case LayoutKind.SCALAR | LayoutKind.DECIMAL:
            return column.cast("variant")
        case LayoutKind.UNSCALED:
            return F.when(column.isNotNull(), _tagged_decimal(column.getField("unscaled"), column.getField("scale")))
        case LayoutKind.ARRAY:
            items = F.transform(column, lambda one: _member(one, schema.value_schema, physical.children[0]))
            return items.cast("variant")
        case LayoutKind.MAP:
            values = F.transform_values(column, lambda _, one: _member(one, schema.value_schema, physical.children[1]))
            return F.to_variant_object(values)
        case LayoutKind.ENTRIES:

            def pair(one: Column) -> Column:
                key = _member(one.getField("key"), schema.key_schema, physical.children[0])
                value = _member(one.getField("value"), schema.value_schema, physical.children[1])
                return F.array(key, value).cast("variant")

            pairs = F.transform(column, pair).cast("variant")
            return F.when(column.isNotNull(), F.to_variant_object(F.struct(pairs.alias(MAP_TAG))))
        case _:
            if not schema.fields:
                return F.when(column.isNotNull(), F.parse_json(F.lit("{}")))
            members = [
                _member(column.getField(field.name), field.schema, child).alias(field.name)
                for field, child in zip(schema.fields, physical.children, strict=True)
            ]
            return F.when(column.isNotNull(), F.to_variant_object(F.struct(*members)))


def _member(column: Column, schema: Schema | None, physical: Layout) -> Column:
    return F.coalesce(variant_of(column, schema, physical), null_variant())


def _tagged_decimal(unscaled: Column, scale: Column) -> Column:
    parts = F.array(unscaled.cast("variant"), scale.cast("variant")).cast("variant")
    return F.to_variant_object(F.struct(parts.alias(DECIMAL_TAG)))


def get_field(column: Column, name: str) -> Column:
    """A field of a VARIANT object, as VARIANT; null where there is none, or ``column`` is no object."""
    if '"' in name:
        return F.try_variant_get(column, "$", "map<string,variant>").getItem(name)
    return F.try_variant_get(column, f'$["{name}"]', "variant")


def variant_literal(value: object) -> Column:
    """A Python value as VARIANT (the schema is kept elsewhere); the variant null for None."""
    if value is None:
        return null_variant()
    if isinstance(value, Struct):
        names = [field.name for field in value.schema.fields]
        return _object_literal(dict(zip(names, value.values, strict=True)))
    if isinstance(value, datetime.time):
        return F.to_variant_object(F.struct(F.lit(millis_of_time(value)).cast("variant").alias(TIME_TAG)))
    if isinstance(value, Mapping):
        return _object_literal(value)
    if isinstance(value, (list, tuple)):
        if not value:
            return F.parse_json(F.lit("[]"))
        return F.array(*[variant_literal(item) for item in value]).cast("variant")
    if isinstance(value, decimal.Decimal):
        return _decimal_literal(value)
    if isinstance(value, (bytes, bytearray)):
        return F.lit(bytes(value)).cast("binary").cast("variant")
    if isinstance(value, bool) or not isinstance(value, int):
        return F.lit(value).cast("variant")
    return F.lit(value).cast("bigint").cast("variant")


def _object_literal(value: Mapping[object, object]) -> Column:
    if not value:
        return F.parse_json(F.lit("{}"))
    plain = has_text_keys(value) and not (len(value) == 1 and next(iter(value)) in TAGS)
    if plain:
        return F.to_variant_object(F.struct(*[variant_literal(one).alias(str(key)) for key, one in value.items()]))
    pairs = [variant_literal([key, one]) for key, one in value.items()]
    return F.to_variant_object(F.struct(F.array(*pairs).cast("variant").alias(MAP_TAG)))


def _decimal_literal(value: decimal.Decimal) -> Column:
    unscaled, scale = unscale(value)
    if 0 <= scale <= 38 and len(str(abs(unscaled))) <= 38:
        return F.lit(value).cast(f"decimal(38,{scale})").cast("variant")
    return _tagged_decimal(F.lit(unscaled_bytes(unscaled)), F.lit(scale))


@dataclass(frozen=True)
class AsVariant(Step):
    """Makes schemaless values of one kind VARIANT, which is what frames have for all of them."""

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. What has a schema, or is VARIANT already, stays as it is."""
        given: dict[SideName, Side] = {"key": shape.key, "value": shape.value}
        loose = {
            name: side for name, side in given.items() if side.schema is None and not (side.absent or side.is_variant)
        }
        if not loose:
            return StepPlan(shape)

        def make(bag: RecordColumns, keep: NameColumn) -> Made:
            return Made({name: variant_of(bag.side(name), side.carrier, side.physical) for name, side in loose.items()})

        for name, side in loose.items():
            shape = shape.with_side(name, Side.of(None, present=side.present))
        names = frozenset(loose)
        return StepPlan(shape, make, names, names)
