"""A JSON Schema of the registry, with the functions compiled from it.

Patterns for the validation of values are Java's, and run in linear time or with a time limit (``with_limits``): the
library itself would use Python's ``re``, which holds the interpreter lock during the search.

Main type: ``JsonSchemaCodec``. Needs the extra ``penstock[registry]``.

Thread: a task's pipeline thread.
Source: io.confluent.connect.json.JsonSchemaConverter; org.everit.json.schema.regexp.JavaUtilRegexpFactory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs
from jsonschema import FormatChecker, validators
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import Draft7Validator, validator_for

from penstock.config.java_pattern import compile_java
from penstock.converters.registry.json_schema.parsing import connect_schema, parsed_schema, schemas_by_name
from penstock.converters.registry.json_schema.writing import (
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


class JsonSchemaCodec:
    """A JSON Schema, compiled.

    Args:
        text: The schema.
        references: The schemas to which it refers, at any depth, by name.
        options: The converter's settings.
        version: Its version in the registry.
        strict: True if values that it does not allow are errors.

    Raises:
        DataException: The text is not JSON, or, if ``strict``, not a JSON Schema.
    """

    def __init__(
        self, text: str, references: Mapping[str, str], options: JsonSchemaOptions, version: int | None, *, strict: bool
    ) -> None:
        self._options = options
        root = parsed_schema(text, "the schema")
        #: The schema, with the texts of its references.
        self.parsed = (root, references)
        title = root.get("title") if isinstance(root, dict) else None
        self._title = title if isinstance(title, str) else None
        self._validator = _validator(root, references, text) if strict else None
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

    @property
    def record_name(self) -> str | None:
        """The title of the schema."""
        return self._title

    def encode(self, schema: Schema, value: object) -> bytes:
        """The JSON of a value of a Connect schema.

        Raises:
            DataException: The value does not fit, or the JSON Schema does not allow it.
        """
        write = self._writers.get(schema)
        if write is None:
            if len(self._writers) >= _MAX_WRITERS:
                self._writers.clear()
            write = self._writers[schema] = value_writer(schema, self._options)
        payload = encode(write, value)
        self._check(payload)
        return payload

    def columns(self) -> None:
        """None: payloads are read one by one."""

    def column_writer(self, schema: Schema) -> None:
        """None: values are written one by one."""

    def decode(self, payload: bytes, where: str) -> SchemaAndValue:
        """The Connect schema and value of JSON.

        Raises:
            DataException: The payload is not JSON, or does not fit the schema.
        """
        if self._read is None:
            raise DataException(f"Cannot read {where}: {self._refusal}")
        try:
            node = decode(payload, exact=self._exact)
            self._check(payload)
            return SchemaAndValue(self._schema, self._read(node))
        except DataException as error:
            raise DataException(f"Cannot read {where}: {error}") from error

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
            "json.fail.invalid.schema=true cannot be had for a JSON Schema with both unevaluatedProperties and "
            "patternProperties: leave out one of them, or set json.fail.invalid.schema=false"
        )
    return with_limits(kind)(root, registry=schemas_by_name(references))
