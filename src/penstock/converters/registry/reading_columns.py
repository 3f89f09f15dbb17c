"""Reads messages of a schema registry as columns: messages with the same topic and schema id are read together.

The converter's method for one message reads null and damaged messages, small groups, and messages whose schema is
unavailable or does not support columns, and raises all errors.

Main functions: ``read_columns``, ``no_columns``. Main type: ``ColumnReader``. Thread: a task's pipeline thread.
Source: the wire format of Confluent's serializers (AbstractKafkaSchemaSerDe).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.converters.registry.cursors import Source
from penstock.converters.registry.wire import MAGIC
from penstock.data import Schema, Type
from penstock.pipeline.columns.layout import Layout
from penstock.pipeline.plan.step import NOTHING, Side, Sorted

#: Smaller groups are as fast one by one, because each column costs some calls.
MIN_ROWS: Final = 128
_HEAD_BYTES: Final = 5
#: Messages up to this total size still have 32-bit offsets, including added bytes.
_MAX_BYTES: Final = 1 << 30


class ColumnReader(Protocol):
    """Reads many payloads of one schema."""

    @property
    def schema(self) -> Schema:
        """The Connect schema."""

    @property
    def physical(self) -> Layout:
        """The layout of the columns."""

    def read(self, source: Source, at: np.ndarray, ends: np.ndarray, /) -> tuple[pa.Array, np.ndarray] | None:
        """The values of payloads between given positions, and which payloads have to be read one by one.

        None if all have to be read one by one.
        """


#: Returns the reader for a topic and a schema id; it also receives the first payload.
ReaderOf: TypeAlias = Callable[[str, int, bytes], ColumnReader | None]


def no_columns(rows: int) -> Sorted:
    """All messages are read one by one."""
    return Sorted((None,), np.full(rows, -1, dtype=np.int32))


def read_columns(
    column: pa.ChunkedArray, topics: pa.ChunkedArray, worth: Callable[[int, int], bool], reader_of: ReaderOf
) -> Sorted:
    """Reads the messages of a batch; see ``RowConverter``.

    Args:
        column: The messages.
        topics: The topic of each.
        worth: Decides if columns are worthwhile for a number of schemas and messages.
        reader_of: Returns the readers. It raises an error again for a single message of that schema.
    """
    rows = len(column)
    if rows < MIN_ROWS or column.nbytes > _MAX_BYTES:
        found = no_columns(rows)
        codes = found.codes
    else:
        found, codes = _read(column, topics, worth, reader_of)
    assert codes is not None, "each message has a code"
    if column.null_count:
        read = {**found.read, len(found.hints): (NOTHING, column)}
        codes[column.is_null().to_numpy()] = len(found.hints)
        found = replace(found, hints=(*found.hints, None), read=read)
    return found


def _read(
    column: pa.ChunkedArray, topics: pa.ChunkedArray, worth: Callable[[int, int], bool], reader_of: ReaderOf
) -> tuple[Sorted, np.ndarray]:
    messages = column.combine_chunks()
    rows = len(messages)
    source = Source(messages)
    codes = np.full(rows, -1, dtype=np.int32)
    places = np.zeros(rows, dtype=np.int64)
    names, kinds = _kinds(source, topics)
    numbers, counts = np.unique(kinds[kinds >= 0], return_counts=True)
    read: dict[int, tuple[Side, pa.ChunkedArray]] = {}
    chosen = numbers[counts >= MIN_ROWS].tolist() if worth(len(numbers), rows) else []
    for kind in chosen:
        mine = np.flatnonzero(kinds == kind)
        at, ends = source.starts[mine] + _HEAD_BYTES, source.ends[mine]
        try:
            reader = reader_of(names[kind >> 32], kind & 0xFFFFFFFF, source.octets[at[0] : ends[0]].tobytes())
        except Exception:  # Each message then meets the error separately, where it fails only one record.
            continue
        made = None if reader is None else reader.read(source, at, ends)
        if made is None or reader is None:
            continue
        values, bad = made
        if bad.any():
            good = np.flatnonzero(~bad)
            mine, values = mine[good], values.take(pa.array(good))
        if not len(mine):
            continue
        codes[mine] = len(read)
        places[mine] = np.arange(len(mine))
        side = _side_of(reader, values)
        read[len(read)] = (side, pa.chunked_array([values]))
    return Sorted((None,) * max(1, len(read)), codes, read=read, places=places), codes


def _kinds(source: Source, topics: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """The names of the topics; for each message the number of its topic and its schema id, -1 if it has none."""
    coded = topics.combine_chunks().dictionary_encode()
    there = (source.ends - source.starts >= _HEAD_BYTES) & (source.octets[source.starts] == MAGIC)
    numbers = source.words[source.starts]
    ids = ((numbers >> np.uint64(8)) & np.uint64(0xFFFFFFFF)).astype(np.uint32).byteswap().astype(np.int64)
    kinds = (coded.indices.to_numpy().astype(np.int64) << 32) | ids
    return coded.dictionary.to_pylist(), np.where(there, kinds, -1)


def _side_of(reader: ColumnReader, values: pa.Array) -> Side:
    """Returns the known properties of the values. No required nested value is null: the formats have no null for
    these.
    """
    schema = reader.schema
    worth = schema.type is Type.STRUCT or not schema.optional
    complete = bool(reader.physical.children)
    return Side.of(schema, reader.physical, present=worth and not values.null_count, complete=complete)
