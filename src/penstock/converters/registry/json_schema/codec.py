"""A compiled JSON Schema: validates values, and compares schemas by Confluent's rules.

Patterns for the validation of values are Java's, and run in linear time or with a time limit (``with_limits``): the
library itself would use Python's ``re``, which holds the interpreter lock during the search.

Source: io.confluent.connect.json.JsonSchemaConverter; org.everit.json.schema.regexp.JavaUtilRegexpFactory;
io.confluent.kafka.schemaregistry.json.diff.SchemaDiff and the related classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import attrs
from jsonschema import FormatChecker, validators
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import Draft7Validator, validator_for

from penstock.config.java_pattern import compile_java
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.converters import Codec
from penstock.converters.registry.json_schema.schemas import (
    Criteria,
    Criterion,
    connect_schema,
    json_schema_text,
    parsed_schema,
    schemas_by_name,
)
from penstock.converters.registry.json_schema.values import (
    Convert,
    JsonSchemaOptions,
    decode,
    encode,
    has_decimals,
    value_reader,
    value_writer,
)
from penstock.data import Schema, SchemaAndValue
from penstock.errors import DataException

_MARK: Final = "penstock_limits"


@lru_cache(maxsize=16)
def with_limits(kind: Any) -> Any:
    """A copy of a validator class that searches for patterns with limits."""
    keywords = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    limited: Any = validators.extend(kind, {name: one for name, one in keywords.items() if name in kind.VALIDATORS})
    plain = limited.evolve

    def evolve(self: Any, **changes: Any) -> Any:
        evolved = plain(self, **changes)
        own: Any = type(evolved)
        if hasattr(own, _MARK):
            return evolved
        # A subschema that names a version is validated by the class of that version.
        return with_limits(own)(**{one.alias: getattr(evolved, one.name) for one in attrs.fields(own) if one.init})

    limited.evolve = evolve
    setattr(limited, _MARK, True)
    return limited


def found_in(pattern: str, text: str) -> bool:
    """True if a part of a text matches a pattern.

    Raises:
        ConfigException: The pattern is invalid.
        PatternTimeoutException: The search takes too long.
    """
    return compile_java(pattern, name="pattern").found_in(text)


def _pattern(validator: Any, pattern: str, instance: object, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not found_in(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: object, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    for name, value in instance.items() if isinstance(instance, dict) else ():
        for pattern, part in patterns.items():
            if found_in(pattern, name):
                yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, additional: Any, instance: object, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    patterns = schema.get("patternProperties", {})
    known = schema.get("properties", {})
    others = [
        name for name in instance if name not in known and not any(found_in(pattern, name) for pattern in patterns)
    ]
    if isinstance(additional, dict):
        for name in others:
            yield from validator.descend(instance[name], additional, path=name)
    elif not additional and others:
        shown = ", ".join(map(repr, sorted(others)))
        allowed = f", nor do they match {', '.join(map(repr, sorted(patterns)))}" if patterns else ""
        yield ValidationError(f"Additional properties are not allowed ({shown}){allowed}")


#: The number of cached Connect schemas for one JSON Schema; more than one only with use.latest.version.
_MAX_WRITERS: Final = 100


class JsonSchemaCodec(Codec):
    """A JSON Schema, compiled."""

    def __init__(self, schema: SchemaText, options: JsonSchemaOptions, version: int | None) -> None:
        text, references = schema.text, schema.texts()
        self._options = options
        root = parsed_schema(text, "the schema")
        #: The schema, with the texts of its references.
        self.parsed = (root, references)
        title = root.get("title") if isinstance(root, dict) else None
        self._title = title if isinstance(title, str) else None
        self._validator = _validator(root, references, text) if options.fail_invalid else None
        self._writers: dict[Schema, Convert] = {}
        # A schema without a Connect schema can still be used for writing.
        self._read: Convert | None = None
        self._refusal = ""
        try:
            self._schema = connect_schema(text, references, options, version)
            self._exact = has_decimals(self._schema)
            self._read = value_reader(self._schema)
        except DataException as error:
            self._refusal = str(error)

    @staticmethod
    def text_of(schema: Schema, options: JsonSchemaOptions) -> str:
        return json_schema_text(schema, options)

    @property
    def record_name(self) -> str | None:
        return self._title

    def encode(self, schema: Schema, value: object) -> bytes:
        write = self._writers.get(schema)
        if write is None:
            if len(self._writers) >= _MAX_WRITERS:
                self._writers.clear()
            write = self._writers[schema] = value_writer(schema, self._options)
        payload = encode(write, value)
        self._check(payload)
        return payload

    def decode(self, payload: bytes, where: str) -> SchemaAndValue:
        if self._read is None:
            raise DataException(f"Cannot read {where}: {self._refusal}")
        try:
            node = decode(payload, exact=self._exact)
            self._check(payload)
            return SchemaAndValue(self._schema, self._read(node))
        except DataException as error:
            raise DataException(f"Cannot read {where}: {error}") from error

    def cannot_read(self, writer: JsonSchemaCodec) -> str | None:
        return cannot_read(self.parsed, writer.parsed)

    def _check(self, payload: bytes) -> None:
        if self._validator is None:
            return
        try:
            self._validator.validate(json.loads(payload))
        except ValidationError as error:
            raise DataException(
                f"The JSON Schema does not allow {error.json_path}: {error.message} (json.fail.invalid.schema=true)"
            ) from error
        except Exception as error:  # Invalid patterns and references: the schema belongs to the message.
            raise DataException(f"The value cannot be compared with its JSON Schema: {error}") from error


def _validator(root: Any, references: Mapping[str, str], text: str) -> Any:
    if not isinstance(root, dict | bool):
        raise DataException("The schema is no JSON Schema: it is neither an object nor a boolean")
    kind = validator_for(root, default=Draft7Validator)
    try:
        # Formats are not checked, because patterns are Java's, which Python may not support.
        kind.check_schema(root, format_checker=FormatChecker(()))
    except SchemaError as error:
        raise DataException(f"The schema is no JSON Schema: {error.message}") from error
    every = "".join((text, *references.values()))
    if "unevaluatedProperties" in every and "patternProperties" in every:
        raise DataException(
            "json.fail.invalid.schema=true does not support a JSON Schema with both unevaluatedProperties and "
            "patternProperties: leave out one of them, or set json.fail.invalid.schema=false"
        )
    return with_limits(kind)(root, registry=schemas_by_name(references))


Parsed = tuple[Any, Mapping[str, str]]

_COMBINED: Final = ("oneOf", "allOf")
#: Limits that may grow, and limits that may shrink.
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_ABSENT: Final = object()


def cannot_read(reader: Parsed, writer: Parsed) -> str | None:
    """Returns why values of a schema cannot be read with another one, or None; each has the texts of its references by
    name.
    """
    criteria = [Criteria(schemas_by_name(references)) for _, references in (reader, writer)]
    return _Comparison(*criteria).whole(reader[0], writer[0])


class _Comparison:
    def __init__(self, readers: Criteria, writers: Criteria) -> None:
        self._readers = readers
        self._writers = writers
        #: Pairs of schemas in progress: recursion ends here.
        self._open: set[tuple[int, int]] = set()

    def whole(self, reader: Any, writer: Any) -> str | None:
        return self._nodes(reader, writer, "the value", self._readers.of_root, self._writers.of_root)

    def _nodes(
        self,
        reader: Any,
        writer: Any,
        place: str,
        of_reader: Callable[[Any], Criterion],
        of_writer: Callable[[Any], Criterion],
    ) -> str | None:
        """Two schemas in JSON; ``_ABSENT``: there is no schema."""
        if reader is _ABSENT or _takes_all(reader) or writer is False or reader == writer:
            return None
        if writer is _ABSENT or _takes_all(writer) or reader is False or not _has_criteria(reader, writer):
            return f"{place} is {_shown(reader)} there, and {_shown(writer)} here"
        return self._reason(of_reader(reader), of_writer(writer), place)

    def _parts(self, reader: Criterion, writer: Criterion, nodes: tuple[Any, Any], place: str) -> str | None:
        return self._nodes(
            *nodes,
            place,
            lambda node: self._readers.of(node, reader.resolver),
            lambda node: self._writers.of(node, writer.resolver),
        )

    def _reason(self, reader: Criterion, writer: Criterion, place: str) -> str | None:
        reader, writer = self._target(self._readers, reader), self._target(self._writers, writer)
        pair = (id(reader.node), id(writer.node))
        if reader.kind == writer.kind == "object" and pair in self._open:
            return None
        self._open.add(pair)
        try:
            return self._compared(reader, writer, place)
        finally:
            self._open.discard(pair)

    def _target(self, criteria: Criteria, found: Criterion) -> Criterion:
        while found.kind == "ref":
            found = criteria.target(found)
        return found

    def _compared(self, reader: Criterion, writer: Criterion, place: str) -> str | None:
        one, other = (found.kind in _COMBINED for found in (reader, writer))
        if one and other:
            return self._combined(reader, writer, place)
        pairs: list[tuple[Criterion, Criterion]] = []
        if one and (reader.kind == "oneOf" or len(reader.parts) == 1):
            pairs = [(part, writer) for part in reader.parts]
        elif other and (writer.kind == "allOf" or len(writer.parts) == 1):
            pairs = [(reader, part) for part in writer.parts]
        if any(self._reason(*pair, place) is None for pair in pairs):
            return None
        kinds = [_kind(found) for found in (reader, writer)]
        if kinds[0] != kinds[1]:
            connect = [found.node.get("connect.type") for found in (reader, writer)]
            return None if connect == ["bytes", "bytes"] else f"{place} is {kinds[0]} there, and {kinds[1]} here"
        return next((why for why in self._of_kind(kinds[0], reader, writer, place) if why is not None), None)

    def _combined(self, reader: Criterion, writer: Criterion, place: str) -> str | None:
        alike = reader.kind == writer.kind or len(writer.parts) == 1
        alike = alike or (len(reader.parts) == 1 and writer.kind == "allOf") or "anyOf" in reader.node
        if not alike:
            return f"{place} is {reader.kind} there, and {writer.kind} here"
        fewer = len(reader.parts) < len(writer.parts) if writer.kind == "oneOf" else False
        more = len(reader.parts) > len(writer.parts) if reader.kind == "allOf" else False
        fits = [
            [at for at, one in enumerate(reader.parts) if self._reason(one, part, place) is None]
            for part in writer.parts
        ]
        pairs = _most_pairs(fits)
        if fewer or more or pairs < min(len(reader.parts), len(writer.parts)):
            return f"{place} is {_shown(reader.node)} there, and {_shown(writer.node)} here"
        return None

    def _of_kind(self, kind: str, reader: Criterion, writer: Criterion, place: str) -> Iterator[str | None]:
        yield from _limits(reader.node, writer.node, place)
        if kind == "number" and reader.kind == "integer" and writer.kind == "number":
            yield f"{place} is an integer there, and a number here"
        if kind in ("enum", "const"):
            values = [one.node.get("enum", [one.node.get("const")]) for one in (reader, writer)]
            missing = [one for one in values[1] if one not in values[0]]
            yield f"{place} has no {', '.join(map(_shown, missing))} there" if missing else None
        elif kind == "array":
            yield from self._arrays(reader, writer, place)
        elif kind == "object":
            yield from self._objects(reader, writer, place)

    def _arrays(self, reader: Criterion, writer: Criterion, place: str) -> Iterator[str | None]:
        items = [one.node.get("items", _ABSENT) for one in (reader, writer)]
        if isinstance(items[0], list) or isinstance(items[1], list):
            yield None if items[0] == items[1] else f"{place} has other elements there"
            return
        yield self._parts(reader, writer, (items[0], items[1]), f"an element of {place}")

    def _objects(self, reader: Criterion, writer: Criterion, place: str) -> Iterator[str | None]:
        there, here = (one.node.get("properties", {}) for one in (reader, writer))
        required = [one.node.get("required", ()) for one in (reader, writer)]
        for name in {**there, **here}:
            what = f"field {name} of {place}"
            if name not in there:
                yield self._parts(reader, writer, (_rest(reader.node, name), here[name]), what)
                continue
            new = name in required[0] and name not in required[1]
            if new and not (isinstance(there[name], dict) and "default" in there[name]):
                yield f"{what} is required there"
            if name in here:
                yield self._parts(reader, writer, (there[name], here[name]), what)
                continue
            rest = _rest(writer.node, name)
            if rest is not False:
                yield self._parts(reader, writer, (there[name], rest), what)
        rests = [one.node.get("additionalProperties", True) for one in (reader, writer)]
        yield self._parts(reader, writer, (rests[0], rests[1]), f"any other field of {place}")
        dependencies = [one.node.get("dependencies", {}) for one in (reader, writer)]
        yield None if dependencies[0] == dependencies[1] or not dependencies[0] else f"{place} has dependencies there"


def _rest(node: Mapping[str, Any], name: str) -> Any:
    """Returns the schema of unlisted properties."""
    for pattern, part in node.get("patternProperties", {}).items():
        if found_in(pattern, name):
            return part
    return node.get("additionalProperties", True)


def _takes_all(node: Any) -> bool:
    return node is True or node == {}


def _has_criteria(*nodes: Any) -> bool:
    return all(isinstance(node, dict) and not re.fullmatch(r"(not)?", ",".join(node)) for node in nodes)


def _kind(found: Criterion) -> str:
    if found.kind == "enum":
        return "enum" if "enum" in found.node else "const"
    return "number" if found.kind == "integer" else found.kind


def _limits(reader: Mapping[str, Any], writer: Mapping[str, Any], place: str) -> Iterator[str]:
    for names, sign in ((_UPPER, 1), (_LOWER, -1)):
        for name in names:
            there, here = reader.get(name), writer.get(name)
            if there is not None and (here is None or sign * here > sign * there):
                yield f"{name} of {place} is {there} there, and {here} here"
    for name in ("pattern", "multipleOf"):
        there, here = reader.get(name), writer.get(name)
        divides = name == "multipleOf" and there is not None and here is not None and here % there == 0
        if there is not None and there != here and not divides:
            yield f"{name} of {place} is {there} there, and {here} here"
    if reader.get("uniqueItems") and not writer.get("uniqueItems"):
        yield f"the elements of {place} are unique there"


def _most_pairs(fits: Sequence[Sequence[int]]) -> int:
    """Returns the size of the largest matching of a bipartite graph."""
    taken: dict[int, int] = {}

    def found(one: int, tried: set[int]) -> bool:
        for at in fits[one]:
            if at in tried:
                continue
            tried.add(at)
            if at not in taken or found(taken[at], tried):
                taken[at] = one
                return True
        return False

    return sum(found(one, set()) for one in range(len(fits)))


def _shown(node: Any) -> str:
    return "anything" if node is _ABSENT else json.dumps(node)[:200]
