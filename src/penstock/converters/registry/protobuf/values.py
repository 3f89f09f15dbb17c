"""Reads and writes values in messages of the protobuf library, with functions compiled once for a schema.

The message type may come from another schema: with ``use.latest.version`` values are written to the fields with the
same names. Logical types are messages: confluent.type.Decimal, google.type.Date, TimeOfDay, and
google.protobuf.Timestamp.

Source: io.confluent.connect.protobuf.ProtobufData.toConnectData, fromConnectData.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor

from penstock.converters.registry.formats import (
    INTEGER_BITS,
    REPLACE,
    check_logical,
    check_struct,
    key_part,
    refuse,
    value_part,
)
from penstock.converters.registry.protobuf import names
from penstock.converters.registry.protobuf.files import file_syntax, is_built_in_map, is_map, real_symbol, says_optional
from penstock.converters.registry.protobuf.names import ProtobufOptions
from penstock.converters.registry.protobuf.schemas import enum_symbols, parts
from penstock.data import Date, Decimal, Schema, Struct, Time, Timestamp, Type
from penstock.data.structs import map_key
from penstock.errors import DataException

Read = Callable[[Any], Any]
_UNSIGNED_64: Final = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


def value_reader(schema: Schema, message: Descriptor, options: ProtobufOptions) -> Read:
    """Returns a function from messages of a type to values.

    The function raises ``DataException`` for a message without a Connect value.
    """
    if schema.type is not Type.STRUCT:
        return _unwrapper(message)
    pairs = zip(schema.fields, parts(message, options), strict=True)
    reads = [_part_reader(field.schema, part, member, options) for field, (_, part, member) in pairs]
    return lambda value: Struct.unchecked(schema, [read(value) for read in reads])


def _part_reader(
    schema: Schema, part: FieldDescriptor | OneofDescriptor, member: bool, options: ProtobufOptions
) -> Read:
    """Reads a field or a oneof of a message; None if it is not set and has presence."""
    if isinstance(part, OneofDescriptor):
        return _union_reader(schema, part, options)
    name, get = part.name, attrgetter(part.name)
    read = _with_name(name, _field_reader(schema, part, options))
    tells = (part.message_type is not None and not part.is_repeated) or says_optional(
        part, proto2=options.optional_for_proto2
    )
    if member or (tells and not options.struct_for_nulls):
        return lambda value: read(get(value)) if value.HasField(name) else None
    return lambda value: read(get(value))


def _union_reader(schema: Schema, oneof: OneofDescriptor, options: ProtobufOptions) -> Read:
    members = {
        field.name: (place, _with_name(field.name, _one_reader(schema.fields[place].schema, field, options)))
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


def _field_reader(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Read:
    if is_map(field):
        return _map_reader(schema, field, options)
    if not field.is_repeated:
        return _one_reader(schema, field, options)
    read = _one_reader(value_part(schema), field, options)
    return lambda values: [read(one) for one in values]


def _map_reader(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Read:
    key, value = field.message_type.fields
    read_key = _one_reader(key_part(schema), key, options)
    read_value = _one_reader(value_part(schema), value, options)
    if is_built_in_map(field):
        return lambda entries: {read_key(one): read_value(entries[one]) for one in entries}
    # A field with presence that is not set is null.
    of_key, of_value = _present_reader(key, lambda one: map_key(read_key(one))), _present_reader(value, read_value)
    return lambda entries: {of_key(entry): of_value(entry) for entry in entries}


def _present_reader(field: FieldDescriptor, read: Read) -> Read:
    name, get = field.name, attrgetter(field.name)
    if not field.has_presence:
        return lambda entry: read(get(entry))
    return lambda entry: read(get(entry)) if entry.HasField(name) else None


def _one_reader(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Read:
    """Reads one value that is set."""
    if field.enum_type is not None:
        return _same if schema.type is Type.INT32 else _enum_reader(field.enum_type)
    if field.message_type is not None:
        name = field.message_type.full_name
        special = LOGICAL_READERS.get(name)
        if special is not None:
            return lambda value: special(schema, value)
        if schema.type is not Type.STRUCT and name in names.WRAPPED:
            return _unwrapper(field.message_type)
        return value_reader(schema, field.message_type, options)
    if field.type == FieldDescriptor.TYPE_STRING and file_syntax(field.file) == "proto2":
        return _text
    return _signed if field.type in _UNSIGNED_64 else _same


def _text(value: Any) -> Any:
    """A text of proto2, which may be invalid UTF-8 and then is bytes."""
    return value.decode("utf-8", REPLACE) if isinstance(value, bytes) else value


def _same(value: Any) -> Any:
    return value


def _signed(value: int) -> int:
    """An unsigned number as a Java long."""
    return value - (1 << 64) if value >> 63 else value


def _unwrapper(message: Descriptor) -> Read:
    signed = message.fields_by_name["value"].type in _UNSIGNED_64
    return (lambda wrapper: _signed(wrapper.value)) if signed else attrgetter("value")


def _enum_reader(enum: EnumDescriptor) -> Read:
    names = {number: real_symbol(value.name) for number, value in enum.values_by_number.items()}
    return lambda number: names.get(number) or f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}"


_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_NANOS_A_MILLI: Final = 1_000_000
#: The years 1 to 9999, in seconds since 1970.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799


def _read_decimal(schema: Schema, value: Any) -> Any:
    number = decimal.Decimal(int.from_bytes(value.value, "big", signed=True)).scaleb(-value.scale, _EXACT)
    if value.precision and len(number.as_tuple().digits) > value.precision:
        return decimal.Context(prec=value.precision, rounding=decimal.ROUND_HALF_UP).plus(number)
    return number


def _read_date(schema: Schema, value: Any) -> Any:
    try:
        return date(value.year, value.month, value.day)
    except ValueError as error:
        raise DataException(f"{value.year}-{value.month}-{value.day} is no date from year 1 to 9999") from error


def _read_time(schema: Schema, value: Any) -> Any:
    hours, minutes, seconds, nanos = value.hours, value.minutes, value.seconds, value.nanos
    if not (0 <= hours < 24 and 0 <= minutes < 60 and 0 <= seconds < 60 and 0 <= nanos < 1_000_000_000):
        raise DataException(f"{hours}:{minutes}:{seconds} and {nanos} nanoseconds is no time of a day")
    return Time.to_logical(schema, ((hours * 60 + minutes) * 60 + seconds) * 1000 + nanos // _NANOS_A_MILLI)


def _read_timestamp(schema: Schema, value: Any) -> Any:
    return Timestamp.to_logical(schema, _timestamp_millis(value.seconds, value.nanos))


def _timestamp_millis(seconds: int, nanos: int) -> int:
    """Milliseconds since 1970 of a timestamp that Protobuf's own library accepts."""
    if not (_FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < 1_000_000_000):
        raise DataException(
            f"{seconds} seconds since 1970 and {nanos} nanoseconds is no Protobuf timestamp: those are of the "
            "years 1 to 9999"
        )
    return seconds * 1000 + nanos // _NANOS_A_MILLI


#: Values of messages of these types.
LOGICAL_READERS: Final[Mapping[str, Callable[[Schema, Any], Any]]] = {
    names.DECIMAL: _read_decimal,
    names.DATE: _read_date,
    names.TIME: _read_time,
    names.TIMESTAMP: _read_timestamp,
}


def _write_decimal(schema: Schema, target: Any, value: Any) -> None:
    check_logical("Decimal", value, decimal.Decimal)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataException(f"Decimal value {value} has no finite value and cannot be encoded")
    unscaled = int(decimal.Decimal((sign, digits, 0)))
    bits = (~unscaled if unscaled < 0 else unscaled).bit_length()
    target.value = unscaled.to_bytes(bits // 8 + 1, "big", signed=True)
    target.precision = len(digits)
    target.scale = -exponent


def _write_date(schema: Schema, target: Any, value: Any) -> None:
    if isinstance(value, int):
        value = Date.to_logical(schema, value)
    elif isinstance(value, datetime):
        value = Date.to_logical(schema, Date.from_logical(schema, value))
    if not isinstance(value, date):
        raise DataException(f"Invalid date {value}: Protobuf's go from year 1 to 9999")
    target.year, target.month, target.day = value.year, value.month, value.day


def _write_time(schema: Schema, target: Any, value: Any) -> None:
    check_logical("Time", value, time, int)
    seconds, millis = divmod(Time.from_logical(schema, value), 1000)
    minutes, target.seconds = divmod(seconds, 60)
    target.hours, target.minutes = divmod(minutes, 60)
    target.nanos = millis * _NANOS_A_MILLI


def _write_timestamp(schema: Schema, target: Any, value: Any) -> None:
    check_logical("Timestamp", value, datetime, int)
    seconds, millis = divmod(Timestamp.from_logical(schema, value), 1000)
    _timestamp_millis(seconds, 0)
    target.seconds = seconds
    target.nanos = millis * _NANOS_A_MILLI


#: Puts values of schemas of these names into messages.
LOGICAL_WRITERS: Final[Mapping[str | None, Callable[[Schema, Any, Any], None]]] = {
    Decimal.LOGICAL_NAME: _write_decimal,
    Date.LOGICAL_NAME: _write_date,
    Time.LOGICAL_NAME: _write_time,
    Timestamp.LOGICAL_NAME: _write_timestamp,
}
#: Puts a value into a message.
Write = Callable[[Any, Any], None]
#: Converts a value for a scalar field.
Scalar = Callable[[Any], Any]
_UNSIGNED: Final = {
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), (1 << 32) - 1),
    **dict.fromkeys(_UNSIGNED_64, (1 << 64) - 1),
}


def message_writer(schema: Schema, message: Descriptor, options: ProtobufOptions) -> Write:
    """Returns a function that puts values of a schema into messages of a type."""
    if schema.type is not Type.STRUCT:
        return _setter(names.VALUE, _scalar(schema, message.fields_by_name[names.VALUE], options))
    return _struct_writer(schema, message, options)


def _struct_writer(schema: Schema, message: Descriptor, options: ProtobufOptions) -> Write:
    parts = []
    for field in schema.fields:
        default = None if options.ignore_defaults else field.schema.default
        if names.is_union(field.schema):
            write = _union_writer(field.schema, message, options)
        else:
            write = _field_writer(field.schema, _field(message, field.name, options), options)
        parts.append((field.name, write, default))

    def write_struct(target: Any, value: Any) -> None:
        check_struct(schema, value, "Mismatching struct schema")
        for (name, write, default), one in zip(parts, value.values, strict=True):
            chosen = default if one is None else one
            if chosen is None:
                continue
            try:
                write(target, chosen)
            except UnicodeEncodeError:
                raise
            except (DataException, ValueError, TypeError) as error:
                raise DataException(f"field {name}: {error}") from error

    return write_struct


def _union_writer(schema: Schema, message: Descriptor, options: ProtobufOptions) -> Write:
    members = []
    for field in schema.fields:
        write = _field_writer(field.schema, _field(message, field.name, options), options, member=True)
        members.append((write, None if options.ignore_defaults else field.schema.default))

    def write_union(target: Any, value: Any) -> None:
        check_struct(schema, value, "Mismatching struct schema")
        for (write, default), one in zip(members, value.values, strict=True):
            chosen = default if one is None else one
            if chosen is not None:
                write(target, chosen)
                return
        raise DataException("Cannot find non-null field")

    return write_union


def _field(message: Descriptor, name: str, options: ProtobufOptions) -> FieldDescriptor:
    found = message.fields_by_name.get(options.name(name))
    if found is None:
        raise DataException(f"Cannot find field with name {options.name(name)} in the message type {message.full_name}")
    return found


def _field_writer(schema: Schema, field: FieldDescriptor, options: ProtobufOptions, *, member: bool = False) -> Write:
    name = field.name
    if (schema.type in (Type.ARRAY, Type.MAP)) is not field.is_repeated:
        shown = "repeated" if field.is_repeated else "not repeated"
        raise DataException(f"The field {field.full_name} is {shown}, and its values are of type {schema.type.name}")
    if schema.type is Type.ARRAY:
        return _array_writer(schema, field, options)
    if schema.type is Type.MAP:
        return _map_writer(schema, field, options)
    if field.message_type is not None:
        write = _into_message(schema, field, options)

        def write_message(target: Any, value: Any) -> None:
            inner = getattr(target, name)
            inner.SetInParent()
            write(inner, value)

        return write_message
    return _setter(name, _scalar(schema, field, options))


def _setter(name: str, scalar: Scalar) -> Write:
    return lambda target, value: setattr(target, name, scalar(value))


def _array_writer(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Write:
    name, part = field.name, value_part(schema)
    if field.message_type is None:
        scalar = _scalar(part, field, options)

        def write_scalars(target: Any, value: Any) -> None:
            getattr(target, name).extend([scalar(one) for one in _elements(value)])

        return write_scalars
    write = _into_message(part, field, options)

    def write_messages(target: Any, value: Any) -> None:
        found = getattr(target, name)
        for one in _elements(value):
            write(found.add(), one)

    return write_messages


def _elements(value: Any) -> list[Any]:
    if not isinstance(value, list):
        refuse(Type.ARRAY, value)
    if None in value:
        raise DataException("An array holds null, which Protobuf's repeated fields do not")
    return value


def _map_writer(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Write:
    name, keys, values = field.name, key_part(schema), value_part(schema)
    if field.message_type is None:
        raise DataException(f"The field {field.full_name} holds no entries, and its values are maps")
    if is_built_in_map(field):
        return _built_in_map_writer(keys, values, field, options)
    write_key, write_value = (
        _field_writer(part, _field(field.message_type, side, options), options)
        for part, side in ((keys, names.KEY), (values, names.VALUE))
    )

    def write(target: Any, value: Any) -> None:
        found = getattr(target, name)
        for key, one in _entries(value):
            entry = found.add()
            if key is not None:
                write_key(entry, key)
            if one is not None:
                write_value(entry, one)

    return write


def _built_in_map_writer(keys: Schema, values: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Write:
    name = field.name
    key_field, value_field = field.message_type.fields
    key_of = _scalar(keys, key_field, options)
    if value_field.message_type is None:
        value_of = _scalar(values, value_field, options)

        def write_scalars(target: Any, value: Any) -> None:
            found = getattr(target, name)
            for key, one in _entries(value):
                found[key_of(key)] = value_of(one)

        return write_scalars
    write_value = _into_message(values, value_field, options)

    def write_messages(target: Any, value: Any) -> None:
        found = getattr(target, name)
        for key, one in _entries(value):
            write_value(found[key_of(key)], one)

    return write_messages


def _entries(value: Any) -> Any:
    if not isinstance(value, dict):
        refuse(Type.MAP, value)
    return value.items()


def _into_message(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Write:
    """Puts a value into a message of the field's type."""
    message = field.message_type
    special = LOGICAL_WRITERS.get(schema.name)
    if special is not None:
        return lambda target, value: special(schema, target, value)
    if schema.type is Type.STRUCT:
        return _struct_writer(schema, message, options)
    if message.full_name not in names.WRAPPED:
        raise DataException(
            f"The field {field.full_name} is a message of type {message.full_name}, and its values are of type "
            f"{schema.type.name}"
        )
    return _setter(names.VALUE, _scalar(schema, message.fields_by_name[names.VALUE], options))


def _scalar(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Scalar:
    kind = schema.type
    if field.message_type is not None or kind in (Type.ARRAY, Type.MAP, Type.STRUCT) or schema.name in LOGICAL_WRITERS:
        raise DataException(f"The field {field.full_name} takes no values of {schema}")
    if field.enum_type is not None and kind is Type.STRING:
        return _enum_scalar(schema, field, options)
    if kind in INTEGER_BITS:
        mask = _UNSIGNED.get(field.type)
        if mask is not None:
            return lambda value: (value if type(value) is int else refuse(kind, value)) & mask
        return lambda value: value if type(value) is int else refuse(kind, value)
    if kind is Type.BYTES:
        return lambda value: bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else refuse(kind, value)
    wanted = {Type.BOOLEAN: bool, Type.STRING: str}.get(kind, float)
    return lambda value: value if isinstance(value, wanted) else refuse(kind, value)


def _enum_scalar(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Scalar:
    """Symbols as numbers: those of the schema's parameters, or else those of the message type."""
    numbers = {real_symbol(one.name): one.number for one in field.enum_type.values}
    if names.is_enum(schema):
        numbers |= enum_symbols(schema, options)

    def scalar(value: Any) -> Any:
        number = numbers.get(value)
        if number is None:
            raise DataException(f"{value!r} is no symbol of the enum {field.enum_type.full_name}")
        return number

    return scalar
