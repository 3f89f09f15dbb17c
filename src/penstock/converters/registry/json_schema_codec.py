"""One JSON Schema of the registry with the functions that were compiled of it: what a record needs.

Main type: ``JsonSchemaCodec``. Needs the extra ``penstock[registry]``.

Thread: a task's pipeline thread.
Source: io.confluent.connect.json.JsonSchemaConverter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from jsonschema import FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import Draft7Validator, validator_for

from penstock.converters.registry.json_schema_criteria import parsed_schema, schemas_by_name
from penstock.converters.registry.json_schema_names import JsonSchemaOptions
from penstock.converters.registry.json_schema_parsing import connect_schema
from penstock.converters.registry.json_schema_patterns import with_limits
from penstock.converters.registry.json_schema_reading import decode, has_decimals, value_reader
from penstock.converters.registry.json_schema_writing import Convert, encode, value_writer
from penstock.data import Schema, SchemaAndValue
from penstock.errors import DataException

#: So many Connect schemas written with one JSON Schema are remembered; more than one only with use.latest.version.
_MAX_WRITERS: Final = 100


class JsonSchemaCodec:
    """A JSON Schema, compiled.

    Args:
        text: The schema.
        references: Schemas it refers to, at any depth, by the names it has for them.
        options: What the converter's settings say.
        version: Its version in the registry.
        strict: Whether values it does not allow are errors.

    Raises:
        DataException: It is no JSON, or, when values are to be checked, no JSON Schema.
    """

    def __init__(
        self, text: str, references: Mapping[str, str], options: JsonSchemaOptions, version: int | None, *, strict: bool
    ) -> None:
        self._options = options
        root = parsed_schema(text, "the schema")
        title = root.get("title") if isinstance(root, dict) else None
        self._title = title if isinstance(title, str) else None
        self._validator = _validator(root, references, text) if strict else None
        self._writers: dict[Schema, Convert] = {}
        # A schema that Connect has no form of can be written with all the same.
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
            DataException: It does not fit, or the JSON Schema does not allow it.
        """
        write = self._writers.get(schema)
        if write is None:
            if len(self._writers) >= _MAX_WRITERS:
                self._writers.clear()
            write = self._writers[schema] = value_writer(schema, self._options)
        payload = encode(write, value)
        self._check(payload)
        return payload

    def decode(self, payload: bytes, where: str) -> SchemaAndValue:
        """The Connect schema and value of JSON.

        Args:
            payload: The JSON.
            where: What it is, for errors.

        Raises:
            DataException: It is none, or does not fit the schema.
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
        except Exception as error:  # patterns that are none, references that lead nowhere: the schema is the message's
            raise DataException(f"The value cannot be compared with its JSON Schema: {error}") from error


def _validator(root: Any, references: Mapping[str, str], text: str) -> Any:
    if not isinstance(root, dict | bool):
        raise DataException("The schema is no JSON Schema: it is neither an object nor a boolean")
    kind = validator_for(root, default=Draft7Validator)
    try:
        # Formats are left out: patterns are Java's, which Python may not know.
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
