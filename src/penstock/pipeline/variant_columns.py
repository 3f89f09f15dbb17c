"""Schemaless values (VARIANT) as Spark columns: their members, their kinds, and what they are in Java.

``penstock.pipeline.variant`` writes maps with other than string keys, and what has no JSON, as tagged objects; these
functions know the tags. A map with other than string keys has members, too: those whose keys are strings.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline.expressions import apart
from penstock.pipeline.variant import DECIMAL_TAG, MAP_TAG, STRUCT_TAG, TAGS, TIME_TAG

if TYPE_CHECKING:
    from pyspark.sql import Column


def object_of(fields: Mapping[str, Column]) -> Column:
    """A VARIANT object of these fields; a null is a field that is null."""
    return F.to_variant_object(F.struct(*[column.alias(name) for name, column in fields.items()]))


def map_of_null(value: Column) -> Column:
    """A VARIANT map with null as its only key."""
    entry = F.array(F.parse_json(F.lit("null")), value).cast("variant")
    return F.to_variant_object(F.struct(F.array(entry).cast("variant").alias(MAP_TAG)))


def is_map(column: Column) -> Column:
    """Whether a VARIANT is a map of Connect: an object that stands for nothing else; never null."""
    return _has_none(column, _NO_MAPS)


def _is_object(column: Column) -> Column:
    """Whether a VARIANT is an object without a tag, a map whose keys are strings; never null."""
    return _has_none(column, _TAGGED)


def _has_none(column: Column, keys: str) -> Column:
    # Cheaper than the schema of the whole value. The text is that of an object without any of these keys.
    probe = F.to_json(F.try_variant_get(column, "$", keys), {"ignoreNullFields": "true"})
    return F.coalesce(probe == "{}", F.lit(False))


def get_field(column: Column, name: str) -> Column:
    """A field of a VARIANT map, as VARIANT; null where there is none, or ``column`` is no map."""
    if '"' in name:
        direct = F.try_variant_get(column, "$", "map<string,variant>").getItem(name)
    else:
        direct = F.try_variant_get(column, f'$["{name}"]', "variant")

    def of_entries(one: Column) -> Column:
        found = F.filter(tagged_entries(one), lambda entry: _has_key(entry, name))
        return F.try_variant_get(F.get(found, F.lit(0)), "$[1]", "variant")

    return F.coalesce(direct, apart(column, of_entries))


def without_fields(column: Column, names: Sequence[str]) -> Column:
    """A VARIANT map without some fields; what is no map stays."""

    def of_entries(one: Column) -> Column:
        left = F.filter(tagged_entries(one), lambda entry: ~reduce(or_, [_has_key(entry, name) for name in names]))
        return F.coalesce(_map_of(left), one)

    if not names:
        return column
    return F.when(_is_object(column), _without_members(column, names)).otherwise(apart(column, of_entries))


def _without_members(column: Column, names: Sequence[str]) -> Column:
    plain = [name for name in names if '"' not in name]
    for name in plain:
        column = F.variant_delete(column, f'$["{name}"]')
    others = [name for name in names if '"' in name]
    if not others:
        return column
    members = F.map_filter(F.try_variant_get(column, "$", "map<string,variant>"), lambda key, _: ~key.isin(*others))
    return F.coalesce(F.to_variant_object(members), column)


def put_field(column: Column, name: str, value: Column) -> Column:
    """A VARIANT map with a field set; null where ``value`` is null or ``column`` is no map."""
    both = F.struct(column.alias("map"), value.cast("variant").alias("value"))

    def of_entries(one: Column) -> Column:
        entries, added = tagged_entries(one.getField("map")), one.getField("value")
        entry = F.array(F.lit(name).cast("variant"), added).cast("variant")
        replaced = F.transform(entries, lambda old: F.when(_has_key(old, name), entry).otherwise(old))
        known = F.exists(entries, lambda old: _has_key(old, name))
        changed = F.when(known, replaced).otherwise(F.concat(entries, F.array(entry)))
        return F.when(added.isNotNull(), _map_of(changed))

    direct = _with_member(column, name, value)
    return F.when(_is_object(column), direct).otherwise(apart(both, of_entries))


def _with_member(column: Column, name: str, value: Column) -> Column:
    if _PLAIN_NAME.fullmatch(name):
        return F.try_variant_set(column, f'$["{name}"]', value.cast("variant"))
    added = F.create_map(F.lit(name), value.cast("variant"))
    members = F.map_concat(F.try_variant_get(column, "$", "map<string,variant>"), added)
    return F.when(value.isNotNull(), F.to_variant_object(members))


def tagged_entries(column: Column) -> Column:
    """The entries of a VARIANT map with other than string keys, arrays of key and value; null for all else."""
    return F.try_variant_get(column, f'$["{MAP_TAG}"]', "array<variant>")


def _map_of(entries: Column) -> Column:
    tagged = F.to_variant_object(F.struct(entries.cast("variant").alias(MAP_TAG)))
    return F.when(entries.isNotNull(), tagged)


def _has_key(entry: Column, name: str) -> Column:
    """Whether an entry's key is this string; never null."""
    key = F.try_variant_get(entry, "$[0]", "variant")
    is_text = F.schema_of_variant(key) == "STRING"
    return F.coalesce(is_text & (F.try_variant_get(key, "$", "string") == name), F.lit(False))


def java_class_of(column: Column) -> Column:
    """The Java class of a schemaless value, ``null`` for null; for messages."""
    kind = F.schema_of_variant(column)
    name = F.lit("java.lang.Object")
    for prefix, java in _JAVA_CLASSES.items():
        name = F.when(kind.startswith(prefix), F.lit(java)).otherwise(name)
    return F.when(kind.isNull(), F.lit("null")).otherwise(name)


def _struct_of(keys: Iterable[str]) -> str:
    return "struct<" + ",".join(f"`{key}`:variant" for key in sorted(keys)) + ">"


#: Objects with one of these keys stand for something else, or even for no map; see ``penstock.pipeline.variant``.
_TAGGED: Final = _struct_of(TAGS)
_NO_MAPS: Final = _struct_of(TAGS - {MAP_TAG})
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_ .:-]*")
_JAVA_CLASSES: Final = {
    "BIGINT": "java.lang.Long",
    "DOUBLE": "java.lang.Double",
    "STRING": "java.lang.String",
    "BOOLEAN": "java.lang.Boolean",
    "DECIMAL": "java.math.BigDecimal",
    "BINARY": "[B",
    "ARRAY": "java.util.ArrayList",
    "OBJECT": "java.util.HashMap",
    "VOID": "null",
    "DATE": "java.util.Date",
    "TIMESTAMP": "java.util.Date",
    f"OBJECT<`{DECIMAL_TAG}`": "java.math.BigDecimal",
    f"OBJECT<`{TIME_TAG}`": "java.util.Date",
    f"OBJECT<`{STRUCT_TAG}`": "org.apache.kafka.connect.data.Struct",
}
