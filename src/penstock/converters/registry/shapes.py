"""Comparison of registered types with the same name.

Main function: ``shape``. Thread: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.data import Decimal, Schema, Type


def shape(schema: Schema, marks: Sequence[str]) -> object:
    """The names and types of all parts, without documentation, version, default and parameters.

    Args:
        schema: The schema; its own optionality is ignored.
        marks: Prefixes of parameters that count, because they make a different type.
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
