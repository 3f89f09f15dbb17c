"""Source offsets as Kafka Connect writes them, in a topic or in another store of bytes.

A key is the JSON ``["<connector>",{<source partition>}]`` in the order of the partition's keys, a value the JSON of the
offset, both without spaces. Keys that are equal as JSON are one key here, because the order of names means nothing in
JSON; but Java looks up a key by its bytes. So a write uses the stored spelling, under which its writer finds it again,
and a read finds the value under any spelling.

``MergedOffsetStore`` combines a connector's own topic with the shared one: entries of its own topic take precedence;
the shared topic has copies, so that the connector continues at its offsets if its own topic is removed.

Thread: readers and writers are used from the threads of their task and synchronise themselves. A store owns its
``OffsetEntries`` and guards it with its lock; records come on the thread of the log.
Source: OffsetStorageReaderImpl, OffsetStorageWriter, OffsetUtils, KafkaOffsetBackingStore and
ConnectorOffsetBackingStore of Kafka Connect.
"""

from __future__ import annotations

import base64
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import orjson

from penstock.api import OffsetStorageReader
from penstock.data.text import java_double, json_string
from penstock.errors import ConnectException, DataException, KafkaException, OffsetStoreException
from penstock.stores.interface import OffsetStore, RecordLog
from penstock.telemetry import waiting_for
from penstock.telemetry.logs import SeldomLog

if TYPE_CHECKING:
    from penstock.kafka.topic_log.clients import LogRecord

logger = logging.getLogger(__name__)


Partition = Mapping[str, object] | None


Offset = Mapping[str, object] | None


_INT64_MIN: Final = -(2**63)


_INT64_MAX: Final = 2**63 - 1


_BROKEN: Final = object()


def key_bytes(connector: str, partition: Partition) -> bytes:
    """The key of a source partition, as Java writes it. Invariant 5.

    >>> key_bytes("c", {"filename": "/data/in.txt"})
    b'["c",{"filename":"/data/in.txt"}]'
    >>> key_bytes("c", None)
    b'["c",null]'
    """
    return _utf8(f"[{json_string(connector)},{_map_text(partition, 'source partition')}]")


def value_bytes(offset: Offset) -> bytes | None:
    """The value of a source offset, as Java writes it; None (a tombstone) for no offset. Invariant 5.

    >>> value_bytes({"position": 10, "ratio": 1e7, "id": b"ab", "end": None})
    b'{"position":10,"ratio":1.0E7,"id":"YWI=","end":null}'
    """
    return None if offset is None else _utf8(_map_text(offset, "source offset"))


def parse_key(key: bytes) -> tuple[str, dict[str, object] | None] | None:
    """Connector and source partition of a stored key; None for a key of another form.

    >>> parse_key(b'["c",{"table":"t"}]')
    ('c', {'table': 't'})
    >>> parse_key(b'"x"') is None
    True
    """
    match _loads(key):
        case [str(connector), dict(partition)]:
            return connector, partition
        case [str(connector), None]:
            return connector, None
    return None


def parse_value(value: bytes | None) -> dict[str, object] | None:
    """The offset of a stored value."""
    if value is None:
        return None
    match _loads(value):
        case None:
            return None
        case dict(offset):
            return cast("dict[str, object]", offset)
    raise DataException(f"a stored source offset must be a JSON object, got {value[:200]!r}")


def _map_text(values: object, what: str) -> str:
    if values is None:
        return "null"
    if not isinstance(values, Mapping):
        raise DataException(f"A {what} must be a map, got {type(values).__name__}")
    parts = []
    for name, value in values.items():
        if not isinstance(name, str):
            raise DataException(f"A {what} may only use strings as keys, found {name!r}")
        parts.append(f"{json_string(name)}:{_value_text(name, value, what)}")
    return "{" + ",".join(parts) + "}"


def _value_text(name: str, value: object, what: str) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            if not _INT64_MIN <= value <= _INT64_MAX:
                raise DataException(f"Field {name} of a {what} does not fit in 64 bits: {value}")
            return str(int(value))
        case float():
            # As in Java's JSON writer: numbers that JSON does not have become texts.
            return java_double(value) if math.isfinite(value) else f'"{java_double(value)}"'
        case str():
            return json_string(value)
        case bytes() | bytearray() | memoryview():
            return '"' + base64.b64encode(value).decode() + '"'
    raise DataException(f"A {what} may only hold primitive values, but field {name} is a {type(value).__name__}")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DataException(f"A source partition or offset holds text that is not valid Unicode: {error}") from error


def _loads(data: bytes) -> object:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _BROKEN


def partition_identity(partition: Partition) -> Hashable:
    """Returns the identity of a source partition: equal names with equal values of equal kinds, in any order.

    >>> partition_identity({"a": 1, "b": "x"}) == partition_identity({"b": "x", "a": 1})
    True
    >>> partition_identity({"a": 1}) == partition_identity({"a": True})
    False
    """
    if partition is None:
        return None
    try:
        identity = tuple(sorted((name, type(value).__name__, value) for name, value in partition.items()))
        hash(identity)
    except TypeError:
        return repr(partition)
    return identity


def key_identity(key: bytes) -> bytes:
    """Returns the identity that equal keys share: the JSON with its names in order. A key that is not JSON is its own.

    >>> key_identity(b'["c",{"table":"t","db":"x"}]')
    b'["c",{"db":"x","table":"t"}]'
    >>> key_identity(b"other")
    b'other'
    """
    try:
        identity = orjson.dumps(orjson.loads(key), option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return key
    # Copied, because the encoder's result keeps its buffer of some kilobytes alive.
    return bytes(memoryview(identity))


class OffsetEntries:
    """A map from keys to values that keeps the spelling under which each key was first stored. Invariant 5.

    A file may hold one key in several spellings, written by workers that compare bytes. Each is read as it is until its
    key is next written: then the first one in the file has the new value, and the others are removed.

    Args:
        entries: the stored entries, in the order of the file.
    """

    def __init__(self, entries: Mapping[bytes, bytes] | None = None) -> None:
        self._values: dict[bytes, bytes] = {}
        # Only keys with several spellings, or one that is not their identity; most keys cost nothing here.
        self._spellings: dict[bytes, tuple[bytes, ...]] = {}
        self.apply(entries or {})

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; of several spellings the given one, else the last in the file."""
        value = self._values.get(key)
        if value is not None:
            return value
        stored = self._stored(key_identity(key))
        return self._values[stored[-1]] if stored else None

    def copy(self) -> dict[bytes, bytes]:
        """All stored entries."""
        return dict(self._values)

    def several(self) -> list[tuple[bytes, ...]]:
        """The keys that are stored in several spellings."""
        return [spellings for spellings in self._spellings.values() if len(spellings) > 1]

    def warn_of_spellings(self, where: str) -> None:
        """Logs a warning if keys are stored in several spellings."""
        if several := self.several():
            logger.warning(
                "%s holds %d source partitions more than once, with their keys in different orders, as in %s. A task "
                "continues from its own spelling; its next commit, or a change of the offset over REST, removes the "
                "others",
                where,
                len(several),
                " and ".join(key.decode(errors="replace") for key in several[0]),
            )

    def changes(self, entries: Mapping[bytes, bytes | None]) -> dict[bytes, bytes | None]:
        """Returns the changes of stored entries that give these keys these values, in any spelling.

        Args:
            entries: in the order of the writes; for equal keys the last one counts.

        Returns:
            The changes of exact keys; None removes a key.
        """
        changes: dict[bytes, bytes | None] = {}
        new: dict[bytes, bytes] = {}
        for key, value in entries.items():
            identity = key_identity(key)
            stored = self._stored(identity) or (new.setdefault(identity, key),)
            changes[stored[0]] = value
            changes.update(dict.fromkeys(stored[1:]))
        return changes

    def after(self, changes: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
        """Returns all entries after these changes, without making them."""
        values = dict(self._values)
        for key, value in changes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        return values

    def apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Makes changes of exact keys."""
        for key, value in changes.items():
            if value is None:
                self._remove(key)
            else:
                if key not in self._values:
                    self._add(key)
                self._values[key] = value

    def _stored(self, identity: bytes) -> tuple[bytes, ...]:
        """The spellings in which a key is stored, in the order of the file."""
        spellings = self._spellings.get(identity)
        if spellings is not None:
            return spellings
        return (identity,) if identity in self._values else ()

    def _add(self, key: bytes) -> None:
        identity = key_identity(key)
        others = self._stored(identity)
        if others or key != identity:
            self._spellings[identity] = (*others, key)

    def _remove(self, key: bytes) -> None:
        if self._values.pop(key, None) is None:
            return
        identity = key_identity(key)
        left = tuple(other for other in self._spellings.pop(identity, ()) if other != key)
        if left and left != (identity,):
            self._spellings[identity] = left


def connector_offsets(store: OffsetStore, connector: str) -> list[tuple[dict[str, object] | None, dict[str, object]]]:
    """All source partitions of a connector that have an offset, with that offset. Skips keys of another form.

    Raises:
        OffsetStoreException: the store cannot be read.
    """
    found = []
    for key, value in store.entries().items():
        parsed = parse_key(key)
        if parsed is None:
            logger.warning("Ignoring a key of the offset store that is not [connector, partition]: %r", key[:200])
            continue
        if parsed[0] != connector:
            continue
        try:
            offset = parse_value(value)
        except DataException as error:
            logger.warning("Ignoring the offset of source partition %s of %s: %s", parsed[1], connector, error)
            continue
        if offset is not None:
            found.append((parsed[1], offset))
    return found


class OffsetReader(OffsetStorageReader):
    """Reads the committed offsets of one connector.

    Args:
        timeout_s: the longest wait for a read; None for the store's own limit.

    Thread: any. `close` may come while another thread reads; that read still ends by itself, then fails.
    """

    def __init__(self, store: OffsetStore, connector: str, *, timeout_s: float | None = None) -> None:
        self._store = store
        self._connector = connector
        self._timeout_s = timeout_s
        self._closed = threading.Event()

    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        """The committed offset of one source partition, or None."""
        return self.offsets([partition])[0]

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        """The committed offsets of many source partitions, in the given order.

        A partition that cannot be a key, and a stored value that cannot be read, are logged and count as no offset.

        Raises:
            ConnectException: the store cannot be read, or the reader was closed.
        """
        self._check_open()
        keys = [self._key(partition) for partition in partitions]
        wanted = [key for key in keys if key is not None]
        try:
            values = self._store.get(wanted, self._timeout_s)
        except OffsetStoreException as error:
            raise ConnectException(f"The source offsets of {self._connector} could not be read: {error}") from error
        self._check_open()
        return [None if key is None else self._offset(key, values.get(key)) for key in keys]

    def close(self) -> None:
        """Makes current and later reads fail, because the connector or task was abandoned."""
        self._closed.set()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ConnectException(f"The offset reader of {self._connector} is closed: its task or connector has ended")

    def _key(self, partition: Mapping[str, object]) -> bytes | None:
        try:
            return key_bytes(self._connector, partition)
        except DataException as error:
            logger.error("No offset is looked up for source partition %s of %s: %s", partition, self._connector, error)
            return None

    def _offset(self, key: bytes, value: bytes | None) -> dict[str, object] | None:
        try:
            return parse_value(value)
        except DataException as error:
            logger.error("The stored offset of %s is left out: %s", key.decode(errors="replace"), error)
            return None


class OffsetWriter:
    """Collects the newest offset of each source partition of one connector and writes them together.

    The entries of a failed write are written next time; a newer offset of the same partition wins. Invariant 1.

    Thread: any; one write at a time. After `fence` all writes are refused.
    """

    def __init__(self, store: OffsetStore, connector: str) -> None:
        self._store = store
        self._connector = connector
        self._pending: dict[Hashable, tuple[Partition, Offset]] = {}
        self._pending_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._fenced = threading.Event()

    @property
    def fenced(self) -> bool:
        """True if `fence` was called."""
        return self._fenced.is_set()

    @property
    def has_pending(self) -> bool:
        """True if an offset was noted and not written."""
        with self._pending_lock:
            return bool(self._pending)

    def put(self, partition: Partition, offset: Offset) -> None:
        """Notes the offset that the next `flush` writes; None removes the partition's offset."""
        with self._pending_lock:
            self._pending[partition_identity(partition)] = (partition, offset)

    def flush(self, timeout_s: float | None = None) -> int:
        """Writes the offsets noted since the last successful call; durable on return.

        Args:
            timeout_s: one limit for the wait for a running write and for the write; None for the store's own limit.

        Raises:
            OffsetStoreException: the write failed, took too long, or the writer is fenced; the offsets are kept.
            DataException: an offset cannot be written in the format; all are kept.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._write_lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise OffsetStoreException(
                f"The offsets of {self._connector} were not written: an earlier write has not ended for {timeout_s} s"
            )
        try:
            # Checked under the lock: after `fence` has returned true, an abandoned task can write nothing.
            if self._fenced.is_set():
                raise OffsetStoreException(f"The offsets of {self._connector} were not written: the task was cancelled")
            return self._write(None if deadline is None else max(0.0, deadline - time.monotonic()))
        finally:
            self._write_lock.release()

    def fence(self, timeout_s: float) -> bool:
        """Refuses all further writes. Invariant 4.

        Returns:
            True if no write is in progress; False if one has not ended within the time.
        """
        self._fenced.set()
        if not self._write_lock.acquire(timeout=timeout_s):
            return False
        self._write_lock.release()
        return True

    def _write(self, timeout_s: float | None) -> int:
        with self._pending_lock:
            taken, self._pending = self._pending, {}
        if not taken:
            return 0
        try:
            entries = {
                key_bytes(self._connector, partition): value_bytes(offset) for partition, offset in taken.values()
            }
            self._store.set(entries, timeout_s)
        except BaseException:
            with self._pending_lock:
                self._pending = {**taken, **self._pending}
            raise
        return len(entries)


class MemoryOffsetStore:
    """An `OffsetStore` in memory.

    Source: org.apache.kafka.connect.storage.MemoryOffsetBackingStore.
    """

    def __init__(self, entries: Mapping[bytes, bytes] | None = None) -> None:
        self._lock = threading.Lock()
        self._entries = OffsetEntries(entries)
        self._started = False

    def start(self) -> None:
        """Allows reads and writes."""
        self._started = True

    def stop(self) -> None:
        """Refuses reads and writes until the next start; the entries stay."""
        self._started = False

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        """The value of each key; None for a key without a value."""
        with self._lock:
            self._require_started()
            return {key: self._entries.get(key) for key in keys}

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        """Stores all entries; None removes a key."""
        with self._lock:
            self._require_started()
            self._entries.apply(self._entries.changes(entries))

    def entries(self) -> dict[bytes, bytes]:
        """A copy of all entries."""
        with self._lock:
            self._require_started()
            return self._entries.copy()

    def _require_started(self) -> None:
        if not self._started:
            raise OffsetStoreException("The offset store is not started: it was stopped, or start() was not called")


class OffsetTopicStore:
    """An `OffsetStore` on a log.

    Args:
        timeout_s: The default time limit of a read or a write.
    """

    def __init__(self, log: RecordLog, topic: str, *, timeout_s: float = 60.0) -> None:
        self._log = log
        self._topic = topic
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._entries = OffsetEntries()
        self._seldom = SeldomLog(logger)
        # During the first read of the topic: the partition and time of the last write of each key.
        self._found: dict[bytes, tuple[int, int]] | None = None
        self._moved = 0

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._topic

    def start(self) -> None:
        with self._lock:
            self._entries, self._found, self._moved = OffsetEntries(), {}, 0
        try:
            self._log.start(self._take, self._timeout_s)
        except KafkaException as error:
            raise OffsetStoreException(f"The source offsets cannot be read: {error}") from error
        with self._lock:
            self._found = None
            self._entries.warn_of_spellings(f"The offsets topic {self._topic}")
        if self._moved:
            logger.warning(
                "The offsets topic %s holds %d keys in two partitions: partitions were added to it. Of each the newest "
                "offset counts; one that is removed may come back once Kafka has forgotten that it was. Create the "
                "topic anew",
                self._topic,
                self._moved,
            )

    def stop(self) -> None:
        self._log.stop()

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        """See `OffsetStore`; first reads all earlier writes of every worker."""
        self._read(timeout_s)
        with self._lock:
            return {key: self._entries.get(key) for key in keys}

    def entries(self) -> dict[bytes, bytes]:
        """See `OffsetStore`; first reads all earlier writes of every worker."""
        self._read(None)
        with self._lock:
            return self._entries.copy()

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        try:
            with waiting_for("broker", f"source offsets are written to the topic {self._topic}"):
                self._log.write(self.records(entries), self._timeout_s if timeout_s is None else timeout_s)
        except KafkaException as error:
            raise OffsetStoreException(f"The source offsets could not be written: {error}") from error

    def copy(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Writes copies of entries that are stored elsewhere; does not wait, and only logs a failure."""
        for key, value in self.records(entries):
            self._log.write_async(key, value, self._copied)

    def records(
        self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None
    ) -> list[tuple[bytes, bytes | None]]:
        """The records for these entries: each key in its stored spelling, and tombstones for its other spellings.

        A caller that writes offsets in its own transaction sends these.
        """
        with self._lock:
            return list(self._entries.changes(entries).items())

    def written(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Does nothing: a committed transaction needs no copies."""

    def _read(self, timeout_s: float | None) -> None:
        try:
            with waiting_for("broker", f"source offsets are read from the topic {self._topic}"):
                self._log.read_to_end(self._timeout_s if timeout_s is None else timeout_s)
        except KafkaException as error:
            raise OffsetStoreException(f"The source offsets could not be read: {error}") from error

    def _copied(self, error: Exception | None) -> None:
        if error is not None:
            self._seldom.warning(
                "copy",
                "Source offsets could not be copied to %s, they are in the connector's own topic: %s",
                self._topic,
                error,
            )

    # ------------------------------------------------------------------ the log's thread
    def _take(self, records: Sequence[LogRecord]) -> None:
        with self._lock:
            for record in records:
                if record.key is None:
                    self._seldom.warning("key", "Ignoring a record of %s without a key", self._topic)
                elif self._is_newest(record, record.key):
                    self._entries.apply({record.key: record.value})

    def _is_newest(self, record: LogRecord, key: bytes) -> bool:
        """True if no other partition has a newer record of this key; partitions arrive in any order."""
        if self._found is None:
            return True
        partition, timestamp_ms = self._found.get(key, (record.partition, record.timestamp_ms))
        if partition != record.partition:
            self._moved += 1
            if timestamp_ms > record.timestamp_ms:
                return False
        self._found[key] = (record.partition, record.timestamp_ms)
        return True


class MergedOffsetStore:
    """An `OffsetStore` over two stores.

    Args:
        own: The connector's store; started and stopped by this one.
        shared: The worker's store; it is running, and this store does not stop it.
    """

    def __init__(
        self, own: OffsetTopicStore, shared: OffsetTopicStore, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._own = own
        self._shared = shared
        self._clock = clock

    def start(self) -> None:
        self._own.start()

    def stop(self) -> None:
        self._own.stop()

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        left = self._limit(timeout_s)
        wanted = list(keys)
        found = self._own.get(wanted, left())
        missing = [key for key in wanted if found[key] is None]
        return {**found, **self._shared.get(missing, left())} if missing else found

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        """See `OffsetStore`.

        Removes offsets from the shared topic first: an offset left there would count again once the connector's topic
        has none. Writes offsets to the connector's topic first, and then copies them to the shared topic.
        """
        left = self._limit(timeout_s)
        self._remove_shared(entries, left())
        self._own.set(entries, left())
        self.written(entries)

    def entries(self) -> dict[bytes, bytes]:
        own = self._own.entries()
        known = {key_identity(key) for key in own}
        shared = self._shared.entries()
        return {**{key: value for key, value in shared.items() if key_identity(key) not in known}, **own}

    @property
    def topic(self) -> str:
        """The name of the connector's topic."""
        return self._own.topic

    def records(
        self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None
    ) -> list[tuple[bytes, bytes | None]]:
        """The records for the connector's topic, for a transaction: in the order of writes of `set`.

        Raises:
            OffsetStoreException: the removed entries could not be removed from the shared topic.
        """
        self._remove_shared(entries, timeout_s)
        return self._own.records(entries)

    def written(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Copies committed entries to the shared topic. Does not wait."""
        self._shared.copy({key: value for key, value in entries.items() if value is not None})

    def _remove_shared(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None) -> None:
        removed = {key: None for key, value in entries.items() if value is None}
        if removed:
            self._shared.set(removed, timeout_s)

    def _limit(self, timeout_s: float | None) -> Callable[[], float | None]:
        """Returns a function that gives the remaining time of one limit for both stores."""
        if timeout_s is None:
            return lambda: None
        deadline = self._clock() + timeout_s
        return lambda: max(0.0, deadline - self._clock())
