"""Writes closed files to the store. Main type: ``Publisher``; ``Spill`` holds rows that were moved out of memory.

The task's thread calls it; several threads write and send the files of one generation, and read its rows. The system
removes the unnamed local file of a ``Spill`` when the process ends, even after a kill.
"""

from __future__ import annotations

import logging
import mmap
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import IO, BinaryIO, TypeAlias, cast

import pyarrow as pa

from penstock.api import TopicPartition
from penstock.api.arrow import one_array
from penstock.errors import ConnectException, RetriableException
from penstock.files.generations import Block, FileNames, Generation, OpenFile
from penstock.files.store import Store
from penstock.files.widening import conform, merged


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows that are in a file."""

    start: int
    size: int


class Spill:
    """A file for the rows of one generation.

    Args:
        directory: Its directory; None: the system's temporary directory.
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


log = logging.getLogger(__name__)

#: Writes a whole file: receives its rows as tables with one schema, this schema, and an open binary file.
FileWriter: TypeAlias = "Callable[[Iterator[pa.Table], pa.Schema, BinaryIO], None]"


@dataclass(frozen=True, slots=True)
class Beside:
    """An additional file for each file, with other columns of its rows: its row i belongs to row i of the file.

    Attributes:
        column: The struct column in the tables of ``Rows`` that contains these columns; the file itself does not have
            it.
        extension: The end of the name, in place of the file's own.
        write: Writes it.

    Source: ``store.kafka.keys`` and ``store.kafka.headers`` of Confluent's connectors.
    """

    column: str
    extension: str
    write: FileWriter


#: The rows of each block.
Tables: TypeAlias = "Mapping[Block, pa.Table]"

_THREADS = 8
#: A file of more bytes than this is made on disk.
_IN_MEMORY = 16 << 20


class Publisher:
    """Writes the files of generations, and removes files whose rows are in other files.

    Args:
        write: Writes a file; several threads call it at once.
        directory: The directory for large temporary files; None: the system's.
    """

    def __init__(
        self,
        store: Store,
        root: str,
        write: FileWriter,
        names: FileNames,
        directory: str | None,
        beside: Sequence[Beside] = (),
    ) -> None:
        self._store = store
        self._root = root.strip("/")
        self._write = write
        self._beside = tuple(beside)
        self._names = names
        self._directory = directory
        self._spills: dict[Generation, Spill] = {}
        #: Files that are there already, of generations that are not done.
        self._done: dict[Generation, dict[OpenFile, int]] = {}
        #: Directories of a partition in which nothing is left of an earlier run.
        self._clean: set[tuple[str, str]] = set()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="files-upload")

    def move(self, generation: Generation, block: Block) -> None:
        """Moves rows out of memory.

        Raises:
            RetriableException: There is no room on the disk; the rows stay in memory.
        """
        try:
            if generation not in self._spills:
                self._spills[generation] = Spill(self._directory)
            block.moved(self._spills[generation].write(block.table))
        except OSError as error:
            raise RetriableException(
                f"Rows of open files do not fit into buffer.bytes, and cannot be moved to {self._where}: {error}. Make "
                "room, or set buffer.dir"
            ) from error

    def publish(self, generation: Generation) -> int:
        """Writes the unwritten files of a generation.

        Raises:
            RetriableException: The store is unavailable; the next call writes only the remaining files.
            ConnectException: The store rejects a request.
        """
        done = self._done.setdefault(generation, {})
        failed: list[Exception] = []

        spill = self._spills.get(generation)
        tables = {
            block: spill.read(block.table) if spill is not None and isinstance(block.table, Moved) else block.table
            for block in generation.blocks
        }

        def send(file: OpenFile) -> None:
            done[file] = self._send(generation, file, tables)

        waiting = [file for file in generation.files.values() if file not in done]
        if len(waiting) == 1:
            send(waiting[0])
        else:
            for future in [self._pool.submit(send, file) for file in waiting]:
                try:
                    future.result()
                except Exception as error:
                    failed.append(error)
        if failed:
            raise next((one for one in failed if not isinstance(one, RetriableException)), failed[0])
        self._finish(generation)
        self.forget(generation)
        return sum(done.values())

    def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets after the rows in files, for partitions whose position the store itself knows: none here."""
        return {}

    def forget(self, generation: Generation) -> None:
        """Releases the resources of a generation."""
        self._done.pop(generation, None)
        spill = self._spills.pop(generation, None)
        if spill is not None:
            spill.close()

    def opened(self) -> None:
        """Says that partitions have come: an earlier owner may have left files."""
        self._clean.clear()

    def close(self) -> None:
        """Lets go of everything."""
        self._pool.shutdown(cancel_futures=True)
        for generation in list(self._spills):
            self.forget(generation)
        self._store.close()

    def _send(self, generation: Generation, file: OpenFile, tables: Tables) -> int:
        where, own = self._directory_of(file), self._name(generation, file)
        total = 0
        # The file itself is written last, so that a reader that sees it finds its additional files.
        for part, name in zip((*self._beside, None), self._all_names(file, own), strict=True):
            with self._made(file, tables, part) as data:
                size = data.seek(0, 2)
                data.seek(0)
                self._store.put(f"{where}{name}", data, size)
                total += size
        return total

    def _directory_of(self, file: OpenFile) -> str:
        """The prefix of a file's keys."""
        where = f"{self._root}/{file.directory}".strip("/")
        return where and f"{where}/"

    def _all_names(self, file: OpenFile, own: str) -> list[str]:
        """The names of the additional files of a file, and its own."""
        stem = own.removesuffix(self._names.extension)
        return [*(stem + one.extension for one in self._beside), own]

    def _name(self, generation: Generation, file: OpenFile) -> str:
        return self._names.of(generation.place, file)

    def _made(self, file: OpenFile, tables: Tables, beside: Beside | None) -> BinaryIO:
        """A file, whole."""

        def part(table: pa.Table) -> pa.Table:
            if beside is not None:
                return pa.Table.from_struct_array(table.column(beside.column))
            return table.drop_columns([one.column for one in self._beside]) if self._beside else table

        schema = reduce(merged, (part(block.schema.empty_table()).schema for block, _, _ in file.pieces))
        rows = (as_schema(part(tables[block].slice(start, count)), schema) for block, start, count in file.pieces)
        write = self._write if beside is None else beside.write
        out: BinaryIO | None = None
        try:
            out = cast("BinaryIO", tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=self._directory))  # noqa: SIM115
            write(rows, schema, out)
            out.flush()
        except BaseException as error:
            if out is not None:
                out.close()
            if not isinstance(error, OSError):
                raise
            raise RetriableException(f"A file cannot be made in {self._where}: {error}") from error
        return out

    @property
    def _where(self) -> str:
        return self._directory or tempfile.gettempdir()

    def _finish(self, generation: Generation) -> None:
        """Removes files whose rows are also in those of the generation."""
        place = generation.place
        own: dict[str, list[str]] = {}
        for file in generation.files.values():
            own.setdefault(file.directory, []).extend(self._all_names(file, self._name(generation, file)))
        for directory, names in own.items():
            mark = (directory, self._names.start(place))
            if mark in self._clean:
                continue
            where = f"{self._root}/{directory}".lstrip("/")
            start, before = self._names.from_offset(place, generation.start, generation.end), self._names.start(place)
            there = []
            for name in self._store.list_from(where, start):
                if not name.startswith(before):
                    break
                there.append(name)
            for name in self._names.stale(place, generation.start, generation.end, names, there):
                self._store.delete(f"{where}/{name}")
            if not self._names.stale(place, generation.end, 1 << 63, names, there):
                self._clean.add(mark)


def end_uploads(store: Store, root: str, starts: tuple[str, ...]) -> None:
    """Ends uploads that an earlier run has left; where that is refused, a warning says that they stay."""
    try:
        count = store.end_unfinished(root, starts)
    except RetriableException:
        raise
    except ConnectException as error:
        log.warning("Unfinished uploads of an earlier run, if there are any, stay: %s", error)
    else:
        if count:
            log.info("%d unfinished uploads of an earlier run were ended", count)


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of a schema, which has all of theirs."""
    if table.schema.equals(schema):
        return table
    there = set(table.column_names)
    columns = [
        conform(one_array(table.column(one.name)), one.type)
        if one.name in there
        else pa.nulls(table.num_rows, one.type)
        for one in schema
    ]
    return pa.table(columns, schema=schema)
