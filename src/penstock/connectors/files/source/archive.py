"""The related files of ``FileSink``: keys and headers of values, and commits that count.

Main types: ``Archive``, for one listing of all files; ``JoinedReader``, the rows of a file with its keys and headers.
The task's thread.

Source: ``store.kafka.keys`` and ``store.kafka.headers`` of Confluent's connectors; ``penstock.files.manifests``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.api.arrow import one_array
from penstock.connectors.files.columns import schema_in
from penstock.connectors.files.source.ledger import FilePosition
from penstock.connectors.files.source.readers.reader import BadFileException, FileRows, FormatReader, Input
from penstock.data import Type
from penstock.files import Found, Store
from penstock.files.manifests import MANIFESTS
from penstock.files.store import GoneException

#: The columns for rows of separate files; no column of a file has such a name.
KEYS, HEADERS = "\0keys", "\0headers"
_BESIDE: Final = re.compile(r"\.(keys|headers)(\.[A-Za-z0-9.]+)")
#: The id of a commit of the layout with manifests: milliseconds, and a random part.
_COMMIT: Final = r"\d{13}-[0-9a-f]{8}"
#: The bytes of the manifest of a commit that was undone: `{}`.
_UNDONE: Final = 2

#: The separate files of a file, by ``KEYS`` and ``HEADERS``.
Beside = Mapping[str, Found]


def commit_of(found: Found) -> str | None:
    """The commit of a file; None if its name contains none.

    >>> commit_of(Found("t/1700000000000-0a1b2c3d-1.parquet", 1, 1))
    '1700000000000-0a1b2c3d'
    """
    match = re.fullmatch(rf"({_COMMIT})(-\d+)?(\..+)?", found.name)
    return match[1] if match else None


class Archive:
    """The files that ``FileSink`` has written, for consecutive listings.

    Args:
        store: Their store.
        mark: The separator of topic, partition and offset in the names of files without a commit.
        wanted: The columns of ``KEYS`` and ``HEADERS`` to join with the rows; others are ignored.

    Attributes:
        waiting: A file of a commit that does not count, or not yet; empty if there was none.
    """

    def __init__(self, store: Store, mark: str, wanted: Sequence[str] = (KEYS, HEADERS)) -> None:
        self.waiting = ""
        self._store, self._wanted = store, tuple(wanted)
        mark = re.escape(mark)
        self._name = re.compile(rf"(.+{mark}\d+{mark}\d+(?:-\d+)?|{_COMMIT}(?:-\d+)?)(\.[A-Za-z0-9.]+)?")
        self._counted: set[str] | None = None
        #: The file extensions of separate files, by column.
        self._endings: dict[str, set[str]] = {}

    def begin(self) -> None:
        """Begins a listing of all files."""
        self._counted, self.waiting = None, ""

    def together(self, files: Iterator[Found]) -> Iterator[tuple[Found, Beside]]:
        """Yields files of records, each with its separate files: their names are adjacent in a listing.

        Args:
            files: All files, those of a directory in the order of their names.
        """
        held: list[Found] = []
        beside: dict[str, Found] = {}
        stem = ""
        for found in files:
            own = self._stem_of(found)
            if own != stem:
                yield from self._counting(held, beside)
                held, beside, stem = [], {}, own
            match = _BESIDE.fullmatch(found.key.removeprefix(own))
            if match is not None:
                column = f"\0{match[1]}"
                self._endings.setdefault(column, set()).add(match[2])
                beside[column] = found
            else:
                held.append(found)
        yield from self._counting(held, beside)

    def completed(self, found: Found, beside: Beside) -> Beside:
        """The separate files to join with a file, including those that were written after the listing.

        Raises:
            ConnectException: The store does not answer.
        """
        made = {column: one for column, one in beside.items() if column in self._wanted}
        for column in self._wanted:
            for ending in self._endings.get(column, ()) if column not in made else ():
                try:
                    made[column] = self._store.look_at(f"{self._stem_of(found)}.{column[1:]}{ending}")
                    break
                except GoneException:
                    continue
        return made

    def _counting(self, held: list[Found], beside: Beside) -> Iterator[tuple[Found, Beside]]:
        for found in held:
            commit = commit_of(found)
            if commit is None or commit in self._commits():
                yield found, beside
            else:
                self.waiting = self.waiting or found.key

    def _commits(self) -> set[str]:
        """The commits that count. Their manifests are read once in a listing, before their files."""
        if self._counted is None:
            found = self._store.walk(lambda _: False, MANIFESTS)
            self._counted = {one.name.removesuffix(".json") for one in found if one.size > _UNDONE}
        return self._counted

    def _stem_of(self, found: Found) -> str:
        """The key of a file without its extension, or with it if ``FileSink`` did not write it."""
        match = self._name.fullmatch(found.name)
        return found.key.removesuffix(found.name) + match[1] if match else found.key


@dataclass
class JoinedReader(FormatReader):
    """Reads the rows of a file with the columns of its separate files: row i belongs to row i.

    Attributes:
        reader: The reader of the file.
        beside: The separate files, with their readers.
    """

    reader: FormatReader
    beside: Mapping[str, tuple[Input, FormatReader]]

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``; a separate file that cannot be read, or has another number of rows, is the file's
        error.
        """
        columns = {column: self._column(column, *one) for column, one in self.beside.items()}
        done = 0
        # From the start: separate files have no positions of their own.
        for piece in self.reader.pieces(file, FilePosition()):
            count = piece.table.num_rows
            rows = np.arange(count) + np.searchsorted([one.before for one in piece.bad], np.arange(count), side="right")
            total, begin = count + len(piece.bad), done
            done += total
            if piece.place.at < place.at:
                continue
            table = piece.table
            for column, values in columns.items():
                if done > len(values):
                    raise self._unlike(column, len(values))
                table = table.append_column(column, values.take(pa.array(begin + rows)))
            yield replace(piece, table=table)
        for column, values in columns.items():
            if len(values) != done:
                raise self._unlike(column, len(values), done)

    def _unlike(self, column: str, count: int, rows: int | None = None) -> BadFileException:
        own = "has more rows" if rows is None else f"has {rows} rows"
        return BadFileException(
            f"{own}, and {self.beside[column][0].found.name} has {count}: they do not belong together. "
            f"store.kafka.{column[1:]}=false would restore it without its {column[1:]}"
        )

    def _column(self, column: str, file: Input, reader: FormatReader) -> pa.Array:
        what, name = column[1:], file.found.name
        try:
            pieces = list(reader.pieces(file, FilePosition()))
            if bad := next((one.bad[0] for one in pieces if one.bad), None):
                raise BadFileException(f"has a row that cannot be read: {bad.reason}")
            if not pieces:
                return pa.nulls(0)
            table = pa.concat_tables([one.table for one in pieces], promote_options="permissive")
            return self._values(column, table)
        except (BadFileException, pa.ArrowException, ValueError) as error:
            raise BadFileException(
                f"has its {what} in {name}, which {error}. store.kafka.{what}=false would restore it without them"
            ) from error

    def _values(self, column: str, table: pa.Table) -> pa.Array:
        if column == HEADERS:
            return one_array(table.column(next(iter(table.column_names))))
        told = schema_in(table.schema.metadata, "value")
        single = table.column_names in (["key"], ["value"]) and (told is None or told.type is not Type.STRUCT)
        columns = [one_array(one) for one in table.columns]
        if single:
            values = columns[0]
        else:
            # A null key has no field with a value.
            empty = np.logical_and.reduce([one.is_null().to_numpy(zero_copy_only=False) for one in columns])
            values = pa.StructArray.from_arrays(columns, fields=list(table.schema), mask=pa.array(empty))
        return values
