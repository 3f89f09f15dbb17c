"""Which Protobuf files can read messages of another one; what Java says is among the recorded answers."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from penstock.converters.registry.protobuf.codec import cannot_read, numbered_alike
from penstock.converters.registry.protobuf.files import file_text, read_file


def file(*fields: str, package: str = "a", more: str = "") -> Any:
    inside = " ".join(f"field {{ label: LABEL_OPTIONAL {one} }}" for one in fields)
    text = f'syntax: "proto3" package: "{package}" message_type {{ name: "M" {inside} {more} }}'
    return read_file(file_text(text_format.Parse(text, FileDescriptorProto())), {})


def scalar(name: str, number: int, kind: str = "INT32", more: str = "") -> str:
    return f'name: "{name}" number: {number} type: TYPE_{kind} {more}'


X = scalar("x", 1)
NESTED = 'nested_type { name: "N" field { name: "z" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }'
OF_N = 'name: "n" number: 2 type: TYPE_MESSAGE type_name: ".a.M.N"'
ONEOF = 'oneof_decl { name: "u" }'


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (file(X), file(X)),
        (file(scalar("x", 1, "INT64")), file(X)),
        (file(scalar("y", 1)), file(X)),
        (file(X), file(X, scalar("y", 2, "STRING"))),
        (file(X, scalar("y", 2, "STRING")), file(X)),
        (file(scalar("x", 1, "BYTES")), file(scalar("x", 1, "STRING"))),
        (file(X), file(X, package="")),
        (file(X, OF_N, more=NESTED), file(X, OF_N, more=NESTED)),
        (file(scalar("x", 1, more="oneof_index: 0"), more=ONEOF), file(X)),
    ],
)
def test_what_is_alike_on_the_wire_can_be_read(reader: Any, writer: Any) -> None:
    assert cannot_read(reader, writer) is None


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        (file(scalar("x", 1, "DOUBLE")), file(X), "the field x of a.M is a double there, and a number here"),
        (file(scalar("x", 1, "SINT32")), file(X), "the field x of a.M is a signed number there"),
        (file(X, package="server-1.b"), file(X), "its package is 'server-1.b' there, and 'a' here"),
        (file(X), file(X, more=NESTED), "there is no message type N"),
        (file(scalar("n", 2)), file(OF_N, more=NESTED), "the field n of a.M is of another kind there"),
        (
            file(scalar("x", 1, more="oneof_index: 0"), scalar("y", 2, more="oneof_index: 0"), more=ONEOF),
            file(X, scalar("y", 2)),
            "fields of a.M are in the oneof u there, and not here",
        ),
        (
            file(scalar("x", 1, more="oneof_index: 0"), more=ONEOF),
            file(scalar("x", 1, more="oneof_index: 0"), scalar("y", 2, more="oneof_index: 0"), more=ONEOF),
            "a.M has no field y there",
        ),
    ],
)
def test_what_is_not_is_told_with_its_place(reader: Any, writer: Any, why: str) -> None:
    assert (cannot_read(reader, writer) or "").startswith(why)


def test_messages_mean_the_same_where_numbers_have_the_same_names() -> None:
    assert numbered_alike(file(X), file(X, scalar("y", 2)))
    assert numbered_alike(file(scalar("x", 1, "INT64")), file(X))
    assert not numbered_alike(file(scalar("y", 1)), file(X))
    assert not numbered_alike(file(scalar("x", 2)), file(X))
    assert not numbered_alike(file(scalar("x", 1, "STRING")), file(X))
