"""Rows that were moved out of memory, into a file of this computer that has no name. Main type: ``Spill``.

The file is gone with its process, however that ends. The task's thread writes; threads of uploads read.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows that are in a file.

    Attributes:
        start: Where they begin.
        size: Bytes of an Arrow stream.
        schema: Of the rows.
    """

    start: int
    size: int
    schema: pa.Schema


class Spill:
    """A file for the rows of one generation.

    Args:
        directory: Where it is; None: where the system has temporary files.

    Raises:
        OSError: There is no room, or no such directory.
    """

    def __init__(self, directory: str | None) -> None:
        # Not in a `with`: it lives as long as its generation.
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=directory or None)  # noqa: SIM115
        self._lock = threading.Lock()

    def write(self, table: pa.Table) -> Moved:
        """Moves rows into the file.

        Raises:
            OSError: There is no room.
        """
        with self._lock:
            start = self._file.seek(0, 2)
            with pa.ipc.new_stream(self._file, table.schema) as stream:
                stream.write_table(table)
            self._file.flush()
            return Moved(start, self._file.tell() - start, table.schema)

    def read(self, moved: Moved) -> Iterator[pa.Table]:
        """The rows, a part at a time."""
        with self._lock:
            self._file.seek(moved.start)
            data = self._file.read(moved.size)
        for batch in pa.ipc.open_stream(data):
            yield pa.Table.from_batches([batch])

    def close(self) -> None:
        """Lets the file go."""
        self._file.close()
