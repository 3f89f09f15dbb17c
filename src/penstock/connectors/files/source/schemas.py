"""Parses schemas in settings. Main function: ``parse_schema``. Pure; any thread.

Source: the settings ``key.schema`` and ``value.schema`` of the SpoolDir connectors, and ``JsonConverter`` for the other
form of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.data import Date, Decimal, Schema, SchemaBuilder, Time, Timestamp, Type

_SHORT: Final = re.compile(
    r"\s*(?:`([^`]+)`|([^\s:,]+))\s*:?\s+([A-Za-z0-9_]+(?:\s*\([\d\s,]+\))?)(\s+not\s+null)?\s*", re.I
)
_WORDS: Final = {
    "int": "int32", "integer": "int32", "bigint": "int64", "long": "int64", "smallint": "int16", "tinyint": "int8",
    "float": "float32", "double": "float64", "bool": "boolean", "text": "string", "varchar": "string",
    "binary": "bytes",
}  # fmt: skip
_LOGICAL: Final[dict[str, Any]] = {"date": Date, "time": Time, "timestamp": Timestamp}


def parse_schema(text: str) -> Schema:
    """Parses the schema of a setting.

    Args:
        text: ``id int64 not null, name string, price decimal(10,2)``; or JSON in the form of SpoolDir's settings or of
            ``JsonConverter``.

    Raises:
        ValueError: The text has another form; the message says why.

    >>> [str(field.schema) for field in parse_schema("id int64 not null, day date").fields]
    ['Schema{INT64}', 'Schema{org.apache.kafka.connect.data.Date:INT32}']
    >>> parse_schema('{"type": "STRUCT", "fieldSchemas": {"id": {"type": "INT64"}}}').fields[0].name
    'id'
    """
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"is no JSON: {error}") from error
        schema = _of_json(found)
        if schema.type is not Type.STRUCT:
            raise ValueError(f"is a schema of {schema.type}, and has to be one of a STRUCT")
        return schema
    builder = SchemaBuilder.struct()
    at = 0
    while (found := _SHORT.match(text, at)) is not None:
        builder = builder.field(found[1] or found[2], _of_word(found[3], optional=found[4] is None))
        at = found.end() + 1
        if found.end() == len(text):
            return builder.build()
        if text[found.end()] != ",":
            break
    raise ValueError(
        f'is no list of fields from "{text[max(0, at - 1) :][:40]}" on: write it as id int64 not null, name string, or '
        "as JSON"
    )


def _of_word(word: str, *, optional: bool) -> Schema:
    name, _, numbers = word.lower().replace(" ", "").rstrip(")").partition("(")
    name = _WORDS.get(name, name)
    if name == "decimal":
        builder = Decimal.builder(int(numbers.rpartition(",")[2] or 0))
    elif name in _LOGICAL:
        builder = _LOGICAL[name].builder()
    else:
        builder = SchemaBuilder(_type(name))
    return (builder.optional() if optional else builder).build()


def _type(name: str) -> Type:
    try:
        found = Type[name.upper()]
    except KeyError as error:
        raise ValueError(
            f'has the type "{name}", which is not there: write int8, int16, int32, int64, float32, float64, boolean, '
            "string, bytes, date, time, timestamp or decimal(DIGITS,PLACES)"
        ) from error
    return found


def _of_json(found: Any) -> Schema:
    if not isinstance(found, Mapping) or "type" not in found:
        raise ValueError(f"has {json.dumps(found)[:60]} where a schema with a type is wanted")
    kind = _type(str(found["type"]))
    builder = SchemaBuilder(kind)
    if kind is Type.ARRAY:
        builder = SchemaBuilder.array(_of_json(found.get("valueSchema") or found.get("items")))
    elif kind is Type.MAP:
        keys, values = found.get("keySchema") or found.get("keys"), found.get("valueSchema") or found.get("values")
        builder = SchemaBuilder.map(_of_json(keys), _of_json(values))
    elif kind is Type.STRUCT:
        for name, one in _members(found):
            builder = builder.field(name, _of_json(one))
    if found.get("name"):
        builder = builder.name(str(found["name"]))
    if found.get("version") is not None:
        builder = builder.version(int(found["version"]))
    for name, value in (found.get("parameters") or {}).items():
        builder = builder.parameter(name, str(value))
    return (builder.optional() if found.get("isOptional", found.get("optional", False)) else builder).build()


def _members(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if "fieldSchemas" in found:
        return list(found["fieldSchemas"].items())
    return [(one["field"], one) for one in found.get("fields", ())]
