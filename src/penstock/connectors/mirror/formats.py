"""Records of the mirror's own topics, as MirrorMaker 2 writes and reads them. Pure; any thread.

Main types: ``OffsetSync``, ``Checkpoint`` and ``Heartbeat``, each with ``key`` and ``value`` as bytes and an ``of``
that reads them.

Source: org.apache.kafka.connect.mirror.{OffsetSync, Checkpoint, Heartbeat}: Kafka's ``Struct`` of these fields; the
values of the last two begin with a version.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from penstock.api import TopicPartition
from penstock.errors import SerializationException

_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """A record of the source, and the one of the target that it has become.

    Attributes:
        place: The partition of the source.
        upstream: The offset on the source.
        downstream: The offset on the target.

    >>> sync = OffsetSync(TopicPartition("t", 1), 5, 7)
    >>> sync.key, sync.value == bytes(7) + b"\\x05" + bytes(7) + b"\\x07"
    (b'\\x00\\x01t\\x00\\x00\\x00\\x01', True)
    >>> OffsetSync.of(sync.key, sync.value) == sync
    True
    """

    place: TopicPartition
    upstream: int
    downstream: int

    @property
    def key(self) -> bytes:
        """Topic and partition."""
        return _text(self.place.topic) + struct.pack(">i", self.place.partition)

    @property
    def value(self) -> bytes:
        """Both offsets."""
        return struct.pack(">qq", self.upstream, self.downstream)

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None) -> OffsetSync:
        """Reads one.

        Raises:
            SerializationException: The bytes are of something else.
        """
        fields = _Fields(key, "an offset sync")
        place = TopicPartition(fields.text(), fields.number(">i"))
        fields = _Fields(value, "an offset sync")
        return cls(place, fields.number(">q"), fields.number(">q"))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The position of a group on the source, and its translation to the target.

    Attributes:
        group: The group.
        place: The partition, by its name on the target.
        upstream: The committed offset on the source.
        downstream: The translated offset on the target.
        metadata: The metadata committed with the offset.

    >>> one = Checkpoint("g", TopicPartition("a.t", 1), 5, 7)
    >>> Checkpoint.of(one.key, one.value) == one, one.value[:2]
    (True, b'\\x00\\x00')
    """

    group: str
    place: TopicPartition
    upstream: int
    downstream: int
    metadata: str = ""

    @property
    def key(self) -> bytes:
        """Group, topic and partition."""
        return _text(self.group) + _text(self.place.topic) + struct.pack(">i", self.place.partition)

    @property
    def value(self) -> bytes:
        """Version, both offsets and metadata."""
        return struct.pack(">hqq", _VERSION, self.upstream, self.downstream) + _text(self.metadata)

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None) -> Checkpoint:
        """Reads one.

        Raises:
            SerializationException: The bytes are of something else.
        """
        fields = _Fields(key, "a checkpoint")
        group, place = fields.text(), TopicPartition(fields.text(), fields.number(">i"))
        fields = _Fields(value, "a checkpoint")
        fields.version()
        return cls(group, place, fields.number(">q"), fields.number(">q"), fields.text())


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat from the worker of a mirror.

    Attributes:
        source: The alias of the source cluster.
        target: The alias of the target cluster.
        timestamp: The time, in milliseconds.

    >>> one = Heartbeat("a", "b", 5)
    >>> Heartbeat.of(one.key, one.value) == one
    True
    """

    source: str
    target: str
    timestamp: int

    @property
    def key(self) -> bytes:
        """Both aliases."""
        return _text(self.source) + _text(self.target)

    @property
    def value(self) -> bytes:
        """Version and time."""
        return struct.pack(">hq", _VERSION, self.timestamp)

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None) -> Heartbeat:
        """Reads one.

        Raises:
            SerializationException: The bytes are of something else.
        """
        fields = _Fields(key, "a heartbeat")
        source, target = fields.text(), fields.text()
        fields = _Fields(value, "a heartbeat")
        fields.version()
        return cls(source, target, fields.number(">q"))


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


class _Fields:
    """Reads fields one after the other."""

    def __init__(self, data: bytes | None, what: str) -> None:
        self._data = b"" if data is None else data
        self._what = what
        self._at = 0

    def number(self, form: str) -> int:
        try:
            (found,) = struct.unpack_from(form, self._data, self._at)
        except struct.error as error:
            raise SerializationException(f"These bytes are not those of {self._what}: {self._data!r}") from error
        self._at += struct.calcsize(form)
        return int(found)

    def text(self) -> str:
        length = self.number(">h")
        data = self._data[self._at : self._at + length]
        self._at += length
        if length < 0 or len(data) < length:
            raise SerializationException(f"These bytes are not those of {self._what}: {self._data!r}")
        return data.decode(errors="replace")

    def version(self) -> None:
        found = self.number(">h")
        if found != _VERSION:
            raise SerializationException(f"Version {found} of {self._what} is not known here, only {_VERSION}")
