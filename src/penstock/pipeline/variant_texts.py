"""Schemaless values whose JSON text does not say what they are: with dates, bytes, or what VARIANT has no kind for.

Main functions: ``java_of_variant`` (Java's ``toString``), ``json_of_variant`` and ``json_problem`` (JsonConverter). A
value is taken apart in rounds, one for each level of nesting: a list of pieces, texts and values, in which every value
is replaced by the pieces it is made of. That needs no limit on the depth, and a few expressions only.

Thread: pure functions that build expressions, on a pipeline thread.
Source: java.util.AbstractMap.toString, org.apache.kafka.connect.json.JsonConverter.convertToJson.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline import decimal_columns as decimals
from penstock.pipeline.expressions import apart, rare
from penstock.pipeline.java_dates import java_date
from penstock.pipeline.json_columns import to_json
from penstock.pipeline.variant import DECIMAL_TAG, STRUCT_TAG, TIME_TAG
from penstock.pipeline.variant_columns import java_class_of, tagged_entries

if TYPE_CHECKING:
    from pyspark.sql import Column

_MILLIS_PER_DAY: Final = 86_400_000
_PIECES: Final = "array<struct<text:string,value:variant>>"
_STATE: Final = f"struct<pieces:{_PIECES},open:boolean>"
_MAX_DEPTH: Final = 1_000
#: Stands in front of the class of a value that JSON cannot say; no JSON text has it.
_UNKNOWN: Final = "\x01"
_MAP_OPEN: Final = '{"\\u0000map":'
_NO_SCHEMA_TYPE: Final = "does not have corresponding schema type."
_KINDS: Final = {"DECIMAL": "java.math.BigDecimal", "DATE": "java.util.Date", "TIMESTAMP": "java.util.Date"}
_IN_JSON: Final = ("BIGINT", "STRING", "DOUBLE", "BOOLEAN", "VOID", "FLOAT")


@dataclass(frozen=True)
class _Style:
    """How a text is put together.

    Attributes:
        comma: Between entries.
        equals: Between a string key and its value.
        pair: Before, between and after the key and the value of an entry whose key is any value.
        ends: Around such entries.
        structs: Whether Structs have a text.
        key: The text of a string key.
        leaf: The text of what has no entries.
    """

    comma: str
    equals: str
    pair: tuple[str, str, str]
    ends: tuple[str, str]
    structs: bool
    key: Callable[[Column], Column]
    leaf: Callable[[Column], Column]


def java_of_variant(column: Column) -> Column:
    """Java's ``toString`` of schemaless values of any kind; null for null."""
    return apart(column, lambda one: F.when(one.isNotNull(), _text(one, _JAVA)))


def json_of_variant(column: Column, text: Column) -> Column:
    """The JSON text of schemaless values; maps with other than string keys are ``[[k,v],...]``.

    Args:
        column: The values.
        text: What ``to_json`` makes of them. Both are used several times: name them first.
    """
    return F.when(text.contains(_MAP_OPEN), _json(column)).otherwise(text)


def _json(column: Column) -> Column:
    return apart(column, lambda one: F.when(one.isNotNull(), _text(one, _JSON)))


def json_problem(column: Column, schema: Column) -> Column:
    """Why a schemaless value has no Connect schema type (it holds a decimal, date or time); null where it has.

    Args:
        column: The value.
        schema: Its kind, ``schema_of_variant``. Both are used several times: name them first.
    """

    def told(kinds: Column) -> Column:
        problem = F.lit(None).cast("string")
        for kind, java in _KINDS.items():
            found = kinds.rlike(f"(?:^|[<:] ?){kind}\\b")
            problem = F.when(found, F.lit(f"Java class class {java} {_NO_SCHEMA_TYPE}")).otherwise(problem)
        tagged = kinds.rlike("\\x00(?:struct|time|decimal)")
        return F.when(tagged, F.lit(f"Java class class java.lang.Object {_NO_SCHEMA_TYPE}")).otherwise(problem)

    def found(text: Column) -> Column:
        java = F.regexp_extract(text, f"{_UNKNOWN}([^{_UNKNOWN}]*){_UNKNOWN}", 1)
        return F.when(java != "", F.concat(F.lit("Java class class "), java, F.lit(f" {_NO_SCHEMA_TYPE}")))

    # Regular expressions cost more than all else here, and few values have a kind or a name with these letters.
    suspect = reduce(or_, [schema.contains(kind) for kind in ("\x00", *_KINDS)])
    # What the items of an array have no kind in common for, it does not tell.
    mixed = F.when(schema.contains("VARIANT"), apart(_json(column), found))
    return F.coalesce(F.when(suspect, rare(schema, told)), mixed)


def _text(value: Column, style: _Style) -> Column:
    # A value is at most as deep as it has brackets; rounds that find nothing left to do cost next to nothing.
    json = F.to_json(value)
    brackets = F.length(json) - F.length(F.translate(json, "{[", ""))
    rounds = F.sequence(F.lit(1), F.least(brackets + 1, F.lit(_MAX_DEPTH)))
    start = F.struct(F.array(_value(value)).alias("pieces"), F.lit(True).alias("open")).cast(_STATE)

    def checked(pieces: Column) -> Column:
        further = F.exists(pieces, lambda one: one.getField("value").isNotNull())
        return F.struct(pieces.alias("pieces"), further.alias("open")).cast(_STATE)

    def opened(known: Column, _: Column) -> Column:
        pieces = F.flatten(F.transform(known.getField("pieces"), lambda one: _opened(one, style)))
        return F.when(known.getField("open"), apart(pieces, checked)).otherwise(known)

    done = F.aggregate(rounds, start, opened, lambda known: known.getField("pieces"))
    return F.array_join(F.transform(done, lambda one: one.getField("text")), "")


def _value(value: Column) -> Column:
    return F.struct(F.lit(None).cast("string").alias("text"), value.alias("value"))


def _words(text: Column | str) -> Column:
    column = F.lit(text) if isinstance(text, str) else text
    return F.struct(column.alias("text"), F.lit(None).cast("variant").alias("value"))


def _pieces(*pieces: Column) -> Column:
    return F.array(*pieces).cast(_PIECES)


def _opened(piece: Column, style: _Style) -> Column:
    """The pieces that a piece is made of."""

    def parts(kind: Column) -> Column:
        value = piece.getField("value")
        leaf = _pieces(_words(style.leaf(value)))
        made = F.when(kind.startswith("ARRAY<"), _of_array(value, style))
        if style.structs:
            made = made.when(_is(kind, STRUCT_TAG), _of_struct(value))
        scalar = ~kind.startswith("OBJECT<") | _is(kind, STRUCT_TAG) | _is(kind, TIME_TAG) | _is(kind, DECIMAL_TAG)
        return made.when(scalar, leaf).otherwise(_of_map(value, style))

    known = F.when(piece.getField("value").isNotNull(), F.schema_of_variant(piece.getField("value")))
    return F.when(known.isNull(), _pieces(piece)).otherwise(apart(known, parts))


def _of_array(value: Column, style: _Style) -> Column:
    items = F.try_variant_get(value, "$", "array<variant>")
    inner = F.transform(items, lambda one, index: _pieces(_words(_comma(index, style)), _value(one)))
    return F.concat(_pieces(_words("[")), F.flatten(inner), _pieces(_words("]")))


def _of_map(value: Column, style: _Style) -> Column:
    members = F.map_entries(F.try_variant_get(value, "$", "map<string,variant>"))

    def member(one: Column, index: Column) -> Column:
        text = F.concat(_comma(index, style), style.key(one.getField("key")), F.lit(style.equals))
        return _pieces(_words(text), _value(one.getField("value")))

    def entry(one: Column, index: Column) -> Column:
        before, between, after = style.pair
        key, content = (F.try_variant_get(one, f"$[{place}]", "variant") for place in (0, 1))
        start = F.concat(_comma(index, style), F.lit(before))
        return _pieces(_words(start), _value(key), _words(between), _value(content), _words(after))

    plain = F.concat(_pieces(_words("{")), F.flatten(F.transform(members, member)), _pieces(_words("}")))
    inner = F.flatten(F.transform(tagged_entries(value), entry))
    start, end = style.ends
    return F.coalesce(F.concat(_pieces(_words(start)), inner, _pieces(_words(end))), plain)


def _of_struct(value: Column) -> Column:
    content = F.try_variant_get(value, f'$["{STRUCT_TAG}"]', "array<variant>")
    fields = F.try_variant_get(F.get(content, F.lit(0)), "$.fields", "array<variant>")
    values = F.try_variant_get(F.get(content, F.lit(1)), "$", "array<variant>")
    pairs = F.arrays_zip(fields.alias("field"), values.alias("value"))
    present = F.filter(pairs, lambda one: ~F.is_variant_null(one.getField("value")))

    def member(one: Column, index: Column) -> Column:
        name = F.try_variant_get(one.getField("field"), "$[0]", "string")
        text = F.concat(F.when(index > 0, ",").otherwise(""), name, F.lit("="))
        return _pieces(_words(text), _value(one.getField("value")))

    return F.concat(_pieces(_words("Struct{")), F.flatten(F.transform(present, member)), _pieces(_words("}")))


def _comma(index: Column, style: _Style) -> Column:
    return F.when(index > 0, style.comma).otherwise("")


def _is(kind: Column, tag: str) -> Column:
    """Whether a kind (``schema_of_variant``) is that of an object with a tag."""
    return kind.startswith(f"OBJECT<`{tag}`:") | kind.startswith(f"OBJECT<{tag}:")


def _java_leaf(value: Column) -> Column:
    kind = F.schema_of_variant(value)
    days = F.unix_date(F.try_variant_get(value, "$", "date")).cast("bigint") * F.lit(_MILLIS_PER_DAY)
    parts = F.try_variant_get(value, f'$["{DECIMAL_TAG}"]', "array<variant>")
    unscaled = F.try_variant_get(F.get(parts, F.lit(0)), "$", "binary")
    scale = F.try_variant_get(F.get(parts, F.lit(1)), "$", "int")
    return (
        F.when(kind == "VOID", "null")
        .when(kind.isin("STRING", "BIGINT", "BOOLEAN"), F.try_variant_get(value, "$", "string"))
        .when(kind == "DATE", java_date(days))
        .when(kind.startswith("TIMESTAMP"), java_date(F.unix_millis(F.try_variant_get(value, "$", "timestamp"))))
        .when(_is(kind, TIME_TAG), java_date(F.try_variant_get(value, f'$["{TIME_TAG}"]', "bigint")))
        .when(_is(kind, DECIMAL_TAG), decimals.java_text(unscaled, scale))
        .when(kind == "BINARY", java_bytes(F.try_variant_get(value, "$", "binary")))
        .otherwise(F.translate(to_json(value), '"', ""))
    )


def java_bytes(column: Column) -> Column:
    """What stands for the address of an array in Java: ``[B@`` and the CRC-32 of the bytes."""
    return F.concat(F.lit("[B@"), F.lower(F.hex(F.crc32(column))))


def _json_leaf(value: Column) -> Column:
    known = F.schema_of_variant(value).isin(*_IN_JSON)
    mark = F.lit(_UNKNOWN)
    return F.when(known | (F.schema_of_variant(value) == "BINARY"), to_json(value)).otherwise(
        F.concat(mark, java_class_of(value), mark)
    )


_JAVA: Final = _Style(", ", "=", ("", "=", ""), ("{", "}"), True, lambda key: key, _java_leaf)
_JSON: Final = _Style(
    ",", ":", ("[", ",", "]"), ("[", "]"), False, lambda key: to_json(key.cast("variant")), _json_leaf
)
