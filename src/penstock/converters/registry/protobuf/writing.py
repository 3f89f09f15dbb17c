"""Writes Connect values as Protobuf messages, with functions compiled once for a schema and a message type.

The message type may come from another schema: with ``use.latest.version`` values are written to the fields with the
same names.

It works record by record, in Python, with the protobuf library's messages in C: Spark's ``to_protobuf`` needs
additional jars.

Logical types are messages there: confluent.type.Decimal, google.type.Date, TimeOfDay, and google.protobuf.Timestamp
(``LOGICAL_READERS`` by message type, ``LOGICAL_WRITERS`` by schema name).

Main function: ``message_writer``. Thread: the functions it returns have no state; any thread.
Source: io.confluent.connect.protobuf.ProtobufData.fromConnectData.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any, Final, NoReturn

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from penstock.converters.registry.protobuf.files import (
    is_built_in_map,
)
from penstock.converters.registry.protobuf.names import (
    DATE,
    DECIMAL,
    KEY,
    TIME,
    TIMESTAMP,
    VALUE,
    WRAPPED,
    ProtobufOptions,
    is_enum,
    is_union,
)
from penstock.converters.registry.protobuf.packages import real_symbol
from penstock.converters.registry.protobuf.schemas import enum_symbols
from penstock.data import Date, Decimal, Schema, Struct, Time, Timestamp, Type
from penstock.errors import DataException

_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_NANOS_A_MILLI: Final = 1_000_000
#: The years 1 to 9999, in seconds since 1970.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799


# ------------------------------------------------------------------------------------------------ reading
def _read_decimal(schema: Schema, value: Any) -> Any:
    number = decimal.Decimal(int.from_bytes(value.value, "big", signed=True)).scaleb(-value.scale, _EXACT)
    if value.precision and len(number.as_tuple().digits) > value.precision:
        context = decimal.Context(prec=value.precision, rounding=decimal.ROUND_HALF_UP)
        return context.plus(number)
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
    DECIMAL: _read_decimal,
    DATE: _read_date,
    TIME: _read_time,
    TIMESTAMP: _read_timestamp,
}


# ------------------------------------------------------------------------------------------------ writing
def _write_decimal(schema: Schema, target: Any, value: Any) -> None:
    if not isinstance(value, decimal.Decimal):
        raise DataException(f"Invalid type for Decimal, expected BigDecimal but was {type(value).__name__}")
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
    if not isinstance(value, (time, int)):
        raise DataException(f"Invalid type for Time, expected Date but was {type(value).__name__}")
    seconds, millis = divmod(Time.from_logical(schema, value), 1000)
    minutes, target.seconds = divmod(seconds, 60)
    target.hours, target.minutes = divmod(minutes, 60)
    target.nanos = millis * _NANOS_A_MILLI


def _write_timestamp(schema: Schema, target: Any, value: Any) -> None:
    if not isinstance(value, (datetime, int)):
        raise DataException(f"Invalid type for Timestamp, expected Date but was {type(value).__name__}")
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

_INTEGERS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
_UNSIGNED: Final = {
    FieldDescriptor.TYPE_UINT32: (1 << 32) - 1,
    FieldDescriptor.TYPE_FIXED32: (1 << 32) - 1,
    FieldDescriptor.TYPE_UINT64: (1 << 64) - 1,
    FieldDescriptor.TYPE_FIXED64: (1 << 64) - 1,
}


def message_writer(schema: Schema, message: Descriptor, options: ProtobufOptions) -> Write:
    """Returns a function that puts values of a schema into messages of a type.

    Raises:
        DataException: A field is missing in the type or has another kind. The returned function raises it for values
            that do not fit.
    """
    if schema.type is not Type.STRUCT:
        return _setter(VALUE, _scalar(schema, message.fields_by_name[VALUE], options))
    return _struct_writer(schema, message, options)


def _refuse(kind: Type, value: object) -> NoReturn:
    raise DataException(f"Invalid type for {kind.name}: {type(value).__name__}")


# ------------------------------------------------------------------------------------------------ structs
def _struct_writer(schema: Schema, message: Descriptor, options: ProtobufOptions) -> Write:
    parts = []
    for field in schema.fields:
        default = None if options.ignore_defaults else field.schema.default
        if is_union(field.schema):
            write = _union_writer(field.schema, message, options)
        else:
            write = _field_writer(field.schema, _field(message, field.name, options), options)
        parts.append((field.name, write, default))

    def write_struct(target: Any, value: Any) -> None:
        _check_struct(schema, value)
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
        _check_struct(schema, value)
        for (write, default), one in zip(members, value.values, strict=True):
            chosen = default if one is None else one
            if chosen is not None:
                write(target, chosen)
                return
        raise DataException("Cannot find non-null field")

    return write_union


def _check_struct(schema: Schema, value: Any) -> None:
    if not isinstance(value, Struct):
        _refuse(Type.STRUCT, value)
    if value.schema is not schema and value.schema != schema:
        raise DataException("Mismatching struct schema")


def _field(message: Descriptor, name: str, options: ProtobufOptions) -> FieldDescriptor:
    found = message.fields_by_name.get(options.name(name))
    if found is None:
        raise DataException(f"Cannot find field with name {options.name(name)} in the message type {message.full_name}")
    return found


# ------------------------------------------------------------------------------------------------ fields
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
    name, part = field.name, schema.value_schema
    if part is None:
        raise DataException(f"{schema} does not say of which type its elements are")
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
        _refuse(Type.ARRAY, value)
    if None in value:
        raise DataException("An array holds null, which Protobuf's repeated fields do not")
    return value


def _map_writer(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Write:
    name, keys, values = field.name, schema.key_schema, schema.value_schema
    if keys is None or values is None:
        raise DataException(f"{schema} does not say of which type its keys and values are")
    if field.message_type is None:
        raise DataException(f"The field {field.full_name} holds no entries, and its values are maps")
    if is_built_in_map(field):
        return _built_in_map_writer(keys, values, field, options)
    write_key, write_value = (
        _field_writer(part, _field(field.message_type, side, options), options)
        for part, side in ((keys, KEY), (values, VALUE))
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
        _refuse(Type.MAP, value)
    return value.items()


# ------------------------------------------------------------------------------------------------ values
def _into_message(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Write:
    """Puts a value into a message of the field's type."""
    message = field.message_type
    special = LOGICAL_WRITERS.get(schema.name)
    if special is not None:
        return lambda target, value: special(schema, target, value)
    if schema.type is Type.STRUCT:
        return _struct_writer(schema, message, options)
    if message.full_name not in WRAPPED:
        raise DataException(
            f"The field {field.full_name} is a message of type {message.full_name}, and its values are of type "
            f"{schema.type.name}"
        )
    return _setter(VALUE, _scalar(schema, message.fields_by_name[VALUE], options))


def _scalar(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Scalar:
    kind = schema.type
    if field.message_type is not None or kind in (Type.ARRAY, Type.MAP, Type.STRUCT) or schema.name in LOGICAL_WRITERS:
        raise DataException(f"The field {field.full_name} takes no values of {schema}")
    if field.enum_type is not None and kind is Type.STRING:
        return _enum_scalar(schema, field, options)
    if kind in _INTEGERS:
        mask = _UNSIGNED.get(field.type)
        if mask is not None:
            return lambda value: (value if type(value) is int else _refuse(kind, value)) & mask
        return lambda value: value if type(value) is int else _refuse(kind, value)
    if kind is Type.BYTES:
        return lambda value: bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else _refuse(kind, value)
    wanted = {Type.BOOLEAN: bool, Type.STRING: str}.get(kind, float)
    return lambda value: value if isinstance(value, wanted) else _refuse(kind, value)


def _enum_scalar(schema: Schema, field: FieldDescriptor, options: ProtobufOptions) -> Scalar:
    """Symbols as numbers: those of the schema's parameters, or else those of the message type."""
    numbers = {real_symbol(one.name): one.number for one in field.enum_type.values}
    if is_enum(schema):
        numbers |= enum_symbols(schema, options)

    def scalar(value: Any) -> Any:
        number = numbers.get(value)
        if number is None:
            raise DataException(f"{value!r} is no symbol of the enum {field.enum_type.full_name}")
        return number

    return scalar
