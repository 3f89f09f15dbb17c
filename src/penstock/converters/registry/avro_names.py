"""The names and properties by which Confluent's AvroData keeps in an Avro schema what Avro has no place for.

Constants, and ``AvroOptions`` (the converter's settings).

Source: io.confluent.connect.avro.AvroData, AvroDataConfig.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

NAMESPACE: Final = "io.confluent.connect.avro"
DEFAULT_NAME: Final = "ConnectDefault"
MAP_ENTRY: Final = "MapEntry"
KEY_FIELD: Final = "key"
VALUE_FIELD: Final = "value"

CONNECT_NAME: Final = "connect.name"
CONNECT_DOC: Final = "connect.doc"
CONNECT_VERSION: Final = "connect.version"
CONNECT_DEFAULT: Final = "connect.default"
CONNECT_PARAMETERS: Final = "connect.parameters"
CONNECT_TYPE: Final = "connect.type"
INTERNAL_TYPE: Final = "connect.internal.type"
FIXED_SIZE: Final = "connect.fixed.size"
DECIMAL_PRECISION: Final = "connect.decimal.precision"
DEFAULT_PRECISION: Final = 64

RECORD_DOC: Final = f"{NAMESPACE}.record.doc"
FIELD_DOC: Final = f"{NAMESPACE}.field.doc."
FIELD_DEFAULT: Final = f"{NAMESPACE}.field.default"
ENUM_DOC: Final = f"{NAMESPACE}.enum.doc."
ENUM_DEFAULT: Final = f"{NAMESPACE}.enum.default."
UNION: Final = f"{NAMESPACE}.Union"
ENUM: Final = f"{NAMESPACE}.Enum"
ANYTHING: Final = f"{NAMESPACE}.Anything"
#: Parameters that begin so are properties of the Avro type, and the reverse.
AVRO_PREFIX: Final = "avro"

_ANYTHING_FIELDS: Final = ("boolean", "bytes", "double", "float", "int", "long", "string")


def anything() -> dict[str, Any]:
    """The schema of schemaless values: a record of which one field is set."""
    entry_fields = [{"name": name, "type": "Anything"} for name in (KEY_FIELD, VALUE_FIELD)]
    entry = {"type": "record", "name": MAP_ENTRY, "fields": entry_fields}
    fields: list[dict[str, Any]] = [
        {"name": name, "type": ["null", name], "default": None} for name in _ANYTHING_FIELDS
    ]
    for name, items in (("array", "Anything"), ("map", entry)):
        fields.append({"name": name, "type": ["null", {"type": "array", "items": items}], "default": None})
    return {"type": "record", "name": "Anything", "namespace": NAMESPACE, "fields": fields}


@dataclass(frozen=True)
class AvroOptions:
    """How schemas are converted.

    Attributes:
        enhanced: ``enhanced.avro.schema.support``: enums are written as enums, union fields have full names.
        metadata: ``connect.meta.data``: docs, versions, parameters and defaults of Connect go into the Avro schema.
        null_stays: ``ignore.default.for.nullables``: null is written, and not the default of its field.
    """

    enhanced: bool = False
    metadata: bool = True
    null_stays: bool = False


def short_name(full: str) -> str:
    """The last part of a dotted name."""
    return full.rpartition(".")[2]
