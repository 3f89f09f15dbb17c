"""Files in file systems of PyArrow and fsspec. Main type: ``ArrowStore``. Any thread.

A file is written under another name and moved. Source: the documentation of PyArrow, "Filesystem Interface".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import fs

from penstock.errors import ConnectException
from penstock.files.stores.faults import GoneException, of_system
from penstock.files.stores.store import UNFINISHED, Found, Store

_PART = 1 << 20


class ArrowStore(Store):
    """A file system of PyArrow.

    Args:
        filesystem: The file system.
        root: The path in it, below which all files are.
        label: The address, for people.
    """

    appends = True

    def __init__(self, filesystem: Any, root: str, label: str) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")
        self._label = label

    def put(self, key: str, data: BinaryIO, size: int) -> None:
        """See ``Store``."""
        target = f"{self._root}/{key}"
        temporary = f"{self._root}/{UNFINISHED}/{key.rsplit('/', 1)[-1]}.{uuid.uuid4().hex}"
        try:
            for one in (temporary, target):
                self._fs.create_dir(one.rsplit("/", 1)[0], recursive=True)
            with self._fs.open_output_stream(temporary) as out:
                while part := data.read(_PART):
                    out.write(part)
            if self._fs.get_file_info(target).type != fs.FileType.NotFound:
                self._fs.delete_file(target)  # HDFS does not move over a file.
            self._fs.move(temporary, target)
        except (OSError, pa.ArrowException) as error:
            raise _fault(error, f"{self._label}/{key}", "write") from error

    def create_if_absent(self, key: str, data: bytes) -> bool:
        """Not supported: these file systems have no common call for it.

        Raises:
            ConnectException: Always.
        """
        raise ConnectException(f"{self._label} has no way to create a file only if it is absent")

    def list_from(self, directory: str, start: str) -> Iterator[str]:
        """See ``Store``."""
        selector = fs.FileSelector(f"{self._root}/{directory}", allow_not_found=True)
        try:
            found = self._fs.get_file_info(selector)
        except (OSError, pa.ArrowException) as error:
            raise _fault(error, f"{self._label}/{directory}", "list") from error
        yield from sorted(one.base_name for one in found if one.is_file and one.base_name >= start)

    def delete(self, key: str) -> None:
        """See ``Store``."""
        try:
            self._fs.delete_file(f"{self._root}/{key}")
        except FileNotFoundError:
            pass
        except (OSError, pa.ArrowException) as error:
            raise _fault(error, f"{self._label}/{key}", "delete") from error

    def end_unfinished(self, directory: str, starts: tuple[str, ...]) -> int:
        """See ``Store``."""
        gone = [one for one in self.list_from(UNFINISHED, "") if one.startswith(starts)]
        for name in gone:
            self.delete(f"{UNFINISHED}/{name}")
        return len(gone)

    def check(self) -> None:
        """See ``Store``."""
        try:
            self._fs.get_file_info(self._root or "/")
        except (OSError, pa.ArrowException) as error:
            raise _fault(error, self._label, "look at") from error

    def walk(self, skip: Callable[[str], bool], below: str = "") -> Iterator[Found]:
        """See ``Store``."""
        yield from self._walk(below and f"{below}/", skip)

    def _walk(self, prefix: str, skip: Callable[[str], bool]) -> Iterator[Found]:
        where = f"{self._root}/{prefix}".rstrip("/")
        try:
            found = self._fs.get_file_info(fs.FileSelector(where or "/", allow_not_found=bool(prefix)))
        except (OSError, pa.ArrowException) as error:
            raise _fault(error, f"{self._label}/{prefix}", "list") from error
        for one in sorted(found, key=lambda one: one.base_name):
            key = prefix + one.base_name
            if one.type == fs.FileType.Directory:
                if not skip(key):
                    yield from self._walk(key + "/", skip)
            elif one.is_file:
                yield _found(key, one)

    def look_at(self, key: str) -> Found:
        """See ``Store``."""
        try:
            one = self._fs.get_file_info(f"{self._root}/{key}")
        except (OSError, pa.ArrowException) as error:
            raise _fault(error, f"{self._label}/{key}", "read") from error
        if not one.is_file:
            raise GoneException(f"{self._label}/{key} is gone: it was moved or deleted before it was read to its end")
        return _found(key, one)

    def open(self, found: Found) -> Any:
        """See ``Store``."""
        try:
            return self._fs.open_input_file(f"{self._root}/{found.key}")
        except (OSError, pa.ArrowException) as error:
            raise _fault(error, f"{self._label}/{found.key}", "read") from error

    def move(self, key: str, target: str) -> None:
        """See ``Store``."""
        source, to = f"{self._root}/{key}", f"{self._root}/{target}"
        try:
            if self._fs.get_file_info(source).type == fs.FileType.NotFound:
                return
            self._fs.create_dir(to.rsplit("/", 1)[0], recursive=True)
            if self._fs.get_file_info(to).type != fs.FileType.NotFound:
                self._fs.delete_file(to)
            self._fs.move(source, to)
        except (OSError, pa.ArrowException) as error:
            raise _fault(error, f"{self._label}/{key}", "move") from error


def _found(key: str, one: Any) -> Found:
    return Found(key, one.size or 0, one.mtime_ns or 0)


def _fault(error: Exception, where: str, what: str) -> ConnectException:
    return of_system(error if isinstance(error, OSError) else OSError(str(error)), where, what)
