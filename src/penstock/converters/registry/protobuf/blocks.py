"""Reads Protobuf messages of one type as Arrow columns, field by field over all messages.

Columns are possible if all fields are scalars or enums of proto3: no repeated fields, messages or oneofs. The protobuf
library reads single messages that have another type than the file's first one, are damaged, or are unusual (a value of
another type, repeated fields, or fields not in the order of their numbers).

Source: Protocol Buffers, "Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from penstock.converters.registry.protobuf.files import file_syntax, real_oneofs, real_symbol, says_optional
from penstock.converters.registry.protobuf.names import ProtobufOptions
from penstock.converters.registry.wire import Cursors, Source, texts_of, unzigzag
from penstock.data import Schema, Type
from penstock.pipeline.columns.layout import arrow_type, default_physical

_VARINT, _EIGHT_BYTES, _SPAN, _FOUR_BYTES = 0, 1, 2, 5
_KIND_BITS: Final = 3
_MAX_NUMBER: Final = (1 << 29) - 1
#: The most unknown fields that are skipped in a message.
_FREE_STEPS: Final = 8


def _low(found: np.ndarray) -> np.ndarray:
    """The lower 32 bits, the only ones that count in a 32-bit number."""
    low: np.ndarray = found.astype(np.uint32)
    return low


Numbers = Callable[[np.ndarray], np.ndarray]
#: The encoding and interpretation of the bits of a number, by the type of the field.
_NUMBERS: Final[Mapping[int, tuple[int, Numbers]]] = {
    FieldDescriptor.TYPE_INT32: (_VARINT, lambda found: _low(found).view(np.int32)),
    FieldDescriptor.TYPE_ENUM: (_VARINT, lambda found: _low(found).view(np.int32)),
    FieldDescriptor.TYPE_SINT32: (_VARINT, lambda found: unzigzag(_low(found).astype(np.uint64)).astype(np.int32)),
    FieldDescriptor.TYPE_UINT32: (_VARINT, lambda found: _low(found).astype(np.int64)),
    FieldDescriptor.TYPE_INT64: (_VARINT, lambda found: found.view(np.int64)),
    FieldDescriptor.TYPE_UINT64: (_VARINT, lambda found: found.view(np.int64)),
    FieldDescriptor.TYPE_SINT64: (_VARINT, unzigzag),
    FieldDescriptor.TYPE_BOOL: (_VARINT, lambda found: found != 0),
    FieldDescriptor.TYPE_FIXED32: (_FOUR_BYTES, lambda found: found.view(np.uint32).astype(np.int64)),
    FieldDescriptor.TYPE_SFIXED32: (_FOUR_BYTES, lambda found: found.view(np.int32)),
    FieldDescriptor.TYPE_FLOAT: (_FOUR_BYTES, lambda found: found),
    FieldDescriptor.TYPE_FIXED64: (_EIGHT_BYTES, lambda found: found.view(np.int64)),
    FieldDescriptor.TYPE_SFIXED64: (_EIGHT_BYTES, lambda found: found.view(np.int64)),
    FieldDescriptor.TYPE_DOUBLE: (_EIGHT_BYTES, lambda found: found),
}
_BITS: Final[Mapping[int, type]] = {_VARINT: np.uint64, _FOUR_BYTES: np.float32, _EIGHT_BYTES: np.float64}
_KINDS: Final = (*_BITS, _SPAN)
_TEXTS: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
#: The ranges of integers that are narrower in Connect than in Protobuf.
_NARROW: Final[Mapping[Type, int]] = {Type.INT8: 1 << 7, Type.INT16: 1 << 15}


@dataclass(frozen=True)
class _Member:
    """A field of a message type.

    Attributes:
        tag: The tag before a value: the field's number and its wire type.
        tells: True if the field has presence: it is null if not set.
        symbols: The names of an enum's numbers, if its values are texts.
    """

    tag: int
    kind: int
    schema: Schema
    tells: bool
    symbols: Mapping[int, str] | None


class _Values:
    """The values of a field read so far; the latest one of each message."""

    def __init__(self, member: _Member, rows: int) -> None:
        self.member = member
        self.present = np.zeros(rows, dtype=bool)
        self._is_text = member.kind in _TEXTS
        bits = np.int64 if self._is_text else _BITS[member.tag & 7]
        self._found: np.ndarray = np.zeros(rows, dtype=bits)
        self._lengths = np.zeros(rows if self._is_text else 0, dtype=np.int64)

    def read(self, cursors: Cursors, rows: np.ndarray) -> None:
        """Reads the next value of some messages."""
        self.present[rows] = True
        if self._is_text:
            self._found[rows], self._lengths[rows] = cursors.spans(_lengths_at(cursors))
        else:
            self._found[rows] = _bits_at(cursors, self.member.tag & 7)

    def column(self, source: Source, cursors: Cursors, kind: pa.DataType) -> pa.Array:
        """The values of all messages; marks messages whose values have to be read one by one."""
        member = self.member
        missing = ~self.present if member.tells else None
        if self._is_text:
            found = source.slices(np.where(cursors.bad, 0, self._found), np.where(cursors.bad, 0, self._lengths))
            if member.kind == FieldDescriptor.TYPE_STRING:
                found = texts_of(found, cursors)
            return found if missing is None else pc.if_else(pa.array(missing), pa.scalar(None, kind), found)
        numbers = _NUMBERS[member.kind][1](self._found)
        if member.symbols is not None:
            return _symbols(numbers, member.symbols, missing, cursors)
        most = _NARROW.get(member.schema.type)
        if most is not None:
            cursors.mark((numbers < -most) | (numbers >= most))
            numbers = np.where(cursors.bad, 0, numbers)
        return pa.array(numbers, kind, mask=missing)


class ProtobufBlocks:
    """Reads messages of the first message type of a file."""

    def __init__(self, members: Sequence[_Member], schema: Schema) -> None:
        self._members = members
        self._numbers = [member.tag >> _KIND_BITS for member in members]
        #: For each tag up to the highest one, whether a field has it; the last item is for all other tags.
        self._known = np.zeros(max(member.tag for member in members) + 2, dtype=bool)
        self._known[[member.tag for member in members]] = True
        self.schema = schema
        self.physical = default_physical(schema)

    def read(self, source: Source, at: np.ndarray, ends: np.ndarray) -> tuple[pa.Array, np.ndarray] | None:
        """The values of some messages; see ``ColumnReader``."""
        cursors = Cursors(source, at.copy(), ends.copy())
        # The short form of the index path of the first message type.
        cursors.mark(cursors.octets() != 0)
        values = {member.tag: _Values(member, len(at)) for member in self._members}
        last = np.zeros(len(at), dtype=np.int64)
        for _ in range(len(self._members) + _FREE_STEPS):
            rows = np.flatnonzero(cursors.at < cursors.ends)
            if not len(rows):
                break
            self._step(cursors, rows, values, last)
        cursors.mark(cursors.at < cursors.ends)
        kind = arrow_type(self.schema)
        pairs = zip(values.values(), kind, strict=True)
        columns = [one.column(source, cursors, field.type) for one, field in pairs]
        return pa.StructArray.from_arrays(columns, fields=list(kind)), cursors.bad

    def _step(self, cursors: Cursors, rows: np.ndarray, values: Mapping[int, _Values], last: np.ndarray) -> None:
        """Reads the next field: the one with the lowest next number, because messages have their fields in this
        order.
        """
        part = cursors.some(rows)
        tags = part.numbers().view(np.int64)
        numbers = tags >> _KIND_BITS
        wrong = part.bad | (numbers <= last[rows]) | (numbers > _MAX_NUMBER)
        if wrong.any():
            everywhere = np.zeros(len(cursors), dtype=bool)
            everywhere[rows[wrong]] = True
            cursors.mark(everywhere)
            good = np.flatnonzero(~wrong)
            part, rows, tags, numbers = part.some(good), rows[good], tags[good], numbers[good]
        known = self._known[np.minimum(tags, len(self._known) - 1)]
        others = np.flatnonzero(~known)
        if len(others):
            last[rows[others]] = numbers[others]
            self._pass(cursors, part.some(others), rows[others], tags[others])
        if not known.any():
            return
        lowest = tags[known].min() if len(others) else tags.min()
        mine = np.flatnonzero(tags == lowest)
        if len(mine) < len(rows):
            part, rows = part.some(mine), rows[mine]
        last[rows] = int(lowest) >> _KIND_BITS
        values[int(lowest)].read(part, rows)
        cursors.put(rows, part)

    def _pass(self, cursors: Cursors, part: Cursors, rows: np.ndarray, tags: np.ndarray) -> None:
        """Skips fields that the type does not have."""
        kinds = tags & 7
        part.mark(np.isin(tags >> _KIND_BITS, self._numbers) | ~np.isin(kinds, _KINDS))
        for kind in np.unique(kinds[~part.bad]).tolist():
            mine = np.flatnonzero((kinds == kind) & ~part.bad)
            one = part.some(mine)
            if kind == _SPAN:
                one.spans(_lengths_at(one))
            else:
                _bits_at(one, kind)
            part.put(mine, one)
        cursors.put(rows, part)


def protobuf_blocks(message: Descriptor, schema: Schema, options: ProtobufOptions) -> ProtobufBlocks | None:
    """Returns a reader of messages of a type as columns, or None if columns are not possible."""
    if schema.type is not Type.STRUCT or not message.fields or real_oneofs(message):
        return None
    if file_syntax(message.file) != "proto3":
        return None
    members: list[_Member] = []
    for one in schema.fields:
        field = message.fields_by_name.get(one.name)
        if field is None or field.is_repeated or field.message_type is not None:
            return None
        written = _SPAN if field.type in _TEXTS else _NUMBERS[field.type][0]
        symbols = None
        if field.enum_type is not None and one.schema.type is Type.STRING:
            symbols = {number: real_symbol(value.name) for number, value in field.enum_type.values_by_number.items()}
        tells = says_optional(field, proto2=False) and not options.struct_for_nulls
        members.append(_Member(field.number << _KIND_BITS | written, field.type, one.schema, tells, symbols))
    return ProtobufBlocks(members, schema)


def _lengths_at(cursors: Cursors) -> np.ndarray:
    """The next number of each message, as a length; negative if it is too large."""
    found: np.ndarray = cursors.numbers().view(np.int64)
    return found


def _bits_at(cursors: Cursors, kind: int) -> np.ndarray:
    if kind == _VARINT:
        return cursors.numbers()
    return cursors.floats() if kind == _FOUR_BYTES else cursors.doubles()


def _symbols(
    numbers: np.ndarray, symbols: Mapping[int, str], missing: np.ndarray | None, cursors: Cursors
) -> pa.StringArray:
    different, places = np.unique(numbers, return_inverse=True)
    names = [symbols.get(number) for number in different.tolist()]
    unknown = np.array([name is None for name in names])[places]
    if missing is not None:
        unknown &= ~missing
    cursors.mark(unknown)
    return pa.array(names, pa.string()).take(pa.array(places, mask=missing))
