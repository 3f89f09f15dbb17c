"""Registered Protobuf schemas as descriptors, and message types by their place in a file.

A schema is wanted as a serialized descriptor, which is what confluent-kafka's serializers register, and what
Confluent's registry makes of any other when it is asked to. Where a registry has .proto text alone, protoc compiles it
(grpcio-tools, in a process of its own: it prints what is wrong, and a text of others cannot harm the worker). A parser
in Python would leave types, options and extensions for us to resolve.

Main functions: ``read_file``, ``file_text``, ``message_at``, ``place_of``. Thread: pure functions.
Source: io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema, MessageIndexes.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from penstock.converters.registry.protobuf_pools import META_FILE, SCHEMA_FILE, FileProto, fill_pool, known_files
from penstock.errors import DataException

#: Files with these names come with the registry, whatever a schema's references say.
_KNOWN_FOLDERS: Final = ("google/protobuf/", "google/type/", "confluent/")
_COMPILE_TIMEOUT_S: Final = 60


def file_text(proto: FileProto) -> str:
    """A file as it is registered."""
    return base64.b64encode(proto.SerializeToString(deterministic=True)).decode()


def read_file(text: str, references: Mapping[str, str]) -> FileDescriptor:
    """The file of a registered schema, in a pool of its own.

    Args:
        text: A serialized descriptor in base64, or .proto text.
        references: Schemas it may import, at any depth, by the names it imports them by; in either form.

    Raises:
        DataException: It is neither, or does not compile, or an import is missing.
    """
    texts = {**{name: one for name, one in references.items() if not _is_known(name)}, SCHEMA_FILE: text}
    protos = {name: _deserialized(name, one) for name, one in texts.items()}
    sources = {name: texts[name] for name, proto in protos.items() if proto is None}
    files = {name: proto for name, proto in protos.items() if proto is not None}
    if sources:
        files.update(_compiled(sources, files))
    try:
        return fill_pool(files, [SCHEMA_FILE]).FindFileByName(SCHEMA_FILE)
    except (TypeError, KeyError) as error:
        raise DataException(f"The Protobuf schema is no file that can be used: {error}") from error


def _is_known(name: str) -> bool:
    return name.startswith(_KNOWN_FOLDERS) and name in known_files()


def _deserialized(name: str, text: str) -> FileProto | None:
    """The file that base64 holds; None where the text is no base64."""
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
    """What protoc makes of .proto texts, which may import each other and the other files.

    Raises:
        DataException: They do not compile; or protoc is not there.
    """
    known = descriptor_pb2.FileDescriptorSet(file=[*known_files().values(), *files.values()])
    with tempfile.TemporaryDirectory(prefix="penstock-protoc-") as folder:
        root = Path(folder, "src")
        for name, text in sources.items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
                raise DataException(f"The name of a referenced Protobuf schema is no name of a file: {name!r}")
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_with_meta_import(text), encoding="utf-8", errors="replace")
        given, made = Path(folder, "known"), Path(folder, "made")
        given.write_bytes(known.SerializeToString())
        arguments = [f"-I{root}", f"--descriptor_set_in={given}", f"--descriptor_set_out={made}"]
        # -P: a file of that name in the worker's folder is not what is meant.
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
    """The text with the import that Confluent's converter leaves out: its registry knows the options without."""
    if "(confluent." not in text or META_FILE in text:
        return text
    # Behind everything else: a file may import anywhere, and the lines of errors stay right.
    return f'{text}\nimport "{META_FILE}";\n'


# ------------------------------------------------------------------------------------------------ messages
def message_at(file: FileDescriptor, indexes: Sequence[int], where: str) -> Descriptor:
    """The message type at a place in a file: places in each level of nesting, outermost first.

    Raises:
        DataException: There is none.
    """
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
    """Where a message type is in its file, as ``message_at`` takes it."""
    found: list[int] = []
    current = message
    while current.containing_type is not None:
        names = [one.name for one in current.containing_type.nested_types]
        found.insert(0, names.index(current.name))
        current = current.containing_type
    return [list(current.file.message_types_by_name).index(current.name), *found]
