"""What fields of a message are by their Connect schemas: their numbers, their scalar types, the symbols of their enums.

Main functions: ``field_number``, ``free_numbers``, ``scalar_type``, ``element_schema``, ``enum_symbols``.
Thread: pure functions.
Source: io.confluent.connect.protobuf.ProtobufData.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.converters.registry.protobuf_names import TAG, TYPE, ProtobufOptions, is_union
from penstock.data import Schema, Type
from penstock.errors import DataException

_PROTO: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final[Mapping[Type, int]] = {
    Type.INT8: _PROTO.TYPE_INT32,
    Type.INT16: _PROTO.TYPE_INT32,
    Type.INT32: _PROTO.TYPE_INT32,
    Type.INT64: _PROTO.TYPE_INT64,
    Type.FLOAT32: _PROTO.TYPE_FLOAT,
    Type.FLOAT64: _PROTO.TYPE_DOUBLE,
    Type.BOOLEAN: _PROTO.TYPE_BOOL,
    Type.STRING: _PROTO.TYPE_STRING,
    Type.BYTES: _PROTO.TYPE_BYTES,
}
_INTEGER_TYPES: Final[Mapping[Type, frozenset[str]]] = {
    Type.INT32: frozenset({"int32", "sint32", "sfixed32"}),
    Type.INT64: frozenset({"int64", "sint64", "sfixed64", "uint64", "fixed64", "uint32", "fixed32"}),
}


def enum_symbols(schema: Schema, options: ProtobufOptions) -> dict[str, int]:
    """The symbols of an enum with their numbers.

    Raises:
        DataException: A number is none.
    """
    prefix = f"{options.enum_parameter}."
    found = {}
    for name, text in (schema.parameters or {}).items():
        if name.startswith(prefix):
            try:
                found[name.removeprefix(prefix)] = int(text)
            except ValueError:
                raise DataException(f"the symbol {name} of an enum has the number {text!r}") from None
    return found


def element_schema(schema: Schema) -> Schema:
    """The schema of an array's elements.

    Raises:
        DataException: Protobuf has no array of them.
    """
    part = schema.value_schema
    if part is None:
        raise DataException(f"{schema} does not say of which type its elements are")
    if part.type in (Type.ARRAY, Type.MAP) or is_union(part):
        kind = part.type.name.lower()
        raise DataException(f"Array cannot be nested: Protobuf has no array of {kind}s; put them into structs")
    return part


def scalar_type(schema: Schema) -> Any:
    """Protobuf's type of a schema without parts: the one it had there, or that of its width."""
    kind = (schema.parameters or {}).get(TYPE)
    if kind is not None and kind in _INTEGER_TYPES.get(schema.type, ()):
        return _PROTO.Type.Value(f"TYPE_{kind.upper()}")
    return _SCALARS[schema.type]


def field_number(schema: Schema) -> int | None:
    """The number that a field had in Protobuf.

    Raises:
        DataException: The parameter is no number.
    """
    text = (schema.parameters or {}).get(TAG)
    try:
        return None if text is None else int(text)
    except ValueError:
        raise DataException(f"The parameter {TAG} is no number: {text!r}") from None


def free_numbers(schema: Schema) -> Iterator[int]:
    """Numbers for fields without one of their own."""
    taken: set[int | None] = set()
    for field in schema.fields:
        members = field.schema.fields if is_union(field.schema) else (field,)
        taken.update(field_number(member.schema) for member in members)
    # 19000 to 19999 are Protobuf's own.
    return (number for number in range(1, 1 << 29) if number not in taken and not 19000 <= number < 20000)
