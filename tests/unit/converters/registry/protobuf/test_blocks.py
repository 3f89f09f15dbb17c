"""Protobuf messages of a flat type read as columns are what they are one by one; what is odd is left."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from tests.unit.converters.registry.connect_values import protobuf_text

from penstock.converters.registry import wire
from penstock.converters.registry.converters import (
    ProtobufConverterConfig,
)
from penstock.converters.registry.protobuf.codec import (
    ProtobufCodec,
)
from penstock.converters.registry.wire import frame, read_columns
from penstock.data import Struct
from penstock.errors import DataException
from penstock.pipeline.columns.records import from_arrow

pytestmark = pytest.mark.usefixtures("protoc_here")
KINDS = (
    *("int32", "sint32", "uint32", "fixed32", "sfixed32", "int64", "sint64", "uint64", "fixed64", "sfixed64"),
    *("bool", "float", "double", "string", "bytes", "Color"),
)
COLOR = "enum Color { RED = 0; GREEN = 5; BLUE = -1; }"
FLAT = f"""syntax = "proto3"; package app; {COLOR} message Flat {{
{"".join(f"{kind} plain_{kind} = {number}; " for number, kind in enumerate(KINDS, 1))}
{"".join(f"optional {kind} maybe_{kind} = {number}; " for number, kind in enumerate(KINDS, 101))}
}} message Other {{ int32 n = 1; }}"""
#: By the first letter of a kind, so that bool, which is before bytes, is asked for by its name.
EDGES: Mapping[str, Sequence[Any]] = {
    "int32": (0, 1, -1, 2**31 - 1, -(2**31)),
    "uint32": (0, 1, 127, 128, 2**32 - 1),
    "int64": (0, 1, -1, 2**63 - 1, -(2**63)),
    "uint64": (0, 1, 2**56, 2**63, 2**64 - 1),
    "bool": (False, True),
    "float": (0.0, -0.0, 1.5, math.inf, math.nan, 1e-45),
    "double": (0.0, -0.0, 0.1, -math.inf, math.nan, 5e-324),
    "string": ("", "a", "\0", "ü\U0001f600", "x" * 300),
    "bytes": (b"", b"\xff\0", b"y" * 200),
    "Color": (0, 5, -1, 7),
}
SAME = {"sint32": "int32", "sfixed32": "int32", "fixed32": "uint32", "sint64": "int64", "sfixed64": "int64"}


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MIN_ROWS", 1)


def codec_of(text: str, settings: Mapping[str, str] | None = None) -> ProtobufCodec:
    given = {"schema.registry.url": "http://localhost:1", "converter.type": "value", **(settings or {})}
    return ProtobufCodec(protobuf_text(text), ProtobufConverterConfig.parse(given), 1)


def bodies_of(codec: ProtobufCodec, count: int, seed: int) -> list[bytes]:
    """Messages with some of their fields, as the library writes them."""
    chance = random.Random(seed)
    make = message_factory.GetMessageClass(codec.file.message_types_by_name["Flat"])
    made: list[bytes] = []
    for _ in range(count):
        message = make()
        for field in make.DESCRIPTOR.fields:
            if chance.random() < 0.6:
                kind = field.name.partition("_")[2]
                setattr(
                    message, field.name, chance.choice(EDGES[SAME.get(kind, "uint64" if kind == "fixed64" else kind)])
                )
        made.append(b"\0" + message.SerializeToString())
    return made


def plain(value: object) -> object:
    """A value that can be compared: NaN by its bits, and -0.0 apart from 0.0."""
    if isinstance(value, Struct):
        return value.schema, [plain(value.get_without_default(field.name)) for field in value.schema.fields]
    return struct.pack("<d", value) if isinstance(value, float) else (type(value), value)


def one_by_one(codec: ProtobufCodec, body: bytes) -> object:
    try:
        found = codec.decode(body, "the value")
    except DataException:
        return DataException
    return found.schema, plain(found.value)


def at_once(codec: ProtobufCodec, bodies: Sequence[bytes]) -> list[object]:
    """What bodies are as columns; None where they are left."""
    column = pa.chunked_array([pa.array([frame(7, one) for one in bodies], pa.binary())])
    topics = pa.chunked_array([pa.array(["t"] * len(bodies), pa.string())])
    found = read_columns(column, topics, lambda schemas, rows: True, lambda *_: codec.columns())
    made: list[object] = [None] * len(bodies)
    for number, (side, values) in found.read.items():
        listed = from_arrow(values, side.schema, side.physical)
        assert found.codes is not None
        assert found.places is not None
        for row in (found.codes == number).nonzero()[0].tolist():
            made[row] = side.schema, plain(listed[found.places[row]])
    return made


@pytest.mark.parametrize(
    "settings",
    [{}, {"optional.for.nullables": "true"}, {"int.for.enums": "true"}, {"wrapper.for.nullables": "true"}],
    ids=str,
)
def test_messages_are_what_they_are_one_by_one(settings: Mapping[str, str]) -> None:
    codec = codec_of(FLAT, settings)
    bodies = [b"\0", *bodies_of(codec, 300, seed=1)]

    found = at_once(codec, bodies)

    expected = [one_by_one(codec, one) for one in bodies]
    left = [row for row, one in enumerate(found) if one is None]
    assert [one for row, one in enumerate(found) if row not in left] == [
        one for row, one in enumerate(expected) if row not in left
    ]
    unknown = "UNKNOWN_ENUM_VALUE" if "int.for.enums" not in settings else "nothing"
    assert left == [row for row, one in enumerate(expected) if unknown in str(one)], "only unknown symbols are left"


@pytest.mark.parametrize("seed", range(4))
def test_damaged_messages_are_left_and_touch_no_neighbour(seed: int) -> None:
    codec = codec_of(FLAT)
    chance = random.Random(seed)
    bodies = bodies_of(codec, 400, seed)
    for row in range(0, len(bodies), 2):
        body = bytearray(bodies[row])
        match chance.randrange(5):
            case 0:
                del body[chance.randrange(len(body)) :]
            case 1:
                body[chance.randrange(len(body))] = chance.randrange(256)
            case 2:
                body += bytes(chance.randrange(256) for _ in range(chance.randrange(12)))
            case 3:
                body += bodies[chance.randrange(len(bodies))][1:]
            case _:
                body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        bodies[row] = bytes(body)

    found = at_once(codec, bodies)

    for row, (whole, one) in enumerate(zip(bodies, found, strict=True)):
        expected = one_by_one(codec, whole)
        left = row % 2 == 0 or "UNKNOWN_ENUM_VALUE" in str(expected)
        assert one == expected or (one is None and left)


def test_fields_of_a_newer_schema_are_passed_over_and_what_no_writer_writes_is_left() -> None:
    codec = codec_of(FLAT)
    newer = [b"\0\x08\x01" + more for more in (b"\xfa\x3f\x01x", b"\xf8\x3f\x05", b"\xf9\x3f12345678", b"\xfd\x3f1234")]
    twice, group = b"\0\x08\x01\x08\x02", b"\0\x08\x01\xfb\x3f\xfc\x3f"
    other_type, other_kind = b"\x02\x02\x08\x01", b"\0\x0a\x01\x01"

    found = at_once(codec, [*newer, twice, group, other_type, other_kind])

    assert None not in found[:4]
    assert found[:4] == [one_by_one(codec, one) for one in newer]
    assert found[4:] == [None] * 4


def test_a_message_of_very_many_fields_is_left_at_once() -> None:
    codec = codec_of(FLAT)
    found = at_once(codec, [b"\0" + b"\x08\x01" * 200_000, b"\0\x08\x03"])
    assert found == [None, one_by_one(codec, b"\0\x08\x03")]


@pytest.mark.parametrize(
    "fields",
    [
        "repeated int32 a = 1;",
        "map<string, int32> a = 1;",
        "message Inner { int32 b = 1; } Inner a = 1;",
        "oneof a { int32 b = 1; string c = 2; }",
        "",
    ],
)
def test_other_types_have_no_columns(fields: str) -> None:
    assert codec_of(f'syntax = "proto3"; message M {{ {fields} }}').columns() is None
    assert codec_of('syntax = "proto2"; message M { optional int32 a = 1; }').columns() is None
