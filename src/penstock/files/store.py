"""The interface of stores for files, and the store for a directory. Methods may be called from several threads.

``DirectoryStore`` writes a file under another name, makes it durable, and renames it.
Source: Penstock's own; rename(2), link(2).
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final

import pyarrow as pa

from penstock.errors import ConnectException, RetriableException

_PASSING: Final = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EAGAIN,
    errno.ETIMEDOUT,
    errno.ECONNREFUSED,
    errno.ESTALE,
}
_FOREVER: Final = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.EISDIR,
}
#: The right that an operation on files needs.
_NEEDED: Final = {"read": "read", "list": "read"}


class LoginException(ConnectException):
    """A store does not accept the credentials."""


class GoneException(ConnectException):
    """A file that was there is not there any more."""


class ChangedException(ConnectException):
    """A file is another one than when it was opened."""


def gone(where: str) -> GoneException:
    """The error of a file that is not there any more."""
    return GoneException(f"{where} is gone: it was moved or deleted before it was read to its end")


def of_system(error: OSError, where: str, what: str) -> ConnectException:
    """The error of a file system.

    Args:
        what: The failed operation: ``write``, ``list`` and so on.
    """
    text = " ".join(str(error.strerror or error).split())
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RetriableException(f"Cannot {what} {where}: {text}. It is tried again: make room")
    if what == "read" and (error.errno == errno.ENOENT or isinstance(error, FileNotFoundError)):
        return gone(where)
    if error.errno in _FOREVER or (error.errno is None and isinstance(error, (PermissionError, FileNotFoundError))):
        return ConnectException(
            f"Cannot {what} {where}: {text}. Check the path, and that the worker's user may "
            f"{_NEEDED.get(what, 'write')} there; then restart the task"
        )
    return RetriableException(f"Cannot {what} {where}: {text}")


#: The directory of files that are being written, in stores that rename.
UNFINISHED = "_tmp"


@dataclass(frozen=True, slots=True)
class Found:
    """A file that a store has.

    Attributes:
        key: Its path below the place's own.
        size: Its bytes.
        time_ns: When it was last changed, in nanoseconds of the epoch.
        version: Changes whenever the file does, where the store tells it; else empty.

    Source: Penstock's own.
    """

    key: str
    size: int
    time_ns: int
    version: str = ""

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]


class Store(ABC):
    """A store for files, in which each file is either complete or absent.

    A key is a path below the root of the store, with ``/`` between directories.

    Attributes:
        appends: True if a file may grow while it is read.

    Raises:
        RetriableException: From every method: the store is unavailable, or busy.
        ConnectException: From every method: the store does not exist, or access is denied.

    Source: Penstock's own.
    """

    appends: ClassVar[bool] = False

    @abstractmethod
    def put(self, key: str, data: BinaryIO, size: int) -> None:
        """Writes a file, in place of one that is there. No reader ever sees half of it.

        Args:
            key: Where.
            data: Its bytes, from here to the end.
            size: How many.
        """

    @abstractmethod
    def create_if_absent(self, key: str, data: bytes) -> bool:
        """Writes a file unless it exists; exactly one of several concurrent callers gets True."""

    @abstractmethod
    def list_from(self, directory: str, start: str) -> Iterator[str]:
        """The names of files in a directory starting with a name, in order, without subdirectories."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Deletes a file; one that is not there is no error."""

    def end_unfinished(self, directory: str, starts: tuple[str, ...]) -> int:
        """Removes unfinished files of a killed process.

        Args:
            directory: The directory of the files, at any depth.
            starts: The prefix of their names.

        Returns:
            The number of removed uploads or files.
        """
        gone = [one for one in self.list_from(UNFINISHED, "") if one.startswith(starts)]
        for name in gone:
            self.delete(f"{UNFINISHED}/{name}")
        return len(gone)

    @abstractmethod
    def check(self) -> None:
        """Finds out if the place is there and may be used."""

    def check_reading(self) -> None:
        """Finds out if the place is there and may be read."""
        self.check()

    @abstractmethod
    def walk(self, skip: Callable[[str], bool], below: str = "") -> Iterator[Found]:
        """All files of the store, in order of their names, directory by directory; lazily if possible.

        Args:
            skip: Returns True for the key of a directory to skip.
            below: The key of the directory to list; no files if it does not exist.
        """

    @abstractmethod
    def look_at(self, key: str) -> Found:
        """One file, as it is now.

        Raises:
            GoneException: It is not there.
        """

    @abstractmethod
    def open(self, found: Found) -> Any:
        """A file for reading, which can seek: PyArrow's ``NativeFile``.

        Raises:
            GoneException: It is not there any more; also from reading.
            ChangedException: It is another one now, from reading, where the store can tell.
        """

    @abstractmethod
    def move(self, key: str, target: str) -> None:
        """Gives a file another key, in place of a file that is there; one that is gone is no error.

        Args:
            key: The file.
            target: A key; in a directory of this computer an absolute path, too.
        """

    def close(self) -> None:
        """Ends connections."""


class DirectoryStore(Store):
    """A directory.

    Args:
        root: Its path; it is made with the first file.
    """

    appends = True

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def put(self, key: str, data: BinaryIO, size: int) -> None:
        target = self._root / key
        with self._written(target, data) as temporary:
            temporary.replace(target)
            _sync(target.parent)

    def create_if_absent(self, key: str, data: bytes) -> bool:
        target = self._root / key
        with self._written(target, io.BytesIO(data)) as temporary:
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            _sync(target.parent)
            return True

    def list_from(self, directory: str, start: str) -> Iterator[str]:
        where = self._root / directory
        try:
            with os.scandir(where) as found:
                names = sorted(one.name for one in found if one.name >= start and not one.is_dir())
        except FileNotFoundError:
            return
        except OSError as error:
            raise of_system(error, str(where), "list") from error
        yield from names

    def delete(self, key: str) -> None:
        target = self._root / key
        try:
            target.unlink(missing_ok=True)
        except OSError as error:
            raise of_system(error, str(target), "delete") from error

    def check(self) -> None:
        """See ``Store``: the directory, or the nearest one above it that is there, can be written."""
        there = self._root
        while not there.exists() and there != there.parent:
            there = there.parent
        if not there.is_dir():
            raise of_system(NotADirectoryError(20, "Not a directory"), str(there), "write")
        if not os.access(there, os.W_OK | os.X_OK):
            raise of_system(PermissionError(13, "Permission denied"), str(there), "write")

    def check_reading(self) -> None:
        try:
            os.scandir(self._root).close()
        except (OSError, ValueError) as error:
            fault = error if isinstance(error, OSError) else FileNotFoundError(2, str(error))
            raise of_system(fault, str(self._root), "list") from error

    def walk(self, skip: Callable[[str], bool], below: str = "") -> Iterator[Found]:
        """See ``Store``. Links to directories are not followed."""
        prefix = below and f"{below}/"
        try:
            with os.scandir(self._root / prefix) as there:
                entries = sorted(there, key=lambda one: one.name)
        except FileNotFoundError:
            if prefix:
                return
            raise of_system(FileNotFoundError(2, "No such file or directory"), str(self._root), "list") from None
        except OSError as error:
            raise of_system(error, str(self._root / prefix), "list") from error
        for one in entries:
            key = prefix + one.name
            try:
                if one.is_dir(follow_symlinks=False):
                    if not skip(key):
                        yield from self.walk(skip, key)
                elif one.is_file():
                    yield _found(key, one.stat())
            except FileNotFoundError:
                continue

    def look_at(self, key: str) -> Found:
        try:
            return _found(key, os.stat(self._root / key))
        except OSError as error:
            raise of_system(error, str(self._root / key), "read") from error

    def open(self, found: Found) -> Any:
        path = self._root / found.key
        try:
            return pa.OSFile(os.fsencode(path))  # A name need not be UTF-8.
        except OSError as error:
            raise of_system(error, str(path), "read") from error

    def move(self, key: str, target: str) -> None:
        source, to = self._root / key, self._root / target
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            if source.exists():
                shutil.move(source, to)
        except FileNotFoundError:
            return
        except OSError as error:
            raise of_system(error, f"{source} to {to}", "move") from error

    @contextmanager
    def _written(self, target: Path, data: BinaryIO) -> Iterator[Path]:
        """A durable file under another name, which is gone when the block ends."""
        temporary = self._root / UNFINISHED / f"{target.name}.{uuid.uuid4().hex}"
        try:
            temporary.parent.mkdir(parents=True, exist_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                shutil.copyfileobj(data, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        except OSError as error:
            raise of_system(error, str(target), "write") from error
        finally:
            with suppress(OSError):
                temporary.unlink()


def _found(key: str, stat: os.stat_result) -> Found:
    return Found(key, stat.st_size, stat.st_mtime_ns, str(stat.st_ino))


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
