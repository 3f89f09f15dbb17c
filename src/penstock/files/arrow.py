"""Files in file systems of PyArrow and fsspec. Any thread.

A file is written under another name and moved. The libraries of these file systems wait for minutes, or for ever, for a
store that does not answer, so each call is made on a thread of its own, which is abandoned if the call does not return
in time.

Source: the documentation of PyArrow, "Filesystem Interface".
"""

from __future__ import annotations

import io
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar

import pyarrow as pa
from pyarrow import fs

from penstock.errors import ConnectException, RetriableException
from penstock.files.store import UNFINISHED, Found, Store, gone, of_system

_T = TypeVar("_T")
#: The number of calls without a return above which a further one waits for one of them.
_MOST_LATE: Final = 16


class TimedCalls:
    """Makes calls, and abandons each one that does not return in time.

    An abandoned call may still take effect later, like one of a frozen process.

    Args:
        limit_s: The time that a call may take, in seconds.
    """

    def __init__(self, limit_s: float, label: str) -> None:
        self._limit_s = limit_s
        self._label = label
        self._late: list[threading.Thread] = []
        self._lock = threading.Lock()

    def __call__(self, call: Callable[[], _T], alive: Callable[[], object] | None = None) -> _T:
        """Makes a call.

        Args:
            alive: A short call that shows that the store still answers: as long as it returns, ``call`` is waited for.
        """
        self._wait_for_late()
        answer: Future[_T] = Future()
        thread = threading.Thread(target=_run, args=(call, answer), name="store-call", daemon=True)
        thread.start()
        while True:
            try:
                return answer.result(self._limit_s)
            except LateError:
                if answer.done():
                    return answer.result()
                if alive is None:
                    break
                try:
                    self(alive)
                except RetriableException:
                    break
        with self._lock:
            self._late.append(thread)
        raise self._fault()

    def _wait_for_late(self) -> None:
        deadline = time.monotonic() + self._limit_s
        while True:
            with self._lock:
                self._late = [one for one in self._late if one.is_alive()]
                if len(self._late) < _MOST_LATE:
                    return
                oldest = self._late[0]
            if (left := deadline - time.monotonic()) <= 0:
                raise self._fault()
            oldest.join(left)

    def _fault(self) -> RetriableException:
        return RetriableException(f"{self._label} has not answered for {self._limit_s:g} s (store.timeout.ms)")


def _run(call: Callable[[], _T], answer: Future[_T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:
        answer.set_exception(error)


_PART = 1 << 20
#: Bytes that a reader asks for at once.
_READ_BYTES = 4 << 20


class ArrowStore(Store):
    """A file system of PyArrow.

    Args:
        timeout_s: The time that a call may take, in seconds.
    """

    appends = True

    def __init__(self, filesystem: Any, root: str, label: str, timeout_s: float = 20.0) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")
        self._label = label
        self._timed = TimedCalls(timeout_s, label)

    def put(self, key: str, data: BinaryIO, size: int) -> None:
        target = f"{self._root}/{key}"
        temporary = f"{self._root}/{UNFINISHED}/{key.rsplit('/', 1)[-1]}.{uuid.uuid4().hex}"
        where = f"{self._label}/{key}"

        def begin() -> Any:
            for one in (temporary, target):
                self._fs.create_dir(one.rsplit("/", 1)[0], recursive=True)
            return self._fs.open_output_stream(temporary)

        out = self._call(where, "write", begin)
        while part := data.read(_PART):
            self._call(where, "write", partial(out.write, part))
        self._call(where, "write", out.close)
        self._call(where, "write", lambda: self._replace(temporary, target))

    def create_if_absent(self, key: str, data: bytes) -> bool:
        """Not supported: these file systems have no common call for it."""
        raise ConnectException(f"{self._label} has no way to create a file only if it is absent")

    def list_from(self, directory: str, start: str) -> Iterator[str]:
        found = self._listed(f"{self._root}/{directory}", f"{self._label}/{directory}", missing_ok=True)
        yield from sorted(one.base_name for one in found if one.is_file and one.base_name >= start)

    def delete(self, key: str) -> None:
        def delete() -> None:
            try:
                self._fs.delete_file(f"{self._root}/{key}")
            except FileNotFoundError:
                self._look()

        self._call(f"{self._label}/{key}", "delete", delete)

    def check(self) -> None:
        self._call(self._label, "look at", self._look)

    def walk(self, skip: Callable[[str], bool], below: str = "") -> Iterator[Found]:
        prefix = below and f"{below}/"
        directory = f"{self._root}/{prefix}".rstrip("/") or "/"
        found = self._listed(directory, f"{self._label}/{prefix}", missing_ok=bool(prefix))
        for one in sorted(found, key=lambda one: one.base_name):
            key = prefix + one.base_name
            if one.type == fs.FileType.Directory:
                if not skip(key):
                    yield from self.walk(skip, key)
            elif one.is_file:
                yield _found(key, one)

    def look_at(self, key: str) -> Found:
        one = self._call(f"{self._label}/{key}", "read", lambda: self._fs.get_file_info(f"{self._root}/{key}"))
        if not one.is_file:
            raise gone(f"{self._label}/{key}")
        return _found(key, one)

    def open(self, found: Found) -> Any:
        call = partial(self._call, f"{self._label}/{found.key}", "read")
        file = call(lambda: self._fs.open_input_file(f"{self._root}/{found.key}"))
        return pa.PythonFile(io.BufferedReader(_TimedFile(file, call), _READ_BYTES), mode="r")

    def move(self, key: str, target: str) -> None:
        source, to = f"{self._root}/{key}", f"{self._root}/{target}"

        def move() -> None:
            if self._fs.get_file_info(source).type != fs.FileType.NotFound:
                self._fs.create_dir(to.rsplit("/", 1)[0], recursive=True)
                self._replace(source, to)

        self._call(f"{self._label}/{key}", "move", move)

    def _replace(self, source: str, target: str) -> None:
        if self._fs.get_file_info(target).type != fs.FileType.NotFound:
            self._fs.delete_file(target)  # HDFS does not move over a file.
        self._fs.move(source, target)

    def _look(self) -> object:
        return self._fs.get_file_info(self._root or "/")

    def _listed(self, directory: str, where: str, *, missing_ok: bool) -> Any:
        """The entries of a directory, in one call of any size."""
        selector = fs.FileSelector(directory, allow_not_found=missing_ok)

        def look() -> Any:
            found = self._fs.get_file_info(selector)
            if not found:
                # File systems of fsspec take any error for "not there" when they look for a file.
                self._look()
            return found

        return self._call(where, "list", look, self._look)

    def _call(self, where: str, what: str, call: Callable[[], _T], alive: Callable[[], object] | None = None) -> _T:
        """Makes a call in the time that it may take; see ``TimedCalls``."""
        try:
            return self._timed(call, alive)
        except (OSError, pa.ArrowException) as error:
            raise of_system(error if isinstance(error, OSError) else OSError(str(error)), where, what) from error


class _TimedFile(io.RawIOBase):
    """A file that is read by timed calls."""

    def __init__(self, file: Any, call: Callable[[Callable[[], Any]], Any]) -> None:
        self._file, self._timed, self._is_late = file, call, False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._call(lambda: self._file.seek(offset, whence)))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        data = self._call(lambda: self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            # A call that is late still has the file, and another one would be late, too.
            if not self._is_late:
                self._call(self._file.close)

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return self._timed(call)
        except RetriableException:
            self._is_late = True
            raise


def _found(key: str, one: Any) -> Found:
    return Found(key, one.size or 0, one.mtime_ns or 0)
