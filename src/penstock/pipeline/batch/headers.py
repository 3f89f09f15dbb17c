"""Headers: as a column of a plan, and through their converter, once for each distinct header.

Converters of headers do not run in Spark: a batch has few different headers (names are fixed, values repeat), parsing
one (``SimpleHeaderConverter``) is a small language of its own, and the schema of each header depends on its text. A
cached header costs a dictionary look-up. Headers reach a plan only if a step of it reads them, as
``array<struct<key, schema, value variant>>``. A header's ``schema`` is a number: that of its Connect schema in
``HEADER_SCHEMAS``, ``SCHEMALESS_HEADER``, or ``WIRE_HEADER`` for bytes that are to be sent as they are (a frame task
brought them).
"""

from __future__ import annotations

import decimal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from penstock.api import HeaderConverter
from penstock.api.arrow import one_array
from penstock.data import ConnectHeaders, Header, Schema
from penstock.pipeline.batch.batches import WIRE_HEADERS, Failures, Stage
from penstock.pipeline.batch.segments import class_name
from penstock.pipeline.columns import variant
from penstock.pipeline.columns.layout import HEADERS_ARROW, HEADERS_SPARK, VARIANT_ARROW

if TYPE_CHECKING:
    from pyspark.sql import Column


SCHEMALESS_HEADER: Final = -1
WIRE_HEADER: Final = -2


class HeaderSchemas(Sequence[Schema]):
    """The schemas that headers of this process have, by number. A number is never given to another schema.

    Plans are kept and shared by tasks, so what they say of a schema must hold for every batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._schemas: list[Schema] = []
        self._numbers: dict[Schema, int] = {}

    def number(self, schema: Schema | None) -> int:
        """The number of a schema; given now, if it has none."""
        if schema is None:
            return SCHEMALESS_HEADER
        found = self._numbers.get(schema)
        if found is not None:
            return found
        with self._lock:
            found = self._numbers.get(schema)
            if found is None:
                found = len(self._schemas)
                self._schemas.append(schema)
                self._numbers[schema] = found
            return found

    def schema(self, number: int | None) -> Schema | None:
        """The schema of a number; None = schemaless."""
        return None if number is None or number < 0 else self._schemas[number]

    @overload
    def __getitem__(self, index: int) -> Schema: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Schema]: ...
    def __getitem__(self, index: int | slice) -> Schema | Sequence[Schema]:
        return self._schemas[index]

    def __len__(self) -> int:
        return len(self._schemas)


#: The schemas of headers, for all plans of this process.
HEADER_SCHEMAS: Final = HeaderSchemas()


# ---------------------------------------------------------------------------------------------------------- columns
def header_entry(key: str, value: Column, number: int) -> Column:
    """One header; ``value`` is a VARIANT, NULL for null."""
    # toArrow takes no NULL where a VARIANT is expected.
    present = F.coalesce(value, F.parse_json(F.lit("null")))
    return F.struct(
        F.lit(key).cast("string").alias("key"), F.lit(number).cast("int").alias("schema"), present.alias("value")
    )


def with_headers(headers: Column, added: Sequence[Column]) -> Column:
    """The headers with others at the end."""
    return F.concat(some_headers(headers), F.array(*added).cast(HEADERS_SPARK))


def some_headers(headers: Column) -> Column:
    """The headers, an empty array for none."""
    return F.coalesce(headers, F.array().cast(HEADERS_SPARK))


def without_headers(headers: Column, keys: Sequence[str]) -> Column:
    """The headers without those of the given keys."""
    return F.filter(headers, lambda one: ~one.getField("key").isin(*keys))


def has_header(headers: Column, key: str | None) -> Column:
    """True if there is a header of a key; never null."""
    if key is None:
        return F.lit(False)
    return F.coalesce(F.exists(headers, lambda one: one.getField("key") == F.lit(key)), F.lit(False))


def of_wire(headers: Column) -> Column:
    """Headers as a frame task's Spark column has them (key and bytes)."""
    return F.transform(
        headers,
        lambda one: F.struct(
            one.getField("key").alias("key"),
            F.lit(WIRE_HEADER).alias("schema"),
            F.coalesce(one.getField("value").cast("variant"), F.parse_json(F.lit("null"))).alias("value"),
        ),
    ).cast(HEADERS_SPARK)


# ------------------------------------------------------------------------------------------------------------ Arrow
def headers_column(headers: Sequence[ConnectHeaders | None], on_bad: Callable[[int, Exception], None]) -> pa.ListArray:
    """The column of some records' headers; equal headers are written once.

    Args:
        on_bad: Called with the position of headers that cannot be written (these are left out), and the reason.
    """
    codes: dict[tuple[object, ...], int] = {}
    distinct: list[tuple[str, int, bytes, bytes]] = []
    entries: list[int] = []
    offsets = [0]
    for position, one in enumerate(headers):
        if one:
            try:
                entries += [_code_of(header, codes, distinct) for header in one]
            except Exception as error:  # reported as this record's error
                del entries[offsets[-1] :]
                on_bad(position, error)
        offsets.append(len(entries))
    return _list_of(offsets, _entries(distinct).take(pa.array(entries, pa.int64())))


def _code_of(
    header: Header, codes: dict[tuple[object, ...], int], distinct: list[tuple[str, int, bytes, bytes]]
) -> int:
    key, value, schema = header
    try:
        # Equal values of different classes (1, True, 1.0) are not the same header; nor are 0.0 and -0.0, 1.0 and 1.00.
        known = (key, schema, type(value), repr(value) if isinstance(value, _MANY_SPELLINGS) else value)
        code = codes.get(known)
    except TypeError:
        return _written(header, distinct)
    if code is None:
        code = codes[known] = _written(header, distinct)
    return code


def _written(header: Header, distinct: list[tuple[str, int, bytes, bytes]]) -> int:
    header.key.encode()
    data, metadata = variant.encode_typed(header.value, header.schema)
    distinct.append((header.key, HEADER_SCHEMAS.number(header.schema), data, metadata))
    return len(distinct) - 1


def _entries(distinct: Sequence[tuple[str, int, bytes, bytes]]) -> pa.StructArray:
    keys, numbers, data, metadata = zip(*distinct, strict=True) if distinct else ((), (), (), ())
    values = pa.StructArray.from_arrays(
        [pa.array(data, pa.binary()), pa.array(metadata, pa.binary())], fields=list(VARIANT_ARROW)
    )
    members = [pa.array(keys, pa.string()), pa.array(numbers, pa.int32()), values]
    return pa.StructArray.from_arrays(members, fields=list(HEADERS_ARROW.value_type))


def _list_of(offsets: Sequence[int] | np.ndarray, entries: pa.StructArray) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries, type=HEADERS_ARROW)


def wire_to_column(wire: pa.Array | pa.ChunkedArray) -> pa.ListArray:
    """Headers as a frame task's Arrow column has them (key and bytes)."""
    lists = one_array(wire)
    entries = lists.flatten()
    data = [variant.encode(one) for one in entries.field("value").to_pylist()]
    keys = entries.field("key").to_pylist()
    made = [(key, WIRE_HEADER, *pair) for key, pair in zip(keys, data, strict=True)]
    return _list_of(_offsets(lists), _entries(made))


class HeaderEntries:
    """A header column taken apart: its distinct headers, and which of them each record has.

    Attributes:
        offsets: Where each record's headers start, and the end of the last one's.
        codes: For each header, in order, the number of the distinct one it equals.
    """

    def __init__(self, column: pa.Array | pa.ChunkedArray) -> None:
        lists = one_array(column)
        self.offsets = _offsets(lists)
        self._entries = lists.flatten()
        self.codes, self._firsts = _distinct(
            [
                self._entries.field("key"),
                self._entries.field("schema"),
                _variant_part(self._entries.field("value"), "value"),
                _variant_part(self._entries.field("value"), "metadata"),
            ]
        )

    def __len__(self) -> int:
        """Counts the distinct headers."""
        return len(self._firsts)

    def headers(self) -> Iterator[tuple[Header, bool]]:
        """The distinct headers, in the order of their numbers, and whether each is wire bytes."""
        chosen = self._entries.take(pa.array(self._firsts))
        keys, numbers = chosen.field("key").to_pylist(), chosen.field("schema").to_pylist()
        data = _variant_part(chosen.field("value"), "value").to_pylist()
        metadata = _variant_part(chosen.field("value"), "metadata").to_pylist()
        for key, number, one, names in zip(keys, numbers, data, metadata, strict=True):
            schema = HEADER_SCHEMAS.schema(number)
            value = variant.decode_typed(one, names, schema) if one else None
            yield Header(key, value, schema), number == WIRE_HEADER


def headers_of_column(column: pa.Array | pa.ChunkedArray) -> list[ConnectHeaders | None]:
    """The headers of each record of a column; None for none."""
    entries = HeaderEntries(column)
    distinct = [header for header, _ in entries.headers()]
    found = [distinct[code] for code in entries.codes.tolist()]
    bounds = entries.offsets.tolist()
    return [ConnectHeaders(found[start:end]) if end > start else None for start, end in pairwise(bounds)]


def _variant_part(values: pa.StructArray, name: str) -> pa.Array:
    return values.field(values.type.get_field_index(name))


def _offsets(lists: pa.ListArray) -> np.ndarray:
    """Offsets into ``flatten()``, which leaves out what null lists hold."""
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(lists) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _distinct(columns: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """For each row the number of its distinct combination, and the first row of each combination."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        if len(encoded.dictionary) > 1:
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
            codes = np.unique(codes, return_inverse=True)[1]
    _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, firsts


MAX_REMEMBERED: Final = 10_000
_MANY_SPELLINGS: Final = (float, decimal.Decimal)


class HeaderWriter:
    """Writes the headers of records as bytes. Thread: a task's pipeline thread."""

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
        """The header column of a batch of ``rows``, or None if there is no header. Notes headers that cannot be
        converted.

        ``found`` and ``topics`` are those of some records, ``seqs`` their positions in the batch.
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
        """Writes headers from a column of a plan as bytes; ``seqs`` has the position of each row in the batch. Notes
        failures.
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
