"""What a standalone worker remembers of its connectors: configurations and target states, in one file.

Connectors of the command line are not among them: their files are their home, and each start creates them anew. Earlier
versions stored them too, and an entry does not tell; it goes when the command line names its connector, or over REST.

Main types: `StoredConnector`, the `ConnectorStore` protocol, `FileConnectorStore`. The file is JSON, replaced as a
whole (temporary file, fsync, rename), readable by its owner only: configurations hold secrets. A lock file beside it
keeps a second worker away.

Thread: any; one write at a time.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Protocol

from penstock.errors import ConnectException
from penstock.model import TargetState
from penstock.stores.replacement import replace_file

_FORMAT: Final = 1


@dataclass(frozen=True)
class StoredConnector:
    """One connector as it was left.

    Attributes:
        config: Its settings as given.
        target: What a user asked for.
        secrets: The settings that must not be shown, known even when its class is not there any more; may be left out.
    """

    config: Mapping[str, str] = field(repr=False)
    target: TargetState = TargetState.STARTED
    secrets: frozenset[str] = frozenset()


class ConnectorStore(Protocol):
    """Where connectors outlive the worker. Methods block on a disk; any thread."""

    def connectors(self) -> dict[str, StoredConnector]:
        """All connectors, in the order in which they were first stored."""

    def put(self, name: str, connector: StoredConnector) -> None:
        """Keeps a connector; durable on return."""

    def remove(self, name: str) -> None:
        """Forgets a connector; durable on return."""


class FileConnectorStore:
    """A `ConnectorStore` in a file.

    A missing or empty file counts as empty; its directory must exist.

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
        """Takes the lock and reads the file.

        Raises:
            ConnectException: another worker uses the file, or it cannot be read or is not such a file. It is never
                taken for an empty one.
        """
        self._file = Path(os.path.realpath(self.path))
        try:
            self._take_lock()
            self._connectors = self._read()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Lets the file go, after a write under way. Safe to call twice."""
        with self._lock:
            handle, self._lock_handle = self._lock_handle, None
        if handle is not None:
            handle.close()

    def connectors(self) -> dict[str, StoredConnector]:
        """See `ConnectorStore`."""
        with self._lock:
            return dict(self._connectors)

    def put(self, name: str, connector: StoredConnector) -> None:
        """See `ConnectorStore`.

        Raises:
            ConnectException: the disk refused; what was stored before is intact.
        """
        with self._lock:
            if self._connectors.get(name) != connector:
                self._write({**self._connectors, name: connector})

    def remove(self, name: str) -> None:
        """See `ConnectorStore`.

        Raises:
            ConnectException: the disk refused; what was stored before is intact.
        """
        with self._lock:
            if name in self._connectors:
                self._write({key: value for key, value in self._connectors.items() if key != name})

    def _take_lock(self) -> None:
        lock_path = self._file.with_name(self._file.name + ".lock")
        try:
            # Whoever can open it can lock it.
            self._lock_handle = os.fdopen(os.open(lock_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
            fcntl.flock(self._lock_handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    # Escapes keep what UTF-8 cannot hold: JSON bodies may have lone surrogates.
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
