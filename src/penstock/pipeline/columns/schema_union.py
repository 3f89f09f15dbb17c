"""One schema for the values of two, where a column can hold both.

Main function: ``union_of``. A struct gets the fields of both; one that only one of them has is optional, and null where
it is missing. Numbers take the wider type, if that holds them exactly. What is optional in one is optional.

Thread: pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from penstock.data import Field, Schema, Type

_MAX_PAIRS: Final = 1024
#: From narrow to wide; each holds the numbers of those before it exactly.
_INTEGERS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
_FLOATS: Final = (Type.FLOAT32, Type.FLOAT64)
#: The narrowest type of floats that holds all integers of a type.
_FLOAT_FOR: Final = {Type.INT8: Type.FLOAT32, Type.INT16: Type.FLOAT32, Type.INT32: Type.FLOAT64}


@lru_cache(maxsize=_MAX_PAIRS)
def union_of(first: Schema, second: Schema) -> Schema | None:
    """The schema that holds the values of both; None where there is none.

    Names have to be the same, so that a date joins no number and an order no customer. Of version, doc and parameters
    the union has those of the first, and where it has none, of the second; a default stays if both have it.

    >>> union_of(Schema(Type.INT32), Schema(Type.INT64, optional=True))
    <Schema{INT64}>
    >>> union_of(Schema(Type.INT64), Schema(Type.FLOAT64)) is None
    True
    """
    if first == second:
        return first
    if first.name != second.name:
        return None
    kind = first.type if first.type is second.type else _wider(first, second)
    if kind is None or (first.name is not None and _scale(first) != _scale(second)):
        return None
    key, value = None, None
    fields = _fields(first, second) if kind is Type.STRUCT else ()
    if fields is None:
        return None
    if kind is Type.MAP:
        key = _inner(first.key_schema, second.key_schema)
        if key is None:
            return None
    if kind in (Type.ARRAY, Type.MAP):
        value = _inner(first.value_schema, second.value_schema)
        if value is None:
            return None
    return Schema(
        kind,
        optional=first.optional or second.optional,
        default=first.default if first.default == second.default else None,
        name=first.name,
        version=second.version if first.version is None else first.version,
        doc=first.doc or second.doc,
        parameters=_merged(first.parameters, second.parameters),
        key_schema=key,
        value_schema=value,
        fields=fields,
    )


def _wider(first: Schema, second: Schema) -> Type | None:
    if first.name is not None:
        return None
    one, other = first.type, second.type
    for kinds in (_INTEGERS, _FLOATS):
        if one in kinds and other in kinds:
            return max(one, other, key=kinds.index)
    whole, real = (one, other) if one in _FLOAT_FOR else (other, one)
    if whole in _FLOAT_FOR and real in _FLOATS:
        return max(_FLOAT_FOR[whole], real, key=_FLOATS.index)
    return None


def _scale(schema: Schema) -> str | None:
    return (schema.parameters or {}).get("scale")


def _inner(first: Schema | None, second: Schema | None) -> Schema | None:
    return None if first is None or second is None else union_of(first, second)


def _fields(first: Schema, second: Schema) -> tuple[Field, ...] | None:
    """The fields of two structs, those of the first one in front; None where one of both cannot be joined."""
    firsts = {field.name: field.schema for field in first.fields}
    seconds = {field.name: field.schema for field in second.fields}
    found: list[Schema] = []
    names = [*firsts, *(name for name in seconds if name not in firsts)]
    for name in names:
        if name in firsts and name in seconds:
            joined = union_of(firsts[name], seconds[name])
            if joined is None:
                return None
            found.append(joined)
        else:
            found.append(_optional(firsts.get(name) or seconds[name]))
    return tuple(Field(name, index, schema) for index, (name, schema) in enumerate(zip(names, found, strict=True)))


def _optional(schema: Schema) -> Schema:
    """The same for a field that may be missing. It has no default: missing is null."""
    return Schema(
        schema.type,
        optional=True,
        name=schema.name,
        version=schema.version,
        doc=schema.doc,
        parameters=schema.parameters,
        key_schema=schema.key_schema if schema.type is Type.MAP else None,
        value_schema=schema.value_schema if schema.type in (Type.MAP, Type.ARRAY) else None,
        fields=schema.fields if schema.type is Type.STRUCT else (),
    )


def _merged(first: Mapping[str, str] | None, second: Mapping[str, str] | None) -> Mapping[str, str] | None:
    return {**(second or {}), **(first or {})} or None
