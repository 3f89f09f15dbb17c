"""Schemaless values (VARIANT) as Spark columns: what VARIANT cannot say is found and undone in JSON text.

``penstock.pipeline.variant`` writes maps with other than string keys, and what has no JSON, as tagged objects; these
functions know the tags.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline.expressions import rare
from penstock.pipeline.variant import DECIMAL_TAG, MAP_TAG, STRUCT_TAG, TIME_TAG

if TYPE_CHECKING:
    from pyspark.sql import Column

_MAP_OPEN: Final = '{"\\u0000map":'
_TAG_OPEN: Final = '{"\\u0000'
_TAGGED: Final = '\\{"\\\\u0000(?:struct|time|decimal|date|timestamp)":'
_NO_SCHEMA_TYPE: Final = "does not have corresponding schema type."
_KINDS: Final = {"DECIMAL": "java.math.BigDecimal", "DATE": "java.util.Date", "TIMESTAMP": "java.util.Date"}


def holds_tagged_map(text: Column) -> Column:
    """Whether the JSON text of a VARIANT is perhaps that of a map with other than string keys, at any depth."""
    return text.contains(_MAP_OPEN)


def unsupported_kind(schema: Column, text: Column) -> Column:
    """Why a schemaless value has no Connect schema type (it holds a decimal, date or time); null where it has.

    Args:
        schema: Its kind, ``schema_of_variant``, which is used several times: name it first.
        text: Its JSON text, likewise. Tagged objects show there, also in an array whose kind hides them.
    """

    def told(kinds: Column) -> Column:
        problem = F.lit(None).cast("string")
        for kind, java in _KINDS.items():
            found = kinds.rlike(f"(?:^|[<:] ?){kind}\\b")
            problem = F.when(found, F.lit(f"Java class class {java} {_NO_SCHEMA_TYPE}")).otherwise(problem)
        return F.when(text.rlike(_TAGGED), F.lit(f"Java class class java.lang.Object {_NO_SCHEMA_TYPE}")).otherwise(
            problem
        )

    # Regular expressions cost more than all else here, and few values have a kind or a name with these letters.
    suspect = text.contains(_TAG_OPEN)
    for kind in _KINDS:
        suspect = suspect | schema.contains(kind)
    return F.when(suspect, rare(schema, told))


def object_of(fields: Mapping[str, Column]) -> Column:
    """A VARIANT object of these fields; a null is a field that is null."""
    return F.to_variant_object(F.struct(*[column.alias(name) for name, column in fields.items()]))


def map_of_null(value: Column) -> Column:
    """A VARIANT map with null as its only key."""
    entry = F.array(F.parse_json(F.lit("null")), value).cast("variant")
    return F.to_variant_object(F.struct(F.array(entry).cast("variant").alias(MAP_TAG)))


def is_map(column: Column) -> Column:
    """Whether a VARIANT is a map of Connect: an object that stands for nothing else; never null."""
    # Cheaper than the schema of the whole value. The text is that of an object without any of these keys.
    probe = F.to_json(F.try_variant_get(column, "$", _PROBE), {"ignoreNullFields": "true"})
    return F.coalesce(probe == "{}", F.lit(False))


def get_field(column: Column, name: str) -> Column:
    """A field of a VARIANT object, as VARIANT; null where there is none, or ``column`` is no object."""
    if '"' in name:
        return F.try_variant_get(column, "$", "map<string,variant>").getItem(name)
    return F.try_variant_get(column, f'$["{name}"]', "variant")


def without_fields(column: Column, names: Sequence[str]) -> Column:
    """A VARIANT object without some fields; what is no object stays."""
    plain = [name for name in names if '"' not in name]
    for name in plain:
        column = F.variant_delete(column, f'$["{name}"]')
    others = [name for name in names if '"' in name]
    if not others:
        return column
    members = F.map_filter(F.try_variant_get(column, "$", "map<string,variant>"), lambda key, _: ~key.isin(*others))
    return F.coalesce(F.to_variant_object(members), column)


def put_field(column: Column, name: str, value: Column) -> Column:
    """A VARIANT object with a field set; null where ``value`` is null or ``column`` is no object."""
    if _PLAIN_NAME.fullmatch(name):
        return F.try_variant_set(column, f'$["{name}"]', value.cast("variant"))
    added = F.create_map(F.lit(name), value.cast("variant"))
    members = F.when(is_map(column), column).try_cast("map<string,variant>")
    return F.when(value.isNotNull(), F.to_variant_object(F.map_concat(members, added)))


def java_class_of(column: Column) -> Column:
    """The Java class of a schemaless value, ``null`` for null; for messages."""
    kind = F.schema_of_variant(column)
    name = F.lit("java.lang.Object")
    for prefix, java in _JAVA_CLASSES.items():
        name = F.when(kind.startswith(prefix), F.lit(java)).otherwise(name)
    return F.when(kind.isNull(), F.lit("null")).otherwise(name)


#: Objects with one of these keys are no maps; those of dates and timestamps are items of arrays alone.
_PROBE: Final = "struct<" + ",".join(f"`{tag}`:variant" for tag in (DECIMAL_TAG, STRUCT_TAG, TIME_TAG)) + ">"
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
