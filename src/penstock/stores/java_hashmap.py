"""Java serialization of a `HashMap<byte[], byte[]>`, which is the content of Kafka Connect's standalone offsets file.

Main functions: `encode`, `decode`. What Java writes for the same entries in the same order is what `encode` writes;
`decode` accepts what a Java `HashMap` of byte arrays can look like and nothing else (no other class is ever looked up).

Source: Java Object Serialization Specification, protocol version 5; java.util.HashMap#writeObject;
org.apache.kafka.connect.storage.FileOffsetBackingStore.
Thread: any; the functions are pure.
"""

import struct
from collections.abc import Mapping
from typing import NoReturn

_MAGIC = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS_DESCRIPTION, _OBJECT = 0x70, 0x71, 0x72, 0x73
_STRING, _ARRAY, _CLASS, _BLOCK, _END_OF_BLOCK = 0x74, 0x75, 0x76, 0x77, 0x78
_WRITE_METHOD_AND_SERIALIZABLE = 3
_SERIALIZABLE = 2
_FIRST_HANDLE = 0x7E0000

_MAP_CLASS = "java.util.HashMap"
_MAP_VERSION = 0x0507DAC1C31660D1
_BYTES_CLASS = "[B"
_BYTES_VERSION = 0xACF317F8060854E0
_LOAD_FACTOR = 0.75
_DEFAULT_CAPACITY = 16

_NAMES = {_STRING: "a String", _CLASS: "a Class", _CLASS_DESCRIPTION: "a class description", 0x7E: "an enum"}


class JavaFormatError(ValueError):
    """The bytes are not a Java-serialized HashMap of byte arrays; the message says what was found and where."""


def encode(entries: Mapping[bytes, bytes | None]) -> bytes:
    """Serialize the entries as Java does for a map that got them in this order. Invariant 5.

    >>> encode({b"k": b"v"})[-17:].hex(" ")
    '00 00 00 01 6b 75 71 00 7e 00 02 00 00 00 01 76 78'
    """
    capacity = _DEFAULT_CAPACITY
    while len(entries) > int(capacity * _LOAD_FACTOR):
        capacity *= 2
    # Java allocates the table at the first put, and an unallocated table has no threshold.
    threshold = int(capacity * _LOAD_FACTOR) if entries else 0
    out = bytearray(_MAGIC)
    out.append(_OBJECT)
    out += _class_description(_MAP_CLASS, _MAP_VERSION, _WRITE_METHOD_AND_SERIALIZABLE, ["FloadFactor", "Ithreshold"])
    out += struct.pack(">fi", _LOAD_FACTOR, threshold)
    out += struct.pack(">BBii", _BLOCK, 8, capacity, len(entries))
    described = False
    for pair in entries.items():
        for item in pair:
            if item is None:
                out.append(_NULL)
                continue
            out.append(_ARRAY)
            if described:
                out += struct.pack(">Bi", _REFERENCE, _FIRST_HANDLE + 2)
            else:
                out += _class_description(_BYTES_CLASS, _BYTES_VERSION, _SERIALIZABLE, [])
                described = True
            out += struct.pack(">i", len(item)) + item
    out.append(_END_OF_BLOCK)
    return bytes(out)


def decode(data: bytes) -> dict[bytes | None, bytes | None]:
    """The entries of a serialized map, in stored order; anything else is refused. Invariant 5.

    Raises:
        JavaFormatError: the bytes end too early, hold another class, or are something else altogether.
    """
    return _Reader(data).read_map()


def _class_description(name: str, version: int, flags: int, fields: list[str]) -> bytes:
    """A class without annotations and without a serializable superclass; a field is its type code and name."""
    encoded = name.encode()
    out = (
        struct.pack(">BH", _CLASS_DESCRIPTION, len(encoded))
        + encoded
        + struct.pack(">QBH", version, flags, len(fields))
    )
    for field in fields:
        out += struct.pack(">BH", ord(field[0]), len(field) - 1) + field[1:].encode()
    return out + bytes([_END_OF_BLOCK, _NULL])


class _Reader:
    """One pass over the bytes; `_handles` holds what later bytes may refer to, in the order of appearance."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._handles: list[str | bytes | None] = []

    def read_map(self) -> dict[bytes | None, bytes | None]:
        if self._data[:4] != _MAGIC:
            raise JavaFormatError("it does not start as Java serialization does (ac ed 00 05)")
        self._position = 4
        tag = self._byte()
        if tag != _OBJECT:
            raise JavaFormatError(f"expected a {_MAP_CLASS}, found {_name(tag)} at byte 4")
        name, fields = self._read_class()
        if name != _MAP_CLASS:
            raise JavaFormatError(f"expected a {_MAP_CLASS}, found an object of class {name}")
        self._handles.append(None)
        if sorted(fields) != ["F", "I"]:
            self._refuse(f"other fields than loadFactor and threshold in {_MAP_CLASS}")
        self._take(8)
        size = self._read_map_header()
        entries: dict[bytes | None, bytes | None] = {}
        for _ in range(size):
            key = self._read_bytes()
            entries[key] = self._read_bytes()
        if self._byte() != _END_OF_BLOCK:
            self._refuse("more data than the map's size says")
        if self._position != len(self._data):
            self._refuse("data after the end of the map")
        return entries

    def _read_map_header(self) -> int:
        if self._byte() != _BLOCK or self._byte() != 8:
            self._refuse("no capacity and size")
        size: int = struct.unpack(">ii", self._take(8))[1]
        if not 0 <= size <= len(self._data):
            self._refuse(f"an impossible number of entries ({size})")
        return size

    def _read_bytes(self) -> bytes | None:
        tag = self._byte()
        if tag == _NULL:
            return None
        if tag == _REFERENCE:
            target = self._referred()
            if not isinstance(target, bytes):
                self._refuse("a reference to something else than a byte array")
            return target
        if tag != _ARRAY:
            self._refuse(f"{_name(tag)} where a byte array belongs")
        name, _ = self._read_class()
        if name != _BYTES_CLASS:
            self._refuse(f"an array of class {name} where a byte array belongs")
        length: int = struct.unpack(">i", self._take(4))[0]
        if length < 0:
            self._refuse("an array of negative length")
        item = self._take(length)
        self._handles.append(item)
        return item

    def _read_class(self) -> tuple[str, str]:
        """A class description or a reference to an earlier one: its name and the type codes of its fields."""
        tag = self._byte()
        if tag == _REFERENCE:
            target = self._referred()
            if not isinstance(target, str):
                self._refuse("a reference to something else than a class")
            return target, ""
        if tag != _CLASS_DESCRIPTION:
            self._refuse(f"{_name(tag)} where a class description belongs")
        name = self._text()
        self._handles.append(name)
        version, _flags, count = struct.unpack(">QBH", self._take(11))
        expected = {_MAP_CLASS: _MAP_VERSION, _BYTES_CLASS: _BYTES_VERSION}.get(name)
        if expected is None:
            self._refuse(f"the class {name}; only {_MAP_CLASS} and byte arrays are read")
        if version != expected:
            self._refuse(f"an unknown version of the class {name}")
        fields = []
        for _ in range(count):
            fields.append(chr(self._byte()))
            self._text()
        if self._byte() != _END_OF_BLOCK or self._byte() != _NULL:
            self._refuse(f"annotations or a superclass at the class {name}")
        return name, "".join(fields)

    def _referred(self) -> str | bytes | None:
        handle: int = struct.unpack(">i", self._take(4))[0] - _FIRST_HANDLE
        if not 0 <= handle < len(self._handles):
            self._refuse("a reference to nothing")
        return self._handles[handle]

    def _text(self) -> str:
        (length,) = struct.unpack(">H", self._take(2))
        return self._take(length).decode("utf-8", errors="replace")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        part = self._data[self._position : self._position + count]
        if len(part) < count:
            raise JavaFormatError(f"it ends too early, after {len(self._data)} bytes")
        self._position += count
        return part

    def _refuse(self, found: str) -> NoReturn:
        raise JavaFormatError(f"{found}, before byte {self._position}")


def _name(tag: int) -> str:
    return _NAMES.get(tag, f"the tag 0x{tag:02x}")
