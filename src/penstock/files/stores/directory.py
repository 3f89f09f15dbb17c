"""Files in a local directory. Main type: ``DirectoryStore``. Any thread.

A file is written under another name, made durable, and renamed. Source: rename(2), link(2).
"""

from __future__ import annotations

import io
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.files.stores.store import UNFINISHED, Found, Store, of_system


class DirectoryStore(Store):
    """A directory.

    Args:
        root: Its path; it is made with the first file.
    """

    appends = True

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def put(self, key: str, data: BinaryIO, size: int) -> None:
        """See ``Store``."""
        target = self._root / key
        with self._written(target, data) as temporary:
            temporary.replace(target)
            _sync(target.parent)

    def create_if_absent(self, key: str, data: bytes) -> bool:
        """See ``Store``."""
        target = self._root / key
        with self._written(target, io.BytesIO(data)) as temporary:
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            _sync(target.parent)
            return True

    def list_from(self, directory: str, start: str) -> Iterator[str]:
        """See ``Store``."""
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
        """See ``Store``."""
        target = self._root / key
        try:
            target.unlink(missing_ok=True)
        except OSError as error:
            raise of_system(error, str(target), "delete") from error

    def end_unfinished(self, directory: str, starts: tuple[str, ...]) -> int:
        """See ``Store``."""
        gone = [one for one in self.list_from(UNFINISHED, "") if one.startswith(starts)]
        for name in gone:
            self.delete(f"{UNFINISHED}/{name}")
        return len(gone)

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
        """See ``Store``."""
        try:
            os.scandir(self._root).close()
        except (OSError, ValueError) as error:
            fault = error if isinstance(error, OSError) else FileNotFoundError(2, str(error))
            raise of_system(fault, str(self._root), "list") from error

    def walk(self, skip: Callable[[str], bool], below: str = "") -> Iterator[Found]:
        """See ``Store``. Links to directories are not followed."""
        yield from self._walk(below and f"{below}/", skip)

    def _walk(self, prefix: str, skip: Callable[[str], bool]) -> Iterator[Found]:
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
                        yield from self._walk(key + "/", skip)
                elif one.is_file():
                    yield _found(key, one.stat())
            except FileNotFoundError:
                continue

    def look_at(self, key: str) -> Found:
        """See ``Store``."""
        try:
            return _found(key, os.stat(self._root / key))
        except OSError as error:
            raise of_system(error, str(self._root / key), "read") from error

    def open(self, found: Found) -> Any:
        """See ``Store``."""
        path = self._root / found.key
        try:
            return pa.OSFile(os.fsencode(path))  # A name need not be UTF-8.
        except OSError as error:
            raise of_system(error, str(path), "read") from error

    def move(self, key: str, target: str) -> None:
        """See ``Store``."""
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
