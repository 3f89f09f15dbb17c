"""Files that hold columns: Parquet and ORC. Main types: ``ParquetReader``, ``OrcReader``. The task's thread.

Source: the formats' specifications, by PyArrow's readers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files.source.ledger import FilePosition
from penstock.connectors.files.source.readers.reader import (
    BLOCK_ROWS,
    BadFileException,
    FileRows,
    FormatReader,
    Input,
    parts_of,
    place_in,
    unit_of,
)


class ParquetReader(FormatReader):
    """Parquet; a block is a row group, which is read in parts."""

    splits = True

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``. A part of a file has the row groups that begin in it."""
        raw = file.open()
        try:
            try:
                found = pq.ParquetFile(raw)
            except (pa.ArrowInvalid, OSError) as error:
                raise _no_file("Parquet", error) from error
            first, skipped = unit_of(place)
            for group in range(first, found.metadata.num_row_groups):
                if _is_in(file.span, found.metadata.row_group(group)):
                    yield from self._group(found, group, skipped if group == first else 0)
        finally:
            raw.close()

    def _group(self, found: pq.ParquetFile, group: int, skipped: int) -> Iterator[FileRows]:
        total, at = found.metadata.row_group(group).num_rows, 0
        try:
            for batch in found.iter_batches(BLOCK_ROWS, row_groups=[group], use_threads=False):
                start, at = at, at + batch.num_rows
                if start < skipped:
                    continue
                after = place_in(group + 1) if at >= total else place_in(group, at)
                table = pa.Table.from_batches([batch]).replace_schema_metadata(found.schema_arrow.metadata)
                yield FileRows(table, place_in(group, start), after)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _no_file("Parquet", error) from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise _no_file("Parquet", error) from error


class OrcReader(FormatReader):
    """ORC; a block is a stripe."""

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``."""
        from pyarrow import orc

        raw = file.open()
        try:
            try:
                found = orc.ORCFile(raw)
            except (pa.ArrowException, OSError) as error:
                raise _no_file("ORC", error) from error
            begin, skipped = unit_of(place)
            for stripe in range(begin, found.nstripes):
                try:
                    table = pa.Table.from_batches([found.read_stripe(stripe)])
                except pa.ArrowException as error:
                    raise _no_file("ORC", error) from error
                yield from parts_of(table, stripe, skipped if stripe == begin else 0)
        finally:
            raw.close()


def _is_in(span: tuple[int, int] | None, group: pq.RowGroupMetaData) -> bool:
    if span is None:
        return True
    column = group.column(0) if group.num_columns else None
    start = 0
    if column is not None:
        start = column.dictionary_page_offset or column.data_page_offset
    return span[0] <= start < span[1]


def _no_file(kind: str, error: Exception) -> BadFileException:
    return BadFileException(f"is no whole file of {kind}: {' '.join(str(error).split())}")
