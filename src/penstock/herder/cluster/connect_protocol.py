"""The messages between the members of a group, as bytes: Kafka Connect's sub-protocols of the group protocol.

Numbers are big endian. A string is an int16 length and UTF-8, bytes are an int32 length and data (-1 for null), an
array is an int32 count and its items (-1 for null). A connector instance is written as task -1 of its connector.
Versions 1 and 2 have the same layout; version 2 means that internal requests are signed.

Source: org.apache.kafka.connect.runtime.distributed.ConnectProtocol, IncrementalCooperativeConnectProtocol; KIP-415,
KIP-507.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Final

from penstock.errors import ConnectException
from penstock.model import ConnectorTaskId
from penstock.model.states import NOTHING, Units

#: Stands for the connector itself in a list of tasks.
_CONNECTOR: Final = -1


class BadProtocolException(ConnectException):
    """The bytes of another member cannot be read: they are cut, or of another protocol."""


class Subprotocol(Enum):
    """A sub-protocol by the name that members offer; the broker picks the first one that all of them offer."""

    EAGER = "default"
    """Version 0: a member stops all its work before each round."""
    COMPATIBLE = "compatible"
    """Version 1: a member keeps all work that is not revoked."""
    SESSIONED = "sessioned"
    """Version 2: as version 1, and internal requests between workers are signed."""
    PENSTOCK = "penstock"
    """Version 2 too. Only Penstock's workers offer it: if the broker picks it, the group has no other workers."""

    @property
    def version(self) -> int:
        """The version in the header of its messages."""
        return min(2, list(Subprotocol).index(self))


def offered(connect_protocol: str) -> tuple[Subprotocol, ...]:
    """The sub-protocols that a worker with this ``connect.protocol`` offers, the preferred one first.

    >>> [one.value for one in offered("compatible")], offered("sessioned")[0].value
    (['compatible', 'default'], 'penstock')
    """
    best = Subprotocol[connect_protocol.upper()]
    return tuple(one for one in reversed(Subprotocol) if one.version <= best.version)


class AssignmentError(IntEnum):
    """The error code of an assignment."""

    NONE = 0
    CONFIG_MISMATCH = 1
    """The leader has read less of the config topic than a member: all members join again."""


@dataclass(frozen=True)
class Assignment:
    """The leader's message to one member.

    Attributes:
        leader: Member id of the leader.
        leader_url: Its advertised REST URL.
        config_offset: The offset after the last config record that the decision used.
        assigned: Version 0: all units of the member. Later versions: its additional units.
        revoked: The units that it gives back; never in version 0.
        delay_ms: The time after which it joins again; 0 for never.
        error: The error if the leader could not decide.
    """

    leader: str
    leader_url: str
    config_offset: int
    assigned: Units = NOTHING
    revoked: Units = NOTHING
    delay_ms: int = 0
    error: AssignmentError = AssignmentError.NONE


@dataclass(frozen=True)
class MemberMetadata:
    """The message of a member when it joins.

    Attributes:
        url: Its advertised REST URL.
        config_offset: The offset after the last config record that it has read; -1 if it has read none.
        current: All units that it runs, with the leader that assigned them; None if it runs none. Never in version 0.
    """

    url: str
    config_offset: int
    current: Assignment | None = None


# ------------------------------------------------------------------ writing
def encode_metadata(metadata: MemberMetadata, version: int) -> bytes:
    """Encodes the message of a member; version 0 leaves ``current`` out."""
    written = struct.pack(">h", version) + _string(metadata.url) + struct.pack(">q", metadata.config_offset)
    if version == 0:
        return written
    if metadata.current is None:
        return written + struct.pack(">i", -1)
    current = encode_assignment(metadata.current, version)
    return written + struct.pack(">i", len(current)) + current


def encode_assignment(assignment: Assignment, version: int) -> bytes:
    """Encodes the leader's answer to a member; version 0 leaves ``revoked`` and ``delay_ms`` out."""
    written = (
        struct.pack(">hh", version, assignment.error)
        + _string(assignment.leader)
        + _string(assignment.leader_url)
        + struct.pack(">q", assignment.config_offset)
        + _units(assignment.assigned)
    )
    if version == 0:
        return written
    return written + _units(assignment.revoked) + struct.pack(">i", assignment.delay_ms)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _units(units: Units) -> bytes:
    numbers: dict[str, list[int]] = {connector: [_CONNECTOR] for connector in units.connectors}
    for task in units.tasks:
        numbers.setdefault(task.connector, []).append(task.task)
    written = [struct.pack(">i", len(numbers))]
    for connector, tasks in numbers.items():
        written.append(_string(connector) + struct.pack(f">i{len(tasks)}i", len(tasks), *tasks))
    return b"".join(written)


# ------------------------------------------------------------------ reading
def decode_metadata(data: bytes) -> MemberMetadata:
    """Decodes the message of a member, of any version. Ignores further fields of newer versions."""
    reader = _Reader(data)
    version = reader.version()
    metadata = MemberMetadata(reader.string(), reader.number(">q"))
    if version == 0 or reader.ended:
        return metadata
    current = reader.nullable_bytes()
    return metadata if current is None else replace(metadata, current=decode_assignment(current))


def decode_assignment(data: bytes) -> Assignment:
    """Decodes the leader's answer, of any version; fields that are missing at the end have their defaults."""
    reader = _Reader(data)
    reader.version()
    error = reader.number(">h")
    return Assignment(
        error=AssignmentError.NONE if error == 0 else AssignmentError.CONFIG_MISMATCH,
        leader=reader.string(),
        leader_url=reader.string(),
        config_offset=reader.number(">q"),
        assigned=NOTHING if reader.ended else reader.units(),
        revoked=NOTHING if reader.ended else reader.units(),
        delay_ms=0 if reader.ended else reader.number(">i"),
    )


class _Reader:
    """Reads consecutive values from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._data)

    def version(self) -> int:
        version = self.number(">h")
        if version < 0:
            raise BadProtocolException(f"A member of the group speaks version {version} of Kafka Connect's protocol")
        return version

    def number(self, form: str) -> int:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(value)

    def string(self) -> str:
        try:
            return self._take(self.number(">h")).decode()
        except UnicodeDecodeError as error:
            raise BadProtocolException(f"A member of the group sent text that is no UTF-8: {error}") from error

    def nullable_bytes(self) -> bytes | None:
        length = self.number(">i")
        return None if length == -1 else self._take(length)

    def units(self) -> Units:
        connectors: list[str] = []
        tasks: list[ConnectorTaskId] = []
        for _ in range(self.number(">i")):
            connector = self.string()
            for number in self._numbers():
                if number == _CONNECTOR:
                    connectors.append(connector)
                else:
                    tasks.append(ConnectorTaskId(connector, number))
        return Units.of(connectors, tasks)

    def _numbers(self) -> Sequence[int]:
        count = self.number(">i")
        return struct.unpack(f">{count}i", self._take(4 * count)) if count > 0 else ()

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise BadProtocolException(
                f"A member of the group sent {len(self._data)} bytes that end in the middle of a value, at byte "
                f"{self._at}: it does not speak Kafka Connect's protocol. Is group.id used by other clients, too?"
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken
