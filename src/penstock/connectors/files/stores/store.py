"""The interface of places for files. Main type: ``Store``. Methods may be called from several threads.

Source: Penstock's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import BinaryIO

#: The directory of files that are being written, in stores that rename.
UNFINISHED = "_tmp"


class Store(ABC):
    """A place for files, which are whole or not there.

    A key is a path below the place's own, with ``/`` between directories.

    Raises:
        RetriableException: From every method: the store is away, or busy.
        ConnectException: From every method: there is no such place, or no right to it.
    """

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

    def close(self) -> None:
        """Ends connections."""
