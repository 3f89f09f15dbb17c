"""The standalone worker's source offsets in one file, in Java Connect's own format.

A crash at any moment leaves the old or the new content; Java rewrites the file in place. The format is Java's
serialization of a ``HashMap<byte[], byte[]>``: ``encode`` writes the same bytes as Java for the same entries in the
same order; ``decode`` accepts only a Java ``HashMap`` of byte arrays (it never looks up another class).

Thread: any; writers that arrive during a write share the next one. ``replace_file``: one at a time for a file.
Source: org.apache.kafka.connect.storage.FileOffsetBackingStore; Java Object Serialization Specification, protocol
    version 5; java.util.HashMap#writeObject.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from penstock.errors import OffsetStoreException
from penstock.stores.offsets import OffsetEntries

_MAGIC: Final = b"\xac\xed\x00\x05"
#: An object of HashMap, of this version, with the fields loadFactor and threshold; without annotations and superclass.
_MAP_HEADER: Final = (
    _MAGIC
    + bytes.fromhex("73 72 0011")
    + b"java.util.HashMap"
    + bytes.fromhex("0507dac1c31660d1 03 0002 46 000a")
    + b"loadFactor"
    + bytes.fromhex("49 0009")
    + b"threshold"
    + bytes.fromhex("78 70")
)
#: The class of byte arrays at the first one, and the reference to it at the others.
_BYTES_CLASS: Final = bytes.fromhex("72 0002 5b42 acf317f8060854e0 02 0000 78 70")
_SAME_CLASS: Final = bytes.fromhex("71 007e0002")
#: Handles of earlier objects: the map's class, the map and the class of arrays have the first three.
_FIRST_ARRAY: Final = 0x7E0003
_NULL, _REFERENCE, _CLASS_DESCRIPTION, _OBJECT, _STRING, _ARRAY = 0x70, 0x71, 0x72, 0x73, 0x74, 0x75
_BLOCK_OF_8: Final = b"\x77\x08"
_END_OF_BLOCK: Final = b"\x78"
_LOAD_FACTOR = 0.75
_DEFAULT_CAPACITY = 16

_NAMES: Final = {_STRING: "a String", 0x76: "a Class", _CLASS_DESCRIPTION: "a class description", 0x7E: "an enum"}


class JavaFormatError(ValueError):
    """The bytes are not a Java-serialized HashMap of byte arrays; the message names the fault and its place."""


def encode(entries: Mapping[bytes, bytes | None]) -> bytes:
    """Serializes the entries as Java does for a map that got them in this order. Invariant 5.

    >>> encode({b"k": b"v"})[-17:].hex(" ")
    '00 00 00 01 6b 75 71 00 7e 00 02 00 00 00 01 76 78'
    """
    capacity = _DEFAULT_CAPACITY
    while len(entries) > int(capacity * _LOAD_FACTOR):
        capacity *= 2
    # Java allocates the table at the first put; an unallocated table has no threshold.
    threshold = int(capacity * _LOAD_FACTOR) if entries else 0
    out = bytearray(_MAP_HEADER)
    out += struct.pack(">fi", _LOAD_FACTOR, threshold)
    out += _BLOCK_OF_8 + struct.pack(">ii", capacity, len(entries))
    array_class = _BYTES_CLASS
    for pair in entries.items():
        for item in pair:
            if item is None:
                out.append(_NULL)
                continue
            out.append(_ARRAY)
            out += array_class + struct.pack(">i", len(item)) + item
            array_class = _SAME_CLASS
    return bytes(out + _END_OF_BLOCK)


def decode(data: bytes) -> dict[bytes | None, bytes | None]:
    """Returns the entries of a serialized map, in stored order; rejects anything else. Invariant 5."""
    if not data.startswith(_MAGIC):
        raise JavaFormatError("it does not start as Java serialization does (ac ed 00 05)")
    if not data.startswith(_MAP_HEADER) and not _MAP_HEADER.startswith(data):
        raise JavaFormatError(f"expected a java.util.HashMap, found {_found(data)}")
    reader = _Reader(data)
    if reader.take(2) != _BLOCK_OF_8:
        raise reader.fault("no capacity and size")
    size: int = struct.unpack(">ii", reader.take(8))[1]
    if not 0 <= size <= len(data):
        raise reader.fault(f"an impossible number of entries ({size})")
    entries: dict[bytes | None, bytes | None] = {}
    for _ in range(size):
        key = reader.item()
        entries[key] = reader.item()
    if reader.take(1) != _END_OF_BLOCK:
        raise reader.fault("more data than the map's size says")
    if reader.position != len(data):
        raise reader.fault("data after the end of the map")
    return entries


class _Reader:
    """One pass over the bytes after the header, its load factor and its threshold."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = len(_MAP_HEADER)
        self._arrays: list[bytes] = []
        self.take(8)

    def item(self) -> bytes | None:
        tag = self.take(1)[0]
        if tag == _NULL:
            return None
        if tag == _REFERENCE:
            number: int = struct.unpack(">i", self.take(4))[0] - _FIRST_ARRAY
            if not 0 <= number < len(self._arrays):
                raise self.fault("a reference to something else than a byte array")
            return self._arrays[number]
        if tag != _ARRAY:
            raise self.fault(f"{_name(tag)} where a byte array belongs")
        array_class = _SAME_CLASS if self._arrays else _BYTES_CLASS
        if self.take(len(array_class)) != array_class:
            raise self.fault("an array of another class where a byte array belongs")
        length: int = struct.unpack(">i", self.take(4))[0]
        if length < 0:
            raise self.fault("an array of negative length")
        self._arrays.append(self.take(length))
        return self._arrays[-1]

    def take(self, count: int) -> bytes:
        part = self._data[self.position : self.position + count]
        if len(part) < count:
            raise JavaFormatError(f"it ends too early, after {len(self._data)} bytes")
        self.position += count
        return part

    def fault(self, found: str) -> JavaFormatError:
        return JavaFormatError(f"{found}, before byte {self.position}")


def _found(data: bytes) -> str:
    """The first object of a stream, for people."""
    tag, is_class = data[4], data[5:6] == bytes([_CLASS_DESCRIPTION])
    if tag != _OBJECT or not is_class or len(data) < 8:
        return f"{_name(tag)} at byte 4"
    name = data[8 : 8 + int.from_bytes(data[6:8], "big")].decode("utf-8", errors="replace")
    other = " in another form than Java's" if name == "java.util.HashMap" else ""
    return f"an object of the class {name}{other}"


def _name(tag: int) -> str:
    return _NAMES.get(tag, f"the tag 0x{tag:02x}")


#: Points of a replacement at which tests end the process.
TEMPORARY_WRITTEN: Final = "temporary-written"
RENAMED: Final = "renamed"


def lock_path_of(file: Path) -> Path:
    """The lock file of a file that is replaced with each write, which would lose a lock on the file itself."""
    return file.with_name(file.name + ".lock")


def locked(path: Path) -> IO[bytes]:
    """Opens a lock file and locks it until it is closed.

    Raises:
        BlockingIOError: Another process has locked it.
        OSError: It cannot be opened or created.
    """
    # Any user who can open the file can lock it.
    handle = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise
    return handle


def replace_file(file: Path, content: bytes, at_point: Callable[[str], None] = lambda point: None) -> None:
    """Writes a temporary file next to a file, makes it durable, and renames it to the file.

    An existing file keeps its mode; a new one is readable by its owner only, whatever the umask.

    Args:
        at_point: Called with ``TEMPORARY_WRITTEN`` and ``RENAMED`` at these points.

    Raises:
        OSError: It cannot be written. The old file is intact, unless only the fsync of the directory failed.
    """
    temporary = file.with_name(f"{file.name}.tmp")
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o600
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
            os.fchmod(handle.fileno(), mode)
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        at_point(TEMPORARY_WRITTEN)
        temporary.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    at_point(RENAMED)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


logger = logging.getLogger(__name__)


@dataclass
class _Write:
    """Entries of all callers that wait for the same write; `done` and `error` are its outcome."""

    entries: dict[bytes, bytes | None] = field(default_factory=dict)
    done: bool = False
    error: OffsetStoreException | None = None


class FileOffsetStore:
    """An `OffsetStore` in a file. Invariant 5.

    A missing or empty file counts as empty. A character device (`/dev/null`) keeps the offsets in memory only.

    Args:
        path: the file, `offset.storage.file.filename`; its directory must exist.
        at_point: called with `TEMPORARY_WRITTEN` and `RENAMED` while a write passes these points, for crash tests.
    """

    def __init__(self, path: Path | str, *, at_point: Callable[[str], None] = lambda point: None) -> None:
        self.path = Path(path)
        self._at_point = at_point
        self._condition = threading.Condition()
        self._entries = OffsetEntries()
        self._next = _Write()
        self._writing = False
        self._started = False
        self._lock_handle: IO[bytes] | None = None
        # A symbolic link is followed once: the rename must replace the file, not the link to it.
        self._file = self.path
        self._volatile = False

    def start(self) -> None:
        """Takes the lock and reads the file."""
        with self._condition:
            if self._started:
                return
            self._file = Path(os.path.realpath(self.path))
            self._volatile = self._check_kind()
            try:
                if not self._volatile:
                    self._take_lock()
                    self._entries = OffsetEntries(self._read())
                    self._entries.warn_of_spellings(f"The offsets file {self.path}")
            except BaseException:
                self._drop_lock()
                raise
            self._next = _Write()
            self._started = True

    def stop(self) -> None:
        """Waits for a write in progress, then releases the file."""
        with self._condition:
            self._started = False
            self._condition.wait_for(lambda: not self._writing)
            self._drop_lock()
            self._condition.notify_all()

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        """The value of each key; None for a key without a value. Never waits, because the entries are in memory."""
        with self._condition:
            self._require_started()
            return {key: self._entries.get(key) for key in keys}

    def entries(self) -> dict[bytes, bytes]:
        """A copy of all entries."""
        with self._condition:
            self._require_started()
            return self._entries.copy()

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        """Writes the entries; durable on return.

        Raises:
            OffsetStoreException: the disk refused (the old content is intact), or the wait for another write took
                longer than the timeout (these entries may still be written).
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            self._require_started()
            write = self._next
            for key, value in entries.items():
                # Added after the entries of earlier callers: of several spellings of a key the last one counts.
                write.entries.pop(key, None)
                write.entries[key] = value
            while not write.done and (self._writing or self._next is not write):
                self._wait(deadline)
            if write.done:
                if write.error is not None:
                    raise OffsetStoreException(str(write.error)) from write.error
                return
            # `stop` may have been called while this write waited for its turn.
            self._require_started()
            self._next = _Write()
            self._writing = True
            changes = self._entries.changes(write.entries)
            content = self._entries.after(changes)
        try:
            if not self._volatile:
                replace_file(self._file, encode(content), self._at_point)
        except OSError as error:
            write.error = OffsetStoreException(
                f"Source offsets could not be written to {self.path}: {error.strerror or error}. The file still holds "
                "the offsets of the write before; make room, or make the directory writable."
            )
            raise write.error from error
        except BaseException as error:
            write.error = OffsetStoreException(f"The write of source offsets to {self.path} was broken off: {error!r}")
            raise
        finally:
            with self._condition:
                if write.error is None:
                    self._entries.apply(changes)
                write.done = True
                self._writing = False
                self._condition.notify_all()

    def _wait(self, deadline: float | None) -> None:
        remaining = None if deadline is None else deadline - time.monotonic()
        if remaining is not None and remaining <= 0:
            raise OffsetStoreException(
                f"Source offsets were not written to {self.path} in time: an earlier write has not ended; the disk is "
                "slow or does not answer"
            )
        self._condition.wait(remaining)

    def _require_started(self) -> None:
        if not self._started:
            raise OffsetStoreException(f"The offset store of {self.path} is not started, or was stopped")

    def _check_kind(self) -> bool:
        """True if the offsets can only be kept in memory."""
        try:
            mode = self._file.stat().st_mode
        except FileNotFoundError:
            if not self._file.parent.is_dir():
                raise OffsetStoreException(
                    f"The directory of the offsets file {self.path} does not exist; create it or change "
                    "offset.storage.file.filename"
                ) from None
            return False
        except OSError as error:
            raise self._unreadable(error) from error
        if stat.S_ISCHR(mode):
            logger.warning("The offsets file %s is a device: source offsets are lost when the worker ends", self.path)
            return True
        if not stat.S_ISREG(mode):
            raise OffsetStoreException(
                f"The offsets file {self.path} is not a regular file; change offset.storage.file.filename"
            )
        return False

    def _take_lock(self) -> None:
        lock_path = lock_path_of(self._file)
        try:
            self._lock_handle = locked(lock_path)
        except BlockingIOError as error:
            raise OffsetStoreException(
                f"The offsets file {self.path} is in use by another worker; give each standalone worker its own "
                "offset.storage.file.filename, or stop the other one"
            ) from error
        except OSError as error:
            raise OffsetStoreException(
                f"The offsets file {self.path} cannot be locked: {error.strerror or error} ({lock_path.name} in the "
                "same directory); make the directory writable for this user"
            ) from error

    def _drop_lock(self) -> None:
        if self._lock_handle is not None:
            self._lock_handle.close()
            self._lock_handle = None

    def _read(self) -> dict[bytes, bytes]:
        try:
            content = self._file.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unreadable(error) from error
        if not content:
            return {}
        try:
            found = decode(content)
        except JavaFormatError as error:
            raise OffsetStoreException(
                f"The offsets file {self.path} is corrupt or is not an offsets file: {error}. The worker does not "
                "start, because without offsets all sources would begin again. Restore the file from a copy, or move "
                "it away to begin again on purpose."
            ) from error
        return {key: value for key, value in found.items() if key is not None and value is not None}

    def _unreadable(self, error: OSError) -> OffsetStoreException:
        return OffsetStoreException(
            f"The offsets file {self.path} cannot be read: {error.strerror or error}; check its permissions"
        )
