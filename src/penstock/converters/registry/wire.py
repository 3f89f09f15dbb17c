"""The bytes around a message: a zero, the schema's id in four bytes, and for Protobuf the index path of the message's
type.

Main functions: ``frame``, ``unframe``, ``write_indexes``, ``read_indexes``.

Thread: pure functions.
Source: the wire format of Confluent's serializers (AbstractKafkaSchemaSerDe, MessageIndexes).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from penstock.errors import DataException

MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")
#: The meaning of the first byte of messages in other formats.
_TEXT_STARTS: Final = frozenset(b'{["')


def frame(schema_id: int, payload: bytes) -> bytes:
    """A message with its head.

    >>> frame(7, b"abc").hex()
    '0000000007616263'
    """
    return _HEAD.pack(MAGIC, schema_id) + payload


def unframe(data: bytes, where: str) -> tuple[int, bytes]:
    """The schema's id, and the bytes after the head.

    Raises:
        DataException: The head is missing or damaged.

    >>> unframe(bytes.fromhex("0000000007616263"), "the value of topic t")
    (7, b'abc')
    """
    if len(data) >= _HEAD.size and data[0] == MAGIC:
        return _HEAD.unpack_from(data)[1], data[_HEAD.size :]
    raise DataException(_refusal(data, where))


def _refusal(data: bytes, where: str) -> str:
    side = "key" if where.startswith("the key") else "value"
    if not data or data[0] == MAGIC:
        return (
            f"Unknown magic byte! {where} has {len(data)} bytes; a message of a schema registry begins with a zero "
            f"byte and a schema id, five bytes. It was written by something else: set {side}.converter to what wrote it"
        )
    text = data[0] in _TEXT_STARTS
    hint = (
        f"Is it JSON? Set {side}.converter=org.apache.kafka.connect.json.JsonConverter, with "
        f"{side}.converter.schemas.enable=false unless each message holds its schema"
        if text
        else f"Set {side}.converter to what wrote it, such as org.apache.kafka.connect.storage.StringConverter"
    )
    return (
        f"Unknown magic byte! {where} begins with 0x{data[0]:02x}; a message of a schema registry begins with 0x00 and "
        f"a schema id. {hint}"
    )


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Writes the index path of a message type in a Protobuf file: one index for each level of nesting, outermost first.

    >>> write_indexes([0]).hex(), write_indexes([1, 0]).hex()
    ('00', '040200')
    """
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def read_indexes(payload: bytes, where: str) -> tuple[list[int], bytes]:
    """The index path, and the bytes after it.

    Raises:
        DataException: The bytes cannot be read.

    >>> read_indexes(bytes.fromhex("040200ff"), "the value of topic t")
    ([1, 0], b'\\xff')
    >>> read_indexes(bytes.fromhex("00ff"), "the value of topic t")
    ([0], b'\\xff')
    """
    count, at = _read_varint(payload, 0, where)
    if count == 0:
        return [0], payload[at:]
    if not 0 < count <= len(payload):
        raise DataException(f"{where} says that its message type is {count} levels deep: it is no Protobuf message")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(payload, at, where)
        if index < 0:
            raise DataException(f"{where} says that its message type is number {index}: it is no Protobuf message")
        indexes.append(index)
    return indexes, payload[at:]


def _varint(number: int) -> bytes:
    """Zigzag, seven bits a byte."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _read_varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise DataException(f"{where} ends within the place of its message type: it is no Protobuf message")
