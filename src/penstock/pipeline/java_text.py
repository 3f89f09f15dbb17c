"""Java's ``String.valueOf`` of each value as a Spark column: what StringConverter writes and text sinks are given.

Main function: ``java_text``. Main type: ``AsText`` (the last step of a pipeline whose task asks for text).

What cannot be had: the order of a Java ``HashMap`` (maps print in the order they were read, or that of their keys),
and what ``byte[]`` prints (its address); bytes print as ``[B@`` and the CRC-32 of the content.

Thread: builds expressions, on a pipeline thread.
Source: java.lang.Object.toString of the classes Connect uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql import functions as F

from penstock.data import Date, Schema, Time, Timestamp, Type
from penstock.data.temporal_text import MILLIS_PER_DAY
from penstock.data.text import to_java_text
from penstock.pipeline import decimal_columns as decimals
from penstock.pipeline.expressions import apart, rare
from penstock.pipeline.java_dates.usual import FIRST, LAST
from penstock.pipeline.json_columns import joined, to_json
from penstock.pipeline.step import SCHEMALESS_TEXT, Bag, Keep, Left, Made, Shape, Side, SideName, Step, StepPlan
from penstock.pipeline.types import Form, Physical, logical_name
from penstock.pipeline.variant import DECIMAL_TAG

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Types in a kind (``schema_of_variant``) whose JSON text could be that of another one, or names of tagged objects.
_FOREIGN: Final = r"(?:^|[<:] ?)(?:DATE|TIMESTAMP|BINARY|VARIANT)\b|\x00(?:map|struct|time|date)"
MakeText: TypeAlias = Callable[[str], bytes]

_OPEN: Final = "\x01"
_CLOSE: Final = "\x02"
_BACKSLASH: Final = "\x03"
_QUOTE: Final = "\x04"
# Greedy, not possessive: Java runs through a greedy class in one loop, at three times the speed.
# No string holds it: a quote in a string has a backslash in front.
_WIDE_DECIMAL: Final = r'\{"\\u0000decimal":\["([^"]*)",(-?[0-9]+)\]\}'
_TOKENS: Final = '(?s)"[^"]*"|[^",:]+|.'


@dataclass(frozen=True)
class WrittenText:
    """The text of one side, and what of it is left to the worker."""

    text: Column
    left: Left | None


def written_text(column: Column, side: SideName, known: Side, keep: Keep, make: MakeText) -> WrittenText:
    """The text of one side, exact for every value.

    Args:
        column: The side's column.
        side: Which it is.
        known: What is known of it.
        keep: Names expressions.
        make: What the worker makes of the text of values that columns cannot print.
    """

    def printed(value: object, schema: Schema | None) -> bytes:
        return make(to_java_text(value, schema))

    if known.is_variant:
        column = keep(column)
        kind = keep(F.schema_of_variant(column))
        left = F.when(_holds_foreign(kind), column)
        return WrittenText(variant_text(column, kind), Left(side, left, known, printed))
    text = java_text(column, known.carrier, known.physical)
    far = None if known.is_object else _far_dates(column, known.carrier, known.physical)
    return WrittenText(text, None if far is None else Left(side, F.when(far, column), known, printed))


def java_text(column: Column, schema: Schema | None, physical: Physical) -> Column:
    """The text of each value; null for null. A VARIANT column is used several times: name it first."""
    if schema is None or physical.form is Form.VARIANT:
        return variant_text(column)
    match physical.form:
        case Form.DECIMAL:
            wrapped = to_json(F.struct(column.alias("v")))
            text = F.substr(wrapped, F.lit(6), F.length(wrapped) - F.lit(6))
            return F.when(column.isNotNull(), text)
        case Form.UNSCALED:
            return decimals.java_text(column.getField("unscaled"), column.getField("scale"))
        case Form.ARRAY:
            items = F.transform(column, lambda x: _inner(x, schema.value_schema, physical.children[0]))
            return F.concat(F.lit("["), F.array_join(items, ", "), F.lit("]"))
        case Form.MAP | Form.ENTRIES:
            return _map_text(column, schema, physical)
        case Form.OBJECT:
            # One copy of each byte: no member's text is null.
            texts: list[Column | str] = ["{"]
            for index, (field, child) in enumerate(zip(schema.fields, physical.children, strict=True)):
                texts.append(f"{', ' if index else ''}{field.name}=")
                texts.append(_inner(column.getField(field.name), field.schema, child))
            return F.when(column.isNotNull(), joined([*texts, "}"]))
        case Form.STRUCT:
            parts = []
            for field, child in zip(schema.fields, physical.children, strict=True):
                member = column.getField(field.name)
                parts.append(F.concat(F.lit(f"{field.name}="), java_text(member, field.schema, child)))
            return F.when(column.isNotNull(), F.concat(F.lit("Struct{"), F.concat_ws(",", *parts), F.lit("}")))
        case _:
            return _scalar_text(column, schema)


def _inner(column: Column, schema: Schema | None, physical: Physical) -> Column:
    return F.coalesce(java_text(column, schema, physical), F.lit("null"))


def _map_text(column: Column, schema: Schema, physical: Physical) -> Column:
    entries = F.map_entries(column) if physical.form is Form.MAP else column

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
    return F.coalesce(text, millis.cast("string"))


# ------------------------------------------------------------------------------------------------ schemaless
def variant_text(column: Column, kind: Column | None = None) -> Column:
    """The text of schemaless values, but for those that ``written_text`` leaves to the worker.

    Args:
        column: The values; used several times: name it first.
        kind: Their kinds (``schema_of_variant``), likewise; None = not known yet.
    """
    text = F.try_variant_get(column, "$", "string")
    # Strings and nulls need nothing else; a nested value is worked out from its JSON text.
    kind = F.schema_of_variant(column) if kind is None else kind
    plain = kind.isin("STRING", "BIGINT", "BOOLEAN", "VOID")
    in_bytes = rare(column, lambda x: _bytes_text(F.try_variant_get(x, "$", "binary")))
    json = to_json(column)
    wide = kind.contains(DECIMAL_TAG)
    return (
        F.when(plain, text)
        .when(kind == "BINARY", in_bytes)
        .when(wide, apart(json, lambda x: java_of_json(_with_numbers(x))))
        .when(kind.isNotNull(), java_of_json(json))
    )


def _holds_foreign(kind: Column) -> Column:
    """Whether schemaless values of a kind may hold what JSON text does not tell from other values."""
    # A regular expression costs more than all else here, and few kinds and names have these letters.
    suspect = reduce(or_, [kind.contains(part) for part in ("\x00", "DATE", "TIMESTAMP", "BINARY", "VARIANT")])
    return suspect & (kind != "BINARY") & kind.rlike(_FOREIGN)


def _far_dates(column: Column, schema: Schema | None, physical: Physical) -> Column | None:
    """Whether a value holds a date that Spark prints in another calendar than Java, or not at all; None = none can."""
    if schema is None or physical.form is Form.OBJECT:
        return None
    found: list[Column | None]
    match physical.form:
        case Form.ARRAY:
            found = [_any(column, lambda one: _far_dates(one, schema.value_schema, physical.children[0]))]
        case Form.MAP | Form.ENTRIES:
            pairs = F.map_entries(column) if physical.form is Form.MAP else column
            keys, values = physical.children
            found = [
                _any(pairs, lambda one: _far_dates(one.getField("key"), schema.key_schema, keys)),
                _any(pairs, lambda one: _far_dates(one.getField("value"), schema.value_schema, values)),
            ]
        case Form.STRUCT:
            members = zip(schema.fields, physical.children, strict=True)
            found = [_far_dates(column.getField(field.name), field.schema, child) for field, child in members]
        case _:
            name = logical_name(schema)
            if name == Timestamp.LOGICAL_NAME:
                return (column < FIRST) | (column > LAST)
            if name == Date.LOGICAL_NAME:
                return (column < FIRST // MILLIS_PER_DAY) | (column > LAST // MILLIS_PER_DAY)
            return None
    there = [F.coalesce(one, F.lit(False)) for one in found if one is not None]
    return reduce(or_, there) if there else None


def _any(items: Column, holds: Callable[[Column], Column | None]) -> Column | None:
    """Whether one of these holds something that is to be found; None = none can."""
    if holds(F.lit(None)) is None:
        return None

    def there(one: Column) -> Column:
        found = holds(one)
        return F.lit(False) if found is None else F.coalesce(found, F.lit(False))

    return F.exists(items, there)


def _with_numbers(json: Column) -> Column:
    """JSON text with numbers in place of the objects that wide decimals are (``DECIMAL_TAG``)."""

    def piece(part: Column) -> Column:
        data = F.unbase64(F.regexp_extract(part, _WIDE_DECIMAL, 1))
        number = decimals.java_text(data, F.regexp_extract(part, _WIDE_DECIMAL, 2).try_cast("int"))
        return F.when(part.rlike(f"^{_WIDE_DECIMAL}$"), number).otherwise(part)

    pieces = F.regexp_extract_all(json, F.lit(f"{_WIDE_DECIMAL}|[^{{]+|\\{{"), F.lit(0))
    return F.array_join(F.transform(pieces, piece), "")


def _bytes_text(column: Column) -> Column:
    return F.concat(F.lit("[B@"), F.lower(F.hex(F.crc32(column))))


def java_of_json(json: Column) -> Column:
    """Java's text of a value, from its JSON text as Spark prints it. ``json`` may be costly: it is evaluated once."""
    return rare(json, lambda x: F.when(x.contains("\\") | x.contains("["), _nested_text(x)).otherwise(flat_text(x)))


def flat_text(json: Column) -> Column:
    """For objects without arrays and escapes: strings are marked, so what is outside of them is known by the marks."""
    marked = F.regexp_replace(json, '"([^"]*)"', f"{_OPEN}$1{_CLOSE}")
    keys = F.replace(marked, F.lit(f"{_CLOSE}:"), F.lit("="))
    commas = F.replace(keys, F.lit(f",{_OPEN}"), F.lit(", "))
    return F.translate(commas, f"{_OPEN}{_CLOSE}", "")


def _nested_text(json: Column) -> Column:
    masked = F.replace(F.replace(json, F.lit("\\\\"), F.lit(_BACKSLASH)), F.lit('\\"'), F.lit(_QUOTE))

    def token(part: Column) -> Column:
        escaped = part.rlike(f"[\\\\{_BACKSLASH}{_QUOTE}]")
        unmasked = F.replace(F.replace(part, F.lit(_QUOTE), F.lit('\\"')), F.lit(_BACKSLASH), F.lit("\\\\"))
        plain = F.substr(part, F.lit(2), F.length(part) - F.lit(2))
        text = F.when(escaped, F.try_variant_get(F.try_parse_json(unmasked), "$", "string")).otherwise(plain)
        return (
            F.when(part.startswith('"'), text)
            .when(part == ":", F.lit("="))
            .when(part == ",", F.lit(", "))
            .otherwise(part)
        )

    return F.array_join(F.transform(F.regexp_extract_all(masked, F.lit(_TOKENS), F.lit(0)), token), "")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


@dataclass(frozen=True)
class AsText(Step):
    """Replaces one side by its text."""

    side: SideName

    def takes_objects(self, shape: Shape) -> bool:
        return True

    def plan(self, shape: Shape) -> StepPlan:
        known = shape.side(self.side)
        if known.absent or known == SCHEMALESS_TEXT:
            return StepPlan(shape)

        def make(bag: Bag, keep: Keep) -> Made:
            written = written_text(bag.side(self.side), self.side, known, keep, _utf8)
            return Made({self.side: written.text}, left=written.left)

        names = frozenset({self.side})
        text = Side(None, SCHEMALESS_TEXT.physical, SCHEMALESS_TEXT.carrier)
        return StepPlan(shape.with_side(self.side, text), make, names, names)
