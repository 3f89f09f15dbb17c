"""Message type to Connect schema, as Confluent's converter reads it.

By its settings: fields are optional unless ``optional.for.nullables`` or ``wrapper.for.nullables`` tells them apart; a
oneof is an optional struct with a field for each member; an enum is a string whose parameters are its symbols. Each
field keeps its number as a parameter. Message types that hold themselves are refused: a Connect schema is a value here,
and cannot.

Main function: ``connect_schema``. Thread: pure functions.
Source: io.confluent.connect.protobuf.ProtobufData.toConnectSchema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor

from penstock.converters.registry.general_names import GENERAL_UNION
from penstock.converters.registry.protobuf_descriptors import is_map, real_oneofs, says_optional, union_field
from penstock.converters.registry.protobuf_names import (
    CONNECT_PRECISION,
    CONNECT_TYPE,
    DATE,
    DECIMAL,
    TAG,
    TIME,
    TIMESTAMP,
    TYPE,
    UNION,
    WRAPPED,
    WRAPPER,
    ProtobufOptions,
    map_name,
)
from penstock.converters.registry.protobuf_pools import field_meta
from penstock.data import Date, Decimal, Schema, SchemaBuilder, Time, Timestamp, Type
from penstock.errors import DataException

_KINDS: Final[Mapping[int, tuple[Type, str]]] = {
    FieldDescriptor.TYPE_INT32: (Type.INT32, "int32"),
    FieldDescriptor.TYPE_SINT32: (Type.INT32, "sint32"),
    FieldDescriptor.TYPE_SFIXED32: (Type.INT32, "sfixed32"),
    FieldDescriptor.TYPE_UINT32: (Type.INT64, "uint32"),
    FieldDescriptor.TYPE_FIXED32: (Type.INT64, "fixed32"),
    FieldDescriptor.TYPE_INT64: (Type.INT64, "int64"),
    FieldDescriptor.TYPE_UINT64: (Type.INT64, "uint64"),
    FieldDescriptor.TYPE_SINT64: (Type.INT64, "sint64"),
    FieldDescriptor.TYPE_FIXED64: (Type.INT64, "fixed64"),
    FieldDescriptor.TYPE_SFIXED64: (Type.INT64, "sfixed64"),
    FieldDescriptor.TYPE_FLOAT: (Type.FLOAT32, "float"),
    FieldDescriptor.TYPE_DOUBLE: (Type.FLOAT64, "double"),
    FieldDescriptor.TYPE_BOOL: (Type.BOOLEAN, "bool"),
    FieldDescriptor.TYPE_STRING: (Type.STRING, "string"),
    FieldDescriptor.TYPE_BYTES: (Type.BYTES, "bytes"),
}
_NARROW: Final = {"int8": Type.INT8, "int16": Type.INT16}
_LOGICAL: Final[Mapping[str, Callable[[], SchemaBuilder]]] = {
    DATE: Date.builder,
    TIME: Time.builder,
    TIMESTAMP: Timestamp.builder,
}


def connect_schema(message: Descriptor, options: ProtobufOptions, version: int | None) -> Schema:
    """The Connect schema of a message type.

    Args:
        message: The type.
        options: What the converter's settings say.
        version: Its schema's version in the registry.

    Raises:
        DataException: It has none.
    """
    if options.wrapper_for_primitives and message.full_name in WRAPPED:
        return Schema(WRAPPED[message.full_name], version=version)
    return _Schemas(options).of_message(message).version(version).build()


class _Schemas:
    """Makes the schema of one message type and of all it uses."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._open: list[str] = []

    def of_message(self, message: Descriptor) -> SchemaBuilder:
        """A builder of a message type's schema."""
        if message.full_name in self._open:
            raise DataException(
                f"The message type {message.full_name} holds itself ({' -> '.join([*self._open, message.full_name])}); "
                "such types have no finite Connect schema"
            )
        self._open.append(message.full_name)
        builder = SchemaBuilder.struct().name(self._name(message))
        oneofs = real_oneofs(message)
        for oneof in oneofs:
            if self._options.flatten_unions:
                for field in oneof.fields:
                    builder.field(field.name, self._of_field(field, member=True))
            else:
                builder.field(union_field(oneof, self._options), self._of_oneof(oneof))
        inside = {field.name for oneof in oneofs for field in oneof.fields}
        for field in message.fields:
            if field.name not in inside:
                builder.field(field.name, self._of_field(field))
        self._open.pop()
        return builder

    def _name(self, thing: Descriptor | OneofDescriptor) -> str:
        return str(thing.full_name if self._options.full_names else thing.name)

    def _of_oneof(self, oneof: OneofDescriptor) -> Schema:
        builder = SchemaBuilder.struct().optional()
        if self._options.general_sums:
            builder.name(oneof.name).parameter(GENERAL_UNION, oneof.name)
        else:
            builder.name(f"{UNION}.{self._name(oneof)}")
        for field in oneof.fields:
            builder.field(field.name, self._of_field(field, member=True))
        return builder.build()

    def _of_field(self, field: FieldDescriptor, *, member: bool = False) -> Schema:
        options = self._options
        builder = self._plain(field)
        if field.is_repeated and not is_map(field):
            builder = SchemaBuilder.array(builder.optional().build()).optional()
        if member:
            builder.optional()
            if options.wrapper_for_nullables and field.message_type and field.message_type.full_name in WRAPPED:
                builder.parameter(WRAPPER, "true")
        elif options.optional_for_nullables:
            if says_optional(field, proto2=True):
                builder.optional()
        elif not options.wrapper_for_nullables:
            builder.optional()
        return builder.parameter(TAG, str(field.number)).build()

    def _plain(self, field: FieldDescriptor) -> SchemaBuilder:
        if field.enum_type is not None:
            return self._of_enum(field)
        if field.message_type is not None:
            return self._of_message_field(field).optional()
        kind, name = _KINDS[field.type]
        if kind is Type.INT32:
            kind = _NARROW.get(field_meta(field).get(CONNECT_TYPE, ""), kind)
        builder = SchemaBuilder.type(kind)
        if kind in (Type.INT32, Type.INT64) and name != kind.value:
            builder.parameter(TYPE, name)
        return builder

    def _of_enum(self, field: FieldDescriptor) -> SchemaBuilder:
        enum = field.enum_type
        builder = SchemaBuilder.int32() if self._options.int_for_enums else SchemaBuilder.string()
        parameter = self._options.enum_parameter
        builder.name(self._name(enum)).parameter(parameter, enum.name).optional()
        for value in enum.values:
            builder.parameter(f"{parameter}.{value.name}", str(value.number))
        return builder

    def _of_message_field(self, field: FieldDescriptor) -> SchemaBuilder:
        message = field.message_type
        if message.full_name == DECIMAL:
            return _decimal(field)
        if message.full_name in _LOGICAL:
            return _LOGICAL[message.full_name]()
        if self._options.wrapper_for_nullables and message.full_name in WRAPPED:
            kind = _NARROW.get(field_meta(field).get(CONNECT_TYPE, ""), WRAPPED[message.full_name])
            return SchemaBuilder.type(kind)
        if is_map(field):
            key, value = (self._of_field(one) for one in message.fields)
            return SchemaBuilder.map(key, value).name(map_name(self._name(message)))
        return self.of_message(message)


def _decimal(field: FieldDescriptor) -> SchemaBuilder:
    said = field_meta(field)
    builder = Decimal.builder(_number(said.get("scale")) or 0)
    precision = _number(said.get("precision"))
    return builder if precision is None else builder.parameter(CONNECT_PRECISION, str(precision))


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
