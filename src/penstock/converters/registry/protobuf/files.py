"""Protobuf files as descriptors: registered files, the files that each may import, and options of types and fields.

The client requests a serialized descriptor, the form that confluent-kafka's serializers register and to which
Confluent's registry converts other forms. If a registry has only .proto text, protoc compiles it (grpcio-tools, in a
separate process, because it prints errors, and so that a foreign text cannot harm the worker). Each schema has its own
pool, because two schemas may define the same name differently.

Java's library accepts names that Python's rejects: packages with other characters, such as Debezium's
``server-1.db.t``, and symbols that occur in several enums of one scope. In files for the library each such character is
spelt out in letters, and such symbols contain the name of their enum; names are converted back for display.

Source: io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema, MetaProto, MessageIndexes;
io.confluent.connect.protobuf.ProtobufData.isMapDescriptor, isOptional; com.google.protobuf.Descriptors.FileDescriptor,
which checks the names of types, but not of packages.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
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
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, OneofDescriptor
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

from penstock.converters.registry.protobuf.names import KEY, VALUE, is_entry_name
from penstock.errors import DataException

if TYPE_CHECKING:
    # The library's messages have no types for mypy.
    FileProto: TypeAlias = Any
else:
    FileProto = descriptor_pb2.FileDescriptorProto
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

_MARK: Final = "_penstock_u"
_SPELT: Final = re.compile(rf"{_MARK}([0-9a-f]*)_")
_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_]", re.ASCII)
_OF_ENUM: Final = "_penstock_of_"
_ENUM: Final = re.compile(r"(\benum\s+(\w+)\s*)(\{[^}]*\})")
_SYMBOL: Final = re.compile(r"([{;\n]\s*)([A-Za-z_]\w*)(\s*=\s*-?(?:0[xX][0-9a-fA-F]+|\d+)\s*[;\[])")
_STATEMENT: Final = re.compile(r"((?:^|[;}/\n])\s*package\s+)([^;\n]*?)(\s*;)")


def real_name(name: str) -> str:
    """The name in the registered file.

    >>> real_name(_spelt("server-1.gr\u00fcn.1a.b")) + real_name(".plain_name")
    'server-1.gr\u00fcn.1a.b.plain_name'
    """
    return _SPELT.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", name)


def real_symbol(name: str) -> str:
    """The symbol in the registered file.

    >>> real_symbol(f"RED{_OF_ENUM}Colour"), real_symbol("RED")
    ('RED', 'RED')
    """
    return name.partition(_OF_ENUM)[0]


def spelt_symbols(proto: Any) -> None:
    """Adds the enum's name to symbols that occur twice in a scope."""
    for scope in (proto, *all_messages(proto)):
        counts = Counter(value.name for enum in scope.enum_type for value in enum.value)
        for enum in scope.enum_type:
            for value in enum.value:
                if counts[value.name] > 1:
                    value.name += f"{_OF_ENUM}{enum.name}"


def told_apart(text: str) -> str:
    """Adds the enum's name to all symbols of a .proto text."""
    return _ENUM.sub(lambda found: found[1] + _SYMBOL.sub(rf"\1\2{_OF_ENUM}{found[2]}\3", found[3]), text)


def _spelt(package: str) -> str:
    return ".".join(map(_spelt_part, package.split(".")))


def _spelt_part(part: str) -> str:
    if _PART.fullmatch(part):
        return part
    plain = _NOT_PLAIN.sub(lambda found: f"{_MARK}{ord(found[0]):x}_", part)
    return plain if _PART.fullmatch(plain) else f"{_MARK}_{plain}"


def spelt_package(proto: Any, packages: Iterable[str]) -> None:
    """Spells out the names of packages in a file, which is changed, and in the names of the types that it uses."""
    changed = {one: _spelt(one) for one in packages if one and _spelt(one) != one}
    if not changed:
        return
    proto.package = changed.get(proto.package, proto.package)
    for field in _fields(proto):
        for name in ("type_name", "extendee"):
            text = getattr(field, name)
            for package, plain in changed.items():
                dot = "." if text.startswith(".") else ""
                if text.startswith(f"{dot}{package}."):
                    setattr(field, name, f"{dot}{plain}{text[len(dot) + len(package) :]}")


def _fields(proto: Any) -> Iterator[Any]:
    yield from proto.extension
    for message in all_messages(proto):
        yield from message.field
        yield from message.extension


def all_messages(proto: Any) -> Iterator[Any]:
    """The messages of a file, at every depth."""
    left = list(proto.message_type)
    while left:
        yield (message := left.pop())
        left.extend(message.nested_type)


def spelt_text(texts: Mapping[str, str]) -> dict[str, str]:
    """Spells out such package names in .proto texts."""
    packages = {found[2] for text in texts.values() for found in _STATEMENT.finditer(text)}
    changed = sorted((one for one in packages if one and _spelt(one) != one), key=len, reverse=True)
    if not changed:
        return dict(texts)
    used = re.compile(rf"(?<![\w.])(\.?)({'|'.join(map(re.escape, changed))})(?=\.\w)")
    return {
        name: used.sub(
            lambda found: found[1] + _spelt(found[2]),
            _STATEMENT.sub(lambda found: found[1] + _spelt(found[2]) + found[3], text),
        )
        for name, text in texts.items()
    }


#: The name of the schema itself among its imports.
SCHEMA_FILE: Final = "penstock/schema.proto"
META_FILE: Final = "confluent/meta.proto"
DECIMAL_FILE: Final = "confluent/type/decimal.proto"
_MODULES: Final = (
    any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2,
    timestamp_pb2, type_pb2, wrappers_pb2, calendar_period_pb2, color_pb2, date_pb2, datetime_pb2, dayofweek_pb2,
    expr_pb2, fraction_pb2, latlng_pb2, money_pb2, month_pb2, postal_address_pb2, quaternion_pb2, timeofday_pb2,
)  # fmt: skip
_TYPE: Final = descriptor_pb2.FieldDescriptorProto


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
    """Confluent's options: additional properties of files, messages and fields."""
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


@lru_cache(maxsize=1)
def _field_options() -> tuple[Any, Any]:
    """The class of a field's options with Confluent's extensions, and the extension."""
    pool = fill_pool({}, [META_FILE])
    options = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
    return options, pool.FindExtensionByName("confluent.field_meta")


def field_options(parameters: Mapping[str, str]) -> bytes:
    """Options of a field that express these parameters."""
    made, extension = _field_options()
    options = made()
    options.Extensions[extension].params.update(parameters)
    return bytes(options.SerializeToString(deterministic=True))


def field_meta(field: Any) -> Mapping[str, str]:
    """The parameters in the options of a field."""
    made, extension = _field_options()
    try:
        options = made.FromString(field.GetOptions().SerializeToString())
    except DecodeError as error:
        raise DataException(f"The options of the field {field.full_name} cannot be read: {error}") from error
    return dict(options.Extensions[extension].params) if options.HasExtension(extension) else {}


def fill_pool(files: Mapping[str, FileProto], wanted: Sequence[str]) -> DescriptorPool:
    """A new pool with the wanted files and all their imports, from the given and the known ones."""
    pool = DescriptorPool()
    done: set[str] = set()
    packages = {proto.package for proto in files.values()}
    for proto in _in_order(files, wanted, done, ()):
        try:
            _soften(proto)
            spelt_package(proto, packages)
            spelt_symbols(proto)
            pool.AddSerializedFile(proto.SerializeToString())
        except (TypeError, ValueError) as error:  # Names that are not UTF-8 are bytes.
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
    """Files in order, each after its imports."""
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
    """Changes a file so that the library accepts it, where Java, and so Confluent's converter, is less strict."""
    if proto.syntax != "proto3":
        return
    for message in all_messages(proto):
        name_for_json(message)
        for field in message.field:
            # proto3 has no defaults, but Confluent's converter writes them.
            field.ClearField("default_value")


def name_for_json(message: Any) -> None:
    """Gives fields whose JSON names would be equal, such as ``f`` and ``f_``, different JSON names."""
    fields: dict[str, list[Any]] = {}
    for field in message.field:
        words = field.name.split("_")
        name = field.json_name or words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])
        fields.setdefault(name, []).append(field)
    for same in fields.values():
        if len(same) > 1:
            for field in same:
                field.json_name = field.name


def proto_of(message: Descriptor) -> Any:
    """A message type as defined in its file."""
    found = descriptor_pb2.DescriptorProto()
    message.CopyToProto(found)
    return found


def real_oneofs(message: Descriptor) -> list[OneofDescriptor]:
    """The oneofs in the source: each optional field of proto3 is an additional, synthetic one."""
    made = {field.name for field in proto_of(message).field if field.proto3_optional}
    return [one for one in message.oneofs if not any(field.name in made for field in one.fields)]


def is_map(field: FieldDescriptor) -> bool:
    """True if a field is a map: repeated entries of key and value, whether written as ``map<>`` or not."""
    entry = field.message_type
    if entry is None or not field.is_repeated or not is_entry_name(entry.name):
        return False
    names = [one.name for one in entry.fields]
    return names == [KEY, VALUE] and not any(one.is_repeated for one in entry.fields)


def is_built_in_map(field: FieldDescriptor) -> bool:
    """True if a field is written as ``map<>``, and so a mapping in Python."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def says_optional(field: FieldDescriptor, *, proto2: bool) -> bool:
    """True if a field has the word ``optional``; with ``proto2`` it also counts in proto2 files."""
    of_message = proto_of(field.containing_type).field[field.index]
    if of_message.proto3_optional:
        return True
    optional = of_message.label == descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    return proto2 and file_syntax(field.file) == "proto2" and optional and field.containing_oneof is None


def file_syntax(file: FileDescriptor) -> str:
    """``proto2``, ``proto3`` or ``editions``."""
    found = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(found)
    return str(found.syntax or "proto2")


#: Files with these names are part of the registry, whatever a schema's references are.
_KNOWN_FOLDERS: Final = ("google/protobuf/", "google/type/", "confluent/")
_COMPILE_TIMEOUT_S: Final = 60


def file_text(proto: FileProto) -> str:
    """A file as it is registered."""
    return base64.b64encode(proto.SerializeToString(deterministic=True)).decode()


def read_file(text: str, references: Mapping[str, str]) -> FileDescriptor:
    """The file of a registered schema, in a pool of its own: a serialized descriptor in base64, or .proto text.

    ``references`` are the schemas that it may import, at any depth, by the names in the imports; in either form.
    """
    known = {name for name in known_files() if name.startswith(_KNOWN_FOLDERS)}
    texts = {**{name: one for name, one in references.items() if name not in known}, SCHEMA_FILE: text}
    protos = {name: _deserialized(name, one) for name, one in texts.items()}
    sources = {name: texts[name] for name, proto in protos.items() if proto is None}
    files = {name: proto for name, proto in protos.items() if proto is not None}
    if sources:
        files.update(_compiled(sources, files))
    try:
        return fill_pool(files, [SCHEMA_FILE]).FindFileByName(SCHEMA_FILE)
    except (TypeError, KeyError) as error:
        raise DataException(f"The Protobuf schema is no file that can be used: {error}") from error


def _deserialized(name: str, text: str) -> FileProto | None:
    """The file in a base64 text; None if the text is not base64."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    try:
        proto = FileProto.FromString(data)
    except DecodeError as error:
        raise DataException(f"The Protobuf schema {name} is base64, and no file descriptor: {error}") from error
    proto.name = name
    return proto


def _compiled(sources: Mapping[str, str], files: Mapping[str, FileProto]) -> dict[str, FileProto]:
    """Compiles .proto texts, which may import each other and the other files, with protoc."""
    try:
        return _by_protoc(sources, files)
    except DataException as error:
        # Symbols are scoped to their enum in Java, but to the enum's parent in protoc.
        if "is already defined in" not in str(error):
            raise
        return _by_protoc({name: told_apart(text) for name, text in sources.items()}, files)


def _by_protoc(sources: Mapping[str, str], files: Mapping[str, FileProto]) -> dict[str, FileProto]:
    given_files = [FileProto.FromString(proto.SerializeToString()) for proto in files.values()]
    for proto in given_files:
        spelt_package(proto, [one.package for one in files.values()])
        spelt_symbols(proto)
    known = descriptor_pb2.FileDescriptorSet(file=[*known_files().values(), *given_files])
    with tempfile.TemporaryDirectory(prefix="penstock-protoc-") as folder:
        root = Path(folder, "src")
        for name, text in spelt_text(sources).items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
                raise DataException(f"The name of a referenced Protobuf schema is no name of a file: {name!r}")
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_with_meta_import(text), encoding="utf-8", errors="replace")
        given, made = Path(folder, "known"), Path(folder, "made")
        given.write_bytes(known.SerializeToString())
        arguments = [f"-I{root}", f"--descriptor_set_in={given}", f"--descriptor_set_out={made}"]
        # -P: so that a file with that name in the worker's directory is not used.
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", *arguments, *(str(root / name) for name in sources)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_COMPILE_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataException(f"protoc cannot compile the Protobuf schema: {error}") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").replace(f"{root}/", "").strip()[-1000:]
            raise DataException(f"protoc refuses the Protobuf schema: {said}")
        result = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    return {proto.name: proto for proto in result.file}


def _with_meta_import(text: str) -> str:
    """Adds the import that Confluent's converter leaves out, because its registry knows the options."""
    if "(confluent." not in text or META_FILE in text:
        return text
    # At the end: imports may come anywhere, and the line numbers of errors stay right.
    return f'{text}\nimport "{META_FILE}";\n'


def message_at(file: FileDescriptor, indexes: Sequence[int], where: str) -> Descriptor:
    """The message type at an index path in a file: one index for each level of nesting, outermost first."""
    found: Descriptor | None = None
    level = list(file.message_types_by_name.values())
    for index in indexes:
        if not 0 <= index < len(level):
            raise DataException(
                f"{where} says that it is of message type {list(indexes)} of its schema, which has {len(level)} at "
                "that level: it was not written with this schema"
            )
        found = level[index]
        level = list(found.nested_types)
    if found is None:
        raise DataException(f"{where} does not say of which message type it is")
    return found


def place_of(message: Descriptor) -> list[int]:
    """Returns the index path of a message type in its file, as for ``message_at``."""
    found: list[int] = []
    current = message
    while current.containing_type is not None:
        names = [one.name for one in current.containing_type.nested_types]
        found.insert(0, names.index(current.name))
        current = current.containing_type
    return [list(current.file.message_types_by_name).index(current.name), *found]
