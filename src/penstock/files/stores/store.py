"""The interface of places for files. Main type: ``Store``. Methods may be called from several threads.

Source: Penstock's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

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
    """A place for files, which are whole or not there.

    A key is a path below the place's own, with ``/`` between directories.

    Attributes:
        appends: True if a file may grow while it is read.

    Raises:
        RetriableException: From every method: the store is away, or busy.
        ConnectException: From every method: there is no such place, or no right to it.

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
        """Writes a file, unless there is one; of several callers at once exactly one is told True."""

    @abstractmethod
    def list_from(self, directory: str, start: str) -> Iterator[str]:
        """The names of files in a directory from a name on, in order, without those of directories below it."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Deletes a file; one that is not there is no error."""

    @abstractmethod
    def end_unfinished(self, directory: str, starts: tuple[str, ...]) -> int:
        """Removes what a process that was killed has not finished.

        Args:
            directory: Where the files would be, at any depth.
            starts: What their names begin with.

        Returns:
            How many uploads or files.
        """

    @abstractmethod
    def check(self) -> None:
        """Finds out if the place is there and may be used."""

    def check_reading(self) -> None:
        """Finds out if the place is there and may be read."""
        self.check()

    @abstractmethod
    def walk(self, skip: Callable[[str], bool], below: str = "") -> Iterator[Found]:
        """All files of the place, in the order of their names, directory by directory; lazily, as far as it can.

        Args:
            skip: True for the key of a directory that is not looked into.
            below: The key of a directory, of which all files are asked for; none if it is not there.
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
