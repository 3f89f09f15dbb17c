"""The names and properties by which Confluent's AvroData keeps in an Avro schema what Avro has no place for.

Constants, and ``AvroOptions`` (the converter's settings).

Source: io.confluent.connect.avro.AvroData, AvroDataConfig.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.config import AbstractConfig, Importance, setting

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


class AvroOptions(AbstractConfig):
    """How schemas are converted."""

    enhanced: bool = setting(
        "enhanced.avro.schema.support",
        default=False,
        doc="Write enums that were read as enums again, and call the parts of unions by their full names.",
        group="Avro",
    )
    metadata: bool = setting(
        "connect.meta.data",
        default=True,
        importance=Importance.LOW,
        doc="Keep the name, version, documentation, parameters and default of Connect schemas in the Avro schema.",
        group="Avro",
    )
    null_stays: bool = setting(
        "ignore.default.for.nullables",
        default=False,
        importance=Importance.LOW,
        doc="Write null for an optional field that is null, and not its default.",
        group="Avro",
    )


def short_name(full: str) -> str:
    """The last part of a dotted name."""
    return full.rpartition(".")[2]
