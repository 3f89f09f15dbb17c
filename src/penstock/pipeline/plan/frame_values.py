"""Values of frames as texts and as VARIANT: Java's ``String.valueOf`` of each value, and the binary format of Spark.

Not reproducible: the order of a ``HashMap`` with a schema (it prints in the order it was read), and what ``byte[]``
prints (its address); bytes print as ``[B@`` and the CRC-32 of the content.

Source: java.lang.Object.toString of the classes Connect uses.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.data import Date, Schema, Struct, Time, Timestamp, Type
from penstock.data.text import MILLIS_PER_DAY, has_text_keys, hash_map_order
from penstock.data.variant_format import MAP_TAG
from penstock.pipeline.columns import expressions
from penstock.pipeline.columns.expressions import rare
from penstock.pipeline.columns.java_dates import (
    FIRST,
    LAST,
    compile_pattern,
    print_column,
)
from penstock.pipeline.columns.json_text import joined, to_json
from penstock.pipeline.columns.layout import Layout, LayoutKind, logical_name, millis_of_time
from penstock.pipeline.columns.variant import DECIMAL_TAG, TAGS, TIME_TAG, unscale, unscaled_bytes
from penstock.pipeline.plan.step import (
    SCHEMALESS_TEXT,
    Made,
    NameColumn,
    RecordColumns,
    Shape,
    Side,
    SideName,
    Step,
    StepPlan,
)

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
    """Makes schemaless values of one kind VARIANT, which frames have for all of them; others stay as they are."""

    def plan(self, shape: Shape) -> StepPlan:
        given: dict[SideName, Side] = {"key": shape.key, "value": shape.value}
        loose = {
            name: side for name, side in given.items() if side.schema is None and not (side.absent or side.is_variant)
        }
        if not loose:
            return StepPlan(shape)

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            return Made(
                {name: variant_of(record.side(name), side.carrier, side.physical) for name, side in loose.items()}
            )

        for name, side in loose.items():
            shape = shape.with_side(name, Side.of(None, present=side.present))
        names = frozenset(loose)
        return StepPlan(shape, make, names, names)


#: The year without zeros in front, as in ``Date.toString``.
_FAR: Final = compile_pattern("EEE MMM dd HH:mm:ss 'UTC' y")


def java_text(column: Column, schema: Schema | None, physical: Layout) -> Column:
    """The text of each value, of one kind or with a schema; null for null."""
    assert schema is not None, "values of mixed kinds go record by record"
    match physical.form:
        case LayoutKind.DECIMAL:
            wrapped = to_json(F.struct(column.alias("v")))
            text = F.substr(wrapped, F.lit(6), F.length(wrapped) - F.lit(6))
            return F.when(column.isNotNull(), text)
        case LayoutKind.UNSCALED:
            return expressions.java_text(column.getField("unscaled"), column.getField("scale"))
        case LayoutKind.ARRAY:
            items = F.transform(column, lambda x: _inner(x, schema.value_schema, physical.children[0]))
            return F.concat(F.lit("["), F.array_join(items, ", "), F.lit("]"))
        case LayoutKind.MAP | LayoutKind.ENTRIES:
            return _map_text(column, schema, physical)
        case LayoutKind.OBJECT:
            # One copy of each byte: no member's text is null.
            texts: list[Column | str] = ["{"]
            members = {
                field.name: (field, child) for field, child in zip(schema.fields, physical.children, strict=True)
            }
            for index, name in enumerate(hash_map_order(tuple(members))):
                field, child = members[name]
                texts.append(f"{', ' if index else ''}{name}=")
                texts.append(_inner(column.getField(name), field.schema, child))
            return F.when(column.isNotNull(), joined([*texts, "}"]))
        case LayoutKind.STRUCT:
            parts = []
            for field, child in zip(schema.fields, physical.children, strict=True):
                member = column.getField(field.name)
                parts.append(F.concat(F.lit(f"{field.name}="), java_text(member, field.schema, child)))
            return F.when(column.isNotNull(), F.concat(F.lit("Struct{"), F.concat_ws(",", *parts), F.lit("}")))
        case _:
            return _scalar_text(column, schema)


def _inner(column: Column, schema: Schema | None, physical: Layout) -> Column:
    return F.coalesce(java_text(column, schema, physical), F.lit("null"))


def _map_text(column: Column, schema: Schema, physical: Layout) -> Column:
    entries = F.map_entries(column) if physical.form is LayoutKind.MAP else column

    def entry(x: Column) -> Column:
        key = _inner(x.getField("key"), schema.key_schema, physical.children[0])
        return F.concat(key, F.lit("="), _inner(x.getField("value"), schema.value_schema, physical.children[1]))

    return F.concat(F.lit("{"), F.array_join(F.transform(entries, entry), ", "), F.lit("}"))


def _scalar_text(column: Column, schema: Schema) -> Column:
    name = logical_name(schema)
    if name == Timestamp.LOGICAL_NAME or name == Time.LOGICAL_NAME:
        return _date_text(column.cast("bigint"))
    if name == Date.LOGICAL_NAME:
        return _date_text(column.cast("bigint") * F.lit(MILLIS_PER_DAY))
    if schema.type is Type.STRING:
        return column
    if schema.type is Type.BYTES:
        return F.when(column.isNotNull(), _bytes_text(column))
    return column.cast("string")


def _date_text(millis: Column) -> Column:
    """``java.util.Date.toString`` in UTC."""
    inside = (millis >= FIRST) & (millis <= LAST)
    moment = F.timestamp_millis(F.when(inside, millis))
    text = F.concat(F.date_format(moment, "EEE MMM dd HH:mm:ss"), F.lit(" UTC "), F.date_format(moment, "yyyy"))
    # Spark prints no other years, and none in the Julian calendar.
    return F.coalesce(text, rare(millis, lambda far: print_column(_FAR, far)))


def _bytes_text(column: Column) -> Column:
    return F.concat(F.lit("[B@"), F.lower(F.hex(F.crc32(column))))


@dataclass(frozen=True)
class AsText(Step):
    """Replaces one side by its text."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:
        known = shape.side(self.side)
        if known.absent or known == SCHEMALESS_TEXT:
            return StepPlan(shape)

        names = frozenset({self.side})
        text = shape.with_side(self.side, Side(None, SCHEMALESS_TEXT.physical, SCHEMALESS_TEXT.carrier))
        carrier = known.carrier
        if carrier is not None and carrier.type is Type.STRING and known.physical.form is LayoutKind.SCALAR:
            return StepPlan(text, reads=names)

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            return Made({self.side: java_text(record.side(self.side), carrier, known.physical)})

        return StepPlan(text, make, names, names)
