"""The forms that parts of Connect take in Avro: maps of other keys, parts of unions, logical types.

Main functions: ``has_text_keys``, ``is_map_entry``, ``entry_types``, ``union_field``, ``logical_name``, ``to_carried``.

Thread: pure functions.
Source: io.confluent.connect.avro.AvroData.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.converters.registry.avro_names import (
    INTERNAL_TYPE,
    KEY_FIELD,
    MAP_ENTRY,
    NAMESPACE,
    VALUE_FIELD,
    AvroOptions,
    short_name,
)
from penstock.converters.registry.avro_types import AvroType
from penstock.data import Date, Decimal, Schema, Time, Timestamp, Type
from penstock.errors import DataException

_CARRIERS: Final = {
    Decimal.LOGICAL_NAME: Type.BYTES,
    Time.LOGICAL_NAME: Type.INT32,
    Timestamp.LOGICAL_NAME: Type.INT64,
    Date.LOGICAL_NAME: Type.INT32,
}
_TO_CARRIED: Final[dict[str, Any]] = {
    Decimal.LOGICAL_NAME: Decimal.from_logical,
    Time.LOGICAL_NAME: Time.from_logical,
    Timestamp.LOGICAL_NAME: Timestamp.from_logical,
    Date.LOGICAL_NAME: Date.from_logical,
}
#: What makes a logical type's value of the carried one.
FROM_CARRIED: Final[Mapping[str, Any]] = {
    Decimal.LOGICAL_NAME: Decimal.to_logical,
    Date.LOGICAL_NAME: Date.to_logical,
    Time.LOGICAL_NAME: Time.to_logical,
    Timestamp.LOGICAL_NAME: Timestamp.to_logical,
}


def logical_name(schema: Schema) -> str | None:
    """The name of a schema's logical type, when it has the type that carries it."""
    return schema.name if schema.name is not None and _CARRIERS.get(schema.name) is schema.type else None


def to_carried(schema: Schema) -> Any:
    """What makes a logical type's value the carried one; None for schemas of no logical type."""
    name = logical_name(schema)
    return None if name is None else _TO_CARRIED[name]


def has_text_keys(schema: Schema) -> bool:
    """Whether a map is an Avro map; others are arrays of entries."""
    keys = schema.key_schema
    return keys is not None and keys.type is Type.STRING and not keys.optional


def union_field(branch: AvroType, options: AvroOptions) -> str:
    """What the struct of a union calls one of its types."""
    if branch.name is None:
        return branch.kind
    return branch.name if options.enhanced else short_name(branch.name)


def is_map_entry(found: AvroType) -> bool:
    """Whether arrays of it are maps whose keys are no strings."""
    if found.kind != "record":
        return False
    return found.name == f"{NAMESPACE}.{MAP_ENTRY}" or found.properties.get(INTERNAL_TYPE) == MAP_ENTRY


def entry_types(entry: AvroType) -> tuple[AvroType, AvroType]:
    """The types of key and value of a map that is an array of entries.

    Raises:
        DataException: It has other fields.
    """
    fields = {one.name: one.type for one in entry.fields}
    if fields.keys() != {KEY_FIELD, VALUE_FIELD}:
        raise DataException(
            "Found map encoded as array of key-value pairs, but array elements do not match the expected format."
        )
    return fields[KEY_FIELD], fields[VALUE_FIELD]
