"""Rows that were moved out of memory into an unnamed local file. Main type: ``Spill``.

The system removes the file when the process ends, even after a kill. The task's thread writes; threads of uploads read.
"""

from __future__ import annotations

import mmap
import tempfile
from dataclasses import dataclass
from typing import IO

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows that are in a file.

    Attributes:
        start: Where they begin.
        size: Bytes of an Arrow stream.
    """

    start: int
    size: int


class Spill:
    """A file for the rows of one generation.

    Args:
        directory: Its directory; None: the system's temporary directory.

    Raises:
        OSError: The disk is full, or the directory does not exist.
    """

    def __init__(self, directory: str | None) -> None:
        # Not in a `with`: it lives as long as its generation.
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._end = 0

    def write(self, table: pa.Table) -> Moved:
        """Moves rows into the file.

        Raises:
            OSError: There is no room; the rows are not in the file.
        """
        start = -(-self._end // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._file.seek(start)
        with pa.ipc.new_stream(self._file, table.schema) as stream:
            stream.write_table(table)
        self._file.flush()
        self._end = self._file.tell()
        return Moved(start, self._end - start)

    def read(self, moved: Moved) -> pa.Table:
        """The rows, in pages of the file that the system reads when they are looked at."""
        pages = mmap.mmap(self._file.fileno(), moved.size, offset=moved.start, access=mmap.ACCESS_READ)
        return pa.ipc.open_stream(pa.py_buffer(pages)).read_all()

    def close(self) -> None:
        """Lets the file go."""
        self._file.close()
