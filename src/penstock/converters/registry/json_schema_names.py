"""The names that Confluent's JSON Schema converter gives to what JSON Schema has no word for, and its options.

Main type: ``JsonSchemaOptions``. Thread: constants and values.
Source: io.confluent.connect.json.JsonSchemaData, JsonSchemaDataConfig.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.converters.registry.general_names import GENERAL_ENUM, GENERAL_UNION
from penstock.data import Schema, Type

#: Parameters below this name are the converter's own; they are not written to ``connect.parameters``.
NAMESPACE: Final = "io.confluent.connect.json"
CONNECT_TYPE: Final = "connect.type"
CONNECT_VERSION: Final = "connect.version"
CONNECT_PARAMETERS: Final = "connect.parameters"
CONNECT_INDEX: Final = "connect.index"

#: Fields of one entry of a map whose keys are no strings.
KEY_FIELD: Final = "key"
VALUE_FIELD: Final = "value"

JSON_ENUM: Final = f"{NAMESPACE}.Enum"
JSON_UNION: Final = f"{NAMESPACE}.OneOf"
#: How unions are named with ``generalized.sum.type.support``.
GENERAL_UNION_PREFIX: Final = "connect_union_"
#: How a null among the symbols of an enum is named in parameters.
NULL_SYMBOL: Final = "<NULL>"


@dataclass(frozen=True)
class JsonSchemaOptions:
    """What the settings of a JSON Schema converter say about schemas and values.

    Attributes:
        numeric_decimals: ``decimal.format=NUMERIC``.
        additional_properties: ``object.additional.properties``: objects may have properties that are not listed.
        optional_unless_required: ``use.optional.for.nonrequired``.
        flatten_single_unions: ``flatten.singleton.unions``.
        general_sums: ``generalized.sum.type.support``.
        ignore_defaults: ``ignore.default.for.nullables``: a null is written as null whatever the default is.
    """

    numeric_decimals: bool = False
    additional_properties: bool = True
    optional_unless_required: bool = False
    flatten_single_unions: bool = True
    general_sums: bool = False
    ignore_defaults: bool = False

    @property
    def enum_parameter(self) -> str:
        """The parameter that marks a string as one of an enum's symbols."""
        return GENERAL_ENUM if self.general_sums else JSON_ENUM


def is_union(schema: Schema) -> bool:
    """Whether a struct stands for "one of these": a field for each, of which one is set."""
    if schema.type is not Type.STRUCT:
        return False
    return schema.name == JSON_UNION or GENERAL_UNION in (schema.parameters or {})


def has_object_form(schema: Schema) -> bool:
    """Whether maps of a schema are JSON objects: their keys are strings, and never null."""
    keys = schema.key_schema
    return keys is not None and keys.type is Type.STRING and not keys.optional
