"""What the converter asks of message types and their fields beyond what descriptors say themselves.

Main functions: ``real_oneofs``, ``is_map``, ``says_optional``, ``union_field``. Thread: pure functions.
Source: com.google.protobuf.Descriptors; io.confluent.connect.protobuf.ProtobufData.isMapDescriptor, isOptional.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor

from penstock.converters.registry.protobuf_names import KEY, VALUE, ProtobufOptions, is_entry_name


def proto_of(message: Descriptor) -> Any:
    """A message type as it stands in its file."""
    found = descriptor_pb2.DescriptorProto()
    message.CopyToProto(found)
    return found


def real_oneofs(message: Descriptor) -> list[OneofDescriptor]:
    """The oneofs that somebody wrote: each optional field of proto3 is one of its own beside them."""
    made = {field.name for field in proto_of(message).field if field.proto3_optional}
    return [one for one in message.oneofs if not any(field.name in made for field in one.fields)]


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map: repeated entries of key and value, be it written as ``map<>`` or not."""
    entry = field.message_type
    if entry is None or not field.is_repeated or not is_entry_name(entry.name):
        return False
    names = [one.name for one in entry.fields]
    return names == [KEY, VALUE] and not any(one.is_repeated for one in entry.fields)


def is_built_in_map(field: FieldDescriptor) -> bool:
    """Whether a field is written as ``map<>``, and so a mapping in Python."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def says_optional(field: FieldDescriptor, *, proto2: bool) -> bool:
    """Whether a field has the word ``optional``.

    Args:
        field: The field.
        proto2: Whether it counts in proto2 files too.
    """
    of_message = proto_of(field.containing_type).field[field.index]
    if of_message.proto3_optional:
        return True
    file = descriptor_pb2.FileDescriptorProto()
    field.file.CopyToProto(file)
    optional = of_message.label == descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    return proto2 and file.syntax in ("", "proto2") and optional and field.containing_oneof is None


def union_field(oneof: OneofDescriptor, options: ProtobufOptions) -> str:
    """The name of the field that a oneof is in a struct."""
    return f"{oneof.name}_{oneof.index}" if options.index_for_unions else str(oneof.name)
