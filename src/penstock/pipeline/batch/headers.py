"""Header converters: run in Python, once for each distinct header, whose result is cached.

They do not run in Spark: a batch has few different headers (names are fixed, values repeat), parsing one
(``SimpleHeaderConverter``) is a small language of its own, and the schema of each header depends on its text. A cached
header costs a dictionary look-up.

If a step works on headers, they are a column of its plan (``penstock.pipeline.columns.header_columns``). These classes
turn that column into bytes, and bytes into that column, again once for each distinct header.

Main types: ``HeaderWriter`` (source path; thread: a task's pipeline thread), ``HeaderReader`` (sink path; any thread).
"""

from __future__ import annotations

import decimal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import HeaderConverter
from penstock.data import ConnectHeaders, Header
from penstock.pipeline.batch.batches import WIRE_HEADERS, Failures, Stage
from penstock.pipeline.batch.segments import class_name
from penstock.pipeline.columns.header_columns import HeaderEntries

MAX_REMEMBERED: Final = 10_000
_MANY_SPELLINGS: Final = (float, decimal.Decimal)


class HeaderWriter:
    """Writes the headers of records as bytes."""

    def __init__(self, converter: HeaderConverter) -> None:
        self._converter = converter
        self._name = class_name(converter)
        self._known: dict[tuple[object, ...], bytes | None] = {}

    def write(
        self,
        found: Sequence[ConnectHeaders | None],
        topics: Sequence[str],
        seqs: Iterable[int],
        rows: int,
        failures: Failures,
    ) -> pa.Array | None:
        """The header column of the batch, or None if there is no header. Notes headers that cannot be converted.

        Args:
            found: The headers of some records.
            topics: The topic of each.
            seqs: The position of each in the batch.
            rows: The number of records in the batch.
            failures: Takes the errors.
        """
        if not any(found):
            return None
        column: list[list[dict[str, object]] | None] = [None] * rows
        for seq, headers, topic in zip(seqs, found, topics, strict=True):
            if not headers or failures.failed_before_headers(seq, source=True):
                continue
            try:
                column[seq] = [{"key": one.key, "value": self._convert(topic, one)} for one in headers]
            except Exception as error:
                failures.raised(seq, Stage.HEADER_CONVERTER, self._name, error)
        return pa.array(column, WIRE_HEADERS)

    def write_column(
        self,
        column: pa.Array | pa.ChunkedArray,
        topics: pa.Array | pa.ChunkedArray,
        seqs: Sequence[int] | np.ndarray,
        failures: Failures,
    ) -> pa.Array:
        """Writes headers from a column of a plan as bytes. Notes headers that cannot be converted.

        Args:
            column: The headers.
            topics: The topic of each row.
            seqs: The position of each row in the batch.
            failures: Takes the errors.
        """
        entries = HeaderEntries(column)
        distinct = list(entries.headers())
        sizes = np.diff(entries.offsets)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        coded = (topics if isinstance(topics, pa.Array) else topics.combine_chunks()).dictionary_encode()
        names = coded.dictionary.to_pylist()
        topic_of = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        pairs, codes = np.unique(entries.codes * max(1, len(names)) + topic_of[rows], return_inverse=True)
        keys: list[str] = []
        data: list[bytes | None] = []
        for code, pair in enumerate(pairs.tolist()):
            header, is_wire = distinct[pair // max(1, len(names))]
            keys.append(header.key)
            try:
                topic = names[pair % len(names)] if names else ""
                # They are distinct already: a cache entry that is never used again would only cost.
                key, value, schema = header
                data.append(
                    cast("bytes | None", value)
                    if is_wire
                    else self._converter.from_connect_header(topic, key, schema, value)
                )
            except Exception as error:
                data.append(None)
                for row in np.unique(rows[codes == code]).tolist():
                    if not failures.failed_before_headers(int(seqs[row]), source=True):
                        failures.raised(int(seqs[row]), Stage.HEADER_CONVERTER, self._name, error)
        made = pa.StructArray.from_arrays(
            [pa.array(keys, pa.string()), pa.array(data, pa.binary())], fields=list(WIRE_HEADERS.value_type)
        )
        offsets = pa.array(entries.offsets, pa.int32(), mask=np.append(sizes == 0, False))
        return pa.ListArray.from_arrays(offsets, made.take(pa.array(codes, pa.int64())), type=WIRE_HEADERS)

    def _convert(self, topic: str, header: Header) -> bytes | None:
        value = header.value
        # Equal values of different classes (1, True, 1.0) print differently, and so do 0.0 and -0.0.
        spelt = repr(value) if isinstance(value, _MANY_SPELLINGS) else value
        key = (topic, header.key, header.schema, type(value), spelt)
        try:
            return self._known[key]
        except (KeyError, TypeError):
            pass
        data = self._converter.from_connect_header(topic, header.key, header.schema, value)
        try:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = data
        except TypeError:
            pass  # the value is a list or dict
        return data


class HeaderReader:
    """Reads the headers of consumed messages.

    Thread: any. Jobs of two batches may call it at once; it calls the converter for one at a time.
    """

    def __init__(self, converter: HeaderConverter) -> None:
        self._lock = threading.Lock()
        self._converter = converter
        self._name = class_name(converter)
        self._known: dict[tuple[str, str, bytes | None], Header] = {}
        self._converter_reads_anything: bool = getattr(converter, "reads_any_bytes", False)

    def read(
        self, topic_of: Callable[[int], str], column: pa.Array | pa.ChunkedArray, failures: Failures
    ) -> list[ConnectHeaders | None]:
        """The headers of each row; notes headers that cannot be converted."""
        found: list[ConnectHeaders | None] = [None] * len(column)
        if column.null_count == len(column):
            return found
        for row, wire in enumerate(column.to_pylist()):
            if not wire:
                continue
            topic = topic_of(row)
            try:
                with self._lock:
                    found[row] = ConnectHeaders(self._convert(topic, one) for one in wire)
            except Exception as error:
                if not failures.failed_before_headers(row, source=False):
                    failures.raised(row, Stage.HEADER_CONVERTER, self._name, error)
        return found

    def look_at(self, topics: pa.ChunkedArray, column: pa.ChunkedArray, failures: Failures) -> None:
        """Notes headers that cannot be converted, if no step here reads their values."""
        if self._converter_reads_anything:
            return
        lists = column.combine_chunks()
        rows = pc.list_parent_indices(lists)
        parts = pc.list_flatten(lists)
        entries = pa.table(
            {"topic": topics.take(rows), "key": parts.field("key"), "value": parts.field("value"), "row": rows}
        )
        distinct = entries.group_by(["topic", "key", "value"], use_threads=False).aggregate([("row", "list")])
        for index, wire in enumerate(distinct.select(["topic", "key", "value"]).to_pylist()):
            try:
                with self._lock:
                    self._convert(wire["topic"], wire)
            except Exception as error:
                for row in distinct.column("row_list")[index].as_py():
                    if not failures.failed_before_headers(row, source=False):
                        failures.raised(row, Stage.HEADER_CONVERTER, self._name, error)

    def _convert(self, topic: str, wire: Mapping[str, Any]) -> Header:
        key = (topic, wire["key"], wire["value"])
        header = self._known.get(key)
        if header is None:
            schema, value = self._converter.to_connect_header(*key)
            header = Header(wire["key"], value, schema)
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            if not isinstance(value, (list, dict)):
                self._known[key] = header
        return header
