"""Compatibility of Protobuf files: tells if messages of one can be read with another, by Confluent's rules.

Main functions: ``cannot_read``, ``numbered_alike``. Thread: pure functions.
Source: io.confluent.kafka.schemaregistry.protobuf.diff.SchemaDiff; "Updating A Message Type" in Protobuf's guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from penstock.converters.registry.protobuf.files import is_built_in_map, real_oneofs
from penstock.converters.registry.protobuf.packages import real_name

_F: Final = FieldDescriptor
#: Scalar types with the same encoding.
_FAMILIES: Final[Mapping[int, str]] = {
    **dict.fromkeys(
        (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM), "a number"
    ),
    **dict.fromkeys((_F.TYPE_SINT32, _F.TYPE_SINT64), "a signed number"),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES), "a text or bytes"),
    **dict.fromkeys((_F.TYPE_FIXED32, _F.TYPE_SFIXED32), "a number of 32 bits"),
    **dict.fromkeys((_F.TYPE_FIXED64, _F.TYPE_SFIXED64), "a number of 64 bits"),
    _F.TYPE_FLOAT: "a float",
    _F.TYPE_DOUBLE: "a double",
}


def cannot_read(reader: FileDescriptor, writer: FileDescriptor) -> str | None:
    """Returns why messages of a file cannot be read with another one, or None if they can."""
    # Schemas that were read without a package do not name it.
    if writer.package and reader.package != writer.package:
        return f"its package is {real_name(reader.package)!r} there, and {real_name(writer.package)!r} here"
    return _types(reader.message_types_by_name.values(), writer.message_types_by_name.values())


def numbered_alike(reader: FileDescriptor, writer: FileDescriptor) -> bool:
    """True if messages have the same meaning with another file: fields with the same number have the same name in both,
    and fields that the other file lacks are ignored.
    """
    known = reader.message_types_by_name
    return all(_alike(known[name], one) for name, one in writer.message_types_by_name.items() if name in known)


def _alike(reader: Descriptor, writer: Descriptor) -> bool:
    known = {field.number: field for field in reader.fields}
    named = reader.fields_by_name
    for field in writer.fields:
        other = known.get(field.number)
        if other is None and field.name not in named:
            continue
        if other is None or other.name != field.name or _FAMILIES.get(other.type) != _FAMILIES.get(field.type):
            return False
        if other.is_repeated is not field.is_repeated or bool(other.enum_type) is not bool(field.enum_type):
            return False
        if (other.message_type is None) is not (field.message_type is None):
            return False
    inside = reader.nested_types_by_name
    return all(_alike(inside[name], one) for name, one in writer.nested_types_by_name.items() if name in inside)


def _types(readers: Iterable[Descriptor], writers: Iterable[Descriptor]) -> str | None:
    known = {one.name: one for one in readers}
    for writer in writers:
        if writer.GetOptions().map_entry:
            continue
        reader = known.get(writer.name)
        why = f"there is no message type {writer.name}" if reader is None else _messages(reader, writer)
        if why is not None:
            return why
    return None


def _messages(reader: Descriptor, writer: Descriptor) -> str | None:
    place = real_name(reader.full_name)
    written = {field.number: field for field in writer.fields}
    inside = {field.number: oneof.name for oneof in real_oneofs(writer) for field in oneof.fields}
    for oneof in real_oneofs(reader):
        numbers = [field.number for field in oneof.fields]
        moved = sum(number in written and number not in inside for number in numbers)
        if moved > 1 or (moved == 1 and any(number in inside for number in numbers)):
            return f"fields of {place} are in the oneof {oneof.name} there, and not here"
    # Members of a removed oneof may be removed; another oneof may then contain them.
    kept = {oneof.name for oneof in real_oneofs(reader)}
    known = {field.number: field for field in reader.fields}
    for number, field in written.items():
        other = known.get(number)
        if other is None and (field.is_required or inside.get(number) in kept):
            return f"{place} has no field {field.name} there"
        why = None if other is None else _fields(other, field)
        if why is not None:
            return f"the field {field.name} of {place} {why}"
    if any(field.is_required and field.number not in written for field in reader.fields):
        return f"{place} has a required field there that is not here"
    return _types(reader.nested_types, writer.nested_types)


def _fields(reader: FieldDescriptor, writer: FieldDescriptor) -> str | None:
    if is_built_in_map(reader) and is_built_in_map(writer):
        pairs = zip(reader.message_type.fields, writer.message_type.fields, strict=True)
        return next((why for pair in pairs if (why := _fields(*pair)) is not None), None)
    if (reader.message_type is None) is not (writer.message_type is None) or is_built_in_map(
        reader
    ) is not is_built_in_map(writer):
        return "is of another kind there"
    if reader.message_type is not None:
        one, other = (real_name(_local(field.message_type)) for field in (reader, writer))
        return None if one == other else f"is of type {one} there, and {other} here"
    one, other = (_FAMILIES[field.type] for field in (reader, writer))
    if one != other:
        return f"is {one} there, and {other} here"
    repeated = reader.is_repeated is not writer.is_repeated
    return "is repeated in one of them only" if repeated and one != "a text or bytes" else None


def _local(message: Any) -> str:
    """The name of a message type within its package."""
    return str(message.full_name).removeprefix(f"{message.file.package}.")
