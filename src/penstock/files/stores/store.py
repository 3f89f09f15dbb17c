"""The interface of stores for files. Main type: ``Store``. Methods may be called from several threads.

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

    @abstractmethod
    def end_unfinished(self, directory: str, starts: tuple[str, ...]) -> int:
        """Removes unfinished files of a killed process.

        Args:
            directory: The directory of the files, at any depth.
            starts: The prefix of their names.

        Returns:
            The number of removed uploads or files.
        """

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
