"""Connect's schemas in the metadata of files, so that a topic can be restored with its schemas. Pure; any thread.

Main functions: ``metadata_of_schemas``, ``schema_in``. Source: the form in which ``JsonConverter`` writes schemas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from penstock.data import Field, Schema, Type

_KEYS: Final = {"value": b"penstock.value.schema", "key": b"penstock.key.schema"}


def metadata_of_schemas(value: Schema | None, key: Schema | None) -> dict[bytes, bytes]:
    """The metadata of a file whose rows have these schemas; None: they have none."""
    return {
        _KEYS[side]: json.dumps(_to_json(schema), separators=(",", ":")).encode()
        for side, schema in (("value", value), ("key", key))
        if schema is not None
    }


def schema_in(metadata: Mapping[bytes, bytes] | None, side: str) -> Schema | None:
    """The schema of the values, or of the keys, in a file's metadata; None if there is none.

    >>> from penstock.data import INT8_SCHEMA
    >>> schema_in(metadata_of_schemas(INT8_SCHEMA, None), "value")
    <Schema{INT8}>
    """
    text = (metadata or {}).get(_KEYS[side])
    return None if text is None else _parsed(text)


@lru_cache(maxsize=256)
def _parsed(text: bytes) -> Schema | None:
    try:
        return _of_json(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return None


def _to_json(schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {"type": schema.type.name, "optional": schema.optional}
    more = {"name": schema.name, "version": schema.version, "doc": schema.doc}
    found |= {name: value for name, value in more.items() if value is not None}
    if schema.parameters is not None:
        found["parameters"] = dict(schema.parameters)
    if isinstance(schema.default, str | int | float | bool):
        found["default"] = schema.default
    if schema.type is Type.STRUCT:
        found["fields"] = [{"field": one.name, **_to_json(one.schema)} for one in schema.fields]
    if schema.type is Type.MAP and schema.key_schema is not None:
        found["keys"] = _to_json(schema.key_schema)
    if schema.type in (Type.MAP, Type.ARRAY) and schema.value_schema is not None:
        found["values"] = _to_json(schema.value_schema)
    return found


def _of_json(found: Mapping[str, Any]) -> Schema:
    fields = [Field(one["field"], index, _of_json(one)) for index, one in enumerate(found.get("fields", ()))]
    return Schema(
        Type[found["type"]],
        optional=found["optional"],
        default=found.get("default"),
        name=found.get("name"),
        version=found.get("version"),
        doc=found.get("doc"),
        parameters=found.get("parameters"),
        key_schema=_of_json(found["keys"]) if "keys" in found else None,
        value_schema=_of_json(found["values"]) if "values" in found else None,
        fields=fields,
    )
