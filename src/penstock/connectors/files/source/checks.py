"""Checks and translations of the texts in single settings: schemas, encodings, patterns of Java, characters.

Main functions: ``parse_schema``, ``character`` and ``strptime_pattern``; the validators are
``CHARSET``, ``CHARACTER``, ``PATTERN`` and ``SCHEMA``. Pure; any thread.

Source: the settings ``key.schema`` and ``value.schema`` of the SpoolDir connectors; ``JsonConverter`` for the other
form of JSON.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.config import LambdaValidator
from penstock.config.java_pattern import compile_java
from penstock.data import Date, Decimal, Schema, SchemaBuilder, Time, Timestamp, Type
from penstock.errors import ConfigException

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


_PATTERNS: Final = {
    "yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "MMM": "%b", "MM": "%m", "M": "%m", "dd": "%d", "d": "%d", "HH": "%H",
    "H": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "a": "%p", "XXX": "%z", "XX": "%z", "X": "%z", "Z": "%z",
    "EEE": "%a",
}  # fmt: skip


def check_charset(name: str, value: object) -> None:
    """Raises ConfigException if Python has no such encoding."""
    try:
        codecs.lookup(str(value))
        "".encode(str(value))
    except (LookupError, ValueError) as error:
        raise ConfigException(name, value, "is no encoding that is known; write UTF-8 or ISO-8859-1") from error


def _check_pattern(name: str, value: object) -> None:
    compile_java(str(value), name=name)


def _check_schema(name: str, value: object) -> None:
    if value:
        try:
            parse_schema(str(value))
        except ValueError as error:
            raise ConfigException(name, value, str(error)) from error


def _check_character(name: str, value: object) -> None:
    try:
        character(str(value))
    except ValueError as error:
        raise ConfigException(name, value, "is one ASCII character, or the number of one; 0 for none") from error


def character(text: str) -> str | None:
    r"""Parses a character in a setting.

    >>> character("9"), character(";"), character("59"), character("0"), character("\\t")
    ('\t', ';', ';', None, '\t')
    """
    if text in ("\\t", "\t"):
        return "\t"
    if len(text) != 1 and not text.isdigit():
        raise ValueError(text)
    number = int(text) if text.isdigit() else ord(text)
    if number > 127:
        raise ValueError(text)
    return chr(number) if number else None


def strptime_pattern(pattern: str) -> str:
    """Converts a pattern of Java's to one of ``strptime``.

    >>> strptime_pattern("yyyy-MM-dd'T'HH:mm:ss")
    '%Y-%m-%dT%H:%M:%S'
    """
    out = []
    for found in re.finditer(r"'([^']*)'|(([A-Za-z])\3*)|([^A-Za-z']+)", pattern):
        if found[2]:
            if found[2] not in _PATTERNS:
                raise ValueError(
                    f'has the pattern {pattern}, whose "{found[2]}" is not there: write {", ".join(_PATTERNS)}'
                )
            out.append(_PATTERNS[found[2]])
        else:
            out.append((found[1] or found[4] or "'").replace("%", "%%"))
    return "".join(out)


CHARSET: Final = LambdaValidator(check_charset, "the name of an encoding")
CHARACTER: Final = LambdaValidator(_check_character, "a character, or its number; 0: none")
PATTERN: Final = LambdaValidator(_check_pattern, "a regular expression")
SCHEMA: Final = LambdaValidator(_check_schema, "a list of fields, or JSON")
