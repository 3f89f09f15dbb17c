"""Header converters: run here in Python, once for each distinct header, and remembered.

Why not in Spark: a batch has few different headers (names are fixed, values repeat), parsing one
(``SimpleHeaderConverter``) is a small language of its own, and a header's schema depends on its text, record by
record. Remembered, a header costs a dictionary look-up.

Main types: ``HeaderWriter`` (source path), ``HeaderReader`` (sink path). Thread: a task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.api import ConnectRecord, HeaderConverter
from penstock.data import ConnectHeaders, Header
from penstock.pipeline.batches import WIRE_HEADERS, Stage
from penstock.pipeline.segments import Failures, class_name

MAX_REMEMBERED: Final = 10_000


class HeaderWriter:
    """Writes the headers of records as bytes."""

    def __init__(self, converter: HeaderConverter) -> None:
        self._converter = converter
        self._name = class_name(converter)
        self._known: dict[tuple[object, ...], bytes | None] = {}

    def write(
        self, records: Sequence[ConnectRecord], positions: Sequence[int] | None, rows: int, failures: Failures
    ) -> pa.Array | None:
        """The header column of the batch, or None when there is no header. Notes what cannot be converted."""
        if not any(record.raw_headers for record in records):
            return None
        column: list[list[dict[str, object]] | None] = [None] * rows
        for seq, record in zip(range(len(records)) if positions is None else positions, records, strict=True):
            headers = record.raw_headers
            if not headers or _failed_before(seq, failures):
                continue
            try:
                column[seq] = [{"key": one.key, "value": self._convert(record.topic, one)} for one in headers]
            except Exception as error:
                failures.raised(seq, Stage.HEADER_CONVERTER, self._name, error)
        return pa.array(column, WIRE_HEADERS)

    def _convert(self, topic: str, header: Header) -> bytes | None:
        value = header.value
        # Equal values of different classes (1, True, 1.0) print differently.
        key = (topic, header.key, header.schema, type(value), value)
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


def _failed_before(seq: int, failures: Failures) -> bool:
    """Whether a record failed in a stage that comes before its headers."""
    error = failures.errors.get(seq)
    return error is not None and error.stage == Stage.TRANSFORMATION


class HeaderReader:
    """Reads the headers of consumed messages."""

    def __init__(self, converter: HeaderConverter) -> None:
        self._converter = converter
        self._name = class_name(converter)
        self._known: dict[tuple[str, str, bytes | None], Header] = {}

    def read(
        self, topic_of: Callable[[int], str], column: pa.Array | pa.ChunkedArray, failures: Failures
    ) -> list[ConnectHeaders | None]:
        """The headers of each row; notes what cannot be converted."""
        found: list[ConnectHeaders | None] = [None] * len(column)
        if column.null_count == len(column):
            return found
        for row, wire in enumerate(column.to_pylist()):
            if not wire:
                continue
            topic = topic_of(row)
            try:
                found[row] = ConnectHeaders(self._convert(topic, one) for one in wire)
            except Exception as error:
                if row not in failures.errors:
                    failures.raised(row, Stage.HEADER_CONVERTER, self._name, error)
        return found

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
