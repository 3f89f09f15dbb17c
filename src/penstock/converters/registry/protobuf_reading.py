"""Protobuf messages to Connect values: a schema and its message type are compiled to functions once.

Record by record, in Python, with the protobuf library's parser in C: Spark's ``from_protobuf`` needs jars that it does
not come with.

Main function: ``value_reader``. Thread: the functions it returns have no state; any thread.
Source: io.confluent.connect.protobuf.ProtobufData.toConnectData.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor

from penstock.converters.registry.protobuf_descriptors import (
    is_built_in_map,
    is_map,
    real_oneofs,
    says_optional,
    union_field,
)
from penstock.converters.registry.protobuf_logical import LOGICAL_READERS
from penstock.converters.registry.protobuf_names import WRAPPED, ProtobufOptions
from penstock.data import Schema, Struct, Type
from penstock.data.validate import map_key
from penstock.errors import DataException

Read = Callable[[Any], Any]

_UNSIGNED_64: Final = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


def value_reader(schema: Schema, message: Descriptor, options: ProtobufOptions) -> Read:
    """A function from messages of a type to values.

    Args:
        schema: What ``connect_schema`` made of the type.
        message: The type.
        options: What the converter's settings say.

    The function raises ``DataException`` for a message that has no value.
    """
    if schema.type is not Type.STRUCT:
        return _unwrapper(message)
    reads: list[Read] = []
    oneofs = real_oneofs(message)
    for oneof in oneofs:
        if options.flatten_unions:
            reads.extend(_member_reader(_part(schema, field.name), field, options) for field in oneof.fields)
        else:
            reads.append(_union_reader(_part(schema, union_field(oneof, options)), oneof, options))
    inside = {field.name for oneof in oneofs for field in oneof.fields}
    for field in message.fields:
        if field.name not in inside:
            reads.append(_field_reader(_part(schema, field.name), field, options))
    return lambda value: Struct.unchecked(schema, [read(value) for read in reads])


def _part(schema: Schema, name: str) -> Schema:
    field = schema.field(name)
    if field is None:
        raise DataException(f"{name} is not a valid field name")
    return field.schema


# ------------------------------------------------------------------------------------------------ fields
def _field_reader(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Read:
    """Reads one field of a message; None where it is not set, and it can be told that it is not."""
    name = field.name
    get = attrgetter(name)
    read = _with_name(name, _repeated_reader(schema, field, options))
    message = field.message_type is not None and not field.is_repeated
    tells = message or says_optional(field, proto2=options.optional_for_proto2)
    if not tells or options.struct_for_nulls:
        return lambda value: read(get(value))
    return lambda value: read(get(value)) if value.HasField(name) else None


def _member_reader(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Read:
    name = field.name
    get = attrgetter(name)
    read = _with_name(name, _one_reader(schema, field, options))
    return lambda value: read(get(value)) if value.HasField(name) else None


def _union_reader(schema: Schema, oneof: OneofDescriptor, options: ProtobufOptions) -> Read:
    members = {
        field.name: (place, _with_name(field.name, _one_reader(_part(schema, field.name), field, options)))
        for place, field in enumerate(oneof.fields)
    }
    name, size = oneof.name, len(members)

    def read(value: Any) -> Any:
        chosen = value.WhichOneof(name)
        if chosen is None:
            return None
        place, read_one = members[chosen]
        values: list[object] = [None] * size
        values[place] = read_one(getattr(value, chosen))
        return Struct.unchecked(schema, values)

    return read


def _with_name(name: str, read: Read) -> Read:
    def read_named(value: Any) -> Any:
        try:
            return read(value)
        except DataException as error:
            raise DataException(f"field {name}: {error}") from error

    return read_named


def _repeated_reader(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Read:
    if is_map(field):
        return _map_reader(schema, field, options)
    if not field.is_repeated:
        return _one_reader(schema, field, options)
    if schema.value_schema is None:
        raise DataException(f"{schema} does not say of which type its elements are")
    read = _one_reader(schema.value_schema, field, options)
    return lambda values: [read(one) for one in values]


def _map_reader(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Read:
    key, value = field.message_type.fields
    if schema.key_schema is None or schema.value_schema is None:
        raise DataException(f"{schema} does not say of which type its keys and values are")
    read_key = _one_reader(schema.key_schema, key, options)
    read_value = _one_reader(schema.value_schema, value, options)
    if is_built_in_map(field):
        return lambda entries: {read_key(one): read_value(entries[one]) for one in entries}
    # What is not set, and can tell, is null.
    get_key, get_value = (_present_getter(one) for one in (key, value))

    def read(entries: Any) -> Any:
        found = {}
        for entry in entries:
            one_key, one = get_key(entry), get_value(entry)
            name = None if one_key is None else map_key(read_key(one_key))
            found[name] = None if one is None else read_value(one)
        return found

    return read


def _present_getter(field: FieldDescriptor) -> Read:
    get, name = attrgetter(field.name), field.name
    return (lambda entry: get(entry) if entry.HasField(name) else None) if field.has_presence else get


# ------------------------------------------------------------------------------------------------ values
def _one_reader(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Read:
    """Reads one value, which is there."""
    if field.enum_type is not None:
        return _as_it_is if schema.type is Type.INT32 else _enum_reader(field.enum_type)
    if field.message_type is not None:
        name = field.message_type.full_name
        special = LOGICAL_READERS.get(name)
        if special is not None:
            return lambda value: special(schema, value)
        if schema.type is not Type.STRUCT and name in WRAPPED:
            return _unwrapper(field.message_type)
        return value_reader(schema, field.message_type, options)
    return _signed if field.type in _UNSIGNED_64 else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _signed(value: int) -> int:
    """An unsigned number as Java's long holds it."""
    return value - (1 << 64) if value >> 63 else value


def _unwrapper(message: Descriptor) -> Read:
    signed = message.fields_by_name["value"].type in _UNSIGNED_64
    return (lambda wrapper: _signed(wrapper.value)) if signed else attrgetter("value")


def _enum_reader(enum: EnumDescriptor) -> Read:
    names = {number: value.name for number, value in enum.values_by_number.items()}
    name = enum.name

    def read(number: int) -> str:
        found = names.get(number)
        return f"UNKNOWN_ENUM_VALUE_{name}_{number}" if found is None else found

    return read
