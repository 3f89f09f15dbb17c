"""The configuration of connectors and tasks: in the config topic of a cluster, or in memory and a file.

``ConfigTopicStore`` folds the records into a snapshot as they arrive, in the same way on every worker
(``penstock.model.cluster_config``); a write counts once it was read back. ``LocalConfigStore``, for a standalone
worker, folds written records at once; ``FileConnectorStore`` keeps connectors and target states over restarts, but no
task configurations, and no connectors of the command line, which each start creates again from their own files.

Thread: any; one write at a time. The listener is called on the thread of the topic's log, or on the thread of the
writer; it must not write itself.
Source: org.apache.kafka.connect.storage.KafkaConfigBackingStore, MemoryConfigBackingStore.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from penstock.errors import ConnectException, DataException
from penstock.model import TargetState
from penstock.model.cluster_config import (
    Change,
    ClusterConfig,
    ConfigRecord,
    Entry,
    RecordSkipped,
    connector_entries,
    fold,
)
from penstock.stores.interface import ConfigListener, RecordLog
from penstock.stores.offset_file import lock_path_of, locked, replace_file

if TYPE_CHECKING:
    from penstock.kafka.topic_log.clients import LogRecord


class ConfigTopicStore:
    """A `ConfigStore` on a log.

    Args:
        log: The log of the config topic; it has a transactional id if `transactional`.
        transactional: True if the leader writes in transactions: `exactly.once.source.support` is not `disabled`.
    """

    def __init__(self, log: RecordLog, *, transactional: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._transactional = transactional
        self._clock = clock
        self._lock = threading.Lock()
        self._snapshot = ClusterConfig()
        self._listener: ConfigListener | None = None

    def start(self, listener: ConfigListener) -> None:
        # A failed start may have read a part of the topic.
        self._snapshot = ClusterConfig()
        self._log.start(self._take)
        with self._lock:
            self._listener = listener

    def stop(self) -> None:
        self._log.stop()

    @property
    def snapshot(self) -> ClusterConfig:
        return self._snapshot

    def refresh(self, timeout_s: float) -> ClusterConfig:
        self._log.read_to_end(timeout_s)
        return self._snapshot

    def write(self, entries: Sequence[Entry], *, leading: bool = False, timeout_s: float = 30.0) -> ClusterConfig:
        """See `ConfigStore`. Invariant 8."""
        deadline = self._clock() + timeout_s
        raw = [(_key(key), value) for key, value in entries]
        if leading and self._transactional:
            self._log.write(raw, timeout_s, transactional=True)
            return self._snapshot
        # Without a transaction, the last record, which makes the earlier ones count, is written after they are stored:
        # if a set lacked a task configuration, readers would use an older one.
        for part in (raw[:-1], raw[-1:]):
            if part:
                self._log.write(part, max(0.0, deadline - self._clock()))
        return self._snapshot

    def claim(self) -> None:
        if self._transactional:
            self._log.claim()

    # ------------------------------------------------------------------ the log's thread
    def _take(self, records: Sequence[LogRecord]) -> None:
        usable = [ConfigRecord(record.offset, _text(record.key), record.value) for record in records]
        with self._lock:
            self._snapshot, changes = fold(self._snapshot, usable)
            listener = self._listener
        _log_skipped(changes)
        if listener is not None:
            listener(self._snapshot, changes)


def _key(key: str) -> bytes:
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise DataException(
            f"The record {key!r} of the config topic cannot be written: its key is no valid Unicode ({error})"
        ) from error


def _text(key: bytes | None) -> str:
    """A key as text; an invalid key names nothing known, and is skipped."""
    return "" if key is None else key.decode(errors="replace")


def _log_skipped(changes: Sequence[Change]) -> None:
    for change in changes:
        if isinstance(change, RecordSkipped):
            logger.warning(
                "Ignoring the record %s of the config topic at offset %d: %s", change.key, change.offset, change.reason
            )


logger = logging.getLogger(__name__)

_ID: Final = re.compile(r"[0-9a-f]{16}")
_ID_BYTES: Final = 8


def kept_id(offsets_file: str) -> str | None:
    """The id of the worker that owns these offsets; the first call creates it in ``<offsets file>.id``.

    Args:
        offsets_file: Its path; its lock is held.

    Returns:
        16 hexadecimal digits; None if there can be no such file, for example next to a device.
    """
    file = Path(offsets_file).absolute()
    if file.exists() and not file.is_file():
        return None
    # A link to the file leads to the same worker.
    kept = Path(f"{file.resolve()}.id")
    try:
        if kept.exists() and _ID.fullmatch(found := kept.read_text(encoding="ascii", errors="replace").strip()):
            return found
        new = secrets.token_hex(_ID_BYTES)
        replace_file(kept, f"{new}\n".encode("ascii"))
    except OSError as error:
        logger.warning(
            "The worker's id cannot be kept in %s (%s): after a crash its sinks wait for their old group members",
            kept,
            error,
        )
        return None
    return new


_FORMAT: Final = 1


@dataclass(frozen=True)
class StoredConnector:
    """The stored state of one connector.

    Attributes:
        secrets: The settings that were secrets before, even if its class does not define them as secrets.
    """

    config: Mapping[str, str] = field(repr=False)
    target: TargetState = TargetState.STARTED
    secrets: frozenset[str] = frozenset()


class FileConnectorStore:
    """The connectors of a standalone worker, in a file that outlives it.

    A missing or empty file counts as empty; its directory must exist. The file is JSON, replaced as a whole, and
    readable by its owner only, because configurations hold secrets. A lock file next to it keeps a second worker away.
    Entries of earlier versions, which stored connectors of the command line too, are removed when the command line
    names the connector, or over REST.

    Args:
        path: the file, `config.storage.file.filename`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file = self.path
        self._lock = threading.Lock()
        self._lock_handle: IO[bytes] | None = None
        self._connectors: dict[str, StoredConnector] = {}

    def start(self) -> None:
        """Takes the lock and reads the file."""
        self._file = Path(os.path.realpath(self.path))
        try:
            self._take_lock()
            self._connectors = self._read()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Waits for a write in progress, then releases the file. Safe to call twice."""
        with self._lock:
            handle, self._lock_handle = self._lock_handle, None
        if handle is not None:
            handle.close()

    def connectors(self) -> dict[str, StoredConnector]:
        """All connectors, in the order in which they were first stored."""
        with self._lock:
            return dict(self._connectors)

    def put(self, name: str, connector: StoredConnector) -> None:
        """Stores a connector; durable on return.

        Raises:
            ConnectException: the disk refused; the stored data is intact.
        """
        with self._lock:
            if self._connectors.get(name) != connector:
                self._write({**self._connectors, name: connector})

    def remove(self, name: str) -> None:
        """Removes a connector; durable on return.

        Raises:
            ConnectException: the disk refused; the stored data is intact.
        """
        with self._lock:
            if name in self._connectors:
                self._write({key: value for key, value in self._connectors.items() if key != name})

    def _take_lock(self) -> None:
        lock_path = lock_path_of(self._file)
        try:
            self._lock_handle = locked(lock_path)
        except BlockingIOError as error:
            raise self._unusable(
                "is in use by another worker; give each standalone worker its own config.storage.file.filename, or "
                "stop the other one"
            ) from error
        except OSError as error:
            raise self._unusable(
                f"cannot be locked: {error.strerror or error}; its directory must exist and be writable"
            ) from error

    def _read(self) -> dict[str, StoredConnector]:
        try:
            content = self._file.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unusable(f"cannot be read: {error.strerror or error}; check its permissions") from error
        if not content.strip():
            return {}
        try:
            return _decode(content)
        except (ValueError, KeyError, TypeError) as error:
            raise self._unusable(
                f"is corrupt or is not such a file: {error}. The worker does not start, because it would forget its "
                "connectors. Restore the file from a copy, or move it away to begin without connectors on purpose."
            ) from error

    def _write(self, connectors: dict[str, StoredConnector]) -> None:
        if self._lock_handle is None:
            raise self._unusable("was closed: the worker is shutting down")
        try:
            replace_file(self._file, _encode(connectors))
        except OSError as error:
            raise self._unusable(
                f"could not be written: {error.strerror or error}. It still holds what was stored before; make room, "
                "or make its directory writable."
            ) from error
        self._connectors = connectors

    def _unusable(self, what: str) -> ConnectException:
        return ConnectException(f"The file of connector configurations {self.path} {what}")


def _encode(connectors: Mapping[str, StoredConnector]) -> bytes:
    content = {
        "format": _FORMAT,
        "connectors": {
            name: {"target": one.target.value, "secrets": sorted(one.secrets), "config": dict(one.config)}
            for name, one in connectors.items()
        },
    }
    # Escapes preserve characters that UTF-8 cannot encode: JSON bodies may have lone surrogates.
    return json.dumps(content, indent=1).encode("ascii") + b"\n"


def _decode(content: bytes) -> dict[str, StoredConnector]:
    found = json.loads(content)
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise ValueError(f"it has no format {_FORMAT}")
    connectors = {}
    for name, one in found["connectors"].items():
        config = one["config"]
        if not isinstance(config, dict) or not all(isinstance(value, str) for value in config.values()):
            raise ValueError(f"the configuration of {name} is not a map of texts")
        connectors[name] = StoredConnector(config, TargetState(one["target"]), frozenset(one.get("secrets", ())))
    return connectors


class LocalConfigStore:
    """A `ConfigStore` of one worker.

    Args:
        file: The store in which connectors outlive the worker; None to forget them at its end. It is started before
            this store, and stopped after it.
        except_for: Stored connectors to skip at the start, because the command line has connectors with these names.
    """

    def __init__(self, file: FileConnectorStore | None = None, *, except_for: Collection[str] = ()) -> None:
        self._file = file
        self._except_for = frozenset(except_for)
        self._lock = threading.Lock()
        self._snapshot = ClusterConfig()
        self._listener: ConfigListener = lambda config, changes: None
        self._in_memory: set[str] = set()

    def start(self, listener: ConfigListener) -> None:
        """See `ConfigStore`. Skips a stored connector whose text is not valid Unicode; it stays stored."""
        entries: list[Entry] = []
        for name, one in (self._file.connectors() if self._file is not None else {}).items():
            if name in self._except_for:
                continue
            try:
                entries += connector_entries(name, one.config, one.target, one.secrets)
            except DataException as error:
                logger.error("The stored connector %r does not come back; create it again: %s", name, error)
        with self._lock:
            self._snapshot, _ = fold(self._snapshot, _records(self._snapshot, entries))
            self._listener = listener

    def stop(self) -> None:
        """Does nothing: there are no resources to release."""

    @property
    def snapshot(self) -> ClusterConfig:
        return self._snapshot

    def refresh(self, timeout_s: float) -> ClusterConfig:
        """See `ConfigStore`; there is no other writer."""
        return self._snapshot

    def in_memory(self, name: str) -> None:
        """Keeps a connector out of the file, starting at its next write, because a file of the command line holds it.

        That write also removes a stored connector of this name. After the connector is deleted, a new one of the name
        is stored again.
        """
        with self._lock:
            self._in_memory.add(name)

    def write(self, entries: Sequence[Entry], *, leading: bool = False, timeout_s: float = 30.0) -> ClusterConfig:
        """See `ConfigStore`."""
        with self._lock:
            before = self._snapshot
            after, changes = fold(before, _records(before, entries))
            names = dict.fromkeys(name for key, _ in entries if (name := _stored_name(key)) is not None)
            for name in names:
                self._store(name, before, after)
            self._in_memory -= {name for name in names if name in before.connectors and name not in after.connectors}
            self._snapshot = after
            self._listener(after, changes)
            return after

    def claim(self) -> None:
        """See `ConfigStore`; no other worker has the right."""

    def _store(self, name: str, before: ClusterConfig, config: ClusterConfig) -> None:
        """Updates a connector in the file to match the snapshot."""
        connector = config.connectors.get(name)
        if connector is not None and name in self._in_memory and name in before.connectors:
            logger.info("Connector %s is one of the command line: a change of it lasts until the worker ends", name)
        if self._file is None:
            return
        if connector is None or name in self._in_memory:
            self._file.remove(name)
        else:
            given = {key: text for key, text in connector.config.items() if text is not None}
            self._file.put(name, StoredConnector(given, config.target(name), connector.secrets))


def _records(config: ClusterConfig, entries: Sequence[Entry]) -> list[ConfigRecord]:
    """Returns the entries as records that follow a snapshot."""
    first = max(config.offset, 0)
    return [ConfigRecord(first + number, key, value) for number, (key, value) in enumerate(entries)]


def _stored_name(key: str) -> str | None:
    """The connector of a record, if the file stores such records."""
    for prefix in ("target-state-", "connector-"):
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return None
