"""A broker in this process that does to a producer what a test says, over real connections.

Main types: `ScriptedBroker` (one broker), `ScriptedCluster` (some with the same topics), `RequestSeen` and
`ProduceSeen` (what they received), and what a test may want done with a request, a `Verdict`: `Refuse`, `Delay`,
`LOSE_REQUEST`, `LOSE_ANSWER`, `GARBLED` and `SILENT`. Where nothing else is said a broker stores batches as Kafka does:
whole, in order, and once for each sequence of an idempotent producer. As with Kafka, the requests of a connection are
served one after the other: while one is delayed, those behind it are not read.

The protocol is read and written here without the code that a producer uses for it.

Threads: one that accepts and one for each connection, from `start` to `stop`. Everything else may be used by any
thread; `on_produce` is called on that of the connection.

Source: Kafka protocol guide; KIP-98, "Idempotent Producer Guarantees"; Kafka's ProducerAppendInfo for sequences.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple, Self, TypeVar

from penstock.kafka.protocol import Api
from testkit.brokers.scripted_login import ScriptedLogin
from testkit.brokers.scripted_transactions import VERSIONS as TRANSACTION_VERSIONS
from testkit.brokers.scripted_transactions import ScriptedTransactions

T = TypeVar("T")

CORRUPT_MESSAGE: Final = 2
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
NOT_LEADER_OR_FOLLOWER: Final = 6
UNSUPPORTED_VERSION: Final = 35
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
INVALID_PRODUCER_EPOCH: Final = 47

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM: Final = 21
_REMEMBERED: Final = 5
_SEQUENCES: Final = 1 << 31
_LOOK_AGAIN_S: Final = 0.01
_IMPLEMENTED: Final[Mapping[int, int]] = {
    Api.PRODUCE: 8,
    Api.METADATA: 1,
    Api.SASL_HANDSHAKE: 1,
    Api.API_VERSIONS: 0,
    Api.INIT_PRODUCER_ID: 0,
    Api.SASL_AUTHENTICATE: 1,
}


# ------------------------------------------------------------------------------------------ what a test may want done
class Mishap(Enum):
    LOSE_REQUEST = auto()
    LOSE_ANSWER = auto()
    GARBLED = auto()
    SILENT = auto()


#: The connection ends, and nothing is stored.
LOSE_REQUEST: Final = Mishap.LOSE_REQUEST
#: All is stored, but the connection ends before that is answered.
LOSE_ANSWER: Final = Mishap.LOSE_ANSWER
#: All is stored, but the answer is cut short.
GARBLED: Final = Mishap.GARBLED
#: All is stored, but that is not answered until `ScriptedBroker.release` is called.
SILENT: Final = Mishap.SILENT


@dataclass(frozen=True)
class Refuse:
    """An error is answered, and nothing is stored unless that is said.

    Attributes:
        error_code: The error.
        record_errors: Index of a record in its batch, and what is wrong with it.
        message: What is wrong with the batch.
        partitions: Those whose batches are refused; None = all of the request.
        stored: Whether they are stored all the same, as when replicas are too slow.
    """

    error_code: int
    record_errors: Sequence[tuple[int, str | None]] = ()
    message: str | None = None
    partitions: Collection[tuple[str, int]] | None = None
    stored: bool = False


@dataclass(frozen=True)
class Delay:
    """Nothing is done until an event is set; then comes what `then` says, or what a broker usually does."""

    until: threading.Event
    then: Refuse | Mishap | None = None


Verdict = Refuse | Delay | Mishap


# ------------------------------------------------------------------------------------------------- what was received
class StoredRecord(NamedTuple):
    """A record of an uncompressed batch; the timestamp is in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class BatchSeen:
    """A record batch; `raw` is all of its bytes as they came, `count` the records that it says it has."""

    topic: str
    partition: int
    raw: bytes
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def last_sequence(self) -> int:
        """Of its last record."""
        return (self.base_sequence + self.count - 1) % _SEQUENCES

    def is_sound(self) -> bool:
        """True if this is exactly one whole batch of message format 2."""
        if len(self.raw) < _HEAD.size or self.count < 1:
            return False
        _, length, _, magic, crc, _, last_delta, *_ = _HEAD.unpack_from(self.raw)
        if (length, magic, last_delta) != (len(self.raw) - 12, 2, self.count - 1):
            return False
        return crc32c(self.raw[_CRC_FROM:]) == int(crc)

    def records(self, base_offset: int) -> Iterator[StoredRecord]:
        """Its records. Raises ValueError when they are compressed, or not what the header says."""
        _, _, _, _, _, attributes, _, base_time, *_ = _HEAD.unpack_from(self.raw)
        if attributes & 7:
            raise ValueError(f"A compressed batch for {self.topic}-{self.partition}")
        fields = _Fields(self.raw, _HEAD.size)
        for index in range(self.count):
            end = fields.varint() + fields.at
            fields.at += 1  # attributes
            time_delta, delta, key, value = fields.varint(), fields.varint(), fields.chunk(), fields.chunk()
            headers = tuple(((fields.chunk() or b"").decode(), fields.chunk()) for _ in range(fields.varint()))
            if (delta, fields.at) != (index, end):
                raise ValueError(f"Record {index} of a batch for {self.topic}-{self.partition} is malformed")
            yield StoredRecord(base_offset + index, base_time + time_delta, key, value, headers)
        if fields.at != len(self.raw):
            raise ValueError(f"A batch for {self.topic}-{self.partition} has more than its {self.count} records")


@dataclass(frozen=True)
class RequestSeen:
    """A request; `number` of those of its kind at this broker, and `connection`, count from 0. No topics = all."""

    api: Api
    number: int
    connection: int
    client_id: str | None
    topics: tuple[str, ...] | None = ()


@dataclass(frozen=True)
class ProduceSeen(RequestSeen):
    """A produce request."""

    acks: int = -1
    timeout_ms: int = 0
    batches: tuple[BatchSeen, ...] = ()


# --------------------------------------------------------------------------------------------------------- the topics
class _Log:
    """The stored records of one partition, and each producer's epoch and last batches: sequences and offset."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, BatchSeen]] = []
        self.end = 0
        self._producers: dict[int, tuple[int, dict[tuple[int, int], int]]] = {}

    def append(self, batch: BatchSeen) -> tuple[int, int, int]:
        """The error code, the offset of the first record and the time of appending.

        Kafka gives the largest timestamp of a duplicate for that, although its topic does not keep the broker's time.
        """
        if batch.producer_id >= 0:
            sequences = (batch.base_sequence, batch.last_sequence)
            epoch, recent = self._producers.get(batch.producer_id, (-1, {}))
            if batch.producer_epoch < epoch:
                return INVALID_PRODUCER_EPOCH, -1, -1
            if batch.producer_epoch > epoch:
                # Whom it does not know may begin anywhere: Kafka forgets producers whose records are gone.
                expected, recent = (batch.base_sequence if epoch < 0 else 0), {}
            elif sequences in recent:
                return 0, recent[sequences], _HEAD.unpack_from(batch.raw)[8]
            else:
                expected = (list(recent)[-1][1] + 1) % _SEQUENCES
            if batch.base_sequence != expected:
                return OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1
            kept = list(recent.items())[1 - _REMEMBERED :]
            self._producers[batch.producer_id] = (batch.producer_epoch, dict([*kept, (sequences, self.end)]))
        offset, self.end = self.end, self.end + batch.count
        self.batches.append((offset, batch))
        return 0, offset, -1


@dataclass
class _Shared:
    """The shared state of the brokers of a cluster; changes under `changed`."""

    topics: dict[str, int]
    ports: dict[int, int] = field(default_factory=dict)
    leaders: dict[tuple[str, int], int] = field(default_factory=dict)
    logs: defaultdict[tuple[str, int], _Log] = field(default_factory=lambda: defaultdict(_Log))
    producer_ids: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def leader(self, topic: str, partition: int) -> int:
        return self.leaders.get((topic, partition), 1)


class _Topics:
    """The topics of brokers and clusters."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    @property
    def topics(self) -> dict[str, int]:
        """Topics and their numbers of partitions; may be changed."""
        return self._shared.topics

    def batches(self, topic: str, partition: int) -> list[bytes]:
        """The stored batches as they came."""
        with self._shared.changed:
            return [batch.raw for _, batch in self._shared.logs[topic, partition].batches]

    def records(self, topic: str, partition: int) -> list[StoredRecord]:
        """The stored records, which must not be compressed."""
        with self._shared.changed:
            stored = list(self._shared.logs[topic, partition].batches)
        return [record for offset, batch in stored for record in batch.records(offset)]

    def values(self, topic: str, partition: int) -> list[bytes | None]:
        """The values of the stored records, which must not be compressed."""
        return [record.value for record in self.records(topic, partition)]

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Wait for what requests bring about; the condition is looked at whenever one was received or served.

        Raises:
            TimeoutError: It did not come true.
        """
        with self._shared.changed:
            if not self._shared.changed.wait_for(condition, timeout_s):
                raise TimeoutError(f"What was waited for did not happen within {timeout_s} s")


# -------------------------------------------------------------------------------------------------------- the brokers
class ScriptedBroker(_Topics):
    """One broker; a context manager.

    Args:
        topics: Names and numbers of partitions.

    Attributes:
        port: Where it listens, also when it is started again.
        requests: All that it was asked, in the order of reading.
        versions: What it says of itself; other requests end the connection.
        on_produce: Is asked what to do with each produce request for which `answer_next` has not said anything.
        tls: What connections are encrypted with; set before `start`.
        login: How clients log in; None where they need not.
        transactions: What it knows of transactions; None where it takes no requests about them.
    """

    def __init__(self, topics: Mapping[str, int] | None = None, *, _shared: _Shared | None = None) -> None:
        super().__init__(_shared or _Shared(dict(topics or {})))
        self.port = 0
        self.requests: list[RequestSeen] = []
        self.versions: dict[int, tuple[int, int]] = {api: (0, version) for api, version in _IMPLEMENTED.items()}
        self.on_produce: Callable[[ProduceSeen], Verdict | None] = lambda seen: None
        self.tls: ssl.SSLContext | None = None
        self.login: ScriptedLogin | None = None
        self.transactions: ScriptedTransactions | None = None
        self._node = len(self._shared.ports) + 1
        self._shared.ports[self._node] = 0
        self._script: defaultdict[Api, deque[Verdict | None]] = defaultdict(deque)
        self._silence = threading.Event()
        self._stopping = threading.Event()
        self._stopping.set()
        self._connections: list[tuple[socket.socket, threading.Thread]] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The value of ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    @property
    def produced(self) -> list[ProduceSeen]:
        """The produce requests among `requests`."""
        return [seen for seen in self.requests if isinstance(seen, ProduceSeen)]

    def answer_next(self, api: Api, *answers: Verdict | None) -> None:
        """Sets the answers to the next requests of a kind, one for each; None for what a broker usually does."""
        self._script[api].extend(answers)

    def release(self) -> None:
        """Send the answers that `SILENT` has held back until now."""
        with self._shared.changed:
            self._silence.set()
            self._silence = threading.Event()

    def start(self) -> Self:
        """Listen; after a `stop` on the same port, with everything that was stored."""
        self._stopping.clear()
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=50)
        self.port = self._shared.ports[self._node] = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name=f"scripted-broker-{self.port}")
        self._acceptor.start()
        return self

    def advertise(self, port: int) -> None:
        """Tell clients that this broker listens at another port: that of a proxy, until it is started again."""
        with self._shared.changed:
            self._shared.ports[self._node] = port

    def stop(self) -> None:
        """Close all connections and end all threads. What is delayed is not stored any more."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        self._shared.ports[self._node] = 0
        for connection, thread in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            number = len(self._connections)
            thread = threading.Thread(
                target=self._serve, args=(connection, number), name=f"scripted-broker-{self.port}-{number}"
            )
            self._connections.append((connection, thread))
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        if self.tls is None:
            self._talk(connection, number)
            return
        with connection, contextlib.suppress(OSError):
            self._talk(self.tls.wrap_socket(connection, server_side=True), number)

    def _talk(self, connection: socket.socket, number: int) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            while len(size := stream.read(4)) == 4:
                request = stream.read(int.from_bytes(size, "big"))
                if len(request) < int.from_bytes(size, "big"):
                    return
                answer = self._answer(_Fields(request), number)
                if answer is None:
                    # Closed while requests are unread, it would take back answers that the client has not read yet.
                    connection.shutdown(socket.SHUT_WR)
                    while stream.read(1 << 16):
                        pass
                    return
                if answer:
                    connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, request: _Fields, connection: int) -> bytes | None:
        """The answer without its size; None = the connection is to end, nothing = nobody waits for one."""
        key, version, correlation = request.integers(">hhi")
        number = struct.pack(">i", correlation)
        if self.transactions is not None and TRANSACTION_VERSIONS.get(key) == version:
            request.string()
            with self._shared.changed:
                return number + self.transactions.answer(Api(key), request.rest())
        lowest, highest = self.versions.get(key, (0, -1))
        if _IMPLEMENTED.get(key) != version or not lowest <= version <= highest:
            return number + self._versions(UNSUPPORTED_VERSION) if key == Api.API_VERSIONS else None
        if self.login is not None and key != Api.API_VERSIONS:
            client_id, at = request.string(), request.at
            if key == Api.SASL_HANDSHAKE:
                return number + self.login.handshake(request.string())
            if key == Api.SASL_AUTHENTICATE:
                return number + self.login.authenticate(connection, request.sized())
            if not self.login.admits(connection):
                return None
            request.at = at - 2 - len((client_id or "").encode())
        seen = self._see(Api(key), request, connection)
        verdict = self._verdict(seen)
        if isinstance(verdict, Delay):
            if not self._waited(verdict.until):
                return None
            verdict = verdict.then
        if verdict is LOSE_REQUEST:
            return None
        refusal = verdict if isinstance(verdict, Refuse) else None
        with self._shared.changed:
            silence = self._silence
            body = self._body(seen, refusal)
            self._shared.changed.notify_all()
        if verdict is LOSE_ANSWER or (verdict is SILENT and not self._waited(silence)):
            return None
        if isinstance(seen, ProduceSeen) and seen.acks == 0:
            return b""
        return number + (body[:-1] if verdict is GARBLED else body)

    def _see(self, api: Api, request: _Fields, connection: int) -> RequestSeen:
        client_id = request.string()
        with self._shared.changed:
            number = sum(seen.api == api for seen in self.requests)
            seen = RequestSeen(api, number, connection, client_id)
            if api == Api.METADATA:
                names = request.array(lambda: request.string() or "")
                seen = replace(seen, topics=None if names is None else tuple(names))
            elif api == Api.PRODUCE:
                _, acks, timeout_ms = request.string(), *request.integers(">hi")
                batches = tuple(batch for topic in request.array(request.batches) or () for batch in topic)
                topics = tuple(dict.fromkeys(batch.topic for batch in batches))
                seen = ProduceSeen(api, number, connection, client_id, topics, acks, timeout_ms, batches)
            self.requests.append(seen)
            self._shared.changed.notify_all()
        return seen

    def _verdict(self, seen: RequestSeen) -> Verdict | None:
        if self._script[seen.api]:
            return self._script[seen.api].popleft()
        return self.on_produce(seen) if isinstance(seen, ProduceSeen) else None

    def _waited(self, event: threading.Event) -> bool:
        while not event.wait(_LOOK_AGAIN_S):
            if self._stopping.is_set():
                return False
        return True

    def _body(self, seen: RequestSeen, refusal: Refuse | None) -> bytes:
        error_code = refusal.error_code if refusal else 0
        match seen:
            case ProduceSeen():
                topics = [_string(name) + _array(self._stored(seen, name, refusal)) for name in seen.topics or ()]
                return _array(topics) + struct.pack(">i", 0)
            case RequestSeen(api=Api.METADATA, topics=topics):
                return self._metadata(list(self.topics) if topics is None else topics, error_code)
            case RequestSeen(api=Api.INIT_PRODUCER_ID):
                self._shared.producer_ids += not error_code
                known = (-1, -1) if error_code else (self._shared.producer_ids, 0)
                return struct.pack(">ihqh", 0, error_code, *known)
            case _:
                return self._versions(error_code)

    def _versions(self, error_code: int) -> bytes:
        return struct.pack(">h", error_code) + _array(
            [struct.pack(">hhh", api, *versions) for api, versions in self._all_versions().items()]
        )

    def _all_versions(self) -> dict[int, tuple[int, int]]:
        more = {} if self.transactions is None else {api: (0, one) for api, one in TRANSACTION_VERSIONS.items()}
        return {**more, **self.versions}

    def _metadata(self, topics: Sequence[str], error_code: int) -> bytes:
        ports = {node: port for node, port in self._shared.ports.items() if port}
        host = _string("127.0.0.1")
        brokers = [struct.pack(">i", node) + host + struct.pack(">ih", port, -1) for node, port in ports.items()]
        answers = []
        for topic in topics:
            partitions = []
            for index in range(0 if error_code else self.topics.get(topic, 0)):
                leader = self._shared.leader(topic, index)
                failed, leader = (0, leader) if leader in ports else (LEADER_NOT_AVAILABLE, -1)
                partitions.append(struct.pack(">hiiiiii", failed, index, leader, 1, leader, 1, leader))
            fault = error_code or (0 if topic in self.topics else UNKNOWN_TOPIC_OR_PARTITION)
            answers.append(struct.pack(">h", fault) + _string(topic) + b"\0" + _array(partitions))
        return _array(brokers) + struct.pack(">i", min(ports, default=-1)) + _array(answers)

    def _stored(self, seen: ProduceSeen, topic: str, refusal: Refuse | None) -> list[bytes]:
        """Stores or refuses each batch of a topic, and returns the answers."""
        answers = []
        for batch in (batch for batch in seen.batches if batch.topic == topic):
            place = (topic, batch.partition)
            errors: list[bytes] = []
            message, offset, time = None, -1, -1
            if refusal and (refusal.partitions is None or place in refusal.partitions):
                if refusal.stored and self._shared.leader(*place) == self._node:
                    self._shared.logs[place].append(batch)
                error_code, message = refusal.error_code, refusal.message
                errors = [struct.pack(">i", index) + _string(text) for index, text in refusal.record_errors]
            elif not 0 <= batch.partition < self.topics.get(topic, 0):
                error_code = UNKNOWN_TOPIC_OR_PARTITION
            elif self._shared.leader(*place) != self._node:
                error_code = NOT_LEADER_OR_FOLLOWER
            elif not batch.is_sound():
                error_code = CORRUPT_MESSAGE
            else:
                error_code, offset, time = self._shared.logs[place].append(batch)
            head = struct.pack(">ihqqq", batch.partition, error_code, offset, time, 0 if offset >= 0 else -1)
            answers.append(head + _array(errors) + _string(message))
        return answers


class ScriptedCluster(_Topics):
    """Some brokers with the same topics; a context manager. The first one leads what `lead` does not give to another.

    Attributes:
        brokers: They can be stopped and started one by one.
    """

    def __init__(self, brokers: int, topics: Mapping[str, int]) -> None:
        super().__init__(_Shared(dict(topics)))
        self.brokers = [ScriptedBroker(_shared=self._shared) for _ in range(brokers)]

    def __enter__(self) -> Self:
        for broker in self.brokers:
            broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            broker.stop()

    @property
    def bootstrap(self) -> str:
        """The value of ``bootstrap.servers``."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def lead(self, topic: str, partition: int, broker: ScriptedBroker) -> None:
        """Make a broker the leader of a partition."""
        with self._shared.changed:
            self._shared.leaders[topic, partition] = self.brokers.index(broker) + 1


# -------------------------------------------------------------------------------------------------------------- bytes
class _Fields:
    """Reads requests and records."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.at = at
        self._data = data

    def integers(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self._data, self.at)
        self.at += struct.calcsize(layout)
        return found

    def string(self) -> str | None:
        found = self._take(self.integers(">h")[0])
        return None if found is None else found.decode()

    def array(self, read_item: Callable[[], T]) -> list[T] | None:
        (length,) = self.integers(">i")
        return None if length < 0 else [read_item() for _ in range(length)]

    def batches(self) -> list[BatchSeen]:
        """Reads the batches of a produce request for one topic."""
        topic = self.string() or ""

        def batch() -> BatchSeen:
            partition, length = self.integers(">ii")
            raw = self._take(length) or b""
            head = _HEAD.unpack(raw[: _HEAD.size].ljust(_HEAD.size, b"\0"))
            return BatchSeen(topic, partition, raw, *head[-4:])

        return self.array(batch) or []

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return (number >> 1) ^ -(number & 1)
            shift += 7

    def sized(self) -> bytes:
        """Bytes behind their length."""
        return self._take(self.integers(">i")[0]) or b""

    def rest(self) -> bytes:
        """All that is left."""
        return self._data[self.at :]

    def chunk(self) -> bytes | None:
        """Bytes behind their length as varint."""
        return self._take(self.varint())

    def _take(self, length: int) -> bytes | None:
        self.at += max(0, length)
        return None if length < 0 else self._data[self.at - length : self.at]


def _string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def _array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def _crc_table() -> Iterator[int]:
    for entry in range(256):
        for _ in range(8):
            entry = (entry >> 1) ^ (0x82F63B78 if entry & 1 else 0)
        yield entry


_CRC_TABLE: Final = tuple(_crc_table())


def crc32c(data: bytes) -> int:
    """The checksum of record batches (CRC-32C, RFC 3720), slowly.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF
