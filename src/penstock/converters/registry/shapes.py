"""The comparison of types of registered schemas that have the same name.

Main function: ``shape``. Thread: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.data import Decimal, Schema, Type


def shape(schema: Schema, marks: Sequence[str]) -> object:
    """The names and types of all parts, and not what is said of them: documentation, version, default, parameters.

    Args:
        schema: The schema; that it is optional itself does not count.
        marks: What parameters begin with that count, because they make another type.
    """
    kind = schema.type
    parts: object = None
    if kind is Type.STRUCT:
        parts = tuple((one.name, one.schema.optional, shape(one.schema, marks)) for one in schema.fields)
    elif kind in (Type.ARRAY, Type.MAP):
        inner = [schema.value_schema] if kind is Type.ARRAY else [schema.key_schema, schema.value_schema]
        parts = tuple(one and (one.optional, shape(one, marks)) for one in inner)
    said = tuple(one for one in (schema.parameters or {}).items() if one[0].startswith((*marks, Decimal.SCALE_FIELD)))
    return kind, schema.name, parts, said
