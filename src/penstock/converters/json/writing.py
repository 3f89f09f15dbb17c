"""Writes typed columns as JSON messages with Arrow, in a fraction of the time of a Spark plan.

Each part becomes a column of texts (numbers as Java prints them, escaped strings, bytes in base64), and one call joins
the texts with the names of the fields. The result is the same as that of ``penstock.pipeline.columns.json_text`` in
Spark. If a layout is not supported, or a value cannot be written, the plan writes all messages and reports the errors.

Source: org.apache.kafka.connect.json.JsonConverter (convertToJson).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.converters.json.envelope import schema_text
from penstock.converters.json.values import write_value
from penstock.data import Schema, Struct, Time, Type
from penstock.data.text import MILLIS_PER_DAY, json_string
from penstock.errors import DataException
from penstock.pipeline.columns.java_text import float_texts
from penstock.pipeline.columns.json_text import has_struct_default
from penstock.pipeline.columns.layout import Layout, LayoutKind, TextBound, logical_name
from penstock.pipeline.columns.sizes import bytes_of, has_byte

_WHOLE: Final = frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN))
_FLOATS: Final = frozenset((Type.FLOAT32, Type.FLOAT64))
_QUOTE, _BACKSLASH, _FIRST_PRINTABLE, _FIRST_BEYOND_BMP = 0x22, 0x5C, 0x20, 0xF0
#: Each escaped character takes one scan of the column; with more different characters the plan is as fast.
_MOST_ESCAPES: Final = 64
_BASE64: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_PADDING: Final = ord("=")
_DECIMAL_BYTES: Final = 16


class _Unwritten(Exception):
    """The plan has to write the column."""


def json_column(
    column: pa.Array, schema: Schema, physical: Layout, *, schemas: bool, numeric: bool, defaults: bool
) -> pa.BinaryArray | None:
    """The messages, one for each value, see ``WriteJson``; None = the plan has to write them."""
    if has_struct_default(schema):
        return None
    try:
        texts = _Writer(numeric, defaults).texts(column, schema, physical, 0)
        if schemas:
            texts = _joined(f'{{"schema":{schema_text(schema, numeric=numeric)},"payload":', texts, "}")
        return texts.cast(pa.binary())
    except (_Unwritten, DataException, RecursionError, UnicodeEncodeError, pa.ArrowCapacityError):
        return None


class _Writer:
    def __init__(self, numeric: bool, defaults: bool) -> None:
        self._numeric, self._defaults = numeric, defaults

    def texts(self, column: pa.Array, schema: Schema, physical: Layout, gone: int) -> pa.StringArray:
        """The texts of values: null is ``null``, or the default; ``gone`` of them are null because their parent is."""
        nulls = column.null_count
        has_default = self._defaults and schema.default is not None
        if nulls > gone and not (schema.optional or has_default):
            raise _Unwritten
        texts = self._valid_texts(column, schema, physical)
        if not nulls:
            return texts
        default = schema.default if has_default else None
        return pc.fill_null(
            texts,
            "null" if default is None else write_value(schema, default, numeric=self._numeric, defaults=self._defaults),
        )

    def _valid_texts(self, column: pa.Array, schema: Schema, physical: Layout) -> pa.StringArray:
        """The texts of values; null exactly for null values."""
        match physical.form:
            case LayoutKind.STRUCT:
                return self._objects(column, schema, physical)
            case LayoutKind.ARRAY:
                return self._arrays(column, schema, physical)
            case LayoutKind.DECIMAL if self._numeric:
                return column.cast(pa.string())
            case LayoutKind.DECIMAL:
                return _joined('"', base64_texts(unscaled_bytes(column)), '"')
            case LayoutKind.SCALAR:
                return _scalars(column, schema, physical)
            case _:
                raise _Unwritten

    def _objects(self, column: pa.StructArray, schema: Schema, physical: Layout) -> pa.StringArray:
        parts: list[pa.Array | str] = ["{"]
        for field, child in zip(schema.fields, physical.children, strict=True):
            if isinstance(field.schema.default, Struct):
                raise _Unwritten
            parts[-1] = f"{parts[-1]}{',' if field.index else ''}{json_string(field.name)}:"
            cells = pc.struct_field(column, [field.index])
            is_text = field.schema.type is Type.STRING and child.form is LayoutKind.SCALAR and not cells.null_count
            # The quotes become part of the surrounding text, which saves one scan.
            if is_text:
                parts[-1] += '"'
                parts += [escaped(cells, child.text), '"']
            else:
                parts += [self.texts(cells, field.schema, child, column.null_count), ""]
        if len(parts) == 1:
            texts = pa.array(["{}"] * len(column), pa.string())
        else:
            texts = _joined(*parts[:-1], f"{parts[-1]}}}")
        return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts

    def _arrays(self, column: pa.ListArray, schema: Schema, physical: Layout) -> pa.StringArray:
        assert schema.value_schema is not None, "an array has items"
        # The items of all lists that are not null, concatenated.
        items = self.texts(column.flatten(), schema.value_schema, physical.children[0], 0)
        sizes = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items)
        texts = _joined("[", pc.binary_join(lists, ","), "]")
        return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts


def _scalars(column: pa.Array, schema: Schema, physical: Layout) -> pa.StringArray:
    if schema.type in _WHOLE:
        if logical_name(schema) == Time.LOGICAL_NAME and len(column):
            found = pc.min_max(column)
            low, high = found["min"].as_py(), found["max"].as_py()
            if low is not None and not 0 <= low <= high <= MILLIS_PER_DAY:
                raise _Unwritten
        return column.cast(pa.string())
    if schema.type in _FLOATS:
        return _numbers(column)
    if schema.type is Type.STRING:
        return _joined('"', escaped(column, physical.text), '"')
    if schema.type is Type.BYTES:
        return _joined('"', base64_texts(column), '"')
    raise _Unwritten


def _numbers(column: pa.Array) -> pa.StringArray:
    texts, finite = float_texts(column), pc.is_finite(column)
    if finite.false_count:
        texts = pc.if_else(finite, texts, _joined('"', texts, '"'))
    return texts


def escaped(texts: pa.StringArray, bound: TextBound) -> pa.StringArray:
    """Escapes texts, with a known bound of their characters, for use between the quotes of a JSON string.

    >>> print(*escaped(pa.array(['say "hi"', "a\\\\b"]), TextBound.ANY).to_pylist())
    say \\"hi\\" a\\\\b
    """
    if bound is TextBound.CLEAN:
        return texts
    data = bytes_of(texts)
    if not len(data):
        return texts
    characters = [chr(one) for one in (_BACKSLASH, _QUOTE) if has_byte(data, one)]
    if data.min() < _FIRST_PRINTABLE:
        characters += map(chr, np.unique(data[data < _FIRST_PRINTABLE]).tolist())
    if bound is TextBound.ANY and data.max() >= _FIRST_BEYOND_BMP:
        characters += _beyond_bmp(data)
    if len(characters) > _MOST_ESCAPES:
        raise _Unwritten
    # The backslash comes first, because the other escapes add backslashes.
    for one in characters:
        texts = pc.replace_substring(texts, one, json_string(one)[1:-1])
    return texts


def _beyond_bmp(data: np.ndarray) -> list[str]:
    firsts = np.flatnonzero(data >= _FIRST_BEYOND_BMP)
    found = np.unique(data[firsts[:, None] + np.arange(4)], axis=0)
    return [row.tobytes().decode() for row in found]


def base64_texts(column: pa.BinaryArray) -> pa.StringArray:
    """Bytes in base64; null for null.

    >>> base64_texts(pa.array([b"a", b"", None, b"abcd"])).to_pylist()
    ['YQ==', '', None, 'YWJjZA==']
    """
    if column.null_count:
        there = column.is_valid().to_numpy(zero_copy_only=False)
        return base64_texts(column.drop_null()).take(pa.array(np.cumsum(there) - 1, mask=~there))
    data, sizes = bytes_of(column), pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    groups = (sizes + 2) // 3
    ends = np.cumsum(groups)
    padded = np.zeros((int(ends[-1]) if len(ends) else 0, 3), np.uint8)
    shift = 3 * (ends - groups) - (np.cumsum(sizes) - sizes)
    padded.reshape(-1)[np.arange(len(data)) + np.repeat(shift, sizes)] = data
    bits = padded[:, 0].astype(np.uint32) << 16 | padded[:, 1].astype(np.uint32) << 8 | padded[:, 2]
    made = _BASE64[bits[:, None] >> np.array([18, 12, 6, 0], np.uint32) & 63]
    lasts, left = ends - 1, sizes % 3
    made[lasts[left == 1], 2] = _PADDING
    made[lasts[left > 0], 3] = _PADDING
    bounds = np.concatenate([[0], 4 * ends])
    if bounds[-1] > np.iinfo(np.int32).max:
        raise _Unwritten
    return pa.StringArray.from_buffers(len(column), pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(made))


def unscaled_bytes(column: pa.Decimal128Array) -> pa.BinaryArray:
    """The digits of decimals in the form of Java's ``BigInteger.toByteArray``: two's complement, the highest byte
    first.

    >>> from decimal import Decimal
    >>> unscaled_bytes(pa.array([Decimal("1.28"), Decimal("-0.01"), None], pa.decimal128(38, 2))).to_pylist()
    [b'\\x00\\x80', b'\\xff', None]
    """
    size = len(column)
    start = column.offset * _DECIMAL_BYTES
    raw = np.frombuffer(column.buffers()[1], np.uint8)[start : start + size * _DECIMAL_BYTES]
    digits = raw.reshape(size, _DECIMAL_BYTES)[:, ::-1]
    sign = np.where(digits[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    # Starts at the first byte that differs from the sign, or one byte earlier if the sign bit needs it.
    says = np.argmax(np.column_stack([digits != sign, np.ones(size, bool)]), axis=1)
    first = np.minimum(says, _DECIMAL_BYTES - 1)
    same_sign = (digits[np.arange(size), first] >= 0x80) == (sign[:, 0] == 0xFF)
    first = np.where((says < _DECIMAL_BYTES) & ~same_sign, first - 1, first)
    kept = np.arange(_DECIMAL_BYTES) >= first[:, None]
    bounds = np.concatenate([[0], np.cumsum(_DECIMAL_BYTES - first)]).astype(np.int32)
    made = pa.Array.from_buffers(
        pa.binary(), size, [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(digits[kept]))]
    )
    return pc.if_else(column.is_valid(), made, pa.scalar(None, pa.binary())) if column.null_count else made


def _joined(*parts: pa.Array | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")
