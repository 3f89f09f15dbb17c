"""Protobuf to Connect, as Confluent's converter reads it: message types to schemas, messages to values.

Fields are optional unless the settings ``optional.for.nullables`` or ``wrapper.for.nullables`` distinguish them; a
oneof is an optional struct with a field for each member; an enum is a string whose parameters are its symbols. Each
field keeps its number as a parameter. Recursive message types are rejected, because a Connect schema is a value here
and cannot contain itself. The function for the values of a message type is made once.

Main functions: ``connect_schema``, ``value_reader``. Thread: pure functions; the returned functions have no state.
Source: io.confluent.connect.protobuf.ProtobufData.toConnectSchema, toConnectData.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor

from penstock.converters.registry.java_text import REPLACE
from penstock.converters.registry.protobuf.files import (
    field_meta,
    file_syntax,
    is_built_in_map,
    is_map,
    real_oneofs,
    says_optional,
    union_field,
)
from penstock.converters.registry.protobuf.names import (
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
from penstock.converters.registry.protobuf.packages import real_name, real_symbol
from penstock.converters.registry.protobuf.writing import LOGICAL_READERS
from penstock.converters.registry.settings import GENERAL_UNION
from penstock.data import Date, Decimal, Schema, SchemaBuilder, Struct, Time, Timestamp, Type
from penstock.data.structs import map_key
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

    Raises:
        DataException: The type has no Connect schema.
    """
    if options.wrapper_for_primitives and message.full_name in WRAPPED:
        return Schema(WRAPPED[message.full_name], version=version)
    return _Schemas(options).of_message(message).version(version).build()


class _Schemas:
    """Builds the schema of a message type and of all types that it uses."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._open: list[str] = []
        #: The number of the field that first used a message type; None in an array.
        self._first_tags: dict[str, int | None] = {}

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
        return real_name(thing.full_name) if self._options.full_names else str(thing.name)

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
        array = field.is_repeated and not is_map(field)
        if array:
            tag = self._first_tag(field, builder, array=True)
            if tag is not None:
                builder.parameter(TAG, str(tag))
            builder = SchemaBuilder.array(builder.optional().build()).optional()
        else:
            self._first_tag(field, builder, array=False)
        if member:
            builder.optional()
            if options.wrapper_for_nullables and field.message_type is None and field.enum_type is None:
                # Otherwise it would be written as a wrapper, because it is optional.
                builder.parameter(WRAPPER, "false")
        elif options.optional_for_nullables:
            if says_optional(field, proto2=True):
                builder.optional()
        elif not options.wrapper_for_nullables:
            builder.optional()
        return builder.parameter(TAG, str(field.number)).build()

    def _first_tag(self, field: FieldDescriptor, builder: SchemaBuilder, *, array: bool) -> int | None:
        """As in Java, a message type that an array uses again keeps the number of its first field."""
        if field.message_type is None or is_map(field) or builder.build().name != self._name(field.message_type):
            return None
        name = field.message_type.full_name
        if name in self._first_tags:
            return self._first_tags[name]
        self._first_tags[name] = None if array else field.number
        return None

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
            builder.parameter(f"{parameter}.{real_symbol(value.name)}", str(value.number))
        return builder

    def _of_message_field(self, field: FieldDescriptor) -> SchemaBuilder:
        message = field.message_type
        if message.full_name == DECIMAL:
            return _decimal(field)
        if message.full_name in _LOGICAL:
            return _LOGICAL[message.full_name]()
        unwraps = self._options.wrapper_for_nullables or self._options.wrapper_for_primitives
        if unwraps and message.full_name in WRAPPED:
            return SchemaBuilder.type(_NARROW.get(field_meta(field).get(CONNECT_TYPE, ""), WRAPPED[message.full_name]))
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


Read = Callable[[Any], Any]

_UNSIGNED_64: Final = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


def value_reader(schema: Schema, message: Descriptor, options: ProtobufOptions) -> Read:
    """Returns a function from messages of a type to values.

    The function raises ``DataException`` for a message without a Connect value.
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
    """Reads one field of a message; None if it is not set and has presence."""
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
    # A field with presence that is not set is null.
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
    """Reads one value that is set."""
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
    if field.type == FieldDescriptor.TYPE_STRING and file_syntax(field.file) == "proto2":
        return _text
    return _signed if field.type in _UNSIGNED_64 else _as_it_is


def _text(value: Any) -> Any:
    """A text of proto2, which may be invalid UTF-8 and then is bytes."""
    return value.decode("utf-8", REPLACE) if isinstance(value, bytes) else value


def _as_it_is(value: Any) -> Any:
    return value


def _signed(value: int) -> int:
    """An unsigned number as a Java long."""
    return value - (1 << 64) if value >> 63 else value


def _unwrapper(message: Descriptor) -> Read:
    signed = message.fields_by_name["value"].type in _UNSIGNED_64
    return (lambda wrapper: _signed(wrapper.value)) if signed else attrgetter("value")


def _enum_reader(enum: EnumDescriptor) -> Read:
    names = {number: real_symbol(value.name) for number, value in enum.values_by_number.items()}
    name = enum.name

    def read(number: int) -> str:
        found = names.get(number)
        return f"UNKNOWN_ENUM_VALUE_{name}_{number}" if found is None else found

    return read
