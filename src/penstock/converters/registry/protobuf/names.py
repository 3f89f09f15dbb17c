"""The names in Confluent's Protobuf converter, the rules for derived names, and its options.

Source: io.confluent.connect.protobuf.ProtobufData, ProtobufDataConfig; ProtobufSchema.toMapEntry, toMapField.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from penstock.config import AbstractConfig, setting
from penstock.converters.registry.formats import scrubbed
from penstock.converters.registry.settings import GENERAL_ENUM, GENERAL_UNION
from penstock.data import Schema, Type

#: Names of structs without a name, with a number.
DEFAULT_NAME: Final = "ConnectDefault"
ENUM: Final = "io.confluent.connect.protobuf.Enum"
UNION: Final = "io.confluent.connect.protobuf.Union"
#: Parameter of a field's schema: its number in the message.
TAG: Final = "io.confluent.connect.protobuf.Tag"
#: Parameter: the integer type it had in Protobuf.
TYPE: Final = "io.confluent.connect.protobuf.Type"
#: Parameter: whether this member of a oneof is a wrapper message with ``wrapper.for.nullables``; without it all members
#: are.
WRAPPER: Final = "io.confluent.connect.protobuf.Wrapper"
#: Parameter of a Decimal's schema; in Protobuf ``precision``.
CONNECT_PRECISION: Final = "connect.decimal.precision"
#: Value in a field's options: ``int8`` or ``int16``.
CONNECT_TYPE: Final = "connect.type"

KEY: Final = "key"
VALUE: Final = "value"
_ENTRY: Final = "Entry"

DECIMAL: Final = "confluent.type.Decimal"
DATE: Final = "google.type.Date"
TIME: Final = "google.type.TimeOfDay"
TIMESTAMP: Final = "google.protobuf.Timestamp"
#: Wrapper messages, with the type of their value.
WRAPPED: Final[Mapping[str, Type]] = {
    f"google.protobuf.{name}Value": kind
    for name, kind in (
        ("Double", Type.FLOAT64),
        ("Float", Type.FLOAT32),
        ("UInt64", Type.INT64),
        ("UInt32", Type.INT64),
        ("Int64", Type.INT64),
        ("Int32", Type.INT32),
        ("Bool", Type.BOOLEAN),
        ("String", Type.STRING),
        ("Bytes", Type.BYTES),
    )
}
#: The wrapper of each type; integers of less than 32 bits use that of int32.
WRAPPERS: Final[Mapping[Type, str]] = {
    **{kind: name for name, kind in WRAPPED.items()},
    **dict.fromkeys((Type.INT8, Type.INT16), "google.protobuf.Int32Value"),
}


_off: Final = partial(setting, default=False, group="Protobuf")
_on: Final = partial(setting, default=True, group="Protobuf")


class ProtobufOptions(AbstractConfig):
    """The settings of a Protobuf converter for schemas and values."""

    full_names: bool = _off("enhanced.protobuf.schema.support", doc="Whether names of schemas have their package.")
    scrub_names: bool = _off("scrub.invalid.names", doc="Replace what Protobuf does not take in names.")
    int_for_enums: bool = _off(doc="Whether enums are read as numbers instead of symbols.")
    optional_for_nullables: bool = _off(
        doc="Whether optional fields have the word optional, so that a null is told from a zero; fields without it are "
        "required."
    )
    optional_for_proto2: bool = _on(doc="Whether optional counts in proto2 files too.")
    wrapper_for_nullables: bool = _off(
        doc="Whether optional fields are wrapper messages, such as google.protobuf.Int32Value."
    )
    wrapper_for_primitives: bool = _on(
        "wrapper.for.raw.primitives", doc="Whether a wrapper message alone is read as the value it holds."
    )
    struct_for_nulls: bool = _off(
        "generate.struct.for.nulls", doc="Whether messages that are not set are read as structs of defaults."
    )
    index_for_unions: bool = _on(
        "generate.index.for.unions", doc="Whether the fields of oneofs have their index in their name."
    )
    flatten_unions: bool = _off(doc="Whether the members of oneofs are fields of the struct itself.")
    general_sums: bool = _off(
        "generalized.sum.type.support", doc="Give enums and unions names that converters of all formats know."
    )
    ignore_defaults: bool = _off(
        "ignore.default.for.nullables", doc="Write a null as null although its field has a default."
    )

    @property
    def enum_parameter(self) -> str:
        """The parameter that contains an enum's name; its symbols are below it."""
        return GENERAL_ENUM if self.general_sums else ENUM

    def name(self, name: str) -> str:
        """A name in the Protobuf schema."""
        return scrubbed(name) if self.scrub_names else name

    def wraps(self, schema: Schema) -> bool:
        """True if a field is a wrapper message; a member of a oneof that was not stays as it was."""
        if not self.wrapper_for_nullables or not schema.optional:
            return False
        return (schema.parameters or {}).get(WRAPPER, "").lower() != "false"


def is_union(schema: Schema) -> bool:
    """True if a struct represents a oneof: a field for each member, of which one is set."""
    if schema.type is not Type.STRUCT:
        return False
    return (schema.name or "").startswith(UNION) or GENERAL_UNION in (schema.parameters or {})


def is_enum(schema: Schema) -> bool:
    """True if a string (or an int32) is an enum."""
    parameters = schema.parameters or {}
    if schema.type is Type.STRING:
        return ENUM in parameters or GENERAL_ENUM in parameters
    return schema.type is Type.INT32 and ENUM in parameters


def map_entry_name(name: str) -> str:
    """The name of the message for a map's entries.

    >>> map_entry_name("my_map"), map_entry_name("ConnectDefault2")
    ('MyMapEntry', 'ConnectDefault2Entry')
    """
    if "_" in name:
        name = "".join(word[:1].upper() + word[1:].lower() for word in name.split("_"))
    return name + _ENTRY


def is_entry_name(name: str) -> bool:
    """True if the name of a message may be that of a map's entries."""
    return name.endswith(_ENTRY)


def map_name(entry: str) -> str:
    """The name of the map whose entries have this message type.

    >>> map_name("a.b.MyMapEntry"), map_name("ConnectDefault2Entry")
    ('a.b.my_map', 'connect_default2')
    """
    head, dot, last = entry.rpartition(".")
    if is_entry_name(last):
        words = re.findall(r"[A-Z]?[^A-Z]+|[A-Z]", last.removesuffix(_ENTRY))
        last = "_".join(word.lower() for word in words)
    return head + dot + last
