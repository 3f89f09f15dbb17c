"""Packages and symbols that Protobuf's library refuses and Java's takes."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from tests.unit.converters.registry.connect_values import protobuf_text

from penstock.converters.registry.protobuf.codec import (
    ProtobufCodec,
)
from penstock.converters.registry.protobuf.files import (
    file_text,
    spelt_text,
)
from penstock.converters.registry.protobuf.names import (
    ProtobufOptions,
)
from penstock.data import INT32_SCHEMA, SchemaBuilder, Struct

pytestmark = pytest.mark.usefixtures("protoc_here")
PACKAGES = ("server-1.db.t", "gr\u00fcn", "1a.b", "a b", "a.$", "\u6f22.x", "plain.name")


def proto(package: str) -> str:
    return f"""// package comment.like-this;
syntax = "proto3"; package {package};
message Envelope {{ Row before = 1; .{package}.Row after = 2; Kind kind = 3; Other other = 4;
  enum Kind {{ NONE = 0; SET = 1; }} enum Other {{ NONE = 0; LEFT = 2; }} }}
message Row {{ int32 id = 1; }}
"""


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("full", [False, True])
def test_a_text_with_any_package_is_read_and_its_names_are_the_real_ones(package: str, full: bool) -> None:
    codec = ProtobufCodec(protobuf_text(proto(package)), ProtobufOptions(full_names=full), None)

    schema, value = codec.decode(b"\0\x0a\x02\x08\x05\x12\x02\x08\x06\x18\x01\x20\x02", "a test")

    assert codec.record_name == f"{package}.Envelope"
    assert codec.name_read(b"\x02\x02", "a test") == f"{package}.Row"
    assert schema is not None
    assert schema.name == (f"{package}.Envelope" if full else "Envelope")
    assert str(value) == "Struct{before=Struct{id=5},after=Struct{id=6},kind=SET,other=LEFT}"
    kinds = {name.rpartition(".")[2]: number for name, number in (schema.fields[2].schema.parameters or {}).items()}
    assert (kinds["NONE"], kinds["SET"]) == ("0", "1")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_message_with_any_package_is_written_and_read(package: str) -> None:
    inner = SchemaBuilder.struct().name(f"{package}.Inner").field("x", INT32_SCHEMA).build()
    schema = SchemaBuilder.struct().name(f"{package}.Outer").field("inner", inner).build()
    text = f'syntax: "proto3" package: "{package}" message_type {{ name: "Outer" field {{ name: "inner" number: 1 '
    text += 'type: TYPE_MESSAGE type_name: "Inner" label: LABEL_OPTIONAL } nested_type { name: "Inner" field { '
    text += 'name: "x" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } } }'
    codec = ProtobufCodec(
        protobuf_text(file_text(text_format.Parse(text, FileDescriptorProto()))), ProtobufOptions(), None
    )

    payload = codec.encode(schema, Struct(schema).put("inner", Struct(inner).put("x", 3)))

    assert payload == b"\0\x0a\x02\x08\x03"
    assert str(codec.decode(payload, "a test").value) == "Struct{inner=Struct{x=3}}"


def test_files_that_import_each_other_agree_on_packages() -> None:
    texts = {
        "a.proto": 'syntax = "proto3";\npackage s-1.x;\nimport "b.proto";\nmessage A { s-2.y.B b = 1; }',
        "b.proto": 'syntax = "proto3";\npackage s-2.y;\nmessage B { int32 z = 1; }',
    }
    codec = ProtobufCodec(
        protobuf_text(texts["a.proto"], {"b.proto": texts["b.proto"]}), ProtobufOptions(full_names=True), None
    )

    schema, value = codec.decode(b"\0\x0a\x02\x08\x03", "a test")

    assert schema is not None
    assert (schema.name, schema.fields[0].schema.name, str(value)) == ("s-1.x.A", "s-2.y.B", "Struct{b=Struct{z=3}}")
    assert spelt_text({"b.proto": 'syntax = "proto3"; package fine;'}) == {
        "b.proto": 'syntax = "proto3"; package fine;'
    }
