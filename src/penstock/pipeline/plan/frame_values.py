"""Java's ``String.valueOf`` of each value as a Spark column, for StringConverter and for text sinks.

Main function: ``java_text``. Main type: ``AsText``, the last step of a pipeline whose task asks for text.

Not reproducible: the order of a ``HashMap`` with a schema (it prints in the order it was read), and what ``byte[]``
prints (its address); bytes print as ``[B@`` and the CRC-32 of the content.

Thread: builds expressions, on a pipeline thread.
Source: java.lang.Object.toString of the classes Connect uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.data import Date, Schema, Time, Timestamp, Type
from penstock.data.text import MILLIS_PER_DAY, hash_map_order
from penstock.pipeline.columns import decimal_columns as decimals
from penstock.pipeline.columns.expressions import rare
from penstock.pipeline.columns.java_dates import compile_pattern, print_column
from penstock.pipeline.columns.java_dates.usual import FIRST, LAST
from penstock.pipeline.columns.layout import Layout, LayoutKind, logical_name
from penstock.pipeline.columns.texts.json import joined, to_json
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
            return decimals.java_text(column.getField("unscaled"), column.getField("scale"))
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
        """See ``Step``. What is text already stays as it is."""
        known = shape.side(self.side)
        if known.absent or known == SCHEMALESS_TEXT:
            return StepPlan(shape)

        names = frozenset({self.side})
        text = shape.with_side(self.side, Side(None, SCHEMALESS_TEXT.physical, SCHEMALESS_TEXT.carrier))
        carrier = known.carrier
        if carrier is not None and carrier.type is Type.STRING and known.physical.form is LayoutKind.SCALAR:
            return StepPlan(text, reads=names)

        def make(bag: RecordColumns, keep: NameColumn) -> Made:
            return Made({self.side: java_text(bag.side(self.side), carrier, known.physical)})

        return StepPlan(text, make, names, names)
