"""JsonSchemaConverter: JSON with its schema in the schema registry. Class ``JsonSchemaConverter``.

Record by record, in Python: which schema a message has stands in its first bytes, and Spark's JSON functions take one
schema for all rows; see ``json_schema_reading``. Schemas are compiled to functions once for each id.

Thread: a task's pipeline thread.
Source: io.confluent.connect.json.JsonSchemaConverter, JsonSchemaDataConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from penstock.config import CaseInsensitiveValidString, ConfigDef, ConfigType, Importance
from penstock.converters.registry.base import RegistryConverter
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.json_schema_names import JsonSchemaOptions
from penstock.converters.registry.json_schema_text import json_schema_text
from penstock.converters.registry.settings import define_registry
from penstock.data import Schema, SchemaAndValue
from penstock.errors import ConfigException, DataException

if TYPE_CHECKING:
    from penstock.converters.registry.json_schema_codec import JsonSchemaCodec

_GROUP: Final = "JSON Schema"


def _definition() -> ConfigDef:
    definition = define_registry()
    for name, default, doc in (
        ("object.additional.properties", True, "Whether the schemas of objects allow properties that are not listed."),
        ("use.optional.for.nonrequired", False, "Whether properties that a schema does not require are optional."),
        ("flatten.singleton.unions", True, "Whether a oneOf, anyOf or allOf of one schema is read as that schema."),
        ("generalized.sum.type.support", False, "Give enums and unions names that converters of all formats know."),
        ("ignore.default.for.nullables", False, "Write a null as null although its field has a default."),
        ("json.fail.invalid.schema", False, "Whether values that the JSON Schema does not allow (by length, pattern, "
         "range and the like) are errors."),
    ):  # fmt: skip
        definition.define(name, ConfigType.BOOLEAN, default=default, doc=doc, group=_GROUP)
    return definition.define(
        "decimal.format",
        ConfigType.STRING,
        default="BASE64",
        validator=CaseInsensitiveValidString("BASE64", "NUMERIC"),
        importance=Importance.LOW,
        doc="How decimals are written: BASE64 or NUMERIC, in any case. Both are read.",
        group=_GROUP,
    )


class JsonSchemaConverter(RegistryConverter["JsonSchemaCodec"]):
    """JSON with its schema in the registry."""

    java_name: ClassVar[str] = "io.confluent.connect.json.JsonSchemaConverter"
    format: ClassVar[str] = "JSON"
    definition: ClassVar[ConfigDef] = _definition()

    def __init__(self) -> None:
        super().__init__()
        self._options = JsonSchemaOptions()
        self._strict = False
        self._codec: type[JsonSchemaCodec] | None = None

    def open(self, values: Mapping[str, object]) -> None:
        try:
            from penstock.converters.registry.json_schema_codec import JsonSchemaCodec
        except ImportError as error:
            raise ConfigException(
                f"JsonSchemaConverter needs more packages ({error}): pip install penstock[registry]"
            ) from error
        self._codec = JsonSchemaCodec
        self._strict = bool(values["json.fail.invalid.schema"])
        self._options = JsonSchemaOptions(
            numeric_decimals=str(values["decimal.format"]).upper() == "NUMERIC",
            additional_properties=bool(values["object.additional.properties"]),
            optional_unless_required=bool(values["use.optional.for.nonrequired"]),
            flatten_single_unions=bool(values["flatten.singleton.unions"]),
            general_sums=bool(values["generalized.sum.type.support"]),
            ignore_defaults=bool(values["ignore.default.for.nullables"]),
        )

    def describe(self, schema: Schema | None) -> SchemaText:
        if schema is None:
            raise DataException(
                "JsonSchemaConverter writes values with a schema only, and this one has none; for values without use "
                "org.apache.kafka.connect.json.JsonConverter with schemas.enable=false"
            )
        return SchemaText(self.format, json_schema_text(schema, self._options))

    def parse(self, text: SchemaText, version: int | None) -> JsonSchemaCodec:
        if self._codec is None:
            raise ConfigException("JsonSchemaConverter is used before it was configured")
        return self._codec(text.text, text.texts(), self._options, version, strict=self._strict)

    def encode(self, codec: JsonSchemaCodec, schema: Schema | None, value: object) -> bytes:
        if schema is None:
            raise DataException("JsonSchemaConverter writes values with a schema only")
        return codec.encode(schema, value)

    def decode(self, codec: JsonSchemaCodec, payload: bytes, where: str) -> SchemaAndValue:
        return codec.decode(payload, where)
