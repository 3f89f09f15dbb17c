"""Descriptor pools, and the files that every Protobuf schema may import: those of google.protobuf and google.type, and
Confluent's for decimals and for what is said of fields beside their type.

Each schema has a pool of its own: two schemas may define the same name differently.

Main functions: ``fill_pool``, ``known_files``, ``field_meta``, ``field_options``.
Thread: pure functions; a pool is filled before anyone else sees it.
Source: io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema, MetaProto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.type import (
    calendar_period_pb2,
    color_pb2,
    date_pb2,
    datetime_pb2,
    dayofweek_pb2,
    expr_pb2,
    fraction_pb2,
    latlng_pb2,
    money_pb2,
    month_pb2,
    postal_address_pb2,
    quaternion_pb2,
    timeofday_pb2,
)

from penstock.errors import DataException

if TYPE_CHECKING:
    # The library's messages have no types that mypy sees.
    FileProto: TypeAlias = Any
else:
    FileProto = descriptor_pb2.FileDescriptorProto
#: What a schema itself is called among its imports.
SCHEMA_FILE: Final = "penstock/schema.proto"
META_FILE: Final = "confluent/meta.proto"
DECIMAL_FILE: Final = "confluent/type/decimal.proto"
_MODULES: Final = (
    any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2,
    timestamp_pb2, type_pb2, wrappers_pb2, calendar_period_pb2, color_pb2, date_pb2, datetime_pb2, dayofweek_pb2,
    expr_pb2, fraction_pb2, latlng_pb2, money_pb2, month_pb2, postal_address_pb2, quaternion_pb2, timeofday_pb2,
)  # fmt: skip
_TYPE: Final = descriptor_pb2.FieldDescriptorProto


# ------------------------------------------------------------------------------------------------ known files
@lru_cache(maxsize=1)
def known_files() -> Mapping[str, FileProto]:
    """The files that every schema may import, by name, such as ``google/protobuf/timestamp.proto``."""
    found = {}
    for module in _MODULES:
        proto = FileProto.FromString(module.DESCRIPTOR.serialized_pb)
        found[proto.name] = proto
    return {**found, META_FILE: _meta_file(), DECIMAL_FILE: _decimal_file()}


def _decimal_file() -> FileProto:
    """Confluent's type for exact numbers."""
    proto = FileProto(name=DECIMAL_FILE, package="confluent.type", syntax="proto3")
    message = proto.message_type.add(name="Decimal")
    _scalars(message, value=_TYPE.TYPE_BYTES, precision=_TYPE.TYPE_UINT32, scale=_TYPE.TYPE_INT32)
    return proto


def _meta_file() -> FileProto:
    """Confluent's options: what is said of files, messages and fields beside their type."""
    proto = FileProto(name=META_FILE, package="confluent", syntax="proto3")
    proto.dependency.append("google/protobuf/descriptor.proto")
    meta = proto.message_type.add(name="Meta")
    _scalars(meta, doc=_TYPE.TYPE_STRING)
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    _scalars(entry, key=_TYPE.TYPE_STRING, value=_TYPE.TYPE_STRING)
    repeated = _TYPE.LABEL_REPEATED
    kind = _TYPE.TYPE_MESSAGE
    meta.field.add(name="params", number=2, label=repeated, type=kind, type_name=".confluent.Meta.ParamsEntry")
    meta.field.add(name="tags", number=3, label=repeated, type=_TYPE.TYPE_STRING)
    meta.field.add(name="rules", number=4, label=repeated, type=kind, type_name=".confluent.Rule")
    rule = proto.message_type.add(name="Rule")
    _scalars(rule, name=_TYPE.TYPE_STRING, doc=_TYPE.TYPE_STRING, expr=_TYPE.TYPE_STRING, sql=_TYPE.TYPE_STRING)
    for name, extended in (
        ("file_meta", "FileOptions"),
        ("message_meta", "MessageOptions"),
        ("field_meta", "FieldOptions"),
        ("enum_meta", "EnumOptions"),
        ("enum_value_meta", "EnumValueOptions"),
    ):
        proto.extension.add(
            name=name,
            extendee=f".google.protobuf.{extended}",
            number=1088,
            label=_TYPE.LABEL_OPTIONAL,
            type=kind,
            type_name=".confluent.Meta",
        )
    return proto


def _scalars(message: Any, **types: Any) -> None:
    for number, (name, kind) in enumerate(types.items(), start=1):
        message.field.add(name=name, number=number, label=_TYPE.LABEL_OPTIONAL, type=kind)


# ------------------------------------------------------------------------------------------------ options of fields
@lru_cache(maxsize=1)
def _field_options() -> tuple[Any, Any]:
    """The class of a field's options where Confluent's are known, and the extension."""
    pool = fill_pool({}, [META_FILE])
    options = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
    return options, pool.FindExtensionByName("confluent.field_meta")


def field_options(parameters: Mapping[str, str]) -> bytes:
    """Options of a field that say these parameters of it."""
    made, extension = _field_options()
    options = made()
    options.Extensions[extension].params.update(parameters)
    return bytes(options.SerializeToString(deterministic=True))


def field_meta(field: Any) -> Mapping[str, str]:
    """The parameters that the options of a field say."""
    made, extension = _field_options()
    try:
        options = made.FromString(field.GetOptions().SerializeToString())
    except DecodeError as error:
        raise DataException(f"The options of the field {field.full_name} cannot be read: {error}") from error
    return dict(options.Extensions[extension].params) if options.HasExtension(extension) else {}


# ------------------------------------------------------------------------------------------------ pools
def fill_pool(files: Mapping[str, FileProto], wanted: Sequence[str]) -> DescriptorPool:
    """A new pool with some files and all they import.

    Args:
        files: Files by name; beside them there are the known ones.
        wanted: Names of those to begin with.

    Raises:
        DataException: A file is refused, or an import is missing.
    """
    pool = DescriptorPool()
    done: set[str] = set()
    for proto in _in_order(files, wanted, done, ()):
        try:
            _soften(proto)
            pool.AddSerializedFile(proto.SerializeToString())
        except (TypeError, ValueError) as error:  # names that are no UTF-8 are bytes
            hint = (
                "; scrub.invalid.names=true replaces what Protobuf takes in no name"
                if "invalid name" in str(error)
                else ""
            )
            raise DataException(f"The Protobuf schema is refused: {error}{hint}") from error
    return pool


def _in_order(
    files: Mapping[str, FileProto], wanted: Sequence[str], done: set[str], path: tuple[str, ...]
) -> Iterator[FileProto]:
    """Files, each behind what it imports."""
    for name in wanted:
        if name in done:
            continue
        if name in path:
            raise DataException(f"The Protobuf schema imports itself: {' -> '.join((*path, name))}")
        proto = files.get(name) or known_files().get(name)
        if proto is None:
            raise DataException(
                f"The Protobuf schema imports {name}, which is not among the references that it was registered with "
                f"({', '.join(sorted(set(files) - {SCHEMA_FILE})) or 'there are none'})"
            )
        yield from _in_order(files, proto.dependency, done, (*path, name))
        done.add(name)
        yield FileProto.FromString(proto.SerializeToString())


def _soften(proto: FileProto) -> None:
    """Makes a file one that the library takes, where Java's and so Confluent's converter ask for less."""
    if proto.syntax != "proto3":
        return
    messages = list(proto.message_type)
    while messages:
        message = messages.pop()
        messages.extend(message.nested_type)
        name_for_json(message)
        for field in message.field:
            # proto3 has none; Confluent's converter writes them all the same.
            field.ClearField("default_value")


def name_for_json(message: Any) -> None:
    """Gives fields that would be called the same in JSON, such as ``f`` and ``f_``, different names there."""
    fields: dict[str, list[Any]] = {}
    for field in message.field:
        words = field.name.split("_")
        name = field.json_name or words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])
        fields.setdefault(name, []).append(field)
    for same in fields.values():
        if len(same) > 1:
            for field in same:
                field.json_name = field.name
