"""The answers of a scripted broker about the transactions of others, as a test says.

Main type: ``ScriptedTransactions``, which a ``ScriptedBroker`` has in its attribute ``transactions``; ``Open`` (one
that is open in a partition) and ``Known`` (an id as its coordinator knows it) are what it answers from. A marker closes
what is open, unless the test refuses it.

The protocol is read and written here without the code that a worker uses for it.

Thread: those of the broker's connections, under its lock; a test sets the attributes before, or from ``before``.

Source: Kafka protocol guide; KIP-664; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from penstock.kafka.protocol import Api

T = TypeVar("T")

#: The requests that are answered, with the version of each.
VERSIONS: Final[Mapping[int, int]] = {
    Api.FIND_COORDINATOR: 2,
    Api.WRITE_TXN_MARKERS: 1,
    Api.DESCRIBE_PRODUCERS: 0,
    Api.DESCRIBE_TRANSACTIONS: 0,
    Api.LIST_TRANSACTIONS: 0,
}
INVALID_PRODUCER_EPOCH: Final = 47


@dataclass
class Open:
    """A producer with an open transaction in one partition."""

    topic: str
    partition: int
    producer_id: int
    epoch: int = 0
    start_offset: int = 7
    last_timestamp_ms: int = 0
    coordinator_epoch: int = -1


@dataclass
class Known:
    """A transactional id as its coordinator knows it."""

    name: str
    producer_id: int
    state: str = "Empty"
    epoch: int = 1
    timeout_ms: int = 60_000
    places: Sequence[tuple[str, int]] = ()
    error_code: int = 0


@dataclass
class ScriptedTransactions:
    """The broker's knowledge of transactions.

    Attributes:
        opened: The open transactions.
        known: The transactional ids.
        errors: An error code for all requests of a kind.
        port: Of the coordinator.
        before: Called with the kind of each request before it is answered.
        markers: What was aborted: topic, partition, producer id, epoch, coordinator epoch.
        asked: The kinds of all requests, in order.
    """

    opened: list[Open] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)
    errors: dict[Api, int] = field(default_factory=dict)
    port: int = 0
    before: Callable[[Api], None] = lambda api: None
    markers: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    asked: list[Api] = field(default_factory=list)

    def answer(self, api: Api, body: bytes) -> bytes:
        """The answer behind its header.

        Args:
            api: The kind of request.
            body: The request behind the client's id.
        """
        self.asked.append(api)
        self.before(api)
        if api is Api.FIND_COORDINATOR:
            error = self.errors.get(api, 0)
            host = b"127.0.0.1"
            return struct.pack(">ihhih", 0, error, -1, 1, len(host)) + host + struct.pack(">i", self.port)
        reader = _Reader(body)
        reader.tags()
        made = {
            Api.DESCRIBE_PRODUCERS: self._producers,
            Api.LIST_TRANSACTIONS: self._list,
            Api.DESCRIBE_TRANSACTIONS: self._describe,
            Api.WRITE_TXN_MARKERS: self._mark,
        }[api](reader, self.errors.get(api, 0))
        return b"\0" + made + b"\0"

    def _producers(self, reader: _Reader, error: int) -> bytes:
        topics = []
        for topic, partitions in reader.topics():
            found = []
            for number in partitions:
                active = [
                    struct.pack(
                        ">qiiqiq",
                        one.producer_id,
                        one.epoch,
                        0,
                        one.last_timestamp_ms,
                        one.coordinator_epoch,
                        one.start_offset,
                    )
                    + b"\0"
                    for one in self.opened
                    if (one.topic, one.partition) == (topic, number) and not error
                ]
                found.append(struct.pack(">ih", number, error) + b"\0" + _array(active) + b"\0")
            topics.append(_string(topic) + _array(found) + b"\0")
        return struct.pack(">i", 0) + _array(topics)

    def _list(self, reader: _Reader, error: int) -> bytes:
        reader.array(reader.string)
        wanted = reader.array(lambda: reader.integers(">q")[0])
        found = [
            _string(one.name) + struct.pack(">q", one.producer_id) + _string(one.state) + b"\0"
            for one in self.known
            if one.producer_id in wanted and not error
        ]
        return struct.pack(">ih", 0, error) + _array([]) + _array(found)

    def _describe(self, reader: _Reader, error: int) -> bytes:
        found = []
        for name in reader.array(reader.string):
            known = next((one for one in self.known if one.name == name), Known(name, -1, error_code=105))
            topics: dict[str, list[int]] = {}
            for topic, number in known.places:
                topics.setdefault(topic, []).append(number)
            places = [
                _string(topic) + _array([struct.pack(">i", one) for one in numbers]) + b"\0"
                for topic, numbers in topics.items()
            ]
            found.append(
                struct.pack(">h", error or known.error_code)
                + _string(name)
                + _string(known.state)
                + struct.pack(">iqqh", known.timeout_ms, 0, known.producer_id, known.epoch)
                + _array(places)
                + b"\0"
            )
        return struct.pack(">i", 0) + _array(found)

    def _mark(self, reader: _Reader, error: int) -> bytes:
        def marker() -> bytes:
            producer_id, epoch, commits = reader.integers(">qhb")
            assert not commits
            topics = reader.topics()
            (coordinator_epoch,) = reader.integers(">i")
            reader.tags()
            answers = []
            for topic, numbers in topics:
                codes = []
                for number in numbers:
                    code = error or self._abort(topic, number, producer_id, epoch, coordinator_epoch)
                    codes.append(struct.pack(">ih", number, code) + b"\0")
                answers.append(_string(topic) + _array(codes) + b"\0")
            return struct.pack(">q", producer_id) + _array(answers) + b"\0"

        return _array(reader.array(marker))

    def _abort(self, topic: str, number: int, producer_id: int, epoch: int, coordinator_epoch: int) -> int:
        place = (topic, number, producer_id)
        for one in self.opened:
            if (one.topic, one.partition, one.producer_id) == place and one.epoch > epoch:
                return INVALID_PRODUCER_EPOCH
        self.markers.append((topic, number, producer_id, epoch, coordinator_epoch))
        self.opened = [one for one in self.opened if (one.topic, one.partition, one.producer_id) != place]
        return 0


class _Reader:
    """Reads a request in the form of newer ones."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def integers(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return found

    def number(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self.integers(">B")
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def string(self) -> str:
        length = self.number() - 1
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def array(self, read: Callable[[], T]) -> list[T]:
        return [read() for _ in range(self.number() - 1)]

    def tags(self) -> None:
        assert self.number() == 0

    def topics(self) -> list[tuple[str, list[int]]]:
        def topic() -> tuple[str, list[int]]:
            name, numbers = self.string(), self.array(lambda: self.integers(">i")[0])
            self.tags()
            return name, numbers

        return self.array(topic)


def _number(number: int) -> bytes:
    found = b""
    while number >= 128:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def _string(text: str) -> bytes:
    return _number(len(text.encode()) + 1) + text.encode()


def _array(items: Sequence[bytes]) -> bytes:
    return _number(len(items) + 1) + b"".join(items)
