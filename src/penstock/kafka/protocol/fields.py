"""The bytes of Kafka's protocol: headers and fields of requests, fields of responses.

Main types: `Api` (the kinds of requests, with their `VERSIONS`), `FieldReader` (reads a response) and
`MalformedResponse`; `header`, `string` and `sized` make requests. The requests themselves are in `messages` and
`transaction_coordinator`.

Thread: any; everything is pure.

Source: Kafka protocol guide, "Protocol Primitive Types", "Common Request and Response Structure" (request header v1,
response header v0).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, TypeVar

from penstock.errors import KafkaException

T = TypeVar("T")

INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
_BYTE: Final = struct.Struct(">B")
_LONGEST_VARINT_BITS: Final = 28
_HEADER: Final = struct.Struct(">hhi")
_LONGEST_STRING: Final = (1 << 15) - 1
_LARGEST_REQUEST: Final = (1 << 31) - 1


class Api(IntEnum):
    """The kinds of requests, by their API keys."""

    PRODUCE = 0
    METADATA = 3
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    SASL_AUTHENTICATE = 36
    OFFSET_DELETE = 47
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


#: The version in which each request is sent; a producer with transactions asks for its id in another one, see
#: `coordinator`.
VERSIONS: Final[Mapping[Api, int]] = MappingProxyType(
    {
        Api.PRODUCE: 8,
        Api.METADATA: 1,
        Api.FIND_COORDINATOR: 2,
        Api.SASL_HANDSHAKE: 1,
        Api.API_VERSIONS: 0,
        Api.INIT_PRODUCER_ID: 0,
        Api.ADD_PARTITIONS_TO_TXN: 2,
        Api.END_TXN: 2,
        Api.WRITE_TXN_MARKERS: 1,
        Api.SASL_AUTHENTICATE: 1,
        Api.OFFSET_DELETE: 0,
        Api.DESCRIBE_PRODUCERS: 0,
        Api.DESCRIBE_TRANSACTIONS: 0,
        Api.LIST_TRANSACTIONS: 0,
    }
)


class MalformedResponse(KafkaException):
    """A response that violates Kafka's protocol."""

    java_name = "org.apache.kafka.common.protocol.types.SchemaException"


class UnsupportedVersionException(KafkaException):
    """A broker does not take a request in the version that is spoken here."""

    java_name = "org.apache.kafka.common.errors.UnsupportedVersionException"


def header(api: Api, correlation: int, client_id: str) -> bytes:
    """The header of a request.

    Raises:
        ValueError: The client id has more than 32,767 bytes.
    """
    return _HEADER.pack(api, VERSIONS[api], correlation) + string(client_id)


def string(text: str | None) -> bytes:
    """A string with its length.

    Raises:
        ValueError: It has more than 32,767 bytes.
    """
    if text is None:
        return INT16.pack(-1)
    encoded = text.encode()
    if len(encoded) > _LONGEST_STRING:
        raise ValueError(f"A string of {len(encoded)} bytes does not fit into a request: {text[:40]!r}...")
    return INT16.pack(len(encoded)) + encoded


def sized(*parts: bytes) -> bytes:
    """A request with its size in front."""
    request = b"".join(parts)
    return INT32.pack(within_request(len(request))) + request


def within_request(nbytes: int) -> int:
    """Returns a size if a request may have that many bytes; raises otherwise.

    Raises:
        ValueError: It may not.
    """
    if nbytes > _LARGEST_REQUEST:
        raise ValueError(f"{nbytes} bytes do not fit into one request")
    return nbytes


def body(payload: memoryview, api: Api) -> FieldReader:
    """The fields of a response after its header."""
    fields = FieldReader(payload, f"{api.name} version {VERSIONS[api]}")
    fields.integer(INT32)
    return fields


class FieldReader:
    """Reads an answer field by field."""

    __slots__ = ("_at", "_payload", "_what")

    def __init__(self, payload: memoryview, what: str) -> None:
        self._payload = payload
        self._what = what
        self._at = 0

    def integers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Numbers one after the other."""
        start = self._at
        self._advance(layout.size)
        return layout.unpack_from(self._payload, start)

    def integer(self, layout: struct.Struct) -> int:
        """One number."""
        return self.integers(layout)[0]

    def nullable_string(self) -> str | None:
        """A string, or null."""
        length = self.integer(INT16)
        if length == -1:
            return None
        if length < 0:
            raise self._malformed(f"a string of {length} bytes")
        start = self._at
        self._advance(length)
        try:
            return str(self._payload[start : self._at], "utf-8")
        except UnicodeDecodeError as error:
            raise self._malformed("a string that is not UTF-8") from error

    def string(self) -> str:
        """A string."""
        found = self.nullable_string()
        if found is None:
            raise self._malformed("null where a string must be")
        return found

    def compact_nullable_string(self) -> str | None:
        """A string, or null, in the form of newer requests (KIP-482)."""
        length = self._unsigned() - 1
        if length < 0:
            return None
        start = self._at
        self._advance(length)
        try:
            return str(self._payload[start : self._at], "utf-8")
        except UnicodeDecodeError as error:
            raise self._malformed("a string that is not UTF-8") from error

    def compact_string(self) -> str:
        """A string in the form of newer requests."""
        found = self.compact_nullable_string()
        if found is None:
            raise self._malformed("null where a string must be")
        return found

    def compact_array(self, read_item: Callable[[], T]) -> list[T]:
        """Items after their count, in the form of newer requests."""
        length = self._unsigned() - 1
        if not 0 <= length <= len(self._payload) - self._at:
            raise self._malformed(f"an array of {length} items")
        return [read_item() for _ in range(length)]

    def tags(self) -> None:
        """Skips tagged fields: none is known here."""
        for _ in range(self._unsigned()):
            self._unsigned()
            self._advance(self._unsigned())

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self.integers(_BYTE)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > _LONGEST_VARINT_BITS:
                raise self._malformed("a number that does not end")

    def chunk(self) -> bytes:
        """Bytes after their length."""
        length = self.integer(INT32)
        if length < 0:
            raise self._malformed(f"{length} bytes")
        start = self._at
        self._advance(length)
        return bytes(self._payload[start : self._at])

    def array(self, read_item: Callable[[], T]) -> list[T]:
        """Items after their count."""
        length = self.integer(INT32)
        # Every item has some bytes.
        if not 0 <= length <= len(self._payload) - self._at:
            raise self._malformed(f"an array of {length} items")
        return [read_item() for _ in range(length)]

    def end(self) -> None:
        """Checks that the answer ends here."""
        if self._at != len(self._payload):
            raise self._malformed("more bytes than its fields have")

    def _advance(self, nbytes: int) -> None:
        if nbytes > len(self._payload) - self._at:
            raise self._malformed("fewer bytes than its fields have")
        self._at += nbytes

    def _malformed(self, found: str) -> MalformedResponse:
        return MalformedResponse(
            f"The answer to {self._what} is not what Kafka's protocol says: {found}"
            f" (at byte {self._at} of {len(self._payload)})"
        )
