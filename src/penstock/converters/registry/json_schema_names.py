"""The names that Confluent's JSON Schema converter gives to what JSON Schema has no word for, and its options.

Main type: ``JsonSchemaOptions``. Thread: constants and values.
Source: io.confluent.connect.json.JsonSchemaData, JsonSchemaDataConfig.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.config import AbstractConfig, CaseInsensitiveValidString, Importance, setting
from penstock.converters.registry.settings import GENERAL_ENUM, GENERAL_UNION
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


_option: Final = partial(setting, group="JSON Schema")


class JsonSchemaOptions(AbstractConfig):
    """What the settings of a JSON Schema converter say about schemas and values."""

    additional_properties: bool = _option(
        "object.additional.properties",
        default=True,
        doc="Whether the schemas of objects allow properties that are not listed.",
    )
    optional_unless_required: bool = _option(
        "use.optional.for.nonrequired",
        default=False,
        doc="Whether properties that a schema does not require are optional.",
    )
    flatten_single_unions: bool = _option(
        "flatten.singleton.unions",
        default=True,
        doc="Whether a oneOf, anyOf or allOf of one schema is read as that schema.",
    )
    general_sums: bool = _option(
        "generalized.sum.type.support",
        default=False,
        doc="Give enums and unions names that converters of all formats know.",
    )
    ignore_defaults: bool = _option(
        "ignore.default.for.nullables", default=False, doc="Write a null as null although its field has a default."
    )
    fail_invalid: bool = _option(
        "json.fail.invalid.schema",
        default=False,
        doc="Whether values that the JSON Schema does not allow (by length, pattern, range and the like) are errors.",
    )
    decimal_format: str = _option(
        default="BASE64",
        validator=CaseInsensitiveValidString("BASE64", "NUMERIC"),
        importance=Importance.LOW,
        doc="How decimals are written: BASE64 or NUMERIC, in any case. Both are read.",
    )

    @property
    def numeric_decimals(self) -> bool:
        """Whether decimals are written as numbers."""
        return self.decimal_format.upper() == "NUMERIC"

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
